"""What does a scrape tell of the stored jobs? Read from Redis at each one (X10, A23).

Six round trips, however many jobs there are. Figures of orgs are bounded: the largest
`ORGS_MAX` by name, the rest as one.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeVar

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector
from redis import Redis

from jobs.domain.errors import StoreUnavailableError
from jobs.settings import Settings
from jobs.store.backlog import Backlog, read_backlog
from jobs.store.delivery_stats import DeliveryStats, read_delivery_stats
from jobs.store.generation_stats import GenerationStats, Histogram, read_generation_stats
from jobs.store.stats import OrgStats, Stats
from jobs.store.ticks import Ticks, TickStatus, is_red

logger = logging.getLogger(__name__)

Name = TypeVar("Name", bound=str)

ORGS_MAX: Final = 100
OTHER_ORGS: Final = "(other)"
"""The label of all orgs beyond; no org can be named so."""


class StoreFigures(Collector):
    """The figures of the store as Prometheus takes them; without Redis only that it is away."""

    def __init__(self, redis: Redis, settings: Settings) -> None:
        self._redis = redis
        self._settings = settings

    def collect(self) -> Iterable[Metric]:
        """Every figure of now."""
        up = GaugeMetricFamily("genqueue_store_up", "Whether Redis answered this scrape")
        try:
            found = [
                *_of_orgs(Stats(self._redis).by_org()),
                *self._of_queue(),
            ]
        except StoreUnavailableError as error:
            logger.warning("scrape without the store: %s", error)
            up.add_metric([], 0)
            return [up]
        up.add_metric([], 1)
        return [up, *found]

    def _of_queue(self) -> Iterator[Metric]:
        settings = self._settings
        backlog = read_backlog(
            self._redis, rq_prefix=settings.rq_prefix, queue_name=settings.queue_name
        )
        yield from _of_backlog(backlog)
        yield from _of_ticks(Ticks(self._redis).all().values(), backlog.now_ms)
        generations = read_generation_stats(self._redis, backlog.now_ms)
        yield from _of_generations(generations, settings.generation_slots)
        yield from _of_deliveries(read_delivery_stats(self._redis, backlog.now_ms))


def _of_backlog(backlog: Backlog) -> Iterator[Metric]:
    lanes = GaugeMetricFamily("genqueue_lanes", "Lanes with waiting jobs", labels=("gate",))
    lanes.add_metric(["open"], backlog.open_lanes)
    lanes.add_metric(["shut"], backlog.shut_lanes)
    yield lanes
    waiting = GaugeMetricFamily(
        "genqueue_jobs_waiting", "Queued jobs that may not be claimed yet", labels=("reason",)
    )
    waiting.add_metric(["scheduled"], backlog.scheduled)
    waiting.add_metric(["blocked"], backlog.blocked)
    yield waiting
    for name, text, value in (
        ("genqueue_gates_shut", "Gates that lanes wait behind", backlog.shut_gates),
        ("genqueue_leases", "Attempts that hold a lease", backlog.running),
        ("genqueue_tickets_waiting", "Tickets on the RQ queue", backlog.tickets),
    ):
        yield GaugeMetricFamily(name, text, value=value)
    if backlog.swept_at_ms is not None:
        age_s = max(0, backlog.now_ms - backlog.swept_at_ms) / 1000
        yield GaugeMetricFamily(
            "genqueue_sweep_age_seconds", "Time since the last reclaim sweep", value=age_s
        )


def _of_ticks(ticks: Iterable[TickStatus], now_ms: int) -> Iterator[Metric]:
    labels = ("tick",)
    ran_at = GaugeMetricFamily(
        "genqueue_tick_last_run_timestamp_seconds", "When it last ran well", labels=labels
    )
    took = GaugeMetricFamily("genqueue_tick_duration_seconds", "Its last run", labels=labels)
    late = GaugeMetricFamily(
        "genqueue_tick_lateness_seconds", "How long after it was due it last ran", labels=labels
    )
    red = GaugeMetricFamily(
        "genqueue_tick_red", "1 where no run ended well for three intervals", labels=labels
    )
    runs = CounterMetricFamily("genqueue_tick_runs", "Runs that ended well", labels=labels)
    failures = CounterMetricFamily("genqueue_tick_failures", "Runs that failed", labels=labels)
    done = CounterMetricFamily("genqueue_tick_items", "What its runs did, added up", labels=labels)
    for tick in ticks:
        name = [tick.name]
        if tick.ran_at_ms is not None:
            ran_at.add_metric(name, tick.ran_at_ms / 1000)
        took.add_metric(name, tick.took_ms / 1000)
        late.add_metric(name, max(0, tick.late_ms) / 1000)
        red.add_metric(name, int(is_red(tick, now_ms)))
        runs.add_metric(name, tick.runs)
        failures.add_metric(name, tick.failures)
        done.add_metric(name, tick.total)
    yield from (ran_at, took, late, red, runs, failures, done)


def _of_generations(stats: GenerationStats, slots: int) -> Iterator[Metric]:
    for name, text, count in (
        ("genqueue_generations_started", "Attempts of generations that began", stats.started),
        ("genqueue_generations_finished", "Generations that succeeded", stats.finished),
    ):
        yield CounterMetricFamily(name, text, value=count)
    failed = CounterMetricFamily(
        "genqueue_generations_failed", "Generations that failed, by why", labels=("code",)
    )
    for code, count in stats.failed.items():
        failed.add_metric([code], count)
    yield failed
    hits = CounterMetricFamily(
        "genqueue_generation_limit_hits", "How often a limit held one up", labels=("limit",)
    )
    for limit, count in stats.limit_hits.items():
        hits.add_metric([limit], count)
    yield hits
    yield _histogram(
        "genqueue_generation_duration_seconds", "From its start to its end", stats.duration
    )
    yield _histogram(
        "genqueue_generation_queue_wait_seconds", "From submit to its start", stats.wait
    )
    yield from _of_generation_limits(stats, slots)


def _of_generation_limits(stats: GenerationStats, slots: int) -> Iterator[Metric]:
    for name, text, value in (
        ("genqueue_generation_slots_held", "Calls that may be on the wire", stats.slots_held),
        ("genqueue_generation_slots", "Generations that may run at once", slots),
        ("genqueue_usage_unreported", "Events of usage that wait to be posted", stats.unreported),
    ):
        yield GaugeMetricFamily(name, text, value=value)
    cooldowns = GaugeMetricFamily(
        "genqueue_provider_cooldown_seconds", "Until work for it goes on", labels=("target",)
    )
    for target, left_ms in stats.cooldowns_ms.items():
        cooldowns.add_metric([target], left_ms / 1000)
    yield cooldowns


def _of_deliveries(stats: DeliveryStats) -> Iterator[Metric]:
    pending = GaugeMetricFamily(
        "genqueue_deliveries_pending", "Deliveries that are still to be posted", labels=("kind",)
    )
    for kind, count in stats.pending.items():
        pending.add_metric([kind], count)
    yield pending
    ended = CounterMetricFamily(
        "genqueue_deliveries_ended", "Deliveries that ended, by how", labels=("kind", "state")
    )
    for (kind, state), count in stats.ended.items():
        ended.add_metric([kind, state], count)
    yield ended
    retried = CounterMetricFamily(
        "genqueue_delivery_retries", "Tries that another one follows", labels=("kind",)
    )
    for kind, count in stats.retried.items():
        retried.add_metric([kind], count)
    yield retried
    for name, text, value in (
        ("genqueue_delivery_origins", "Origins that deliveries wait for", stats.origins),
        ("genqueue_delivery_origins_due", "Those that a delivery is due for", stats.due),
        (
            "genqueue_delivery_lateness_seconds",
            "How long the delivery has waited that is due longest",
            stats.late_ms / 1000,
        ),
    ):
        yield GaugeMetricFamily(name, text, value=value)


def _histogram(name: str, text: str, found: Histogram) -> Metric:
    buckets = [(str(most / 1000), float(count)) for most, count in found.up_to.items()]
    return HistogramMetricFamily(
        name, text, buckets=[*buckets, ("+Inf", float(found.count))], sum_value=found.sum_ms / 1000
    )


def _of_orgs(stats: Mapping[str, OrgStats]) -> Iterator[Metric]:
    jobs = GaugeMetricFamily("genqueue_jobs", "Stored jobs", labels=("org", "state"))
    failed = CounterMetricFamily(
        "genqueue_jobs_failed", "Jobs that failed, by why", labels=("org", "error_kind")
    )
    latency = SummaryMetricFamily(
        "genqueue_job_latency_seconds", "From submit to success", labels=("org",)
    )
    for org, one in _largest(stats).items():
        for state, count in one.states.items():
            jobs.add_metric([org, state], count)
        for kind, count in one.failures.items():
            failed.add_metric([org, kind], count)
        latency.add_metric([org], one.succeeded_ever, one.latency_ms_sum / 1000)
    yield from (jobs, failed, latency)


def _largest(stats: Mapping[str, OrgStats]) -> dict[str, OrgStats]:
    """The largest orgs by stored jobs, and all others added up."""
    if len(stats) <= ORGS_MAX:
        return dict(stats)
    by_size = sorted(stats, key=lambda org: (-sum(stats[org].states.values()), org))
    rest = [stats[org] for org in by_size[ORGS_MAX:]]
    return {
        **{org: stats[org] for org in by_size[:ORGS_MAX]},
        OTHER_ORGS: OrgStats(
            states=_added(one.states for one in rest),
            failures=_added(one.failures for one in rest),
            latency_ms_sum=sum(one.latency_ms_sum for one in rest),
            succeeded_ever=sum(one.succeeded_ever for one in rest),
        ),
    }


def _added(counts: Iterable[Mapping[Name, int]]) -> dict[Name, int]:
    total = Counter[Name]()
    for one in counts:
        total.update(one)
    return dict(total)
