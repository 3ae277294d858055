"""Does this system keep its promises? Proofs that an operator runs against it. (A26)"""

from __future__ import annotations

import logging
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import click
from redis.exceptions import RedisError
from rich.text import Text

from jobs.domain.errors import StoreUnavailableError
from jobs.runtime import Runtime, build
from service.cli.output import as_json_option, console, print_json, print_table

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from service.cli.proofs.facts import Facts
    from service.cli.proofs.grounds import Ground

EXIT_BROKEN: Final = 1
WITHIN_S: Final = 30.0
ALL: Final = "all"

PROMISES: Final = {
    "async-execution": "a worker that is up runs a stored prompt and writes its end whole (live)",
    "priority-queue": "jobs are claimed by priority, first in first out inside one (scratch)",
    "retry": "a failure that may pass is tried again after its wait, others are not (scratch)",
    "heartbeat": "a dead worker's jobs are taken back, a live one's are not (scratch)",
    "concurrent-safety": "no job is claimed twice at once or finished twice (scratch)",
}


class Verdict(StrEnum):
    """How a proof ended; only `proven` is good."""

    PROVEN = "proven"
    BROKEN = "broken"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of a proof: what held, and the `reason` of a verdict that is not proven."""

    proof: str
    verdict: Verdict
    reason: str
    held: tuple[str, ...]
    took_s: float


@dataclass(frozen=True, slots=True)
class _Proof:
    """One proof, bound to the ground that it needs."""

    run: Callable[[Ground, Facts, float], None]
    ground: Callable[[], AbstractContextManager[Ground]]


@click.command()
@click.argument("name", type=click.Choice([*PROMISES, ALL]), default=ALL)
@click.option(
    "--within",
    "within_s",
    type=click.FloatRange(1, 600),
    default=WITHIN_S,
    show_default=True,
    metavar="SECONDS",
    help="How long one step of a proof may take.",
)
@click.option("--model", help="A model to prove with; it costs what it costs.  [default: a mock]")
@click.option("--scratch-url", help="An empty Redis for the proofs that claim.")
@as_json_option
def proof(
    name: str, within_s: float, model: str | None, scratch_url: str | None, as_json: bool
) -> None:
    """Prove on this system what it promises; status 0 means that all of it held.

    async-execution submits one prompt to the live store, under an organisation of its own, and
    lets the workers that are up run it. The other proofs claim, and a claim takes the most
    urgent job of everybody: they run the same scripts in a logical database of the same Redis
    that was found empty, with workers of this process and the mock provider. Whatever a proof
    writes is removed at its end, also by Ctrl-C. What can't be proven here is skipped, says
    why, and counts as not proven.

    \b
    Example: genqueue proof all
    Example: genqueue proof async-execution --within 60
    """
    # Without a handler the workers of this process would set up logs of their own.
    logging.getLogger().addHandler(logging.NullHandler())
    signal.signal(signal.SIGTERM, _leave)
    runtime = build()
    if model is not None and model not in runtime.models.models:
        raise click.UsageError(f"--model {model} is not in the models file.")
    proofs = _proofs(runtime, model, scratch_url)
    findings: list[Finding] = []
    with console(stderr=True).status("") as status:
        for each in PROMISES if name == ALL else [name]:
            status.update(f"{each}: {PROMISES[each]}")
            findings.append(_run(each, proofs[each], within_s))
    _report(findings, as_json)
    if any(finding.verdict is not Verdict.PROVEN for finding in findings):
        sys.exit(EXIT_BROKEN)


def _leave(number: int, _frame: FrameType | None) -> None:
    """End as by Ctrl-C, by way of every `finally`."""
    sys.exit(128 + number)


def _proofs(runtime: Runtime, model: str | None, scratch_url: str | None) -> dict[str, _Proof]:
    # Imported late: no other command needs what a worker needs.
    from service.cli.proofs.grounds import live_ground, scratch_ground  # noqa: PLC0415  # see above
    from service.cli.proofs.leases import concurrent_safety, heartbeat  # noqa: PLC0415  # see above
    from service.cli.proofs.live import async_execution  # noqa: PLC0415  # see above
    from service.cli.proofs.order import priority_queue, retry  # noqa: PLC0415  # see above

    def live() -> AbstractContextManager[Ground]:
        return live_ground(runtime, _target(runtime, model))

    scratch = partial(_scratch, runtime, scratch_url, scratch_ground)
    return {
        "async-execution": _Proof(async_execution, live),
        "priority-queue": _Proof(priority_queue, scratch),
        "retry": _Proof(retry, scratch),
        "heartbeat": _Proof(heartbeat, scratch),
        "concurrent-safety": _Proof(concurrent_safety, scratch),
    }


def _scratch(runtime: Runtime, url: str | None, ground: Any) -> AbstractContextManager[Ground]:
    made: AbstractContextManager[Ground] = ground(runtime, _target(runtime, None), url)
    return made


def _target(runtime: Runtime, model: str | None) -> str:
    """The target of a model, by default of one that costs nothing."""
    from service.cli.proofs.facts import ProofSkippedError  # noqa: PLC0415  # see _proofs

    if model is not None:
        return runtime.models.target_of(model)
    for spec in runtime.models.models.values():
        if runtime.models.providers[spec.provider].type == "mock":
            return spec.target
    raise ProofSkippedError("the models file has no model of a provider of type mock")


def _run(name: str, one: _Proof, within_s: float) -> Finding:
    """Run a proof to its verdict. Raises StoreUnavailableError."""
    from service.cli.proofs.facts import (  # noqa: PLC0415  # see _proofs
        Facts,
        ProofBrokenError,
        ProofSkippedError,
    )

    facts, began_s = Facts(), time.monotonic()
    verdict, reason = Verdict.PROVEN, ""
    try:
        with one.ground() as ground:
            one.run(ground, facts, within_s)
    except ProofSkippedError as error:
        verdict, reason = Verdict.SKIPPED, error.reason
    except ProofBrokenError as error:
        verdict, reason = Verdict.BROKEN, error.reason
    except StoreUnavailableError:
        raise
    except (RedisError, ValueError, KeyError, AssertionError) as error:
        verdict, reason = Verdict.BROKEN, f"{type(error).__name__}: {error}"
    return Finding(name, verdict, reason, tuple(facts.held), time.monotonic() - began_s)


_MARKS: Final = {
    Verdict.PROVEN: ("✓ proven", "green"),
    Verdict.BROKEN: ("✗ broken", "red"),
    Verdict.SKIPPED: ("- skipped", "yellow"),
}


def _report(findings: Sequence[Finding], as_json: bool) -> None:
    if as_json:
        print_json(
            [
                {
                    "proof": finding.proof,
                    "verdict": finding.verdict.value,
                    "reason": finding.reason or None,
                    "promise": PROMISES[finding.proof],
                    "held": list(finding.held),
                    "took_s": round(finding.took_s, 2),
                }
                for finding in findings
            ]
        )
        return
    print_table(
        ("proof", "verdict", "took", "what it proves, or why not"),
        [
            (
                finding.proof,
                Text(_MARKS[finding.verdict][0], style=_MARKS[finding.verdict][1]),
                f"{finding.took_s:.1f} s",
                finding.reason or PROMISES[finding.proof],
            )
            for finding in findings
        ],
        empty="",
    )
    if len(findings) == 1:
        for sentence in findings[0].held:
            click.echo(f"  ✓ {sentence}")
