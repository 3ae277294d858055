"""What does a generation do next, and what may it cost? (B11, B14, B15)

Pure. A `Plan` says which pass to call; told of the answer or the failure, it is the next plan.
One call is repeated at most, that of the pass whose answer was of no use, and no call begins
when 60 s have passed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import Final

from jobs.domain.canonical_json import compact_json
from jobs.domain.errors import AttemptError, ErrorKind, Fault
from jobs.domain.generation_codes import GenerationCode
from jobs.domain.generation_prompts import (
    PassPrompt,
    extraction_prompt,
    extraction_schema,
    parse_extraction,
    text_prompt,
)
from jobs.domain.models import TOKENS_PER_PRICE, ModelSpec
from jobs.domain.storable_text import storable

PASS1_MAX_TOKENS: Final = 1024
PASS2_MAX_TOKENS: Final = 4096
ENVELOPE_MAX_BYTES: Final = 4096
WALL_CLOCK_S: Final = 60
HARD_LIMIT_S: Final = 90

BYTES_PER_TOKEN: Final = 2
"""An estimate on the safe side: plain English has 4 or 5, other scripts 2 to 4."""

_LONGEST_NONCE: Final = "f" * 64


class Flaw(StrEnum):
    """What a model did wrong that it may do right when it is asked again (B15)."""

    REFUSED = "refused"
    TOO_LARGE = "too_large"
    MALFORMED = "malformed"


class Pass(IntEnum):
    """Which call comes next."""

    NONE = 0
    TEXT = 1
    EXTRACTION = 2


@dataclass(frozen=True, slots=True)
class Failure:
    """How a generation ends that has no result; `message` is ours and quotes nothing."""

    kind: ErrorKind
    code: GenerationCode
    message: str


_FLAW_OF_FAULT: Final[Mapping[Fault, Flaw]] = MappingProxyType(
    {
        Fault.REFUSED: Flaw.REFUSED,
        Fault.CUT_OFF: Flaw.TOO_LARGE,
        Fault.MALFORMED: Flaw.MALFORMED,
    }
)
_CODE_OF_FLAW: Final[Mapping[Flaw, GenerationCode]] = MappingProxyType(
    {
        Flaw.REFUSED: GenerationCode.MODEL_REFUSED,
        Flaw.TOO_LARGE: GenerationCode.OUTPUT_TOO_LARGE,
        Flaw.MALFORMED: GenerationCode.MALFORMED_OUTPUT,
    }
)


@dataclass(frozen=True, slots=True)
class Plan:
    """Where a generation stands. `next` is the pass to call, NONE at the end; then either
    `envelope` is the result or `failure` says why there is none.

    `flaw` is what was wrong with the last answer, None where nothing was; `is_retried` that the
    one repetition is used up.
    """

    output_fields: Mapping[str, str] = field(default_factory=dict)
    next: Pass = Pass.TEXT
    text: str = ""
    envelope: str = ""
    failure: Failure | None = None
    flaw: Flaw | None = None
    is_retried: bool = False

    @property
    def asks_for_less(self) -> bool:
        """Whether the next call repeats one whose answer was too large."""
        return self.flaw is Flaw.TOO_LARGE

    def after_answer(self, answer: str, elapsed_s: float) -> Plan:
        """The plan after the called pass answered, `elapsed_s` seconds after the first call
        began."""
        if self.next is Pass.TEXT:
            return self._after_text(storable(answer), elapsed_s)
        fields = parse_extraction(answer, self.output_fields)
        if isinstance(fields, Fault):
            message = "the answer is no object with a text for each field"
            return self._flawed(Flaw.MALFORMED, ErrorKind.PARSE, message, elapsed_s)
        result = envelope(self.text, fields)
        if not fits(result):
            message = f"text and fields are larger than {ENVELOPE_MAX_BYTES} bytes"
            return self._flawed(Flaw.TOO_LARGE, ErrorKind.PARSE, message, elapsed_s)
        return replace(self, next=Pass.NONE, envelope=result, flaw=None)

    def after_failure(self, error: AttemptError, elapsed_s: float) -> Plan:
        """The plan after the called pass failed: what a model may do better is asked once more,
        what lies between us and it is not."""
        flaw = _FLAW_OF_FAULT.get(error.fault)
        if flaw is not None:
            return self._flawed(flaw, error.kind, error.message, elapsed_s)
        is_late = error.kind is ErrorKind.TIMEOUT
        code = GenerationCode.DEADLINE_EXCEEDED if is_late else GenerationCode.GATEWAY_UNAVAILABLE
        return _ended(self, error.kind, code, error.message)

    def _after_text(self, text: str, elapsed_s: float) -> Plan:
        # Fields that are all empty are the least that pass 2 can add: a text that leaves no
        # room for them can't be helped by calling it.
        least = envelope(text, dict.fromkeys(self.output_fields, ""))
        if not fits(least):
            message = f"the text is larger than {ENVELOPE_MAX_BYTES} bytes"
            return self._flawed(Flaw.TOO_LARGE, ErrorKind.PARSE, message, elapsed_s)
        if not self.output_fields:
            return replace(self, next=Pass.NONE, text=text, envelope=least, flaw=None)
        return _in_time(replace(self, next=Pass.EXTRACTION, text=text, flaw=None), elapsed_s)

    def _flawed(self, flaw: Flaw, kind: ErrorKind, message: str, elapsed_s: float) -> Plan:
        if self.is_retried:
            return replace(_ended(self, kind, _CODE_OF_FLAW[flaw], message), flaw=flaw)
        return _in_time(replace(self, flaw=flaw, is_retried=True), elapsed_s)


def _in_time(plan: Plan, elapsed_s: float) -> Plan:
    if elapsed_s < WALL_CLOCK_S:
        return plan
    message = f"no further call begins after {WALL_CLOCK_S} s"
    return _ended(plan, ErrorKind.TIMEOUT, GenerationCode.DEADLINE_EXCEEDED, message)


def _ended(plan: Plan, kind: ErrorKind, code: GenerationCode, message: str) -> Plan:
    failure = Failure(kind, code, f"pass {int(plan.next)}: {message}")
    return replace(plan, next=Pass.NONE, failure=failure)


def envelope(text: str, fields: Mapping[str, str]) -> str:
    """`{"text": …, "fields": {…}}` as compact JSON in characters, not escapes; fields stand in
    the order that `fields` has (B14)."""
    values = {name: storable(value) for name, value in fields.items()}
    return compact_json({"text": storable(text), "fields": values})


def fits(result: str) -> bool:
    """Whether an envelope is within the budget of 4096 bytes of UTF-8."""
    return len(result.encode()) <= ENVELOPE_MAX_BYTES


def held_usd_micros(spec: ModelSpec, asked_bytes: int, max_tokens: int) -> int:
    """What one call may cost in micro-dollars, rounded up: `asked_bytes` of UTF-8 at 2 bytes a
    token, and all the tokens that it may answer. A price that nobody wrote down counts as 0:
    such a model is refused before it is called."""
    asked_tokens = -(-asked_bytes // BYTES_PER_TOKEN)
    total = asked_tokens * (spec.input_usd_micros_per_mtok or 0)
    total += max_tokens * (spec.output_usd_micros_per_mtok or 0)
    return -(-total // TOKENS_PER_PRICE)


def text_call_usd_micros(spec: ModelSpec, prompt: PassPrompt) -> int:
    """What a call of pass 1 may cost."""
    return held_usd_micros(spec, prompt.size_bytes, PASS1_MAX_TOKENS)


def extraction_call_usd_micros(
    spec: ModelSpec, prompt: PassPrompt, output_fields: Mapping[str, str]
) -> int:
    """What a call of pass 2 may cost; its schema is read like a message."""
    schema_bytes = len(storable(compact_json(extraction_schema(output_fields))).encode())
    return held_usd_micros(spec, prompt.size_bytes + schema_bytes, PASS2_MAX_TOKENS)


def reservation_usd_micros(
    spec: ModelSpec,
    extraction_spec: ModelSpec | None,
    prompt: str,
    output_fields: Mapping[str, str],
) -> int:
    """An upper estimate of what a generation costs (B17): both passes with all that they may
    answer, and the dearer of them once more for the one retry. The second pass counts where
    there are fields, with a text as long as the envelope can be. 0 only where prices are 0."""
    first = text_call_usd_micros(spec, text_prompt(prompt, is_shorter=True))
    if extraction_spec is None or not output_fields:
        return 2 * first
    asked = extraction_prompt("", output_fields, lambda: _LONGEST_NONCE, is_shorter=True)
    longest = replace(asked, user=asked.user + "x" * ENVELOPE_MAX_BYTES)
    second = extraction_call_usd_micros(extraction_spec, longest, output_fields)
    return first + second + max(first, second)
