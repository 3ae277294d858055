"""What does a log line carry, and what never?"""

from __future__ import annotations

import json
import logging
import os
import pty
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from jobs import logs
from jobs.domain.errors import StoreUnavailableError
from jobs.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
CANARY = "canary-prompt-4711"
PROVIDER_KEY = "c0ffee00c0ffee00"

pytestmark = pytest.mark.req("X10")


def record(message: str, *args: object, error: BaseException | None = None) -> logging.LogRecord:
    exc_info = (type(error), error, error.__traceback__) if error else None
    return logging.LogRecord("jobs.test", logging.WARNING, __file__, 1, message, args, exc_info)


def line_of(one: logging.LogRecord, **known: str) -> dict[str, Any]:
    text = logs.JsonFormatter(logs.Scrubber(known)).format(one)
    assert "\n" not in text
    assert text.isascii()
    line: dict[str, Any] = json.loads(text)
    return line


def raised(error: Exception, cause: Exception | None = None) -> Exception:
    def fail() -> None:
        raise error from cause

    with pytest.raises(type(error)) as caught:
        fail()
    return caught.value


def run(code: str, stderr: int = subprocess.PIPE, **environment: str) -> tuple[int, str]:
    """Run `code` after `logs.configure`; answers the exit status and what it logged."""
    settings = "import logging, os\nfrom jobs import logs\nfrom jobs.settings import "
    settings += "from_environment\nlogs.configure(from_environment())\n"
    done = subprocess.run(
        [sys.executable, "-c", settings + code],
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        timeout=60,
        check=False,
    )
    return done.returncode, (done.stderr or b"").decode()


def test_a_line_says_when_how_grave_who_what_and_what_was_running() -> None:
    with logs.bound(request_id="r-1", job_id="j-1", attempt=2):
        line = line_of(record("took %d", 7))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("time"))
    assert line == {
        "level": "warning",
        "logger": "jobs.test",
        "message": "took 7",
        "request_id": "r-1",
        "job_id": "j-1",
        "attempt": 2,
    }


def test_fields_of_a_line_win_over_what_was_bound_and_never_over_its_own() -> None:
    one = record("said")
    one.fields = {"attempt": 3, "message": "other", "path": ROOT}
    with logs.bound(attempt=2):
        line = line_of(one)
    assert (line["attempt"], line["message"], line["path"]) == (3, "said", str(ROOT))


def test_what_is_bound_ends_with_its_block_and_is_not_seen_by_other_threads() -> None:
    seen = []
    with logs.bound(job_id="outer"):
        with logs.bound(job_id="inner", attempt=1):
            thread = threading.Thread(target=lambda: seen.append(dict(logs.bound_fields())))
            thread.start()
            thread.join()
        assert logs.bound_fields() == {"job_id": "outer"}
        logs.clear()
        assert logs.bound_fields() == {}
    assert seen == [{}]


@pytest.mark.parametrize("text", ["two\nlines", "line\u2028separator", "lone \ud800", "\x00", "é"])
def test_any_text_makes_one_line_that_reads_back_the_same(text: str) -> None:
    assert line_of(record("%s", text))["message"] == text


@pytest.mark.parametrize(
    "secret",
    [
        "gq_7k2m9x0q4h1z_0123456789abcdef",
        "sk-proj-0123456789abcdef",
        "Authorization: Bearer abcdef.ghi-jkl_m/n+o=",
        "authorization: basic dXNlcjpwYXNz",
        "redis://user:hunter2hunter2@cache:6379",
        PROVIDER_KEY,
    ],
)
def test_whatever_looks_like_a_key_or_is_one_of_ours_is_cut_out(secret: str) -> None:
    one = record("got %s here", secret)
    one.fields = {"header": secret, "deep": [{"value": secret}]}
    text = json.dumps(line_of(one, OTHER_API_KEY=PROVIDER_KEY))
    bare = re.sub(r"(?i)^(authorization: )?(bearer |basic |redis://)?|@.*$", "", secret)
    assert bare
    assert bare not in text
    assert text.count(logs.REDACTED) == 3
    assert "got " in text


@pytest.mark.parametrize(
    "text", ["task-list-of-today", "https://example.org/a", "risk-averse-plan"]
)
def test_what_is_no_key_stays(text: str) -> None:
    assert line_of(record(text))["message"] == text


