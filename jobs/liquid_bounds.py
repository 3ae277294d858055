"""What keeps the rendering of a template within its time and size? (B24)

python-liquid bounds the output and the nesting. A filter can make a value of any size out of a
small one, a range can have any length, and neither ends by itself: here each look at a variable,
each filter, each turn of a loop and each assignment passes a check of time and size.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TextIO

from liquid import BoundTemplate, Environment, RenderContext
from liquid.ast import Node
from liquid.builtin.expressions import FilteredExpression
from liquid.builtin.expressions.primitive import RangeLiteral
from liquid.exceptions import LiquidError, UnknownFilterError
from liquid.expression import Expression
from liquid.filter import sequence_filter, string_filter
from liquid.limits import to_int
from liquid.output import LimitedStringIO
from liquid.token import Token
from liquid.undefined import UNDEFINED, Undefined

from jobs.domain.storable_text import storable

OUTPUT_MAX_BYTES: Final = 256 * 1024
LOOP_TURNS_MAX: Final = 10_000
RENDER_WITHIN_S: Final = 1.0

VALUE_MAX_CHARS: Final = 4_000_000
"""Of one value while it is worked on, and of all variables together."""

HTML_MAX_CHARS: Final = 200_000
"""Of what goes through the one filter that parses, at a megabyte a second."""

NESTING_MAX: Final = 50
NUMBER_MAX_BITS: Final = 4_096
DATE_MAX_CHARS: Final = 200

# Other templates can't be loaded, and a prompt is no HTML table.
_TAGS_LEFT_OUT: Final = ("include", "render", "tablerow")


class BoundError(LiquidError):
    """The template goes beyond a bound; the message quotes no value."""


class FilterUnfitError(LiquidError):
    """A filter can't do anything with the value that it got; the message names the filter."""


class Object(dict[str, Any]):
    """An object among the variables; its text is JSON."""

    weight = 0

    def __str__(self) -> str:
        return _json(self)


class Items(list[Any]):
    """A list among the variables."""

    weight = 0

    def __str__(self) -> str:
        return _json(self)


def prepared(value: Any, depth: int = 0) -> Any:
    """A copy of a JSON value that can be rendered, each list and object with its weight. Raises
    BoundError where it is too large or too deep."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, bool | int | float) or value is None:
        return value
    if depth >= NESTING_MAX:
        raise BoundError("the variables are nested too deeply", token=None)
    if isinstance(value, Mapping):
        entries = Object((storable(str(key)), prepared(v, depth + 1)) for key, v in value.items())
        entries.weight = _within(_sum(entries.values()) + _sum(entries))
        return entries
    if isinstance(value, list | tuple):
        items = Items(prepared(item, depth + 1) for item in value)
        items.weight = _within(_sum(items))
        return items
    return storable(str(value))


def weight_of(value: Any) -> int:
    """About how many characters `value` has as a text."""
    if isinstance(value, str):
        return len(value) + 1
    if isinstance(value, Object | Items):
        return value.weight + 1
    if isinstance(value, list | tuple):
        return _sum(value) + 1
    return 8


def _sum(values: Any) -> int:
    return sum(weight_of(value) for value in values)


def _within(weight: int) -> int:
    if weight > VALUE_MAX_CHARS:
        raise BoundError(f"a value has more than {VALUE_MAX_CHARS} characters", token=None)
    return weight


class Clock:
    """The wall clock of one rendering, in seconds from now."""

    def __init__(self, within_s: float) -> None:
        self._within_s = within_s
        self._end_s = time.monotonic() + within_s

    def check(self) -> None:
        """Raise BoundError where the time is up."""
        if time.monotonic() > self._end_s:
            raise BoundError(f"it takes longer than {self._within_s:g} s", token=None)


class BoundedContext(RenderContext):
    """What a rendering template reads and writes, with all that it may use up."""

    def __init__(self, template: BoundTemplate, variables: Object, clock: Clock) -> None:
        super().__init__(template, globals=variables)
        self._clock = clock
        self._turns = 0
        self._weights: dict[str, int] = {}

    def get(
        self, path: list[object], *, token: Token | None, default: object = UNDEFINED
    ) -> object:
        """A look at a variable."""
        self._clock.check()
        return super().get(path, token=token, default=default)

    def get_buffer(self, buf: TextIO | None = None) -> LimitedStringIO:
        """Where a part is rendered to, within what is left of the output. Unlike the library's
        it leaves the ends of lines as they are."""
        used = buf.size if isinstance(buf, LimitedStringIO) else 0
        return LimitedStringIO(OUTPUT_MAX_BYTES - used, newline="")

    def assign(self, key: str, val: Any) -> None:
        """Keep a value; all that are kept count together."""
        self._clock.check()
        self._weights[key] = weight_of(val)
        _within(sum(self._weights.values()))
        super().assign(key, val)

    def filter(self, name: str, token: Token | None = None) -> Callable[..., object]:
        """The filter `name`, checked before and after."""
        self._clock.check()
        function = super().filter(name, token)

        def bounded(left: object, *arguments: Any, **options: Any) -> object:
            if name == "strip_html" and weight_of(left) > HTML_MAX_CHARS:
                message = f"'strip_html' takes at most {HTML_MAX_CHARS} characters"
                raise BoundError(message, token=token)
            try:
                return _checked(function(left, *arguments, **options))
            except BoundError as error:
                error.token = token
                raise
            except Exception:
                # The text of the error may quote the value.
                message = f"the filter '{name}' can't use the value that it got"
                raise FilterUnfitError(message, token=token) from None

        return bounded

    @contextmanager
    def loop(self, namespace: Mapping[str, object], forloop: Any) -> Iterator[RenderContext]:
        """A loop whose turns are counted."""
        forloop.it = self._counted(forloop.it)
        with super().loop(namespace, forloop) as context:
            yield context

    def _counted(self, items: Iterator[Any]) -> Iterator[Any]:
        for item in items:
            self._turns += 1
            if self._turns > LOOP_TURNS_MAX:
                raise BoundError(f"its loops take more than {LOOP_TURNS_MAX} turns", token=None)
            self._clock.check()
            yield item


def _checked(value: object) -> object:
    if isinstance(value, int) and value.bit_length() > NUMBER_MAX_BITS:
        raise BoundError("a number has too many digits", token=None)
    _within(weight_of(value))
    return value


class PromptTemplate(BoundTemplate):
    """A template without the library's own variable `partial`."""

    def make_partial_namespace(
        self,
        partial: bool,
        render_args: Mapping[str, object],
    ) -> Mapping[str, object]:
        """What the template may read beside the variables: nothing."""
        del partial
        return render_args


