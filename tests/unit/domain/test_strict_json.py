import pytest

from jobs.domain.strict_json import parse_strict

pytestmark = pytest.mark.case("LLM-17")


@pytest.mark.parametrize(
    "text",
    [
        '{"a": NaN}',
        '{"a": -Infinity}',
        '{"a": 1e999}',
        '{"a": 1, "a": 2}',
        "[" * 100_000,
        "9" * 5_000,
        '{"a": 1',
        "",
    ],
    ids=["nan", "infinity", "overflow", "twice", "deep", "digits", "cut", "empty"],
)
def test_what_is_no_strict_json_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # the kind is all that is promised
        parse_strict(text)


def test_an_error_quotes_nothing_of_the_text() -> None:
    with pytest.raises(ValueError, match="not JSON at character 11") as caught:
        parse_strict('{"canary": "my secret')

    assert "canary" not in str(caught.value)
    assert not hasattr(caught.value, "doc")


def test_plain_json_is_read_as_it_is() -> None:
    assert parse_strict('{"a": [1, 2.5, null, "x", true], "b": {}}') == {
        "a": [1, 2.5, None, "x", True],
        "b": {},
    }
