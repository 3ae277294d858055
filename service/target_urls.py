"""May something be posted to the URL that a caller named? (X12)"""

from __future__ import annotations

from collections.abc import Sequence

from jobs.delivery.address_guard import Network, check_url
from service.errors import FieldError


def url_problems(field: str, url: str | None, networks: Sequence[Network]) -> list[FieldError]:
    """What is wrong with the URL in `field`, as far as that shows without a name lookup; nothing
    where there is none. `networks` are allowed beside the public ones."""
    if url is None:
        return []
    try:
        check_url(url, networks)
    except ValueError as error:
        return [FieldError(field, str(error))]
    return []
