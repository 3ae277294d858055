"""What was tried, why did it fail, and what would unblock it?"""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from jobs.domain.canonical_json import canonical_json
from jobs.domain.errors import ErrorKind
from jobs.domain.escalation import AttemptEntry, ChainState, Failure
from jobs.domain.generation_prompts import collapsed
from jobs.domain.give_up_report import NO_PLAN, report, report_markdown
from jobs.domain.turn_plan import Plan, Task

pytestmark = pytest.mark.req("C13")

BEGAN_MS = 1_700_000_000_000
Q3 = Plan((Task("a", "Fetch Q3 revenue"), Task("b", "build chart")))
WAREHOUSE = Plan((Task("a", "Read Q3 revenue from the warehouse"), Task("b", "build chart")))
ENTRIES = (
    AttemptEntry(1, Q3, Failure(ErrorKind.TIMEOUT, "reporting_api timed out after 15s")),
    AttemptEntry(2, WAREHOUSE, Failure(ErrorKind.UNKNOWN, "warehouse query returned no rows")),
)


def made(*entries: AttemptEntry, took_ms: int = 412_508, **changes: str) -> dict[str, object]:
    texts = {
        "detail": "all 1 async attempt(s) failed",
        "request_id": "req_abc123",
        "original_message": "Pull the Q3 numbers and chart them",
        **changes,
    }
    state, ended_ms = ChainState.BUDGET_EXHAUSTED, BEGAN_MS + took_ms
    return report(state, **texts, entries=entries, created_at_ms=BEGAN_MS, ended_at_ms=ended_ms)


def failed(number: int, reason: str, plan: Plan | None = Q3) -> AttemptEntry:
    return AttemptEntry(number, plan, Failure(ErrorKind.UNKNOWN, reason))


# The report


def test_a_report_has_the_fields_of_the_contract_in_their_order() -> None:
    account = made(*ENTRIES)

    assert account == {
        "state": "budget_exhausted",
        "detail": "all 1 async attempt(s) failed",
        "request_id": "req_abc123",
        "original_message": "Pull the Q3 numbers and chart them",
        "attempts": [
            {
                "attempt": 1,
                "kind": "sync",
                "plan_summary": "Fetch Q3 revenue; build chart",
                "failure_reason": "reporting_api timed out after 15s",
            },
            {
                "attempt": 2,
                "kind": "async",
                "plan_summary": "Read Q3 revenue from the warehouse; build chart",
                "failure_reason": "warehouse query returned no rows",
            },
        ],
        "what_would_unblock": (
            "Address the underlying failure(s) and resubmit: reporting_api timed out after 15s; "
            "warehouse query returned no rows"
        ),
        "wall_time_seconds": 412.508,
    }
    assert list(account) == [
        "state",
        "detail",
        "request_id",
        "original_message",
        "attempts",
        "what_would_unblock",
        "wall_time_seconds",
    ]


def test_the_same_history_makes_the_same_bytes() -> None:
    again = made(*copy.deepcopy(ENTRIES))

    assert canonical_json(made(*ENTRIES)) == canonical_json(again)
    assert canonical_json(again) == (
        b'{"attempts":[{"attempt":1,"failure_reason":"reporting_api timed out after 15s",'
        b'"kind":"sync","plan_summary":"Fetch Q3 revenue; build chart"},{"attempt":2,'
        b'"failure_reason":"warehouse query returned no rows","kind":"async","plan_summary":'
        b'"Read Q3 revenue from the warehouse; build chart"}],"detail":"all 1 async attempt(s) '
        b'failed","original_message":"Pull the Q3 numbers and chart them","request_id":'
        b'"req_abc123","state":"budget_exhausted","wall_time_seconds":412.508,'
        b'"what_would_unblock":"Address the underlying failure(s) and resubmit: reporting_api '
        b'timed out after 15s; warehouse query returned no rows"}'
    )
    assert report_markdown(made(*ENTRIES)) == report_markdown(again)


