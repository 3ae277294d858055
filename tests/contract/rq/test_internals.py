"""Is RQ still what we built on? Every part of it that is not its documented interface. (RQ-15)

A failure here names what an upgrade changed and who relies on it. Pin the version before, read
the new source, then change what is named together with this file.
"""

from __future__ import annotations

import importlib
import inspect
import json
import signal
from collections.abc import Callable
from typing import Any

import pytest
import rq
import rq.serializers
import rq_dashboard
from flask import Flask
from redis import Redis
from rq import Queue as RqQueue
from rq.command import parse_payload, send_shutdown_command
from rq.exceptions import (
    DequeueTimeout,
    DeserializationError,
    InvalidJobOperation,
    InvalidJobOperationError,
    NoSuchJobError,
    StopRequested,
)
from rq.job import Job, JobStatus
from rq.registry import FailedJobRegistry
from rq.results import Result
from rq.serializers import JSONSerializer
from rq.suspension import is_suspended, suspend
from rq.worker import BaseWorker, Worker
from rq.worker.base import WorkerStatus
from rq_dashboard import web

from jobs.runtime import Runtime
from jobs.tickets import RETRY_JOB, TAKE_WORK, TicketJob
from jobs.worker.thread_worker import ThreadWorker
from service.dashboard import ACTIONS, READS

pytestmark = [pytest.mark.req("X7"), pytest.mark.case("RQ-15")]

THREAD_WORKER = "jobs/worker/thread_worker.py"
TICKETS = "jobs/tickets.py"
FAILED = "jobs/failed_tickets.py"
QUEUE_WORKER = "scheduler/queue_worker.py"

SIGNATURES: list[tuple[str, Any, str, tuple[str, ...]]] = [
    (
        THREAD_WORKER,
        BaseWorker,
        "bootstrap",
        ("self", "logging_level", "date_format", "log_format"),
    ),
    (THREAD_WORKER, BaseWorker, "_install_signal_handlers", ("self",)),
    (THREAD_WORKER, BaseWorker, "prepare_execution", ("self", "job")),
    (THREAD_WORKER, BaseWorker, "perform_job", ("self", "job", "queue", "execution")),
    (THREAD_WORKER, BaseWorker, "maintain_heartbeats", ("self", "job", "execution")),
    (THREAD_WORKER, BaseWorker, "heartbeat", ("self", "timeout", "pipeline")),
    (THREAD_WORKER, BaseWorker, "execute_job", ("self", "job", "queue")),
    (THREAD_WORKER, BaseWorker, "handle_payload", ("self", "message")),
    (THREAD_WORKER, BaseWorker, "request_stop", ("self", "signum", "frame")),
    (THREAD_WORKER, BaseWorker, "request_force_stop", ("self", "signum", "frame")),
    (THREAD_WORKER, BaseWorker, "get_redis_server_version", ("self",)),
    (THREAD_WORKER, BaseWorker, "run_maintenance_tasks", ("self",)),
    (THREAD_WORKER, BaseWorker, "set_state", ("self", "state", "pipeline")),
    (THREAD_WORKER, BaseWorker, "get_state", ("self",)),
    (THREAD_WORKER, BaseWorker, "teardown", ("self",)),
    (QUEUE_WORKER, BaseWorker, "register_birth", ("self",)),
    (QUEUE_WORKER, BaseWorker, "register_death", ("self",)),
    (
        THREAD_WORKER,
        RqQueue,
        "dequeue_any",
        ("queues", "timeout", "connection", "job_class", "serializer", "death_penalty_class"),
    ),
    (TICKETS, Job, "__init__", ("self", "id", "connection", "serializer")),
    (TICKETS, Job, "fetch", ("id", "connection", "serializer")),
    (TICKETS, Job, "perform", ("self",)),
    (TICKETS, Job, "send_webhooks", ("self", "status", "exc_string")),
    (FAILED, Job, "key_for", ("job_id",)),
    (FAILED, Job, "save", ("self", "pipeline", "include_meta", "include_result")),
    (FAILED, Result, "get_key", ("job_id",)),
    ("service/dashboard.py", rq.serializers, "resolve_serializer", ("serializer",)),
]

