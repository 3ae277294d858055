"""What do the tests of the stack share? An API that plays back prepared answers."""

from collections.abc import Iterator

import pytest

from tests.unit.stack.played_api import Api, played_api


@pytest.fixture
def api() -> Iterator[Api]:
    with played_api() as played:
        yield played
