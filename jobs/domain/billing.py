"""What did the calls of a generation use, and what is told of it? (B17)

Pure. Credits are micro-dollars (`_usd_micros`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from jobs.domain.entities import Usage

AI_PRODUCT: Final = "workflows"
FEATURE: Final = "llm_action"


@dataclass(frozen=True, slots=True)
class BilledCall:
    """One call to a provider: pass 1 or 2 of a generation, also where its answer was of no use.

    `cost_usd_micros` is None where nobody can know what it cost (the connection broke, the
    call was cancelled on the wire, the provider named no usage); then `held_usd_micros` is what
    stays visible as unsettled. `error` is the word of what went wrong, empty where nothing did.
    """

    pass_number: int
    model: str
    provider: str
    provider_request_id: str | None
    usage: Usage
    cost_usd_micros: int | None
    held_usd_micros: int
    latency_ms: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class Bill:
    """All calls that one attempt made, in order."""

    calls: tuple[BilledCall, ...] = ()

    @property
    def spent_usd_micros(self) -> int:
        """What is known to have been spent."""
        return sum(call.cost_usd_micros or 0 for call in self.calls)

    @property
    def unsettled_usd_micros(self) -> int:
        """What may have been spent by calls of unknown usage."""
        return sum(call.held_usd_micros for call in self.calls if call.cost_usd_micros is None)


@dataclass(frozen=True, slots=True)
class Payer:
    """On whose account a generation runs, and which run of which workflow it is part of."""

    team_id: str
    org_id: str
    generation_id: str
    invocation_id: str
    hog_flow_id: str | None


def usage_event(call: BilledCall, payer: Payer, event_id: str) -> Mapping[str, Any]:
    """What a reporter gets to see of a call: its properties as B17 lists them. One trace spans
    the run: its id is the invocation's. `event_id` tells a receiver that it has this one
    already. Neither prompt nor answer is in it."""
    cost = call.cost_usd_micros
    return {
        "event": "$ai_generation",
        "uuid": event_id,
        "properties": {
            "ai_product": AI_PRODUCT,
            "feature": FEATURE,
            "$ai_billable": True,
            "team_id": payer.team_id,
            "$ai_trace_id": payer.invocation_id,
            "$ai_provider": call.provider,
            "$ai_model": call.model,
            "$ai_input_tokens": call.usage.prompt_tokens,
            "$ai_output_tokens": call.usage.completion_tokens,
            "$ai_total_cost_usd": None if cost is None else cost / 1_000_000,
            "$ai_latency": call.latency_ms / 1000,
            "$ai_is_error": bool(call.error),
            "$ai_error": call.error or None,
            "organization_id": payer.org_id,
            "generation_id": payer.generation_id,
            "hog_flow_id": payer.hog_flow_id,
            "pass": call.pass_number,
            "provider_request_id": call.provider_request_id,
        },
    }
