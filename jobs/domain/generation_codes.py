"""How can a generation end badly, and what does its author get to read? (B6)

The codes are a contract; the sentences surface in run logs, so they say what to do next.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class GenerationCode(StrEnum):
    """Why a generation, or a request for one, failed (B6)."""

    QUOTA_EXCEEDED = "quota_exceeded"
    INVALID_MODEL = "invalid_model"
    OUTPUT_TOO_LARGE = "output_too_large"
    MODEL_REFUSED = "model_refused"
    MALFORMED_OUTPUT = "malformed_output"
    GATEWAY_UNAVAILABLE = "gateway_unavailable"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    CAPACITY_UNAVAILABLE = "capacity_unavailable"
    FEATURE_UNAVAILABLE = "feature_unavailable"
    THROTTLED = "throttled"


COPY: Final[Mapping[GenerationCode, str]] = {
    GenerationCode.QUOTA_EXCEEDED: (
        "Your organization has no AI credits left for this. Ask an administrator to raise the"
        " credit limit, then run this step again."
    ),
    GenerationCode.INVALID_MODEL: (
        "This model can't be used to generate text. Pick another model in the step."
    ),
    GenerationCode.OUTPUT_TOO_LARGE: (
        "The generated text is larger than a workflow variable can hold (4096 bytes). Ask for a"
        " shorter text, or for fewer output fields."
    ),
    GenerationCode.MODEL_REFUSED: (
        "The model declined to answer this prompt. Reword the prompt, or pick another model."
    ),
    GenerationCode.MALFORMED_OUTPUT: (
        "The model's answer could not be read, twice. Simplify the output fields, or pick another"
        " model."
    ),
    GenerationCode.GATEWAY_UNAVAILABLE: (
        "The model's provider did not answer as it should. This is not retried; run the step"
        " again later, or pick another model."
    ),
    GenerationCode.DEADLINE_EXCEEDED: (
        "The generation did not finish in time. Shorten the prompt, or pick a faster model."
    ),
    GenerationCode.CAPACITY_UNAVAILABLE: (
        "Too many generations were waiting, so this one was not started and costs nothing. Run"
        " the step again later."
    ),
    GenerationCode.FEATURE_UNAVAILABLE: (
        "Text generation is not enabled for this project. Ask support for access."
    ),
    GenerationCode.THROTTLED: (
        "Too many generations were submitted within a minute. Try again when the time in"
        " Retry-After has passed."
    ),
}
"""What a code says where nothing more is known; a stored message wins over it."""
