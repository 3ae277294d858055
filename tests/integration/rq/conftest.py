"""What do the tests of RQ's own tools share? The processes and the submit of the workers' tests."""

from tests.integration.worker.conftest import ships, submit

__all__ = ["ships", "submit"]
