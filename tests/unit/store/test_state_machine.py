"""Do the scripts agree with a model under any sequence of verbs? (A3, A14)"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from redis import Redis

from tests.support.store_machine import StoreMachine

EXAMPLES = {"fakeredis": 5, "server": 25}


@pytest.mark.req("A2", "A3", "A4", "A5", "A14")
def test_any_sequence_of_verbs_leaves_the_store_as_the_model_says(
    redis: Redis, request: pytest.FixtureRequest
) -> None:
    backend = next(name for name in EXAMPLES if name in request.node.name)
    run_state_machine_as_test(
        lambda: StoreMachine(redis),
        settings=settings(
            max_examples=EXAMPLES[backend],
            stateful_step_count=40,
            deadline=None,
            # Shrinking a failure takes minutes: add Phase.shrink when you have one to look at.
            phases=[Phase.reuse, Phase.generate],
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
