"""How does a template become a prompt? (B24)

Liquid: `{{ person.name }}` and `{% if … %}` are evaluated, a bare `{` is text. Values are data:
what looks like a tag inside one is never evaluated. A template is the author's, its values are
anybody's, so rendering is bounded in time and size, and no error quotes a value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from liquid.exceptions import (
    BlockNestingError,
    ContextDepthError,
    LiquidError,
    LiquidSyntaxError,
    OutputStreamLimitError,
    UnknownFilterError,
)

from jobs.domain.errors import GenqueueError
from jobs.domain.step import TEMPLATE_MAX_BYTES
from jobs.domain.storable_text import storable
from jobs.liquid_bounds import (
    OUTPUT_MAX_BYTES,
    RENDER_WITHIN_S,
    BoundedContext,
    BoundError,
    Clock,
    FilterUnfitError,
    PromptEnvironment,
    prepared,
)

TAG_MAX_CHARS: Final = 2_000
SPACES_IN_TAG_MAX: Final = 100
MESSAGE_MAX_CHARS: Final = 200

_ENVIRONMENT: Final = PromptEnvironment()
_OPENING: Final = re.compile(r"\{\{|\{%")
_VERBATIM: Final = re.compile(r"\{%-?\s*(raw|doc)\s*-?%\}")
_SPACES: Final = re.compile(rf"\s{{{SPACES_IN_TAG_MAX + 1}}}")
_OUR_WORDS: Final = (BoundError, FilterUnfitError, UnknownFilterError)


class PromptTemplateError(GenqueueError):
    """The template can't be rendered: `message` says why and quotes no value, `line` says where,
    counted from 1, None where it is no single place."""

    def __init__(self, message: str, line: int | None = None) -> None:
        self.message = message
        self.line = line
        super().__init__(message if line is None else f"line {line}: {message}")


def render(
    template: str, variables: Mapping[str, Any], *, within_s: float = RENDER_WITHIN_S
) -> str:
    """The prompt: at most 256 KB, in about a second at most. What `variables`, a JSON object, does
    not have is empty. Raises PromptTemplateError."""
    source = storable(template)
    if len(source.encode()) > TEMPLATE_MAX_BYTES:
        raise PromptTemplateError(f"the template is longer than {TEMPLATE_MAX_BYTES} bytes")
    _check_tags(source)
    clock = Clock(within_s)
    is_parsed = False
    try:
        parsed = _ENVIRONMENT.bounded(_ENVIRONMENT.from_string(source))
        is_parsed = True
        context = BoundedContext(parsed, prepared(variables), clock)
        output = context.get_buffer()
        parsed.render_with_context(context, output)
    except LiquidError as error:
        message = _message(error, is_parsed=is_parsed)
        raise PromptTemplateError(message, _line(source, error)) from None
    except RecursionError:
        raise PromptTemplateError("it is nested too deeply") from None
    except Exception as error:
        # A surprise of the library's is not worth more than its kind: its text may quote a value.
        message = f"it can't be rendered with these values ({type(error).__name__})"
        raise PromptTemplateError(message) from None
    return output.getvalue()


def _check_tags(source: str) -> None:
    """Refuse what the library's patterns would take minutes to look at: tags that are not closed,
    very long ones, and long runs of spaces in one."""
    position = 0
    while (opening := _OPENING.search(source, position)) is not None:
        start = opening.start()
        closing = "}}" if opening.group() == "{{" else "%}"
        line = source.count("\n", 0, start) + 1
        end = source.find(closing, start + 2)
        if end < 0:
            raise PromptTemplateError(f"'{opening.group()}' has no '{closing}'", line)
        if end - start > TAG_MAX_CHARS:
            raise PromptTemplateError(f"a tag has at most {TAG_MAX_CHARS} characters", line)
        if _SPACES.search(source, start, end):
            raise PromptTemplateError(f"more than {SPACES_IN_TAG_MAX} spaces in a tag", line)
        position = end + 2
        verbatim = _VERBATIM.fullmatch(source, start, position)
        if verbatim:
            closed = re.compile(rf"\{{%-?\s{{0,99}}end{verbatim.group(1)}\s{{0,99}}-?%\}}").search(
                source, position
            )
            if closed is None:
                raise PromptTemplateError(f"'{verbatim.group(1)}' has no end", line)
            position = closed.end()


def _message(error: LiquidError, *, is_parsed: bool) -> str:
    if isinstance(error, _OUR_WORDS):
        return str(error.message)
    if isinstance(error, OutputStreamLimitError):
        return f"the prompt would be longer than {OUTPUT_MAX_BYTES} bytes"
    if isinstance(error, BlockNestingError | ContextDepthError):
        return "it is nested too deeply"
    if type(error) is LiquidSyntaxError:
        # It tells of the template alone; those derived from it may quote values.
        return " ".join(str(error.message).split())[:MESSAGE_MAX_CHARS]
    return "a value can't be used in this way" if is_parsed else "it can't be read"


def _line(source: str, error: LiquidError) -> int | None:
    token = error.token
    if token is None or token.start_index < 0 or token.source != source:
        return None
    return source.count("\n", 0, token.start_index) + 1
