"""What does the formation file say, and is all of it right? (C1, C3, C4, C10)

Reads YAML into a Formation, or names every problem at once. Only plain values are read: the
texts, numbers, true, false and null of YAML 1.2, without anchors and tags, so that a file means
what it shows and can't grow while it is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

import yaml
from marshmallow import (
    RAISE,
    Schema,
    ValidationError,
    fields,
    post_load,
    validates_schema,
)

from jobs.domain.durations import duration_s
from jobs.domain.errors import SettingsInvalidError
from jobs.domain.formation import DEFAULT_ID, Agent, Formation, RetryAsync, TaskRetry
from jobs.domain.formation_values import attempts, factor, flag, short_id, text, web_address
from jobs.domain.models import ModelRegistry

MAX_BYTES: Final = 1_000_000
VALUES_MAX: Final = 10_000
AGENTS_MAX: Final = 20

_PLAIN_KEY: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SHOWN_CHARS: Final = 40


def load(path: Path, models: ModelRegistry | None = None) -> Formation:
    """The formation in the YAML file at `path`, whose models are looked for in `models` where
    that is given. Raises SettingsInvalidError with every problem, each beginning with the path and
    naming its key; agents, fallbacks and patterns count from 1. No problem repeats a value but
    the id of a model: an address may hold a secret."""
    try:
        return _parse(_content(path), models)
    except SettingsInvalidError as error:
        raise SettingsInvalidError([f"{path}: {text}" for text in error.problems]) from None


def _content(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise SettingsInvalidError([str(error.strerror)]) from error
    if len(content) > MAX_BYTES:
        raise SettingsInvalidError([f"is larger than {MAX_BYTES} bytes"])
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SettingsInvalidError([f"is not UTF-8 at byte {error.start}"]) from None


def _parse(content: str, models: ModelRegistry | None) -> Formation:
    problems: list[str] = []
    values = _plain_values(content, problems)
    if not isinstance(values, dict):
        raise SettingsInvalidError(["must be a mapping with the key agents"])
    formation = None
    try:
        formation = _FormationSchema().load(values)
    except ValidationError as error:
        problems += _flat_problems(error.messages, "")
    if models is not None:
        problems += _model_problems(values, models)
    if problems:
        raise SettingsInvalidError(problems)
    assert isinstance(formation, Formation)
    return formation


# The models, of the file as it is: what else is wrong with it does not hide one


def _model_problems(values: Mapping[str, Any], models: ModelRegistry) -> Iterator[str]:
    for where, value in _named_models(values):
        try:
            model_id = text(value)
        except ValueError:
            continue  # null, or told of already
        if model_id not in models.models:
            yield f"{where}: the models file has no model {model_id[:_SHOWN_CHARS]!r}"


def _named_models(values: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    overlord, agents = values.get("overlord"), values.get("agents")
    if isinstance(overlord, dict):
        yield "overlord.model", overlord.get("model")
    for position, agent in enumerate(agents if isinstance(agents, list) else (), start=1):
        if isinstance(agent, dict):
            yield f"agents[{position}].model", agent.get("model")
            fallbacks = agent.get("fallbacks")
            for place, fallback in enumerate(fallbacks if isinstance(fallbacks, list) else (), 1):
                yield f"agents[{position}].fallbacks[{place}]", fallback


# Reading YAML


class _PlainLoader(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML ships no types
    """Takes `no` and `on` for texts, and `010` and `1:30` too: YAML 1.1 reads a number there that
    is not the one that is written."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}

    def __init__(self, content: str) -> None:
        super().__init__(content)
        self._values = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()
        self._values += 1
        problem = None
        if self._values > VALUES_MAX:
            problem = f"has more than {VALUES_MAX} keys and values"
        elif event.anchor is not None:
            problem = "anchors and aliases are not read: write the value out"
        elif event.tag is not None:
            problem = "tags are not read: write the value without one"
        if problem is not None:
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
        return super().compose_node(parent, index)


