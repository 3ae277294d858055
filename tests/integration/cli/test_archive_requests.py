"""Is the request of a chat turn written before its jobs take it along? (A24)"""

from __future__ import annotations

from pathlib import Path

import pytest
from redis import Redis

from jobs.domain.escalation import entry_of
from jobs.domain.turn_left import TurnLeft
from jobs.domain.turn_plan import Awaiting, Question
from jobs.runtime import Runtime
from jobs.store import keys
from tests.integration.cli.conftest import Invoke, Shell, Submit
from tests.support.archive_lines import lines_of, texts_stored, texts_written
from tests.support.chains import new_turn
from tests.support.ended_chains import CLIENT, USER, end_chain
from tests.support.factories import claim_one, response_for


@pytest.mark.req("A24", "C13", "C20")
def test_the_request_of_a_chat_turn_stands_in_the_file_with_all_its_attempts(
    shell: Shell, runtime: Runtime, redis: Redis, tmp_path: Path
) -> None:
    url = "https://example.com/hook"
    request = end_chain(runtime.turns, runtime.queue, url)
    asked = new_turn()
    runtime.turns.submit(asked)
    question = Question(Awaiting.APPROVAL, "Shall I | may I?")
    attempt = claim_one(runtime.queue)
    runtime.queue.complete(asked.id, attempt.token, turn=TurnLeft(question=question))
    view = runtime.turns.read(request)
    before = texts_stored(redis)

    file = tmp_path / "archive.jsonl"
    done = shell("archive-old-jobs", "--before", "0s", "--file", str(file))
    assert done.returncode == 0, done.stderr

    written = lines_of(file)
    lost = before - texts_stored(redis) - set.union(*map(texts_written, written))
    assert lost == set()
    assert list(redis.scan_iter(match=keys.REQUEST("*"))) == []
    (waits,) = (line["request"] for line in written if line["job_id"] == asked.id)
    assert (waits["status"], waits["note"]) == ("awaiting_approval", question.text)
    chain = [line["request"] for line in written if line["job_id"] != asked.id]
    assert len(chain) == 2
    assert {told["id"] for told in chain} == {request}
    assert view is not None
    for told in chain:
        assert (told["state"], told["note"]) == ("budget_exhausted", view.detail)
        assert (told["client"], told["user"], told["target"]) == (CLIENT, USER, url)
        assert (told["created_at_ms"], told["ended_at_ms"]) == (
            view.created_at_ms,
            view.ended_at_ms,
        )
        assert tuple(entry_of(entry) for entry in told["attempts"]) == view.entries


@pytest.mark.req("A24")
def test_the_line_of_a_job_that_is_no_turn_names_no_request(
    invoke: Invoke, submit: Submit, runtime: Runtime, tmp_path: Path
) -> None:
    job_id = submit()
    attempt = claim_one(runtime.queue)
    runtime.queue.succeed(job_id, attempt.token, response_for(attempt))
    file = tmp_path / "archive.jsonl"
    invoke("archive-old-jobs", "--before", "0s", "--file", str(file))
    assert lines_of(file)[0]["request"] is None
