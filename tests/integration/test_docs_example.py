"""Does the worked example of docs/workflow-steps.md run as the page says? (B35)"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from jobs.domain.step import BOUNCES_MAX, EXECUTIONS_MAX, POLL_MARKS_S, RETRY_PAUSES_S
from jobs.runtime import Runtime
from jobs.store.teams import Teams
from service.preview import PREVIEW_WITHIN_S
from service.schemas.steps import STEP_STATES, VARIABLES_MAX_BYTES
from tests.support.clock import start_scheduler
from tests.support.processes import fleet
from tests.support.stored_generations import open_to
from tests.support.waiting import wait_until
from tests.support.web import gunicorn

PAGE = Path(__file__).parents[2] / "docs" / "workflow-steps.md"
TEXT = PAGE.read_text("utf-8")
ADDRESS = "/api/projects/1/workflow_steps/"


def example(name: str) -> Any:
    """The JSON of the page between its marks."""
    found = re.findall(
        rf"<!-- example: {name} -->\n```json\n(.*?)```\n<!-- end -->", TEXT, re.DOTALL
    )
    assert len(found) == 1, f"the page has {len(found)} examples named {name}"
    return json.loads(found[0])


def reads_as(shown: Any, real: Any) -> bool:
    """Whether `real` is what the page shows, where `…` stands for any text."""
    if isinstance(shown, str) and isinstance(real, str):
        pattern = ".+".join(re.escape(part) for part in shown.split("…"))
        return re.fullmatch(pattern, real) is not None
    if isinstance(shown, dict) and isinstance(real, dict):
        same = list(shown) == list(real)
        return same and all(reads_as(shown[name], real[name]) for name in shown)
    if isinstance(shown, list) and isinstance(real, list):
        return len(shown) == len(real) and all(map(reads_as, shown, real))
    return type(shown) is type(real) and bool(shown == real)


@pytest.mark.req("B35", "B24", "B25", "B26")
def test_the_body_of_the_page_ends_as_the_page_says_by_processes_of_its_own(
    redis_url: str, redis: Redis, runtime: Runtime, tmp_path: Path
) -> None:
    open_to(redis, "acme")
    Teams(redis).create("1", "acme")
    token = f"Bearer {runtime.credentials.create_for_team('1', 'acme')[1]}"
    settings = {"extraction_model": "mock-1"}
    api = gunicorn(tmp_path, workers=1, REDIS_URL=redis_url, GENQUEUE_EXTRACTION_MODEL="mock-1")
    with api as web, fleet(redis_url, tmp_path) as ships:
        start_scheduler(ships, redis, **settings)
        ships.thread_worker(redis, **settings)
        posted = web.ask(ADDRESS, example("body"), authorization=token)
        assert posted.status == 202, posted.body
        place = posted.headers["Location"]

        def looked_at() -> Any:
            return web.ask(place, authorization=token).json

        wait_until(lambda: looked_at()["run"] is not None, 30, "the step has ended")
        ended = looked_at()
    assert reads_as(example("end"), ended), json.dumps(ended, indent=2)


@pytest.mark.req("B35")
def test_the_page_states_what_a_newcomer_can_t_see() -> None:
    for fact in (
        "A field must name a variable that exists",
        "A field needs a row of `output_variable`, or the run is paid and thrown away",
        "`text` reaches the raw generation",
    ):
        assert f"**{fact}.**" in TEXT


@pytest.mark.req("B27", "B28", "B30", "B35")
def test_the_figures_and_states_of_the_page_are_those_of_the_code() -> None:
    words = " ".join(TEXT.split())
    first, second, last = (mark_s // 60 for mark_s in POLL_MARKS_S)
    assert f"looks by itself {first}, {second} and {last} minutes after" in words
    assert f"whose {EXECUTIONS_MAX}th visit" in words
    assert f"`Retry-After` says, {BOUNCES_MAX} times" in words
    assert "again after {}, {} and {} s".format(*RETRY_PAUSES_S) in words
    assert f"for {PREVIEW_WITHIN_S:.0f} seconds" in words
    assert f"{VARIABLES_MAX_BYTES:,} bytes at most" in words
    states = TEXT.split("## States")[1].split("\n\n")[1]
    told = re.findall(r"^\| `(\w+)` \| ", states.split("---|\n")[1], re.MULTILINE)
    assert told == [str(state) for state in STEP_STATES]


@pytest.mark.parametrize(
    ("shown", "real", "expected"),
    [
        ("a …", "a b", True),
        ("a …", "b", False),
        ({"a": "…"}, {"a": ""}, False),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ([None], [None], True),
        (1, True, False),
    ],
)
def test_what_the_page_shows_is_compared_in_full(shown: Any, real: Any, expected: bool) -> None:
    assert reads_as(shown, real) is expected