for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    # Longer ones stay texts, which no key takes for a number.
    ("int", r"[+-]?(0|[1-9][0-9]{0,17})", "+-0123456789"),
    ("float", r"[+-]?[0-9]{1,18}\.[0-9]{1,18}", "+-0123456789"),
):
    _PlainLoader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(f"(?:{_pattern})$"), list(_first)
    )


def _plain_values(content: str, problems: list[str]) -> Any:
    """The values of a YAML text; keys that occur twice, or are no texts, are noted."""
    try:
        loader = _PlainLoader(content)
        return _value(loader, loader.get_single_node(), "", problems)
    except RecursionError:
        raise SettingsInvalidError(["is nested too deeply"]) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise SettingsInvalidError([f"{where}{error.problem or error.context}"]) from None
    except yaml.reader.ReaderError as error:
        problem = f"character {error.position + 1} can't be in a YAML file"
        raise SettingsInvalidError([problem]) from None
    except (ValueError, OverflowError):
        # PyYAML's own way to meet "\UFFFFFFFF".
        raise SettingsInvalidError(["has an escape that is no character"]) from None


def _value(loader: _PlainLoader, node: Any, where: str, problems: list[str]) -> Any:
    if isinstance(node, yaml.MappingNode):
        values: dict[str, Any] = {}
        for key, below in node.value:
            if not isinstance(key, yaml.ScalarNode):
                problems.append(f"{_at(where)}a key must be a text")
                continue
            path = _joined(where, key.value)
            if key.value in values:
                problems.append(f"{path}: the key occurs twice")
            values[key.value] = _value(loader, below, path, problems)
        return values
    if isinstance(node, yaml.SequenceNode):
        return [
            _value(loader, below, f"{where}[{position}]", problems)
            for position, below in enumerate(node.value, start=1)
        ]
    return None if node is None else loader.construct_object(node)


# Paths and problems


def _flat_problems(tree: Any, where: str) -> list[str]:
    """Marshmallow's tree of messages, one text a problem; `_schema` is the block itself. Its
    own order is another one in each process."""
    if isinstance(tree, dict):
        return [
            problem
            for key, below in sorted(tree.items(), key=_in_order)
            for problem in _flat_problems(below, where if key == "_schema" else _joined(where, key))
        ]
    return [f"{_at(where)}{text}" for text in tree]


def _in_order(item: tuple[str | int, Any]) -> tuple[int, str]:
    key = item[0]
    return (key, "") if isinstance(key, int) else (-1, key)


def _joined(where: str, key: str | int) -> str:
    if isinstance(key, int):
        return f"{where}[{key + 1}]"
    name = key if _PLAIN_KEY.fullmatch(key) else repr(key[:_SHOWN_CHARS])
    return f"{where}.{name}" if where else name


def _at(where: str) -> str:
    return f"{where}: " if where else ""


# The values


