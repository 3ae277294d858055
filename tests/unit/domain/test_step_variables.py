from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.domain.step_variables import (
    VariableRow,
    emptied,
    mapped,
    mock_envelope,
    problems,
    rows_for,
)

FIELDS = {"subject": "A subject line.", "body": "One sentence."}
DERIVED = (VariableRow("subject", "fields.subject"), VariableRow("body", "fields.body"))
RAW = VariableRow("raw", "text")
DECLARED = ("subject", "body", "raw", "other")

names = st.sampled_from(["a", "b", "c", "d"])
paths = st.one_of(st.just("text"), names.map(lambda name: f"fields.{name}"), st.just("fields"))
rows_of = st.lists(st.builds(VariableRow, names, paths), max_size=6)
fields_of = st.lists(names, unique=True).map(lambda keys: dict.fromkeys(keys, "x"))


@pytest.mark.req("B25")
def test_each_field_gets_a_row_that_writes_the_variable_of_its_name() -> None:
    assert rows_for(FIELDS, []) == DERIVED


@pytest.mark.req("B25")
def test_rows_that_no_field_owns_survive_behind_those_of_the_fields() -> None:
    gone = VariableRow("other", "fields.gone")

    assert rows_for(FIELDS, [gone, RAW]) == (*DERIVED, gone, RAW)
    assert rows_for({}, [RAW, gone]) == (RAW, gone)


@pytest.mark.req("B25")
def test_a_field_with_a_row_of_its_own_keeps_it() -> None:
    own = VariableRow("other", "fields.body")

    assert rows_for(FIELDS, [RAW, own]) == (DERIVED[0], own, RAW)


@pytest.mark.req("B25")
@given(fields_of, rows_of)
def test_no_row_is_lost_and_every_field_is_written(
    fields: Mapping[str, str], rows: Sequence[VariableRow]
) -> None:
    made = rows_for(fields, rows)

    assert rows_for(fields, made) == made
    assert all(made.count(row) == rows.count(row) for row in rows)
    assert all(any(row.result_path == f"fields.{name}" for row in made) for name in fields)
    owned = [row for row in rows if row.result_path.removeprefix("fields.") in fields]
    unowned = [row for row in rows if row not in owned]
    assert list(made[len(made) - len(unowned) :]) == unowned


@pytest.mark.req("B25", "B35")
def test_rows_and_fields_that_fit_the_workflow_have_no_problems() -> None:
    assert problems([RAW], FIELDS, DECLARED) == []
    assert problems(rows_for(FIELDS, [RAW]), FIELDS, DECLARED) == []


@pytest.mark.req("B25", "B35")
def test_a_field_that_names_no_variable_is_refused() -> None:
    assert problems([], FIELDS, ["body"]) == [
        ("output_fields.subject", "is no variable that this workflow declares")
    ]


@pytest.mark.req("B25", "B35")
@pytest.mark.parametrize(
    "path", ["", "Text", "text.", "fields", "fields.", "fields.gone", "fields.subject.x", "x"]
)
def test_a_row_that_takes_from_nowhere_is_refused(path: str) -> None:
    ((place, reason),) = problems([RAW, VariableRow("other", path)], FIELDS, DECLARED)

    assert place == "output_variable.1.result_path"
    assert "'text'" in reason


@pytest.mark.req("B25", "B35")
def test_a_row_for_a_variable_that_is_not_declared_is_refused() -> None:
    assert problems([VariableRow("nope", "text")], FIELDS, DECLARED) == [
        ("output_variable.0.key", "is no variable that this workflow declares")
    ]


@pytest.mark.req("B25")
@pytest.mark.parametrize(
    ("rows", "place"),
    [
        ([RAW, VariableRow("raw", "fields.body")], "output_variable.1.key"),
        ([RAW, RAW], "output_variable.1.key"),
        ([VariableRow("subject", "text")], "output_variable.0.key"),
    ],
)
def test_one_variable_written_twice_is_refused(rows: Sequence[VariableRow], place: str) -> None:
    assert problems(rows, FIELDS, DECLARED) == [(place, "is written by a field or row already")]


@pytest.mark.req("B25")
@given(fields_of, rows_of, st.sets(names))
def test_what_has_no_problems_writes_each_declared_variable_once(
    fields: Mapping[str, str], rows: Sequence[VariableRow], declared: set[str]
) -> None:
    if problems(rows, fields, declared):
        return
    made = rows_for(fields, rows)
    written = [row.key for row in made]
    assert len(written) == len(set(written))
    assert set(written) <= declared
    envelope = {"text": "t", "fields": dict.fromkeys(fields, "f")}
    assert all(mapped(envelope, made, {})[key] in {"t", "f"} for key in written)


@pytest.mark.req("B25")
def test_results_are_written_into_the_variables_of_the_rows_and_into_no_other() -> None:
    envelope = {"text": "Hello.", "fields": {"subject": "Hi", "body": ""}}
    before = {"raw": "old", "other": 7, "body": "old"}

    after = mapped(envelope, (*DERIVED, RAW), before)

    assert after == {"raw": "Hello.", "other": 7, "body": "", "subject": "Hi"}
    assert before["raw"] == "old"


@pytest.mark.req("B25")
@pytest.mark.parametrize("fields", [{}, {"subject": None}, {"subject": 3}])
def test_what_the_envelope_does_not_have_as_a_text_is_empty(fields: Mapping[str, object]) -> None:
    envelope = {"text": "t", "fields": fields}

    assert mapped(envelope, DERIVED[:1], {"subject": "old"}) == {"subject": ""}


@pytest.mark.req("B29")
def test_a_failed_step_of_a_run_that_goes_on_empties_its_variables_alone() -> None:
    before = {"subject": "old", "other": 7}

    assert emptied((*DERIVED, RAW), before) == {"subject": "", "body": "", "raw": "", "other": 7}


@pytest.mark.req("B32")
def test_mocked_values_say_that_they_are_made_up() -> None:
    envelope = mock_envelope(FIELDS)

    assert list(envelope["fields"]) == list(FIELDS)
    assert envelope["fields"]["subject"] == "Example value for `subject`"
    assert "made-up" in envelope["text"]
    assert "Turn on real requests" in envelope["text"]
