import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.domain.output_fields import field_problems

pytestmark = pytest.mark.req("B3")


@pytest.mark.parametrize(
    "name", ["subject_line", "_", "a", "A-1", "größe", "件名", "x" * 64, "__a", "proto"]
)
def test_a_name_of_letters_digits_and_dashes_may_be_asked_for(name: str) -> None:
    assert field_problems({name: "A short subject line."}) == []


@pytest.mark.case("SEC-07")
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "1 to 64"),
        ("x" * 65, "1 to 64"),
        ("1st", "begins with"),
        ("-a", "begins with"),
        ("a b", "letters, digits"),
        ("a.b", "letters, digits"),
        ('a"b', "letters, digits"),
        ("a\n", "letters, digits"),
        ("a\x00", "letters, digits"),
        ("a\u200b", "letters, digits"),
        ("a\ud83d", "letters, digits"),
        ("a²", "letters, digits"),
        ("__proto__", "taken"),
        ("__any__", "taken"),
        ("____", "taken"),
        ("constructor", "taken"),
        ("prototype", "taken"),
    ],
)
def test_a_name_that_is_none_is_refused_with_its_reason(name: str, reason: str) -> None:
    ((named, problem),) = field_problems({name: "An instruction."})

    assert named == name
    assert reason in problem


@pytest.mark.parametrize(
    ("first", "second"),
    [("Subject", "subject"), ("file", "ﬁle"), ("file", "ｆｉｌｅ"), ("straße", "STRASSE")],
)
def test_two_names_that_read_the_same_are_refused_naming_both(first: str, second: str) -> None:
    assert field_problems({first: "x", "other": "x", second: "x"}) == [
        (second, f"reads the same as the field {first!r}")
    ]


@pytest.mark.parametrize(("instruction", "is_fine"), [(" \n\t", False), ("", False), ("x", True)])
def test_an_instruction_must_say_something(instruction: str, is_fine: bool) -> None:
    assert (field_problems({"a": instruction}) == []) is is_fine


def test_an_instruction_has_at_most_2000_characters() -> None:
    assert field_problems({"a": "ä" * 2000}) == []
    ((_, reason),) = field_problems({"a": "ä" * 2001})
    assert "at most 2000" in reason


def test_there_are_at_most_50_fields() -> None:
    fields = {f"f{number}": "x" for number in range(50)}
    assert field_problems(fields) == []

    assert field_problems({**fields, "one_more": "x", "and_more": "x"}) == [
        ("", "has more than 50 fields")
    ]


def test_all_problems_are_named_at_once() -> None:
    problems = field_problems({"1": "", "fine": "x", "a b": "y" * 3000, "-": 5})

    assert [name for name, _ in problems] == ["1", "1", "a b", "a b", "-", "-"]
    assert problems[-1] == ("-", "must be a text")


@given(st.text(alphabet=st.characters(exclude_categories=()), max_size=70))
def test_a_name_that_is_let_through_is_plain_text(name: str) -> None:
    if not field_problems({name: "x"}):
        name.encode()
        assert name.isprintable()
        assert not any(
            unicodedata.category(char)[0] in "ZCP" for char in name.strip("_-") if char not in "_-"
        )
