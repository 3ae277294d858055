"""Are the scripts loaded with the right names, and is nothing in them that may not be?"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import NoScriptError

from jobs.domain.states import Verb
from jobs.store import keys
from jobs.store.queue import Queue
from jobs.store.scripts import PRELUDE, VERBS, Scripts
from tests.support.factories import claim, new_job

LUA = Path(__file__).resolve().parents[3] / "jobs" / "store" / "lua"
FILES = sorted(LUA.glob("**/*.lua"))
SHARED = "".join((LUA / "prelude" / f"{name}.lua").read_text() for name in PRELUDE)


def test_there_is_one_file_a_verb_and_those_of_the_prelude() -> None:
    assert {path.stem for path in LUA.glob("*.lua")} == {*VERBS}
    assert {path.stem for path in LUA.glob("prelude/*.lua")} == {*PRELUDE}
    assert set(Verb) <= set(VERBS)


@pytest.mark.case("RED-15")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_no_script_walks_all_keys(path: Path) -> None:
    commands = set(re.findall(r"call\('([A-Z]+)'", path.read_text()))
    assert commands & {"KEYS", "SCAN", "SSCAN", "HSCAN", "ZSCAN", "FLUSHALL", "RANDOMKEY"} == set()


@pytest.mark.case("RED-15")
def test_no_python_of_the_store_walks_all_keys() -> None:
    """But for the proofs' own database, which is emptied when they end."""
    paths = set(LUA.parent.glob("*.py")) - {LUA.parent / "scratch.py"}
    text = "".join(path.read_text() for path in paths)
    assert re.findall(r"(?:redis|pipe)\.(?:keys|scan|scan_iter)\(", text) == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scripts_spell_no_key_and_name_only_keys_that_exist(path: Path) -> None:
    used = set(re.findall(r"\bK\.([a-z_]+)", path.read_text()))
    assert used <= {key.name for key in keys.ALL}
    assert keys.PREFIX not in path.read_text()


def test_each_function_of_the_prelude_uses_only_those_before_it() -> None:
    blocks = re.split(r"(?m)^(?=local (?:function )?[A-Za-z_]+\b)", SHARED)[1:]
    names = [re.match(r"local (?:function )?(\w+)", block)[1] for block in blocks]  # type: ignore[index]
    for n, block in enumerate(blocks):
        words = set(re.findall(r"\w+", re.sub(r"--[^\n]*|'[^']*'", "", block)))
        assert words & set(names[n + 1 :]) == set(), names[n]


@pytest.mark.parametrize(
    "arguments", [{}, {"id": "j"}, {"held": [], "more": 1}, {"held": [], "window_ms": 1}]
)
def test_wrong_names_of_arguments_are_refused_before_redis_is_asked(
    redis: Redis, arguments: dict[str, object]
) -> None:
    redis.close()
    with pytest.raises(TypeError, match="check"):
        Scripts(redis, queue_name="q").run("check", **arguments)


def test_no_argument_of_a_script_is_text_none(redis: Redis, queue: Queue) -> None:
    job = new_job(parent_id=None, correlation_id=None, causation_id=None)
    queue.submit(job)

    assert all("None" not in value for value in redis.hgetall(keys.JOB(job.id)).values())
    assert redis.hgetall(keys.PROMPT(job.prompt_id)).keys() == {
        "org_id",
        "created_by",
        "created_at",
        "job_id",
    }


def test_scripts_that_redis_lost_are_sent_again(redis: Redis, queue: Queue) -> None:
    queue.submit(new_job())
    redis.script_flush()

    queue.submit(new_job())
    redis.script_flush()
    assert len(claim(queue, 5).attempts) == 2


def test_each_script_is_sent_whole_once_and_by_its_digest_after_that(
    redis: Redis, request: pytest.FixtureRequest
) -> None:
    redis.script_flush()
    scripts = Scripts(redis, queue_name="genqueue")

    if "server" in request.node.name:
        redis.config_resetstat()
    for _ in range(3):
        assert scripts.run("check", held=[]) == []
    if "server" in request.node.name:
        stats = redis.info("commandstats")
        assert (stats["cmdstat_eval"]["calls"], stats["cmdstat_evalsha"]["calls"]) == (1, 3)
    with pytest.raises(NoScriptError):
        redis.evalsha("0" * 40, 0)


def test_queue_name_and_prefix_of_rq_reach_the_scripts(redis: Redis) -> None:
    queue = Queue(Scripts(redis, rq_prefix="{gq}:rq", queue_name="other"), ticket_cap=1)
    assert queue.submit(new_job()).ticket_wanted
    redis.lpush("{gq}:rq:queue:other", "t1")
    assert not queue.promote().ticket_wanted
    redis.set("{gq}:rq:suspended", 1)
    assert claim(queue).refused == "suspended"
    redis.delete("{gq}:rq:queue:other", "{gq}:rq:suspended")


@pytest.mark.parametrize("prefix", ["", "a'b", "a\nb", "\\", "x'} return 1 --"])
def test_a_prefix_that_would_become_code_is_refused(redis: Redis, prefix: str) -> None:
    with pytest.raises(ValueError, match="no name"):
        Scripts(redis, rq_prefix=prefix, queue_name="genqueue")