class PromptEnvironment(Environment):
    """The tags and filters of a prompt."""

    template_class = PromptTemplate

    def setup_tags_and_filters(self, *, extra: bool = False) -> None:
        """The usual ones, with those in place that need a bound of their own."""
        super().setup_tags_and_filters(extra=extra)
        for name in _TAGS_LEFT_OUT:
            del self.tags[name]
        date = self.filters["date"]
        self.add_filter("date", _bounded_date(date))
        self.add_filter("join", _join)
        self.add_filter("json", _json)
        self.add_filter("replace", _replace)
        self.add_filter("uniq", _uniq)

    def error(
        self,
        exc: type[LiquidError] | LiquidError,
        msg: str | None = None,
        token: Token | None = None,
    ) -> None:
        """Raise it, with the place of its tag where it only knows that the tag ended."""
        if isinstance(exc, LiquidError) and exc.token is not None and exc.token.start_index < 0:
            exc.token = token
        super().error(exc, msg, token)

    def bounded(self, template: BoundTemplate) -> BoundTemplate:
        """`template` with a bound on each range. Raises UnknownFilterError: better now than in the
        one run that gets there."""
        static_context = RenderContext(template)
        nodes: list[Node] = list(template.nodes)
        expressions: list[Expression] = []
        while nodes:
            node = nodes.pop()
            nodes.extend(node.children(static_context))
            expressions.extend(node.expressions())
        while expressions:
            expression = expressions.pop()
            expressions.extend(expression.children())
            if isinstance(expression, RangeLiteral):
                expression.stop = _RangeStop(expression)
            if isinstance(expression, FilteredExpression):
                self._check_filters(expression)
        return template

    def _check_filters(self, expression: FilteredExpression) -> None:
        for used in expression.filters or ():
            if used.name not in self.filters:
                raise UnknownFilterError(f"there is no filter '{used.name}'", token=used.token)


class _RangeStop(Expression):
    """The end of a range, as long as the range is not too long."""

    def __init__(self, literal: RangeLiteral) -> None:
        super().__init__(literal.token)
        self._start = literal.start
        self._stop = literal.stop

    def __str__(self) -> str:
        return str(self._stop)

    def evaluate(self, context: RenderContext) -> object:
        """The end as it was written."""
        stop = self._stop.evaluate(context)
        if _whole(stop) - _whole(self._start.evaluate(context)) >= LOOP_TURNS_MAX:
            message = f"a range has more than {LOOP_TURNS_MAX} numbers"
            raise BoundError(message, token=self.token)
        return stop

    def children(self) -> list[Expression]:
        """What the end is made of."""
        return [self._stop]


def _whole(value: Any) -> int:
    """As the library reads the ends of a range."""
    try:
        return to_int(value)
    except (ValueError, TypeError):
        return 0


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


def _json(value: Any) -> str:
    """JSON as a model reads it best: characters, not escapes."""
    if isinstance(value, Undefined):
        value = None
    elif isinstance(value, range):
        value = list(value)
    return json.dumps(value, ensure_ascii=False, default=_text)


@sequence_filter
def _join(items: Sequence[Any], separator: object = " ") -> str:
    between = _text(separator)
    parts: list[str] = []
    size = 0
    for item in items:
        part = _text(item)
        size = _within(size + len(part) + len(between))
        parts.append(part)
    return between.join(parts)


@string_filter
def _replace(value: str, old: object, new: object = "") -> str:
    before, after = _text(old), _text(new)
    _within(len(value) + value.count(before) * len(after))
    return value.replace(before, after)


@sequence_filter
def _uniq(items: Sequence[Any], key: object = None) -> list[Any]:
    """As the library's, whose time grows with the square of the length."""
    found: dict[str | tuple[str], Any] = {}
    for item in items:
        part = item.get(key) if key is not None else item
        found.setdefault(part if isinstance(part, str) else (_json(part),), item)
    return list(found.values())


def _bounded_date(date: Callable[..., object]) -> Callable[..., object]:
    def bounded(value: object, form: object, *, environment: Environment) -> object:
        if max(len(_text(value)), len(_text(form))) > DATE_MAX_CHARS:
            message = f"a date and its format have at most {DATE_MAX_CHARS} characters"
            raise BoundError(message, token=None)
        return date(value, form, environment=environment)

    bounded.with_environment = True  # type: ignore[attr-defined]  # the library's own way
    return bounded
