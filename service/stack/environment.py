"""What does the environment say to the stack, and what do its children get to see of it?"""

import os
from collections.abc import Mapping
from dataclasses import dataclass

DEFAULT_PORT = 8080


@dataclass(frozen=True, slots=True)
class StackEnvironment:
    """`redis_url` is None where the stack shall run a server of its own."""

    redis_url: str | None
    port: int
    inherited: Mapping[str, str]

    def for_children(self, redis_url: str) -> dict[str, str]:
        """The environment of every child: ours, with the address of the Redis in use."""
        return {**self.inherited, "REDIS_URL": redis_url, "PYTHONUNBUFFERED": "1"}


def read_environment(variables: Mapping[str, str] = os.environ) -> StackEnvironment:
    """Read REDIS_URL and PORT; everything else is passed on as it is.

    Raises ValueError where PORT is no number.
    """
    port = variables.get("PORT") or str(DEFAULT_PORT)
    if not port.isdecimal():
        raise ValueError(f"PORT is {port!r}, not a port number")
    return StackEnvironment(
        redis_url=variables.get("REDIS_URL") or None,
        port=int(port),
        inherited=dict(variables),
    )
