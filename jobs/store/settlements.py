"""How does an attempt end? The verbs of its worker, each under the lease token (decision 5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from jobs.domain.canonical_json import compact_json
from jobs.domain.entities import Response
from jobs.domain.errors import ErrorKind
from jobs.domain.escalation import ChainState
from jobs.domain.generation_codes import GenerationCode
from jobs.domain.outcome import Cooldown
from jobs.domain.states import Answer
from jobs.domain.turn_left import EndedChain, TurnLeft
from jobs.store.answers import Settled
from jobs.store.scripts import Scripts
from jobs.store.turn_codec import ledger_lines, turn_text

MESSAGE_MAX: Final = 1000
"""Characters of an error message that are kept."""

REASON_MAX: Final = 120


def kept(text: str, most: int) -> str:
    """What is stored of a message; one odd character must not keep an attempt from ending."""
    return text[:most].encode("utf-8", "replace").decode()


def ended_chains(told: Sequence[str]) -> tuple[EndedChain, ...]:
    """The chains that a script has ended: request, state, detail of each."""
    parts = zip(told[::3], told[1::3], told[2::3], strict=True)
    return tuple(EndedChain(request, ChainState(state), detail) for request, state, detail in parts)


def settled(reply: Sequence[Any]) -> Settled:
    """The answer of a script that ended an attempt or a job."""
    answer, ticket_wanted, *more = reply
    if not more:
        return Settled(Answer(answer), bool(ticket_wanted))
    return Settled(Answer(answer), bool(ticket_wanted), bool(more[0]), ended_chains(more[1]))


def _usage(response: Response) -> dict[str, Any]:
    return {
        "prompt_tokens": response.usage.prompt_tokens,
        "completion_tokens": response.usage.completion_tokens,
        "cost_usd_micros": response.cost_usd_micros,
        "provider": response.provider,
        "model": response.model,
        "provider_request_id": response.provider_request_id,
    }


def _cooldown(cooldown: Cooldown | None) -> dict[str, str | int]:
    if cooldown is None:
        return {"cooldown_target": "", "cooldown_ms": 0}
    return {"cooldown_target": cooldown.target, "cooldown_ms": cooldown.for_ms}


class Settlements:
    """What ends an attempt, and what books a call whose attempt was taken away. One round trip
    each; all raise StoreUnavailableError. `ticket_cap` bounds the tickets that wait at a time."""

    def __init__(self, scripts: Scripts, *, ticket_cap: int) -> None:
        self._scripts = scripts
        self._ticket_cap = ticket_cap

    def succeed(
        self, job_id: str, token: str, response: Response, turn: TurnLeft | None = None
    ) -> Settled:
        """End a running attempt with its response and all that belongs to it (A19); of a chat
        turn with the usage of all its calls."""
        usage = _usage(response)
        fields = {
            **usage,
            "finish_reason": response.finish_reason,
            "truth_class": response.truth_class,
            "state_class": response.state_class,
        }
        return self._succeed(
            job_id,
            token,
            turn=turn,
            response_id=response.id,
            text=response.text,
            source_refs=compact_json(response.source_refs),
            ledger="" if turn else compact_json(usage),
            response=[
                part
                for name, value in fields.items()
                if value is not None
                for part in (name, value)
            ],
        )

    def complete(self, job_id: str, token: str, turn: TurnLeft | None = None) -> Settled:
        """End a step whose record holds what came of it, or a chat turn that has a question."""
        return self._succeed(job_id, token, turn=turn)

    def succeed_generation(self, job_id: str, token: str, envelope: str, bill: str) -> Settled:
        """End a generation with its envelope (B14); `bill` is `bill_text`."""
        return self._succeed(job_id, token, envelope=envelope, bill=bill)

    def _succeed(
        self, job_id: str, token: str, *, turn: TurnLeft | None = None, **values: Any
    ) -> Settled:
        named = ("response_id", "text", "source_refs", "ledger", "envelope", "bill")
        reply = self._scripts.run(
            "succeed",
            **{**dict.fromkeys(named, ""), "response": [], **values},
            id=job_id,
            token=token,
            turn=turn_text(job_id, turn),
            ticket_cap=self._ticket_cap,
        )
        return settled(reply)

    def book(self, job_id: str, attempt: int, response: Response) -> Settled:
        """Book what a call used whose answer comes too late to be anybody's (X16)."""
        ledger = compact_json(_usage(response))
        return self._book(job_id, response.id, attempt=attempt, ledger=ledger)

    def book_turn(self, job_id: str, attempt: int, token: str, turn: TurnLeft) -> Settled:
        """Book the calls of a chat turn that was taken away from its worker (X16)."""
        return self._book(job_id, token, attempt=attempt, ledger=ledger_lines(turn))

    def book_generation(self, job_id: str, team_id: str, token: str, bill: str) -> Settled:
        """A call of a generation that was taken away from its worker is over: its slots are
        free, and what it used is booked (B18, X16)."""
        return self._book(job_id, token, token=token, team_id=team_id, bill=bill)

    def _book(self, job_id: str, once_by: str, **values: Any) -> Settled:
        named = ("attempt", "ledger", "bill", "token", "team_id")
        reply = self._scripts.run(
            "book",
            **{**dict.fromkeys(named, ""), **values},
            id=job_id,
            response_id=once_by,
            ticket_cap=self._ticket_cap,
        )
        return settled(reply)

    def retry(
        self,
        job_id: str,
        token: str,
        kind: ErrorKind,
        message: str,
        after_ms: int,
        cooldown: Cooldown | None = None,
    ) -> Settled:
        """Put a failed attempt back for another one, `after_ms` from now (A10); others wait for
        the end of `cooldown` (X15)."""
        reply = self._scripts.run(
            "retry",
            id=job_id,
            token=token,
            kind=kind,
            message=kept(message, MESSAGE_MAX),
            after_ms=after_ms,
            **_cooldown(cooldown),
            ticket_cap=self._ticket_cap,
        )
        return settled(reply)

    def snooze(
        self,
        job_id: str,
        token: str,
        reason: str,
        after_ms: int,
        bill: str = "",
        turn: TurnLeft | None = None,
    ) -> Settled:
        """Put an attempt back, `after_ms` from now, without counting it (A2)."""
        reply = self._scripts.run(
            "snooze",
            id=job_id,
            token=token,
            reason=kept(reason, REASON_MAX),
            after_ms=after_ms,
            bill=bill,
            turn=turn_text(job_id, turn),
            ticket_cap=self._ticket_cap,
        )
        return settled(reply)

    def fail(
        self,
        job_id: str,
        token: str,
        kind: ErrorKind,
        message: str,
        *,
        code: GenerationCode | None = None,
        bill: str = "",
        cooldown: Cooldown | None = None,
        turn: TurnLeft | None = None,
    ) -> Settled:
        """End a running attempt and its job with an error; a generation has its code and its
        bill, a chat turn may go on. Others wait for the end of `cooldown` (X15)."""
        reply = self._scripts.run(
            "fail",
            id=job_id,
            token=token,
            kind=kind,
            message=kept(message, MESSAGE_MAX),
            code=code,
            bill=bill,
            **_cooldown(cooldown),
            turn=turn_text(job_id, turn),
            ticket_cap=self._ticket_cap,
        )
        return settled(reply)