def test_an_exception_is_told_by_type_and_stack_and_a_foreign_one_without_its_text() -> None:
    cause = raised(KeyError(CANARY))
    error = raised(ValueError(f"can't read {CANARY}"), cause)
    line = line_of(record("failed", error=error))
    assert [one["type"] for one in line["exception"]] == ["ValueError", "KeyError"]
    assert line["exception"][0]["stack"][-1].endswith(" fail")
    assert "test_logs.py:" in line["exception"][0]["stack"][-1]
    assert CANARY not in json.dumps(line)


def test_errors_of_ours_and_of_the_system_keep_their_text() -> None:
    error = raised(StoreUnavailableError("Redis is away"), raised(ConnectionRefusedError("port 1")))
    described = line_of(record("failed", error=error))["exception"]
    assert [one["text"] for one in described] == ["Redis is away", "port 1"]


def test_a_person_reads_the_same_as_text() -> None:
    error = raised(ValueError(CANARY))
    with logs.bound(job_id="j-1"):
        text = logs.TextFormatter(logs.Scrubber()).format(record("went wrong", error=error))
    first, *rest = text.splitlines()
    assert first.endswith("WARNING jobs.test: went wrong job_id=j-1")
    assert rest[0] == "  ValueError: (text withheld)"
    assert CANARY not in text


def test_nothing_of_the_prompt_is_logged_by_libraries_uncaught_errors_or_warnings() -> None:
    code = f"""
import threading, warnings, openai
for name in ("openai._base_client", "httpcore2.http11", "urllib3.connectionpool"):
    logging.getLogger(name).debug("Request options: {CANARY}")
logging.getLogger("openai").warning("kept")
logging.getLogger("jobs.x").debug("seen")
logging.getLogger("jobs.x").info("%d", "{CANARY}")
warnings.warn("input_value='{CANARY}'")
def fail(): raise ValueError("{CANARY}")
thread = threading.Thread(target=fail, name="t-1")
thread.start(); thread.join()
fail()
"""
    status, text = run(code, GENQUEUE_LOG_LEVEL="debug", OPENAI_LOG="debug")
    assert status == 1
    assert CANARY not in text
    lines = [json.loads(line) for line in text.splitlines()]
    said = [line["message"] for line in lines]
    assert said[:2] == ["kept", "seen"]
    assert said[2].startswith("UserWarning at ")
    assert said[3:] == ["uncaught in t-1", "uncaught ValueError"]
    assert {line["level"] for line in lines[3:]} == {"critical"}


def test_the_level_holds_for_every_logger() -> None:
    code = "logging.getLogger('a').info('no'); logging.getLogger('b.c').warning('yes')"
    _, text = run(code, GENQUEUE_LOG_LEVEL="warning")
    assert [json.loads(line)["message"] for line in text.splitlines()] == ["yes"]


@pytest.mark.parametrize(
    ("log_format", "is_json"), [("auto", False), ("json", True), ("text", False)]
)
def test_on_a_terminal_text_is_the_default(log_format: str, is_json: bool) -> None:
    reader, writer = pty.openpty()
    code = "logging.getLogger('a').warning('said')"
    run(code, stderr=writer, GENQUEUE_LOG_FORMAT=log_format)
    os.close(writer)
    text = os.read(reader, 10_000).decode()
    os.close(reader)
    assert "said" in text
    assert text.startswith("{") == is_json


def test_a_file_or_a_pipe_gets_json_by_default_and_text_where_asked() -> None:
    code = "logging.getLogger('a').warning('said')"
    assert json.loads(run(code)[1])["message"] == "said"
    assert run(code, GENQUEUE_LOG_FORMAT="text")[1].endswith("a: said\n")


def test_a_second_configuration_replaces_the_first_and_leaves_foreign_handlers() -> None:
    code = """
logging.getLogger().addHandler(logging.NullHandler())
logs.configure(from_environment())
logs.configure_if_nobody_did(from_environment())
logging.getLogger("a").warning("once")
assert len(logging.getLogger().handlers) == 2
"""
    status, text = run(code)
    assert status == 0, text
    assert len(text.splitlines()) == 1


@pytest.mark.req("C16", "X10")
@pytest.mark.parametrize("key", ["a-client-key-of-no-known-form", "fmc_0123456789abcdef"])
def test_a_client_key_of_the_formation_is_cut_out(key: str) -> None:
    scrub = logs.scrubber_of(Settings(formation_keys=(key,)))

    assert key not in scrub(f"signed with {key}.")
    assert "whsec_c2VjcmV0" not in logs.Scrubber()("the secret whsec_c2VjcmV0LW9m")
