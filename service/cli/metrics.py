"""How is the queue doing? Counts, latency, failures, generations, deliveries and the clock's
ticks, on one page. (A23, B22, C17)"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click
from rich.text import Text

from jobs.domain.delivery import DeliveryKind, DeliveryState
from jobs.domain.states import State
from jobs.runtime import Runtime, build
from jobs.store.backlog import Backlog, read_backlog
from jobs.store.delivery_stats import DeliveryStats, read_delivery_stats
from jobs.store.generation_stats import GenerationStats, Histogram, read_generation_stats
from jobs.store.stats import OrgStats
from jobs.store.ticks import Ticks, TickStatus, is_red
from service.cli.moments import duration
from service.cli.output import as_json_option, heading, print_fields, print_json, print_table
from service.instants import rfc3339


@click.command("queue-metrics")
@as_json_option
def queue_metrics(as_json: bool) -> None:
    """Show jobs by state and organisation, latency, error rates, depths, generations, deliveries,
    ticks.

    \b
    Example: genqueue queue-metrics
    """
    runtime = build()
    backlog = _backlog(runtime)
    by_org = runtime.stats.by_org()
    ticks = Ticks(runtime.redis).all()
    generations = read_generation_stats(runtime.redis, backlog.now_ms)
    slots = runtime.settings.generation_slots
    deliveries = read_delivery_stats(runtime.redis, backlog.now_ms)
    if as_json:
        print_json(
            {
                "at": rfc3339(backlog.now_ms),
                "deliveries": _deliveries_json(deliveries),
                "depths": _depths(backlog),
                "generations": _generations_json(generations, slots),
                "orgs": {org: _org_json(stats) for org, stats in by_org.items()},
                "ticks": {name: _tick_json(one, backlog.now_ms) for name, one in ticks.items()},
            }
        )
        return
    _print_orgs(by_org)
    _print_failures(by_org)
    heading("Depths")
    print_fields(_depth_fields(backlog))
    _print_generations(generations, slots)
    _print_deliveries(deliveries)
    heading("Ticks")
    print_table(
        ("tick", "last run", "every", "late", "took", "did", "runs", "did in all", "failures", ""),
        [_tick_row(one, backlog.now_ms) for one in ticks.values()],
        empty="No tick has run: is `python -m scheduler` up?",
    )


def _backlog(runtime: Runtime) -> Backlog:
    settings = runtime.settings
    return read_backlog(runtime.redis, rq_prefix=settings.rq_prefix, queue_name=settings.queue_name)


def _depths(backlog: Backlog) -> dict[str, int | None]:
    swept_at_ms = backlog.swept_at_ms
    return {
        "running": backlog.running,
        "scheduled": backlog.scheduled,
        "blocked": backlog.blocked,
        "open_lanes": backlog.open_lanes,
        "shut_lanes": backlog.shut_lanes,
        "shut_gates": backlog.shut_gates,
        "tickets": backlog.tickets,
        "swept_ms_ago": None if swept_at_ms is None else backlog.now_ms - swept_at_ms,
    }


def _depth_fields(backlog: Backlog) -> list[tuple[str, str]]:
    depths = _depths(backlog)
    swept_ms_ago = depths.pop("swept_ms_ago")
    swept = "never" if swept_ms_ago is None else f"{duration(max(0, swept_ms_ago))} ago"
    fields = [(name.replace("_", " "), str(value)) for name, value in depths.items()]
    return [*fields, ("last sweep", swept)]


def _org_json(stats: OrgStats) -> dict[str, Any]:
    return {
        "states": {state.value: count for state, count in stats.states.items()},
        "succeeded_ever": stats.succeeded_ever,
        "latency_ms_mean": stats.latency_ms_mean,
        "failures": dict(stats.failures),
        "error_rate": {kind: error_rate(stats, count) for kind, count in stats.failures.items()},
    }


def error_rate(stats: OrgStats, failed: int) -> float | None:
    """`failed` as a part of all jobs that ever succeeded or failed, 0 to 1; None for none."""
    ended = stats.succeeded_ever + sum(stats.failures.values())
    return failed / ended if ended else None


def _generations_json(stats: GenerationStats, slots: int) -> dict[str, Any]:
    return {
        "started": stats.started,
        "succeeded": stats.finished,
        "failed": dict(stats.failed),
        "limit_hits": dict(stats.limit_hits),
        "queue_wait_ms_mean": stats.wait.mean_ms,
        "duration_ms_mean": stats.duration.mean_ms,
        "slots_held": stats.slots_held,
        "slots": slots,
        "cooldowns_ms": dict(stats.cooldowns_ms),
        "usage_unreported": stats.unreported,
    }


def _deliveries_json(stats: DeliveryStats) -> dict[str, Any]:
    return {
        "states": {kind.value: _delivery_states(stats, kind) for kind in DeliveryKind},
        "retried": {kind.value: count for kind, count in stats.retried.items()},
        "origins": stats.origins,
        "origins_due": stats.due,
        "late_ms": stats.late_ms,
    }


def _delivery_states(stats: DeliveryStats, kind: DeliveryKind) -> dict[str, int]:
    """How many of a kind wait now, and how many ended in each state since ever."""
    return {
        state.value: stats.ended.get((kind, state), stats.pending[kind]) for state in DeliveryState
    }


def _tick_json(tick: TickStatus, now_ms: int) -> dict[str, Any]:
    return {
        "last_run_at": None if tick.ran_at_ms is None else rfc3339(tick.ran_at_ms),
        "interval_ms": tick.interval_ms,
        "late_ms": tick.late_ms,
        "took_ms": tick.took_ms,
        "count": tick.count,
        "runs": tick.runs,
        "total": tick.total,
        "failures": tick.failures,
        "failure": tick.failure or None,
        "red": is_red(tick, now_ms),
    }


def _tick_row(tick: TickStatus, now_ms: int) -> tuple[str | Text, ...]:
    ran = "never"
    if tick.ran_at_ms is not None:
        ran = f"{duration(max(0, now_ms - tick.ran_at_ms))} ago"
    is_late = is_red(tick, now_ms)
    return (
        tick.name,
        ran,
        duration(tick.interval_ms),
        duration(max(0, tick.late_ms)),
        duration(tick.took_ms),
        str(tick.count),
        str(tick.runs),
        str(tick.total),
        f"{tick.failures} {tick.failure}".strip(),
        Text("RED" if is_late else "ok", style="red" if is_late else "green"),
    )


def _print_orgs(by_org: Mapping[str, OrgStats]) -> None:
    print_table(
        ("org", *(state.value for state in State), "mean latency"),
        [
            (
                org,
                *(str(stats.states.get(state, 0)) for state in State),
                "" if stats.latency_ms_mean is None else duration(stats.latency_ms_mean),
            )
            for org, stats in by_org.items()
        ],
        empty="There are no jobs.",
    )


def _print_failures(by_org: Mapping[str, OrgStats]) -> None:
    rows = [
        (org, kind, str(count), f"{100 * (error_rate(stats, count) or 0):.1f} %")
        for org, stats in by_org.items()
        for kind, count in sorted(stats.failures.items())
    ]
    if rows:
        heading("Failures")
        print_table(("org", "error kind", "jobs", "error rate"), rows, empty="")


def _print_generations(stats: GenerationStats, slots: int) -> None:
    heading("Generations")
    limits = ((f"hits of {name}", str(count)) for name, count in stats.limit_hits.items())
    print_fields(
        [
            ("started", str(stats.started)),
            ("succeeded", str(stats.finished)),
            ("failed", str(sum(stats.failed.values()))),
            ("mean wait", _mean(stats.wait)),
            ("mean duration", _mean(stats.duration)),
            ("slots held", f"{stats.slots_held} of {slots}"),
            *((name.replace("_", " "), count) for name, count in limits),
            ("usage unreported", str(stats.unreported)),
        ]
    )
    failed = [(code, str(count)) for code, count in stats.failed.items() if count]
    if failed:
        heading("Failed generations")
        print_table(("code", "generations"), failed, empty="")
    if stats.cooldowns_ms:
        heading("Cooldowns")
        rows = [(target, duration(left)) for target, left in stats.cooldowns_ms.items()]
        print_table(("target", "goes on in"), rows, empty="")


def _print_deliveries(stats: DeliveryStats) -> None:
    heading("Deliveries")
    print_table(
        ("kind", *(state.value for state in DeliveryState), "tries in vain"),
        [
            (
                kind.value,
                *(str(count) for count in _delivery_states(stats, kind).values()),
                str(stats.retried[kind]),
            )
            for kind in DeliveryKind
        ],
        empty="",
    )
    print_fields([("origins", f"{stats.origins}, {stats.due} due"), ("late", _late(stats))])


def _late(stats: DeliveryStats) -> str:
    return duration(stats.late_ms) if stats.due else ""


def _mean(found: Histogram) -> str:
    return "" if found.mean_ms is None else duration(found.mean_ms)
