"""Which states a job has, and which verb may move it from where to where?

The table `MOVES` is the state machine (A3). The scripts of the store enforce it, the tests
enumerate it, and ARCHITECTURE.md's diagram is generated from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class State(StrEnum):
    """The six states of a job (A3). `queued` covers ready, scheduled and blocked."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SUPERSEDED = "superseded"


LIVE: Final = frozenset({State.QUEUED, State.RUNNING})
TERMINAL: Final = frozenset(State) - LIVE


class Verb(StrEnum):
    """The one word that a move has in Lua, Python, events, metrics, logs and tests."""

    SUBMIT = "submit"
    CLAIM = "claim"
    SUCCEED = "succeed"
    RETRY = "retry"
    SNOOZE = "snooze"
    FAIL = "fail"
    EXPIRE = "expire"
    CANCEL = "cancel"
    SUPERSEDE = "supersede"
    RECLAIM = "reclaim"


@dataclass(frozen=True, slots=True)
class Move:
    """One allowed move: `verb` takes a job from `source` to `target`.

    `needs_token` says whether the lease token of the running attempt must match;
    `counts_attempt` whether the move adds one to `attempt`.
    """

    source: State
    target: State
    verb: Verb
    needs_token: bool = False
    counts_attempt: bool = False


MOVES: Final = (
    Move(State.QUEUED, State.RUNNING, Verb.CLAIM),
    Move(State.QUEUED, State.RUNNING, Verb.EXPIRE),
    Move(State.RUNNING, State.FAILED, Verb.EXPIRE),
    Move(State.QUEUED, State.CANCELLED, Verb.CANCEL),
    Move(State.RUNNING, State.SUCCEEDED, Verb.SUCCEED, needs_token=True),
    Move(State.RUNNING, State.QUEUED, Verb.RETRY, needs_token=True, counts_attempt=True),
    Move(State.RUNNING, State.QUEUED, Verb.SNOOZE, needs_token=True),
    Move(State.RUNNING, State.FAILED, Verb.FAIL, needs_token=True),
    Move(State.RUNNING, State.QUEUED, Verb.RECLAIM, counts_attempt=True),
    Move(State.RUNNING, State.FAILED, Verb.RECLAIM),
    Move(State.RUNNING, State.CANCELLED, Verb.CANCEL),
    Move(State.SUCCEEDED, State.SUPERSEDED, Verb.SUPERSEDE),
    Move(State.FAILED, State.SUPERSEDED, Verb.SUPERSEDE),
    Move(State.CANCELLED, State.SUPERSEDED, Verb.SUPERSEDE),
)


def accepts(state: State, verb: Verb) -> bool:
    """Whether `verb` may be applied to a job that is in `state` (A3).

    `expire` starts at queued only: its second move happens inside the same script.
    """
    if verb is Verb.EXPIRE:
        return state is State.QUEUED
    return any(move.source is state and move.verb is verb for move in MOVES)


class Answer(StrEnum):
    """What a script says of the world it met. Only OK and DUPLICATE mean that it holds now."""

    OK = "OK"
    MISSING = "MISSING"
    WRONG_STATE = "WRONG_STATE"
    LEASE_LOST = "LEASE_LOST"
    FINAL = "FINAL"
    DUPLICATE = "DUPLICATE"
