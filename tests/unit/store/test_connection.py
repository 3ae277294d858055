"""What do the failures of Redis mean to a caller?"""

from __future__ import annotations

import pytest
from redis import exceptions

from jobs.domain.errors import StoreUnavailableError
from jobs.store.connection import connect, store_errors

AWAY = [
    exceptions.ConnectionError("refused"),
    exceptions.TimeoutError("slow"),
    exceptions.BusyLoadingError("Redis is loading the dataset in memory"),
    exceptions.MaxConnectionsError("Too many connections"),
    exceptions.AuthenticationError("WRONGPASS"),
    exceptions.ReadOnlyError("You can't write against a read only replica."),
    exceptions.OutOfMemoryError(
        "command not allowed when used memory > 'maxmemory'.", status_code="OOM"
    ),
    exceptions.MasterDownError("Link with MASTER is down", status_code="MASTERDOWN"),
    exceptions.ResponseError("OOM command not allowed when used memory > 'maxmemory'."),
    exceptions.ResponseError(
        "Error running script (call to f_1): @user_script:12: @user_script: 12: "
        "-OOM command not allowed when used memory > 'maxmemory'."
    ),
    exceptions.ResponseError(
        "Error running script (call to f_1): -READONLY You can't write against a ..."
    ),
    exceptions.ResponseError(
        "MISCONF Redis is configured to save RDB snapshots, but it's unable to ..."
    ),
    exceptions.ResponseError("NOREPLICAS Not enough good replicas to write."),
    exceptions.ResponseError("BUSY Redis is busy running a script."),
]
BUGS = [
    exceptions.ResponseError("WRONGTYPE Operation against a key holding the wrong kind of value"),
    exceptions.ResponseError("unknown command 'OOM'"),
    exceptions.ResponseError("Error running script: @user_script:3: attempt to index a nil value"),
]


@pytest.mark.case("RED-01")
@pytest.mark.parametrize("error", AWAY, ids=lambda error: f"{type(error).__name__}-{error}"[:50])
def test_a_redis_that_takes_no_writes_is_an_outage_that_passes(
    error: exceptions.RedisError,
) -> None:
    with pytest.raises(StoreUnavailableError) as caught, store_errors():
        raise error

    assert caught.value.retry_after_s >= 1
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("error", BUGS, ids=lambda error: str(error)[:30])
def test_a_bug_stays_a_bug(error: exceptions.RedisError) -> None:
    with pytest.raises(exceptions.ResponseError) as caught, store_errors():
        raise error
    assert caught.value is error


def test_a_malformed_address_is_refused_before_anything_is_sent() -> None:
    for url in ("http://h", "redis://h:port", ""):
        with pytest.raises(ValueError, match=r".+"):
            connect(url)