class _Value(fields.Field[Any]):
    """A value as `reader` takes it."""

    default_error_messages = {  # noqa: RUF012  # marshmallow's own way to declare them
        "required": "is missing",
        "null": "must not be null; leave it out",
    }

    def __init__(self, reader: Callable[[object], Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._reader = reader

    def _deserialize(
        self, value: Any, attr: str | None, data: Mapping[str, Any] | None, **kwargs: Any
    ) -> Any:
        del attr, data, kwargs
        try:
            return self._reader(value)
        except ValueError as error:
            raise ValidationError(str(error)) from None


class _Values(fields.List[Any]):
    """A list of one kind of value."""

    default_error_messages = {  # noqa: RUF012  # marshmallow's own way to declare them
        "required": "is missing",
        "null": "must not be null; leave it out",
        "invalid": "must be a list",
    }


# The shape of the file: attributes are fields of the domain's types, data_keys those of the file


class _Block(Schema):
    """A mapping of the file. What is left out is left to the domain's defaults."""

    error_messages = {"unknown": "unknown key", "type": "must be a mapping"}  # noqa: RUF012  # marshmallow's own way to declare them

    class Meta:
        """Unknown keys are refused by name."""

        unknown = RAISE


def _block(schema: type[_Block], **kwargs: Any) -> fields.Nested:
    empty = "is empty: put keys below it, or leave it out"
    return fields.Nested(schema, error_messages={"null": empty}, **kwargs)


class _AgentSchema(_Block):
    id = _Value(short_id, required=True)
    model = _Value(text, allow_none=True)
    system = _Value(text, allow_none=True)
    fallbacks = _Values(_Value(text))

    @post_load
    def build(self, values: dict[str, Any], **_: Any) -> Agent:
        return Agent(**values | {"fallbacks": tuple(values.get("fallbacks", ()))})


class _RetrySchema(_Block):
    max_attempts = _Value(attempts)
    initial_delay_s = _Value(duration_s, data_key="initial_delay")
    max_delay_s = _Value(duration_s, data_key="max_delay")
    backoff_factor = _Value(factor)

    @post_load
    def build(self, values: dict[str, Any], **_: Any) -> TaskRetry:
        return TaskRetry(**values)


class _ReplanningSchema(_Block):
    non_replannable = _Values(_Value(text), data_key="non_replannable_error_patterns")

    @post_load
    def build(self, values: dict[str, Any], **_: Any) -> dict[str, Any]:
        return {name: tuple(patterns) for name, patterns in values.items()}


class _WorkflowSchema(_Block):
    plans = _Value(flag, data_key="planning")
    retry = _block(_RetrySchema)
    replanning = _block(_ReplanningSchema)


class _RetryAsyncSchema(_Block):
    enabled = _Value(flag)
    max_attempts = _Value(attempts)
    attempt_idle_timeout_s = _Value(duration_s, data_key="attempt_idle_timeout")
    deadline_s = _Value(duration_s, data_key="deadline", allow_none=True)

    @post_load
    def build(self, values: dict[str, Any], **_: Any) -> RetryAsync:
        return RetryAsync(**values)


class _ResponseSchema(_Block):
    retry_async = _block(_RetryAsyncSchema)


class _OverlordSchema(_Block):
    planner_model = _Value(text, data_key="model", allow_none=True)
    workflow = _block(_WorkflowSchema)
    response = _block(_ResponseSchema)


class _IdentitySchema(_Block):
    id = _Value(short_id)


class _AsyncSchema(_Block):
    webhook_url = _Value(web_address, allow_none=True)


class _ChannelSchema(_Block):
    channel_url = _Value(web_address, data_key="url", allow_none=True)


class _NotificationsSchema(_Block):
    channel = _block(_ChannelSchema)


class _ProactiveSchema(_Block):
    notifications = _block(_NotificationsSchema)


class _FormationSchema(_Block):
    formation = _block(_IdentitySchema)
    agents = _Values(_block(_AgentSchema), required=True)
    overlord = _block(_OverlordSchema)
    # Python keeps the word async for itself.
    async_ = _block(_AsyncSchema, data_key="async")
    proactive = _block(_ProactiveSchema)

    @validates_schema(pass_original=True, skip_on_field_errors=False)
    def check_agents(self, _: Any, original: Mapping[str, Any], **__: Any) -> None:
        """Of the file as it is, since one bad agent leaves no list of agents."""
        agents = original.get("agents")
        if not isinstance(agents, list):
            return
        if not 1 <= len(agents) <= AGENTS_MAX:
            raise ValidationError(f"must hold 1 to {AGENTS_MAX} agents", "agents")
        ids = [agent.get("id") if isinstance(agent, dict) else None for agent in agents]
        repeated = {
            position: {"id": ["occurs twice"]}
            for position, agent_id in enumerate(ids)
            if isinstance(agent_id, str) and agent_id in ids[:position]
        }
        if repeated:
            raise ValidationError({"agents": repeated})

    @post_load
    def build(self, values: dict[str, Any], **_: Any) -> Formation:
        agents = tuple(values.pop("agents"))
        return Formation(**{"id": DEFAULT_ID, "agents": agents, **_unnested(values)})


def _unnested(blocks: Mapping[str, Any]) -> dict[str, Any]:
    """The values of blocks within blocks, whose names are fields of Formation."""
    found: dict[str, Any] = {}
    for name, value in blocks.items():
        found |= _unnested(value) if isinstance(value, dict) else {name: value}
    return found
