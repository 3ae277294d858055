"""Can the stack start here? The port is free, and the given Redis answers and drops nothing."""

from urllib.parse import urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from service.stack.errors import PortBusyError, RedisPolicyWrongError, RedisUnreachableError
from service.stack.free_port import is_free

ANSWER_WITHIN_S = 5.0
SAFE_POLICY = "noeviction"


def check_port(port: int) -> None:
    """Raises PortBusyError where something listens on the port of the API already."""
    if not is_free(port):
        raise PortBusyError(port)


def check_redis(url: str) -> str:
    """The server's name and version, for example `Redis 7.0.15`.

    Raises RedisUnreachableError where it does not answer within 5 s or refuses us, and
    RedisPolicyWrongError where it may drop keys (X13).
    """
    address = shown_address(url)
    try:
        with redis.Redis.from_url(
            url,
            socket_timeout=ANSWER_WITHIN_S,
            socket_connect_timeout=ANSWER_WITHIN_S,
            retry=Retry(NoBackoff(), 0),
        ) as client:
            info = client.info()
    except (redis.RedisError, OSError, ValueError) as error:
        raise RedisUnreachableError(address, str(error)) from error
    policy = str(info.get("maxmemory_policy", SAFE_POLICY))
    if policy != SAFE_POLICY:
        raise RedisPolicyWrongError(address, policy)
    if "valkey_version" in info:
        return f"Valkey {info['valkey_version']}"
    return f"Redis {info.get('redis_version', 'of unknown version')}"


def shown_address(url: str) -> str:
    """The host and port of a Redis URL, without the password in it."""
    parts = urlsplit(url)
    return parts.netloc.rpartition("@")[2] or parts.path or "an empty address"
