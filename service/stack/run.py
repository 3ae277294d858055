"""What happens between `make run` and Ctrl-C? Checks, start, sample, serving, ordered stop."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from jobs.settings import Settings, from_environment
from service.stack import greeting
from service.stack.dev_access import DevAccess, development_access, development_client_key
from service.stack.environment import StackEnvironment
from service.stack.errors import StopRequestedError
from service.stack.folder_lock import FolderLock
from service.stack.preflight import check_port, check_redis, shown_address
from service.stack.redis_server import RedisServer
from service.stack.sample import SAMPLE_FIELDS, StackClient
from service.stack.sample_chat import chats_by_mock, run_chat
from service.stack.stop_request import StopRequest
from service.stack.supervisor import Supervisor, process_table

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class StackOptions:
    """`data` takes Redis' data, logs, key and token; `once` ends after the samples."""

    port: int
    data: Path
    once: bool


@dataclass(frozen=True, slots=True)
class UsedRedis:
    """The Redis of this run; `server` is None where REDIS_URL named one, which we never stop."""

    url: str
    description: str
    server: RedisServer | None


def run_stack(
    options: StackOptions, environment: StackEnvironment, request: StopRequest, say: Say
) -> None:
    """Run the stack until a stop is requested, or to the end of the samples where `once` is set.

    Everything started here is ended when this returns or raises: the API, then the workers, then
    Redis. The data stays. Raises StackError, one clear line each (X1), and SettingsInvalidError
    before anything is started.
    """
    settings = from_environment(environment.inherited)
    with _locked(options.data), _redis(options.data, environment, options.port) as redis:
        client_key = environment.client_key or development_client_key(options.data)
        children = environment.for_children(redis.url, client_key)
        supervisor = Supervisor(
            table=process_table(options.port),
            environment=children,
            log_folder=options.data / "log",
            redis=redis.server,
            request=request,
        )
        try:
            supervisor.start()
            client = StackClient(f"http://127.0.0.1:{options.port}", _pause(supervisor, request))
            say(f"genqueue is starting; its logs are in {options.data / 'log'}")
            client.wait_until_ready()
            access = development_access(client, options.data, children, client_key)
            say(greeting.addresses(client.base_url, redis.description, access))
            say(greeting.export_lines(access, redis.url if redis.server else None))
            _run_samples(client, access, environment, settings, say)
            if not options.once:
                say("\nServing until Ctrl-C.")
                supervisor.serve()
        finally:
            if request.count:
                say("Stopping: API, workers, Redis. Once more to stop at once.")
            supervisor.stop()


@contextmanager
def _locked(data: Path) -> Iterator[None]:
    lock = FolderLock(data)
    lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _redis(data: Path, environment: StackEnvironment, port: int) -> Iterator[UsedRedis]:
    check_port(port)
    if environment.redis_url is not None:
        version = check_redis(environment.redis_url)
        address = shown_address(environment.redis_url)
        yield UsedRedis(environment.redis_url, f"{version} at {address} (REDIS_URL)", None)
        return
    server = RedisServer(data / "redis")
    server.start()
    try:
        version = check_redis(server.url)
        yield UsedRedis(server.url, f"{version} at {server.url}, data in {data / 'redis'}", server)
    finally:
        server.stop()


def _pause(supervisor: Supervisor, request: StopRequest) -> Callable[[float], None]:
    def pause(seconds: float) -> None:
        if request.wait(seconds):
            raise StopRequestedError
        supervisor.check_none_ended()

    return pause


def _run_samples(
    client: StackClient,
    access: DevAccess,
    environment: StackEnvironment,
    settings: Settings,
    say: Say,
) -> None:
    """A sample spends no money: where a real model would read the fields of the generation, none
    are asked for, and where real models would chat, there is no turn."""
    say(greeting.sample(client.run_sample(access.key)))
    fields = SAMPLE_FIELDS if environment.extracts_by_mock else {}
    say(greeting.generation(client.run_generation(access.token, fields)))
    if chats_by_mock(settings):
        say(greeting.chat(run_chat(client, access.client_key)))
    say(greeting.curl_lines(client.base_url, access, fields))