def test_every_attempt_but_the_first_is_asynchronous() -> None:
    account = made(*(failed(number, "x") for number in range(1, 12)))

    attempts = account["attempts"]
    assert isinstance(attempts, list)
    assert [attempt["kind"] for attempt in attempts] == ["sync"] + ["async"] * 10
    assert [attempt["attempt"] for attempt in attempts] == list(range(1, 12))


def test_an_attempt_without_a_plan_says_so() -> None:
    attempts = made(failed(1, "x", plan=None))["attempts"]

    assert isinstance(attempts, list)
    assert attempts[0]["plan_summary"] == NO_PLAN == "no plan was made"


def test_each_reason_is_told_once_in_the_order_in_which_it_first_came() -> None:
    account = made(failed(1, "b"), failed(2, "a"), failed(3, "b"), failed(4, "B"))

    assert account["what_would_unblock"] == (
        "Address the underlying failure(s) and resubmit: b; a; B"
    )


def test_without_a_failure_there_is_a_fixed_sentence() -> None:
    assert made()["what_would_unblock"] == (
        "No failure is on record; the request can be sent again as it is."
    )
    assert made()["attempts"] == []


def test_a_cancelled_chain_may_be_sent_again_whatever_failed_until_then() -> None:
    entries = (failed(1, "b"), failed(2, "a"), failed(3, "b"))
    abandoned = report(ChainState.ABANDONED, "d", "req_1", "m", entries, BEGAN_MS, BEGAN_MS)
    untried = report(ChainState.ABANDONED, "d", "req_1", "m", (), BEGAN_MS, BEGAN_MS)

    assert abandoned["what_would_unblock"] == (
        "It was cancelled; the request can be sent again. Failures until then: b; a"
    )
    assert list(abandoned) == list(made(*ENTRIES))
    assert untried["what_would_unblock"] == made()["what_would_unblock"]


@pytest.mark.parametrize(
    ("took_ms", "seconds"), [(0, 0.0), (1, 0.001), (1_234_567, 1234.567), (-5, 0.0)]
)
def test_the_wall_time_is_seconds_to_the_millisecond_and_never_negative(
    took_ms: int, seconds: float
) -> None:
    assert made(took_ms=took_ms)["wall_time_seconds"] == seconds


@pytest.mark.parametrize("state", sorted(set(ChainState) - {ChainState.ACHIEVED}))
def test_every_state_that_gives_up_is_told_by_its_name(state: ChainState) -> None:
    account = report(state, "d", "r", "m", ENTRIES, BEGAN_MS, BEGAN_MS)

    assert account["state"] == state.value
    assert type(account["state"]) is str


# The Markdown


MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
HOSTILE = [
    "# A heading",
    "a\n# b\r\n- c\n\n> d\n1. e\n***\n=====\n    f",
    "x\n\n## What would unblock it\n\nAdvice: pay",
    "``` sh\nrm -rf /\n```",
    "`code` ``more` ~~~ ~~gone~~",
    "[here](https://evil.example) ![i](x.png) [a][b] [c]: d",
    "<script>alert(1)</script> <!-- <b onclick='x'> <a href=\"x\">",
    "<https://evil.example> <m@evil.example>",
    "&lt;b&gt; &amp; &#35; &copy;",
    "\\# \\\\ \\` \\",
    "**bold** __bold__ *i* _i_ a_b_c ***",
    "| a | b |\n|---|---|\n| c | d |",
    "a  \nb\u2028# c\u2029- d\x0b# e\x0c\x85# f\x00",
    "",
    " ",
    "`",
    "\\",
    "`" * 40,
    "- - - * * *",
]


def texts(markdown: str) -> list[str]:
    """The text of each heading, item and paragraph, as it is shown."""
    return [
        "".join(child.content for child in token.children or ())
        for token in MARKDOWN.parse(markdown)
        if token.type == "inline"
    ]


def shown(value: str) -> str:
    directed = [*range(0x202A, 0x202F), *range(0x2066, 0x206A)]
    return collapsed(value).translate(dict.fromkeys(directed))


