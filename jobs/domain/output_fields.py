"""May an output field have this name and this instruction? (B3, B13)

Pure. A name becomes a property of the extraction schema, a key of the result and the name of a
workflow variable: it has to mean the same in all three.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Final

FIELDS_MAX: Final = 50
NAME_MAX_CHARS: Final = 64
INSTRUCTION_MAX_CHARS: Final = 2_000

# Names that mean something else to JavaScript, in which workflows read their variables.
_TAKEN: Final = frozenset({"__proto__", "constructor", "prototype"})


def field_problems(output_fields: Mapping[str, object]) -> list[tuple[str, str]]:
    """What is wrong with `output_fields`, name to instruction: pairs of a field's name and a
    reason, in the fields' order; empty where all may be asked for. The name is "" where there are
    too many: of those the first 50 are looked at.

    A name is 1 to 64 letters, digits, `_` or `-` and begins with a letter or `_`. Two names that
    a reader takes for one (NFKC, case folded) are both named.
    """
    problems: list[tuple[str, str]] = []
    names_of: dict[str, list[str]] = {}
    for position, (name, instruction) in enumerate(output_fields.items()):
        if len(name) <= NAME_MAX_CHARS:
            names_of.setdefault(_folded(name), []).append(name)
        if position >= FIELDS_MAX:
            problems.append(("", f"has more than {FIELDS_MAX} fields"))
            break
        reasons = (_name_problem(name), _instruction_problem(instruction))
        problems.extend((name, reason) for reason in reasons if reason)
    for name, *others in names_of.values():
        problems.extend((other, f"reads the same as the field {name!r}") for other in others)
    return problems


def _folded(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold()


def _name_problem(name: str) -> str:
    if not 0 < len(name) <= NAME_MAX_CHARS:
        return f"a name has 1 to {NAME_MAX_CHARS} characters"
    if not (_is_letter(name[0]) or name[0] == "_"):
        return "a name begins with a letter or '_'"
    if not all(_is_letter(char) or _is_part(char) or char in "_-" for char in name):
        return "a name is letters, digits, '_' and '-'"
    if name in _TAKEN or (name.startswith("__") and name.endswith("__")):
        return "this name is taken"
    return ""


def _instruction_problem(instruction: object) -> str:
    if not isinstance(instruction, str):
        return "must be a text"
    if not instruction.strip():
        return "an instruction must say what the field is to hold"
    if len(instruction) > INSTRUCTION_MAX_CHARS:
        return f"an instruction has at most {INSTRUCTION_MAX_CHARS} characters"
    return ""


def _is_letter(char: str) -> bool:
    return unicodedata.category(char).startswith("L")


def _is_part(char: str) -> bool:
    """A digit, or a mark that belongs to the letter before it: Hindi and Thai write with them."""
    return unicodedata.category(char) in {"Nd", "Mn", "Mc"}
