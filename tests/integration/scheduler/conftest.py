"""What do the tests of the clock share? The processes and the submit of the workers' tests."""

import pytest

from tests.integration.worker.conftest import ships, submit

__all__ = ["ships", "submit"]


@pytest.fixture(autouse=True)
def environment(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ticks that run in the test's process read the same settings as elsewhere."""
    monkeypatch.setenv("REDIS_URL", redis_url)