def test_the_markdown_tells_all_of_the_report() -> None:
    assert report_markdown(made(*ENTRIES)) == (
        "# Request req\\_abc123 could not be completed\n"
        "\n"
        "- How it ended: budget\\_exhausted\n"
        "- Why: all 1 async attempt(s) failed\n"
        "- What was asked: Pull the Q3 numbers and chart them\n"
        "- Time taken: 412.508 s\n"
        "\n"
        "## What was tried\n"
        "\n"
        "### Attempt 1 (sync)\n"
        "\n"
        "- Plan: Fetch Q3 revenue; build chart\n"
        "- Failure: reporting\\_api timed out after 15s\n"
        "\n"
        "### Attempt 2 (async)\n"
        "\n"
        "- Plan: Read Q3 revenue from the warehouse; build chart\n"
        "- Failure: warehouse query returned no rows\n"
        "\n"
        "## What would unblock it\n"
        "\n"
        "Advice: Address the underlying failure(s) and resubmit: reporting\\_api timed out after "
        "15s; warehouse query returned no rows\n"
    )


def test_the_markdown_of_a_cancelled_chain_says_so_and_advises_no_repair() -> None:
    account = report(ChainState.ABANDONED, "d", "req_1", "m", ENTRIES, BEGAN_MS, BEGAN_MS)

    markdown = report_markdown(account)

    assert markdown.startswith("# Request req\\_1 was cancelled\n\n- How it ended: abandoned\n")
    assert markdown.endswith(
        "## How to go on\n\nAdvice: It was cancelled; the request can be sent again. Failures "
        "until then: reporting\\_api timed out after 15s; warehouse query returned no rows\n"
    )
    assert "could not" not in markdown
    assert "unblock" not in markdown


def check_plain(value: str) -> None:
    plan = Plan((Task("a", value),))
    account = made(failed(1, value, plan), detail=value, original_message=value, request_id=value)
    markdown = report_markdown(account)
    said = texts(markdown)

    benign = report_markdown(made(failed(1, "x")))
    assert [token.type for token in MARKDOWN.parse(markdown)] == [
        token.type for token in MARKDOWN.parse(benign)
    ]
    pieces = {child.type for token in MARKDOWN.parse(markdown) for child in token.children or ()}
    assert pieces <= {"text", "text_special"}
    line = shown(value)
    assert said[0] == f"Request {line} could not be completed"
    assert said[2] == f"Why: {line}".strip()
    assert said[3] == f"What was asked: {line}".strip()
    assert said[7] == f"Plan: {line[:119].rstrip() + '…' if len(line) > 120 else line}".strip()
    assert said[8] == f"Failure: {line}".strip()
    assert not {"<", ">"} & set(markdown)


@pytest.mark.case("SEC-07")
@pytest.mark.parametrize("value", HOSTILE)
def test_no_value_breaks_or_forges_the_markdown_and_each_is_shown_as_it_is(value: str) -> None:
    check_plain(value)


@pytest.mark.case("SEC-07")
@given(
    st.text(alphabet=st.characters(exclude_categories=())).filter(lambda text: len(text) <= 100)
    | st.text(alphabet="`*_[]()<>#-+.!|~&;:=\\ \n\tab1w/@{}$^\"'", max_size=60)
)
def test_whatever_a_value_holds_the_markdown_has_the_same_shape(value: str) -> None:
    check_plain(value)


@pytest.mark.case("SEC-07")
def test_bare_addresses_become_no_links_where_a_renderer_makes_them() -> None:
    markdown = report_markdown(made(failed(1, "see https://evil.example, WWW.evil.example at 1:2")))

    assert "https\\://evil.example, WWW\\.evil.example" in markdown


@pytest.mark.case("SEC-07")
def test_text_can_not_turn_round_what_stands_beside_it() -> None:
    markdown = report_markdown(made(failed(1, "a\u202eb\u2066c\u2069d")))

    assert "- Failure: abcd\n" in markdown


def test_a_long_message_is_cut_in_the_markdown_and_whole_in_the_report() -> None:
    account = made(*ENTRIES, original_message="x" * 5_000)

    assert account["original_message"] == "x" * 5_000
    assert f"- What was asked: {'x' * 1_999}…\n" in report_markdown(account)
