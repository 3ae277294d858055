"""How do the Lua scripts get into Redis, and how are their arguments named?

A script's header is its signature; the loader binds the names and refuses wrong ones:

    -- succeed: end a running attempt with its result.
    -- ARGV: id token response_id
    -- Returns OK, MISSING, WRONG_STATE or LEASE_LOST; writes nothing unless OK.

A last name that ends in `*` takes any number of values. In front of each script the loader
puts the key table (keys.py), the prelude (prelude/*.lua), and locals that carry the argument
names; of table and prelude only what the script uses, since Redis runs all of it at every call
(a script with the whole of it cost 38 us before its first command, with its own part about 10).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

from redis import Redis
from redis.exceptions import NoScriptError

from jobs.store import keys
from jobs.store.connection import store_errors

Value = str | bytes | int
_HEADER: Final = re.compile(r"^-- (?P<verb>[a-z_]+): .+\n(?:--.*\n)*?-- ARGV:(?P<names>[^\n]*)\n")


@dataclass(frozen=True, slots=True)
class Script:
    """One loaded script: its whole source, digest and the names of its arguments in order."""

    verb: str
    source: str
    sha: str
    names: tuple[str, ...]
    rest: str | None

    def bind(self, arguments: dict[str, Any]) -> list[Value]:
        """The ARGV for `arguments`; TypeError where a name is missing or unknown."""
        expected = set(self.names) | ({self.rest} if self.rest else set())
        if arguments.keys() != expected:
            wrong = sorted(arguments.keys() ^ expected)
            raise TypeError(f"script {self.verb}: wrong arguments {wrong}")
        values: list[Value] = [_value(arguments[name]) for name in self.names]
        if self.rest:
            values.extend(_value(item) for item in arguments[self.rest])
        return values


def _value(value: Value | None) -> Value:
    return "" if value is None else value


def _rq_table(rq_prefix: str, queue_name: str) -> str:
    """The three facts of RQ that scripts look at, and the ticket that a claim describes.

    Raises ValueError for a name that could not stand between quotes in a script."""
    for name in (rq_prefix, queue_name):
        if not re.fullmatch(r"[\w{}:.-]+", name):
            raise ValueError(
                f"{name!r} is no name for keys of RQ: letters, digits and _ . : - {{ }}"
            )
    return (
        f"local RQ = {{queue='{rq_prefix}:queue:{queue_name}',"
        f" suspended='{rq_prefix}:suspended',"
        f" worker='{rq_prefix}:worker:', job='{rq_prefix}:job:'}}\n"
    )


@dataclass(frozen=True, slots=True)
class _Prelude:
    """The shared functions and constants by name, in order."""

    functions: dict[str, str]

    def used_by(self, body: str) -> str:
        """Those that `body` needs, directly or through others."""
        wanted, found = set[str](), self._named_in(body)
        while found:
            wanted |= found
            found = self._named_in("".join(self.functions[name] for name in found)) - wanted
        return "".join(t for n, t in self.functions.items() if n in wanted)

    def _named_in(self, text: str) -> set[str]:
        return self.functions.keys() & set(re.findall(r"\w+", text))


PRELUDE: Final = (
    *("records", "lanes", "gates", "deliveries"),
    *("generations", "steps", "events", "turns", "moves"),
)
"""The files of the prelude, in the order in which they use each other."""


@dataclass(frozen=True, slots=True)
class SlotCaps:
    """How many generations run at once: of one team, and in all (B18)."""

    team: int = 5
    all: int = 30


def _split_prelude(text: str) -> _Prelude:
    """Cut the prelude at its `local function NAME` and `local NAME =` blocks."""
    blocks = re.split(r"(?m)^(?=local (?:function )?[A-Za-z_]+\b)", text)
    functions = {}
    for block in blocks[1:]:
        name = re.match(r"local (?:function )?([A-Za-z_]+)", block)
        assert name is not None
        functions[name[1]] = re.sub(r"(?m)^\s*--.*\n", "", block)
    return _Prelude(functions)


def _load(verb: str, prelude: _Prelude, rq_table: str) -> Script:
    body = _read(verb)
    header = _HEADER.match(body)
    if header is None or header["verb"] != verb:
        raise ValueError(f"{verb}.lua: the header is not a signature")
    names: Sequence[str] = header["names"].split()
    rest = None
    if names and names[-1].endswith("*"):
        rest, names = names[-1][:-1], names[:-1]
    bound = ""
    if names:
        slots = ", ".join(f"ARGV[{i}]" for i in range(1, len(names) + 1))
        bound = f"local {', '.join(names)} = {slots}\n"
    if rest:
        bound += f"local {rest} = {{unpack(ARGV, {len(names) + 1})}}\n"
    shared = prelude.used_by(body)
    used_keys = set(re.findall(r"\bK\.([a-z_]+)", shared + body))
    source = keys.lua_table(used_keys) + rq_table + shared + bound + body
    sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
    return Script(verb, source, sha, tuple(names), rest)


def _read(name: str) -> str:
    return (resources.files("jobs.store") / "lua" / f"{name}.lua").read_text("utf-8")


VERBS: Final = (
    "submit",
    "submit_generation",
    "note_step",
    "note_turn",
    "say",
    "read_request",
    "wake",
    "last_wake",
    "raise_cap",
    "write_off",
    "claim",
    "renew",
    "check",
    "succeed",
    "retry",
    "snooze",
    "fail",
    "expire",
    "cancel",
    "supersede",
    "promote",
    "reclaim",
    "seq_at",
    "waiting",
    "book",
    "quota",
    "repair",
    "archive",
    "fire",
    "ticked",
    "take_deliveries",
    "settle_delivery",
    "replay_delivery",
)


class Scripts:
    """All scripts, run by name against one Redis."""

    def __init__(
        self,
        redis: Redis,
        *,
        rq_prefix: str = "rq",
        queue_name: str,
        slots: SlotCaps = SlotCaps(),
    ) -> None:
        self._redis = redis
        prelude = _split_prelude("".join(_read(f"prelude/{name}") for name in PRELUDE))
        rq_table = _rq_table(rq_prefix, queue_name)
        rq_table += f"local SLOTS = {{team={slots.team}, all={slots.all}}}\n"
        self._scripts = {verb: _load(verb, prelude, rq_table) for verb in VERBS}

    def run(self, verb: str, **arguments: Any) -> Any:
        """Run a script in one round trip; a second one only where Redis lost it.

        Raises StoreUnavailableError where Redis is away or refuses writes.
        """
        script = self._scripts[verb]
        argv = script.bind(arguments)
        with store_errors():
            try:
                return self._redis.evalsha(script.sha, 1, keys.SEQ(), *argv)
            except NoScriptError:
                return self._redis.eval(script.source, 1, keys.SEQ(), *argv)

    def run_each(self, verb: str, arguments: Sequence[dict[str, Any]]) -> list[Any]:
        """Run a script that only reads once for each of `arguments`, in one round trip; a
        second one only where Redis lost it.

        Raises StoreUnavailableError where Redis is away.
        """
        script = self._scripts[verb]
        with store_errors():
            try:
                return self._pipe(script, arguments)
            except NoScriptError:
                self._redis.script_load(script.source)
                return self._pipe(script, arguments)

    def _pipe(self, script: Script, arguments: Sequence[dict[str, Any]]) -> list[Any]:
        pipe = self._redis.pipeline(transaction=False)
        for each in arguments:
            pipe.evalsha(script.sha, 1, keys.SEQ(), *script.bind(each))
        return list(pipe.execute())