PROPERTIES: list[tuple[str, type, str]] = [
    (THREAD_WORKER, BaseWorker, "dequeue_timeout"),
    (THREAD_WORKER, BaseWorker, "should_run_maintenance_tasks"),
    (THREAD_WORKER, BaseWorker, "key"),
    (QUEUE_WORKER, BaseWorker, "connection_timeout"),
    (TICKETS, Job, "func"),
    (TICKETS, Job, "func_name"),
    (TICKETS, Job, "instance"),
    (TICKETS, Job, "success_callback"),
    (TICKETS, Job, "failure_callback"),
    (TICKETS, Job, "stopped_callback"),
]


@pytest.fixture
def queue(runtime: Runtime) -> RqQueue:
    """RQ's own view of the queue of tickets."""
    return RqQueue("genqueue", connection=runtime.rq_redis, serializer=JSONSerializer)


def test_the_versions_are_those_that_were_read() -> None:
    assert rq.VERSION == "3.0.0"
    assert web.rq_dashboard_version == "0.9.0"
    assert rq_dashboard.blueprint is web.blueprint


@pytest.mark.parametrize(
    ("user", "owner", "name", "parameters"), SIGNATURES, ids=[row[2] for row in SIGNATURES]
)
def test_a_method_takes_what_it_took(
    user: str, owner: Any, name: str, parameters: tuple[str, ...]
) -> None:
    assert hasattr(owner, name), f"{user} relies on {owner.__name__}.{name}, which is gone"
    found = tuple(inspect.signature(getattr(owner, name)).parameters)
    assert found[: len(parameters)] == parameters, f"{user} relies on {owner.__name__}.{name}"


@pytest.mark.parametrize(("user", "owner", "name"), PROPERTIES)
def test_a_property_is_still_one(user: str, owner: type, name: str) -> None:
    found = inspect.getattr_static(owner, name, None)
    assert isinstance(found, property), f"{user} relies on the property {owner.__name__}.{name}"


def test_a_worker_has_the_attributes_that_ours_reads_and_writes(runtime: Runtime) -> None:
    worker = ThreadWorker(["genqueue"], connection=runtime.rq_redis)
    stock = Worker(["genqueue"], connection=runtime.rq_redis)
    names = ("_stop_requested", "executions", "queues", "queue_class", "job_class", "serializer")
    for name in (*names, "connection", "name", "redis_server_version", "hostname", "pid"):
        assert hasattr(stock, name), f"{THREAD_WORKER} relies on worker.{name}"
    assert stock.executions == {}
    assert vars(stock)["_stop_requested"] is False, "the loop of ours ends by it"
    own = set(vars(ThreadWorker)) | (set(vars(worker)) - set(vars(stock)))
    private = {name for name in own if name.startswith("_") and not name.startswith("__")}
    assert not private & set(dir(stock)), "RQ took a name that ours has for something else"


def test_the_states_and_errors_are_those_that_ours_tells_apart() -> None:
    assert (WorkerStatus.IDLE, WorkerStatus.SUSPENDED) == ("idle", "suspended")
    assert (JobStatus.FAILED, JobStatus.QUEUED, JobStatus.STARTED) == (
        "failed",
        "queued",
        "started",
    )
    # `rq requeue --all` passes over the first and ends at the second: see TicketMissingError.
    command_line = inspect.getsource(importlib.import_module("rq.cli.cli"))
    assert "except InvalidJobOperationError" in command_line
    for error in (DequeueTimeout, StopRequested, DeserializationError, InvalidJobOperation):
        assert issubclass(error, Exception)
    assert not issubclass(NoSuchJobError, InvalidJobOperationError)


def test_a_ticket_is_a_member_of_a_plain_list_and_a_hash_with_a_description(
    runtime: Runtime, queue: RqQueue, redis: Redis
) -> None:
    runtime.tickets.issue()

    assert redis.type("rq:queue:genqueue") == "list"
    (ticket_id,) = redis.lrange("rq:queue:genqueue", 0, -1)
    ticket = redis.hget(f"rq:job:{ticket_id}", "description")
    assert ticket == "looking for work", "claim.lua writes what runs into this field"
    assert Job.key_for(ticket_id) == f"rq:job:{ticket_id}"
    assert RqQueue.redis_queues_keys == "rq:queues"
    assert queue.key == "rq:queue:genqueue"


