"""What was tried, why did it fail, and what would unblock it? (C13)

Pure, and put together from recorded facts alone: the same history makes the same report.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from jobs.domain.escalation import AttemptEntry, ChainState
from jobs.domain.generation_prompts import collapsed
from jobs.domain.turn_plan import one_line, summary

NO_PLAN: Final = "no plan was made"
CANCELLED: Final = "It was cancelled; the request can be sent again. Failures until then"
NOTHING_TO_ADDRESS: Final = "No failure is on record; the request can be sent again as it is."

MARKDOWN_MESSAGE_MAX_CHARS: Final = 2_000
"""So much of the message is in the Markdown; the report has all of it."""

# What may begin or end a code span, link, emphasis, heading, table or formula. A colon or a dot
# alone begins nothing, but `https:` and `www.` make links in many a renderer.
_MARKUP: Final = re.compile(r"[\\`*_{}\[\]#|~$^]|:(?=\S)|(?<=\bwww)\.", re.IGNORECASE)
_ENTITIES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}

# Overrides of the direction in which text is shown: they would reorder what stands around them.
_DIRECTIONS: Final = re.compile("[\u202a-\u202e\u2066-\u2069]")


def report(
    state: ChainState,
    detail: str,
    request_id: str,
    original_message: str,
    entries: Sequence[AttemptEntry],
    created_at_ms: int,
    ended_at_ms: int,
) -> dict[str, Any]:
    """The give-up report of a chain that ended in any state but `achieved`, with the source's
    fields in its order. `entries` are all failed attempts; the two instants are the turn's
    beginning and the chain's end."""
    return {
        "state": state.value,
        "detail": detail,
        "request_id": request_id,
        "original_message": original_message,
        "attempts": [_attempt(entry) for entry in entries],
        "what_would_unblock": what_would_unblock(
            state, [entry.failure.reason for entry in entries]
        ),
        "wall_time_seconds": round(max(0, ended_at_ms - created_at_ms) / 1000, 3),
    }


def report_markdown(account: Mapping[str, Any]) -> str:
    """The report `account` for people. Each value is one line of text in it, whatever it holds:
    nothing in it is read as Markdown or HTML."""
    message = one_line(account["original_message"], MARKDOWN_MESSAGE_MAX_CHARS)
    is_cancelled = account["state"] == ChainState.ABANDONED
    became = "was cancelled" if is_cancelled else "could not be completed"
    lines = [
        f"# Request {_plain(account['request_id'])} {became}",
        "",
        f"- How it ended: {_plain(account['state'])}",
        f"- Why: {_plain(account['detail'])}",
        f"- What was asked: {_plain(message)}",
        f"- Time taken: {account['wall_time_seconds']:.3f} s",
        "",
        "## What was tried",
        "",
        *(line for attempt in account["attempts"] for line in _attempt_lines(attempt)),
        "## How to go on" if is_cancelled else "## What would unblock it",
        "",
        f"Advice: {_plain(account['what_would_unblock'])}",
    ]
    return "\n".join(lines) + "\n"


def _attempt(entry: AttemptEntry) -> dict[str, Any]:
    return {
        "attempt": entry.number,
        "kind": "sync" if entry.number == 1 else "async",
        "plan_summary": NO_PLAN if entry.plan is None else summary(entry.plan),
        "failure_reason": entry.failure.reason,
    }


def what_would_unblock(state: ChainState, reasons: Sequence[str]) -> str:
    """What a human would have to change, from the distinct `reasons` of all failures. A chain that
    was cancelled gave nothing up: what failed before may have gone well the next time."""
    if not reasons:
        return NOTHING_TO_ADDRESS
    lead = (
        CANCELLED
        if state is ChainState.ABANDONED
        else "Address the underlying failure(s) and resubmit"
    )
    return f"{lead}: {'; '.join(dict.fromkeys(reasons))}"


def _attempt_lines(attempt: Mapping[str, Any]) -> list[str]:
    return [
        f"### Attempt {attempt['attempt']} ({attempt['kind']})",
        "",
        f"- Plan: {_plain(attempt['plan_summary'])}",
        f"- Failure: {_plain(attempt['failure_reason'])}",
        "",
    ]


def _plain(text: str) -> str:
    """`text` in one line in which every sign of Markdown and HTML stands for itself."""
    line = _DIRECTIONS.sub("", collapsed(text))
    escaped = _MARKUP.sub(lambda found: "\\" + found[0], line)
    return "".join(_ENTITIES.get(char, char) for char in escaped)
