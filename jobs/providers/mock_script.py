"""What do the directives in a prompt ask of the mock, and whom do they mean? (C1)

Their words are listed in jobs.providers.mock. In a turn with a planner a directive is for the
tasks unless it says `planning`. A task's prompt quotes the caller's message as data, and what is
data is not obeyed: a task does what its own instruction says, so a directive lasts beyond the
planner only where it is `sticky`.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from jobs.domain.errors import AttemptError, ErrorKind, Fault
from jobs.domain.turn_plan import Awaiting

MARK: Final = "[[mock "
KIND_OF_FAULT: Final = MappingProxyType(
    {
        Fault.REFUSED: ErrorKind.PROVIDER_4XX,
        Fault.CUT_OFF: ErrorKind.PARSE,
        Fault.MALFORMED: ErrorKind.PARSE,
    }
)

_PLANNING: Final = "planning"
_STICKY: Final = "sticky"
_DIRECTIVE: Final = re.compile(r"\[\[mock ([^\]]*)\]\]")
_SECONDS: Final = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6})?")
_KINDS: Final = frozenset(ErrorKind)

# As jobs.domain.planner_prompts marks off data. What is called `text` is a generation's.
_DATA_BEGINS: Final = re.compile(r"<<<(request|failures|result [0-9]+) [0-9a-f]{8,64}")
_REQUEST: Final = "request"


@dataclass(frozen=True, slots=True)
class MockScript:
    """What a prompt asks of the mock: wait, then fail, answer with a fault or answer; `times`
    None fails always. An `error` goes before a `fault`: it is no answer at all. `awaiting` is
    what a planner asks for in place of a plan."""

    delay_s: float = 0.0
    hangs: bool = False
    error: ErrorKind | None = None
    fault: Fault = Fault.NONE
    retry_after_s: float | None = None
    times: int | None = None
    awaiting: Awaiting | None = None


def parse_script(prompt: str, *, is_planner: bool = False) -> MockScript:
    """The script that the directives in `prompt` make for its call, that of a planner or any
    other; a later word wins over an earlier one.

    Raises AttemptError (provider_4xx) for a word that is none.
    """
    fields: dict[str, Any] = {}
    for directive in _directives(prompt, is_planner=is_planner):
        words = directive.split()
        if (_PLANNING in words) is is_planner:
            fields.update(
                _parse_word(word, is_planner=is_planner)
                for word in words
                if word not in (_PLANNING, _STICKY)
            )
    return MockScript(**fields)


def sticky_directives(prompt: str) -> str:
    """The directives of a planner's prompt that its tasks are to be given, each once."""
    sticky = [
        f"{MARK}{directive}]]"
        for directive in _directives(prompt, is_planner=True)
        if _STICKY in directive.split()
    ]
    return " ".join(dict.fromkeys(sticky))


def lasting(prompt: str) -> str:
    """`prompt` without the codes of its marker lines, which are others each time."""
    lines = prompt.split("\n")
    for begin, end, name in _data_in(lines):
        lines[begin] = lines[end] = name
    return "\n".join(lines)


def _directives(prompt: str, *, is_planner: bool) -> list[str]:
    """Those that are obeyed: of the data only those in the request, and there only by a planner.
    A failed plan, as the failures tell of it, may end in the middle of a directive."""
    lines = prompt.split("\n")
    for begin, end, name in _data_in(lines):
        if name != _REQUEST or not is_planner:
            lines[begin:end] = [""] * (end - begin)
    return _DIRECTIVE.findall("\n".join(lines))


def _data_in(lines: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """The first and the last line of each piece of data, with its name."""
    places: dict[str, list[int]] = {}
    for number, line in enumerate(lines):
        places.setdefault(line, []).append(number)
    passed = -1
    for begin, line in enumerate(lines):
        mark = _DATA_BEGINS.fullmatch(line) if begin > passed else None
        if mark is not None:
            ends = places.get(f"{line.removeprefix('<<<')}>>>", [])
            after = bisect(ends, begin)
            if after < len(ends):
                passed = ends[after]
                yield begin, passed, mark[1]


def _parse_word(word: str, *, is_planner: bool) -> tuple[str, Any]:
    key, _, value = word.partition("=")
    if word == "hang":
        return "hangs", True
    if key == "error" and value in _KINDS:
        return "error", ErrorKind(value)
    if key == "fault" and value in KIND_OF_FAULT:
        return "fault", Fault(value)
    if key in ("delay", "retry_after") and _SECONDS.fullmatch(value):
        return f"{key}_s", float(value)
    if key == "times" and value.isascii() and value.isdigit() and len(value) <= 6:
        return "times", int(value)
    if key == "awaiting" and value in list(Awaiting) and is_planner:
        return "awaiting", Awaiting(value)
    raise AttemptError(ErrorKind.PROVIDER_4XX, f"the mock knows no directive {word[:40]!r}")