def test_a_suspension_is_the_key_that_the_claim_looks_at(runtime: Runtime, redis: Redis) -> None:
    suspend(runtime.rq_redis)

    assert redis.exists("rq:suspended") == 1, "claim.lua refuses by this key"
    assert is_suspended(runtime.rq_redis)


def test_a_stopping_worker_says_so_in_the_field_that_the_claim_looks_at(
    runtime: Runtime, redis: Redis
) -> None:
    worker = Worker(["genqueue"], connection=runtime.rq_redis)
    worker.register_birth()
    assert redis.hexists(worker.key, "birth"), f"{THREAD_WORKER} registers again without it"
    worker.set_state(WorkerStatus.BUSY)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        worker.request_stop(signal.SIGTERM, None)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)

    found = redis.hget(f"rq:worker:{worker.name}", "shutdown_requested_date")
    assert found, "claim.lua refuses by this field"
    worker.register_death()


def test_a_command_is_json_with_its_name(runtime: Runtime, redis: Redis) -> None:
    with redis.pubsub() as listening:
        listening.subscribe("rq:pubsub:some-worker")
        listening.get_message(timeout=5)
        send_shutdown_command(runtime.rq_redis, "some-worker")
        message: Any = listening.get_message(timeout=5)
    assert parse_payload({"data": message["data"].encode()})["command"] == "shutdown"
    assert json.loads(message["data"])["command"] == "shutdown"


def test_the_failed_registry_is_a_sorted_set_by_end_in_seconds(
    runtime: Runtime, queue: RqQueue, redis: Redis
) -> None:
    job = queue.create_job(TAKE_WORK, status=JobStatus.FAILED)
    registry = FailedJobRegistry("genqueue", connection=runtime.rq_redis)

    registry.add(job, ttl=100)

    assert registry.key == "rq:failed:genqueue"
    assert redis.zscore("rq:failed:genqueue", job.id) == pytest.approx(redis.time()[0] + 100, abs=2)
    assert redis.hget(f"rq:job:{job.id}", "status") == "failed"


def test_the_result_of_a_failure_is_where_the_dashboard_and_the_mirror_look(
    runtime: Runtime, redis: Redis
) -> None:
    job = TicketJob.create(RETRY_JOB, id="some-id", connection=runtime.rq_redis)
    assert Result.get_key("some-id") == "rq:results:some-id"

    Result.create_failure(job, 60, "what happened")

    found = job.latest_result()
    assert found is not None
    assert (found.exc_string, found.type) == ("what happened", Result.Type.FAILED)
    assert redis.ttl("rq:results:some-id") > 0


def test_meta_is_a_field_in_the_serializer_of_the_job(runtime: Runtime, redis: Redis) -> None:
    job = TicketJob.create(RETRY_JOB, connection=runtime.rq_redis, meta={"a": 1})
    job.save()

    assert json.loads(redis.hget(job.key, "meta")) == {"a": 1}


def test_pickle_is_what_rq_falls_back_to_by_one_name() -> None:
    source = inspect.getsource(rq.serializers.resolve_serializer)
    assert "return PickleSerializer" in source, "service/dashboard.py replaces that name"


def views_of(methods: Callable[[set[str]], bool]) -> set[str]:
    app = Flask("test")
    app.register_blueprint(web.blueprint, url_prefix="/rq")
    return {
        rule.endpoint.removeprefix("rq_dashboard.")
        for rule in app.url_map.iter_rules()
        if rule.endpoint.startswith("rq_dashboard.") and methods(set(rule.methods or ()))
    }


def test_each_route_of_the_dashboard_is_known_to_show_or_to_change() -> None:
    # Compacting lets an id out of the list for a while; it is not offered.
    assert views_of(lambda _: True) == READS | ACTIONS | {"compact_queue"}
    assert views_of(lambda methods: "POST" in methods) == ACTIONS | {"compact_queue"}
    assert views_of(lambda methods: {"GET", "POST"} <= methods) == {"requeue_all"}


def test_the_dashboard_takes_its_connection_from_where_we_put_it() -> None:
    assert "current_app.redis_conn" in inspect.getsource(web.push_rq_connection)
    assert "from_url(" in inspect.getsource(web.push_rq_connection)
    assert hasattr(web, "from_url")
    assert hasattr(web.config, "serializer")
