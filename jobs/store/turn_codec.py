"""How is what an attempt of a chat turn leaves handed to a script, and read again?"""

from __future__ import annotations

import json
import uuid
from typing import Any, Final

from jobs.domain.canonical_json import compact_json
from jobs.domain.escalation import AttemptEntry, entry_json, entry_of
from jobs.domain.job import Kind
from jobs.domain.turn_left import TurnLeft

ATTEMPT_PRIORITY: Final = 50
NOTE_MAX: Final = 4_000
"""Characters of a detail or a question that are kept."""

_ATTEMPTS: Final = uuid.UUID("0d1f3c9e-6f0a-5b52-9d57-3a1c6c1a0b55")


def next_job_id(job_id: str) -> str:
    """The id of the job that follows the attempt of `job_id`: a write that is sent twice makes
    one."""
    return str(uuid.uuid5(_ATTEMPTS, job_id))


def turn_text(job_id: str, turn: TurnLeft | None) -> str:
    """The ARGV `turn` of the scripts that end an attempt (prelude/turns.lua); "" for none."""
    if turn is None:
        return ""
    fields: dict[str, Any] = {
        "calls": [compact_json(call) for call in turn.calls],
        "cooldowns": [[pause.target, pause.for_ms] for pause in turn.cooldowns],
    }
    if turn.entry is not None:
        fields["entry"] = compact_json(entry_json(turn.entry))
    if turn.question is not None:
        fields["awaiting"] = turn.question.awaiting
        fields["note"] = turn.question.text[:NOTE_MAX]
    if turn.end is not None:
        fields["state"] = turn.end.state
        fields["note"] = turn.end.detail[:NOTE_MAX]
    if turn.next is not None:
        fields |= {
            "id": next_job_id(job_id),
            "after_ms": turn.next.after_ms,
            "priority": ATTEMPT_PRIORITY,
            "schema_version": str(Kind.ESCALATION.schema_version),
        }
    if turn.policy is not None:
        deadline_s = turn.policy.deadline_s
        fields |= {
            "max_attempts": turn.policy.max_attempts,
            "idle_ms": round(turn.policy.idle_timeout_s * 1000),
            "deadline_ms": "" if deadline_s is None else str(round(deadline_s * 1000)),
        }
    return compact_json(fields)


def ledger_lines(turn: TurnLeft) -> str:
    """The calls of a turn whose outcome is nobody's any more, a line each."""
    return "\n".join(compact_json(call) for call in turn.calls)


def entries_of(rows: list[str]) -> tuple[AttemptEntry, ...]:
    """The failed attempts of a request, in their order."""
    return tuple(entry_of(json.loads(row)) for row in rows)
