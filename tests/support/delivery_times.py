"""How does a test turn time forward for a delivery that waits, or that is in flight?"""

from __future__ import annotations

from redis import Redis

from jobs.store import keys


def due_now(redis: Redis, delivery_id: str) -> None:
    """What waits to be sent again is due, and nothing that it goes to pauses."""
    hook, receiver, _ = places_of(redis, delivery_id)
    redis.hdel(keys.HEALTH(hook), "paused_until")
    redis.hdel(keys.HEALTH(receiver), "paused_until")
    redis.zadd(keys.HOOK(hook), {delivery_id: 0}, xx=True)
    look_now(redis, delivery_id)


def lease_ends(redis: Redis, delivery_id: str) -> None:
    """Whoever has it in flight is late."""
    places = places_of(redis, delivery_id)
    for name in places:
        redis.zadd(keys.POSTING(name), {delivery_id: 1}, xx=True)
    redis.zadd(keys.HOOK(places[0]), {delivery_id: 1}, xx=True)
    look_now(redis, delivery_id)


def look_now(redis: Redis, delivery_id: str) -> None:
    """The next look at the store comes by where it goes, should something wait there."""
    hook, receiver, origin = places_of(redis, delivery_id)
    redis.zadd(keys.RECEIVER(receiver), {hook: 0}, xx=True)
    redis.zadd(keys.ORIGIN(origin), {receiver: 0}, xx=True)
    redis.zadd(keys.ORIGINS(), {origin: 0}, xx=True)


def places_of(redis: Redis, delivery_id: str) -> tuple[str, str, str]:
    """The hook, the receiver and the origin of a delivery."""
    hook, receiver, origin = redis.hmget(  # type: ignore[misc]
        keys.DELIVERY(delivery_id), "hook", "receiver", "origin"
    )
    return hook, receiver, origin
