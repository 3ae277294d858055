"""How are figures added up over processes, and who may read them?"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jobs import metrics
from jobs.worker.observation import metrics_page

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "scrape-token-0123456789"

pytestmark = pytest.mark.req("X10")


def sample(page: str, name: str) -> float:
    """The value of the one sample that begins with `name`."""
    (line,) = [one for one in page.splitlines() if one.startswith(name)]
    return float(line.rpartition(" ")[2])


def in_a_process(code: str, folder: Path) -> int:
    """Run `code` in a process that shares its figures in `folder`; answers its process id."""
    start = "import os\nfrom jobs import metrics\nprint(os.getpid())\n"
    done = subprocess.run(
        [sys.executable, "-c", start + code],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PROMETHEUS_MULTIPROC_DIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return int(done.stdout)


def ask(token: str, path: str = "/metrics", **environ: str) -> tuple[str, dict[str, str], str]:
    heads: list[Any] = []
    answer = metrics_page(token)(
        {"PATH_INFO": path, **environ},
        lambda status, headers, *_rest: heads.append((status, dict(headers))),  # type: ignore[arg-type,return-value]
    )
    status, headers = heads[0]
    return status, headers, b"".join(answer).decode()


def test_counts_of_all_processes_add_up_also_of_one_that_was_killed(tmp_path: Path) -> None:
    in_a_process("metrics.ATTEMPTS.labels('prompt', 'succeeded', '').inc(2)", tmp_path)
    count = (
        "metrics.ATTEMPTS.labels('prompt', 'succeeded', '').inc(3)\nmetrics.STREAM_CLIENTS.inc(4)"
    )
    killed = in_a_process(count + "\nos.kill(os.getpid(), 9)", tmp_path)
    (tmp_path / "counter_99999.db").touch()  # killed before its first byte

    before = metrics.page("", shared_folder=tmp_path)[0].decode()
    in_a_process(f"metrics.forget_process({killed})", tmp_path)
    after = metrics.page("", shared_folder=tmp_path)[0].decode()

    assert sample(before, "genqueue_attempts_total{") == 5
    assert sample(after, "genqueue_attempts_total{") == 5
    assert sample(before, "genqueue_stream_clients ") == 4
    assert "genqueue_stream_clients 4" not in after


@pytest.mark.parametrize(
    ("accept", "content_type", "end"),
    [
        ("", "text/plain; version=0.0.4", "\n"),
        ("application/openmetrics-text; version=1.0.0", "application/openmetrics-text", "# EOF\n"),
    ],
)
def test_the_page_speaks_both_formats_of_prometheus(
    accept: str, content_type: str, end: str
) -> None:
    body, told = metrics.page(accept)
    assert told.startswith(content_type)
    assert body.decode().endswith(end)
    assert b"genqueue_stream_clients_dropped_total " in body


def test_a_workers_page_is_open_where_no_token_is_set() -> None:
    status, headers, body = ask("")
    assert status == "200 OK"
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert "genqueue_attempts_running 0" in body
    assert ask("", "/other")[0].startswith("404")


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (f"Bearer {TOKEN}", "200"),
        (f"Bearer {TOKEN}x", "401"),
        (f"Basic {TOKEN}", "401"),
        (TOKEN, "401"),
        ("Bearer \xff", "401"),
        ("", "401"),
    ],
)
def test_a_workers_page_asks_for_the_token_that_is_set(header: str, status: str) -> None:
    found, headers, _ = ask(TOKEN, HTTP_AUTHORIZATION=header)
    assert found.startswith(status)
    assert ("WWW-Authenticate" in headers) == (status == "401")
