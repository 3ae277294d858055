"""How do the parts fit together? Builds the object graph of a process from its Settings."""

from __future__ import annotations

from dataclasses import dataclass

from redis import Redis

from jobs import formation_file
from jobs.domain.formation import Formation
from jobs.domain.models import ModelRegistry
from jobs.failed_tickets import FailedTickets
from jobs.generation_intake import Intake
from jobs.providers.registry import Providers, build_providers, load
from jobs.settings import Settings, from_environment
from jobs.store.connection import connect
from jobs.store.credentials import Credentials
from jobs.store.credits import Credits
from jobs.store.deliveries import Deliveries
from jobs.store.events import Events
from jobs.store.flags import WORKFLOWS_LLM_ACTION
from jobs.store.generations import Generations
from jobs.store.health import refuse_lossy
from jobs.store.listing import Listing
from jobs.store.mirror import Mirror
from jobs.store.modes import Modes
from jobs.store.queue import Queue
from jobs.store.records import Records
from jobs.store.scripts import Scripts, SlotCaps
from jobs.store.stats import Stats
from jobs.store.steps import Steps
from jobs.store.tokens import Tokens
from jobs.store.turns import Turns
from jobs.store.upkeep import Upkeep
from jobs.store.wakes import Wakes
from jobs.tickets import DELIVER, ISSUE_SOCKET_TIMEOUT_S, Tickets, connect_rq


@dataclass(frozen=True, slots=True)
class Runtime:
    """Everything that a process works with; connections open on first use."""

    settings: Settings
    redis: Redis
    rq_redis: Redis
    queue: Queue
    records: Records
    listing: Listing
    events: Events
    modes: Modes
    upkeep: Upkeep
    stats: Stats
    generations: Generations
    intake: Intake
    steps: Steps
    formation: Formation
    turns: Turns
    tokens: Tokens
    deliveries: Deliveries
    wakes: Wakes
    credits: Credits
    credentials: Credentials
    tickets: Tickets
    delivery_tickets: Tickets
    failed_tickets: FailedTickets
    models: ModelRegistry
    providers: Providers


def build(settings: Settings | None = None) -> Runtime:
    """The graph for `settings`, by default those of the environment.

    Raises SettingsInvalidError with every problem of the settings, of the models file or of the
    formation file.
    """
    if settings is None:
        settings = from_environment()
    models = load(settings.models_file)
    redis = connect(settings.redis_url)
    rq_redis = connect_rq(settings.redis_url)
    hasty_redis = connect_rq(settings.redis_url, socket_timeout_s=ISSUE_SOCKET_TIMEOUT_S)
    scripts = _scripts(settings, redis)
    queue = Queue(scripts, ticket_cap=settings.ticket_cap)
    providers = build_providers(models, settings.api_keys)
    generations = _generations(settings, redis, scripts)
    return Runtime(
        settings=settings,
        redis=redis,
        rq_redis=rq_redis,
        queue=queue,
        records=Records(redis, scripts),
        listing=Listing(redis, scripts),
        events=Events(redis),
        modes=Modes(redis),
        steps=Steps(redis, scripts, queue, ticket_cap=settings.ticket_cap),
        formation=formation_file.load(settings.formation_file, models),
        turns=Turns(redis, scripts, queue),
        tokens=Tokens(redis, scripts),
        deliveries=Deliveries(redis, scripts),
        wakes=Wakes(redis, scripts),
        upkeep=Upkeep(scripts, ticket_cap=settings.ticket_cap),
        stats=Stats(redis),
        generations=generations,
        intake=Intake(generations, models, providers, extraction_model=settings.extraction_model),
        credits=Credits(redis, scripts),
        credentials=Credentials(redis),
        tickets=Tickets(hasty_redis, settings.queue_name),
        delivery_tickets=_delivery_tickets(settings, hasty_redis),
        failed_tickets=FailedTickets(hasty_redis, settings.queue_name, Mirror(redis)),
        models=models,
        providers=providers,
    )


def _scripts(settings: Settings, redis: Redis) -> Scripts:
    return Scripts(
        redis,
        rq_prefix=settings.rq_prefix,
        queue_name=settings.queue_name,
        slots=SlotCaps(settings.generation_slots_per_team, settings.generation_slots),
    )


def _delivery_tickets(settings: Settings, redis: Redis) -> Tickets:
    return Tickets(redis, settings.delivery_queue_name, DELIVER, settings.ticket_cap)


def _generations(settings: Settings, redis: Redis, scripts: Scripts) -> Generations:
    return Generations(
        redis,
        scripts,
        ticket_cap=settings.ticket_cap,
        per_minute=settings.generations_per_minute,
        flag=WORKFLOWS_LLM_ACTION,
    )


def refuse_lossy_redis(redis: Redis) -> None:
    """Raise StoreUnavailableError unless Redis keeps what it is given (X13)."""
    refuse_lossy(redis)
