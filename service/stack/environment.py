"""What does the environment say to the stack, and what do its children get to see of it?"""

import os
from collections.abc import Mapping
from dataclasses import dataclass

DEFAULT_PORT = 8080
MOCK_MODEL = "mock-1"
EXTRACTION_MODEL = "GENQUEUE_EXTRACTION_MODEL"
FORMATION_KEYS = "GENQUEUE_FORMATION_KEYS"
WEBHOOK_NETWORKS = "GENQUEUE_WEBHOOK_NETWORKS"
LOOPBACK = "127.0.0.0/8,::1/128"
KEY_OF_THE_SHIPPED_MODEL = "OPENAI_API_KEY"
"""The shipped extraction model can be called where this is set."""


@dataclass(frozen=True, slots=True)
class StackEnvironment:
    """`redis_url` is None where the stack shall run a server of its own."""

    redis_url: str | None
    port: int
    inherited: Mapping[str, str]

    @property
    def client_key(self) -> str:
        """The first client key that the environment names; empty where it names none."""
        return self.inherited.get(FORMATION_KEYS, "").split(",")[0].strip()

    @property
    def extracts_by_mock(self) -> bool:
        """Whether the mock reads the fields out of generations: it is told to, or nothing else
        is set up that could."""
        named = self.inherited.get(EXTRACTION_MODEL)
        if named:
            return named == MOCK_MODEL
        return not self.inherited.get(KEY_OF_THE_SHIPPED_MODEL)

    def for_children(self, redis_url: str, client_key: str) -> dict[str, str]:
        """The environment of every child: ours, with the address of the Redis in use, with an
        extraction model that can be called, and, where none are set, with a client key of the
        formation and this machine among the receivers of webhooks."""
        seen = {**self.inherited, "REDIS_URL": redis_url, "PYTHONUNBUFFERED": "1"}
        for name, value in ((FORMATION_KEYS, client_key), (WEBHOOK_NETWORKS, LOOPBACK)):
            seen[name] = seen.get(name) or value
        if self.extracts_by_mock:
            seen[EXTRACTION_MODEL] = MOCK_MODEL
        return seen


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
