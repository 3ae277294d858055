"""Does a part of the scheduler go on after whatever its step raises?"""

from __future__ import annotations

import logging
import threading

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from jobs.domain.errors import StoreUnavailableError
from scheduler.patience import keep_on

ERRORS = (
    RedisConnectionError(),
    StoreUnavailableError("x"),
    ResponseError("WRONGTYPE"),
    KeyError(),
)


@pytest.mark.case("SCH-05")
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_step_that_raises_is_followed_by_the_next(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    stop = threading.Event()
    calls = []

    def step() -> None:
        calls.append(1)
        if len(calls) == 1:
            raise error
        stop.set()

    with caplog.at_level(logging.WARNING, "scheduler.patience"):
        keep_on(step, stop, "part")

    assert len(calls) == 2
    assert len(caplog.records) == 1


def test_a_stop_ends_the_pause_after_an_error() -> None:
    stop = threading.Event()

    def step() -> None:
        stop.set()
        raise RedisConnectionError

    keep_on(step, stop, "part")
