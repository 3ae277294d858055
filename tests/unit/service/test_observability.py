"""Which trace does a request belong to?"""

from __future__ import annotations

import pytest

from service.observability import trace_id

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"

pytestmark = pytest.mark.req("X10")


@pytest.mark.parametrize(
    "header", [f"00-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-00", f"cc-{TRACE}-{SPAN}-01-later"]
)
def test_a_valid_traceparent_names_its_trace(header: str) -> None:
    assert trace_id(header) == TRACE


@pytest.mark.parametrize(
    "header",
    [
        "",
        TRACE,
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-01\n",
        f"00-{TRACE[:-1]}x-{SPAN}-01",
    ],
)
def test_what_is_no_traceparent_is_ignored(header: str) -> None:
    assert trace_id(header) == ""
