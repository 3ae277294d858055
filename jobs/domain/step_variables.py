"""Which workflow variables does a step write, and what does it write into them? (B25, B29, B32)

Pure. A row of `output_variable` maps a place in the generation's envelope to a variable. A field
brings its own row; other rows are the author's and stay as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

TEXT_PATH: Final = "text"
FIELDS_PREFIX: Final = "fields."

MOCK_TEXT: Final = (
    "This is a made-up example, no model was asked. Turn on real requests to run the prompt."
)


@dataclass(frozen=True, slots=True)
class VariableRow:
    """The variable `key` gets what `result_path` names: `text`, or `fields.` and a field."""

    key: str
    result_path: str


def rows_for(
    output_fields: Mapping[str, str], rows: Sequence[VariableRow]
) -> tuple[VariableRow, ...]:
    """All rows of a step: those of its fields in the fields' order, then the others in theirs.

    A field whose path no row has gets one that writes the variable of its own name.
    """
    of_fields: list[VariableRow] = []
    for name in output_fields:
        path = FIELDS_PREFIX + name
        own = [row for row in rows if row.result_path == path]
        of_fields += own or [VariableRow(name, path)]
    return (*of_fields, *(row for row in rows if _field_of(row) not in output_fields))


def problems(
    rows: Sequence[VariableRow], output_fields: Mapping[str, str], declared: Collection[str]
) -> list[tuple[str, str]]:
    """What is wrong with the rows as given, before or after `rows_for`: pairs of a path and a
    reason, fields first; empty where nothing is. `declared` are the workflow's variables.

    A path is `output_fields.<name>`, `output_variable.<position>.key` or `.result_path`.
    """
    found = [
        (f"output_fields.{name}", "is no variable that this workflow declares")
        for name in output_fields
        if name not in declared
    ]
    derived = [row for row in rows_for(output_fields, rows) if row not in rows]
    written = Counter(row.key for row in derived)
    for position, row in enumerate(rows):
        place = f"output_variable.{position}"
        if row.key not in declared:
            found.append((f"{place}.key", "is no variable that this workflow declares"))
        if written[row.key]:
            found.append((f"{place}.key", "is written by a field or row already"))
        written[row.key] += 1
        if row.result_path != TEXT_PATH and _field_of(row) not in output_fields:
            reason = "must be 'text', or 'fields.' and the name of an output field"
            found.append((f"{place}.result_path", reason))
    return found


def mapped(
    envelope: Mapping[str, Any], rows: Sequence[VariableRow], variables: Mapping[str, Any]
) -> dict[str, Any]:
    """The variables after a step: each row's is a text, empty where the envelope has none."""
    return {**variables, **{row.key: _value_of(envelope, row) for row in rows}}


def emptied(rows: Sequence[VariableRow], variables: Mapping[str, Any]) -> dict[str, Any]:
    """The variables after a step that failed in a run that goes on (B29)."""
    return {**variables, **{row.key: "" for row in rows}}


def mock_envelope(output_fields: Mapping[str, str]) -> dict[str, Any]:
    """What a test walk gets in place of a generation: nobody takes it for a real one (B32)."""
    return {
        "text": MOCK_TEXT,
        "fields": {name: f"Example value for `{name}`" for name in output_fields},
    }


def _field_of(row: VariableRow) -> str | None:
    """The field that the row's path names; None where it names none."""
    if not row.result_path.startswith(FIELDS_PREFIX):
        return None
    return row.result_path.removeprefix(FIELDS_PREFIX)


def _value_of(envelope: Mapping[str, Any], row: VariableRow) -> str:
    name = _field_of(row)
    value = envelope.get(TEXT_PATH) if name is None else envelope.get("fields", {}).get(name)
    return value if isinstance(value, str) else ""
