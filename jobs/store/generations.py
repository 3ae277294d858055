"""How does a generation get in, and what became of it? Its record answers both (B9, B10)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from redis import Redis

from jobs.domain.canonical_json import compact_json
from jobs.domain.errors import (
    FeatureUnavailableError,
    GenerationMissingError,
    ThrottledError,
)
from jobs.domain.generation_codes import COPY, GenerationCode
from jobs.domain.job import Kind, NewGeneration
from jobs.store import keys
from jobs.store.connection import store_errors
from jobs.store.scripts import Scripts

PENDING: Final = "pending"
SUCCEEDED: Final = "succeeded"
FAILED: Final = "failed"


@dataclass(frozen=True, slots=True)
class GenerationView:
    """What a caller gets to see (B4): `status` is pending, succeeded or failed; `result` is
    `{text, fields}` of one that succeeded, code and message are those of one that failed."""

    id: str
    team_id: str
    status: str
    result: Mapping[str, Any] | None = None
    code: GenerationCode | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class AcceptedGeneration:
    """What became of a submit; `replayed` where an earlier one made the generation."""

    view: GenerationView
    replayed: bool
    ticket_wanted: bool


class Generations:
    """Submits and reads. `per_minute` is what a team may submit within 60 s (B8), `ticket_cap`
    bounds the tickets that wait at a time."""

    def __init__(
        self, redis: Redis, scripts: Scripts, *, ticket_cap: int, per_minute: int, flag: str
    ) -> None:
        self._redis = redis
        self._scripts = scripts
        self._ticket_cap = ticket_cap
        self._per_minute = per_minute
        self._flag = flag

    def submit(self, new: NewGeneration) -> AcceptedGeneration:
        """Pass every gate and store, in one round trip (B21). Raises ThrottledError with the
        exact wait (B8), FeatureUnavailableError, StoreUnavailableError; ValueError where one of
        the ids is another's. Each stores nothing; used up credits are a failed generation (B7)."""
        reply = self._scripts.run(
            "submit_generation",
            job_id=new.id,
            prompt_id=new.prompt_id,
            team_id=new.team_id,
            org_id=new.org_id,
            target=new.target,
            second_target=new.second_target,
            text=new.prompt_text,
            options=compact_json(new.options),
            digest=new.digest,
            wake_token=new.wake_token,
            wake_url=new.wake_url,
            flag=self._flag,
            per_minute=self._per_minute,
            reserve=new.reserve_usd_micros,
            refusal=new.refusal,
            ticket_cap=self._ticket_cap,
            schema_version=Kind.GENERATION.schema_version,
        )
        if reply[0] == "TAKEN":
            raise ValueError(f"generation {new.id} or prompt {new.prompt_id} is another one's id")
        if reply[0] == "THROTTLED":
            raise ThrottledError(max(1, math.ceil(int(reply[1]) / 1000)))
        if reply[0] == "UNAVAILABLE":
            raise FeatureUnavailableError(self._flag)
        word, wanted, generation_id, record = reply
        fields = dict(zip(record[::2], record[1::2], strict=True))
        return AcceptedGeneration(
            view=_view(generation_id, fields),
            replayed=word == "DUPLICATE",
            ticket_wanted=bool(wanted),
        )

    def get(self, generation_id: str, team_id: str) -> GenerationView:
        """What became of a generation, in one round trip. Raises GenerationMissingError, also
        for another team's and for one whose record has ended."""
        with store_errors():
            pipe = self._redis.pipeline(transaction=True)
            pipe.hgetall(keys.GENERATION(generation_id))
            pipe.hmget(keys.JOB(generation_id), "team_id", "kind", "finished_at")
            fields, (owner, kind, finished_at) = pipe.execute()
        if fields.get("team_id") == team_id:
            return _view(generation_id, cast("Mapping[str, str]", fields))
        # Where nothing could end it for as long as its record lasts, it is pending all the same.
        if not fields and (owner, kind, finished_at) == (team_id, Kind.GENERATION, None):
            return GenerationView(generation_id, team_id, PENDING)
        raise GenerationMissingError(generation_id)

    def codes_of(self, generation_ids: Sequence[str]) -> dict[str, str]:
        """The codes (B6) of those that failed and whose records are still there, by their ids,
        in one round trip; for operators, whatever the team."""
        if not generation_ids:
            return {}
        with store_errors():
            pipe = self._redis.pipeline(transaction=False)
            for generation_id in generation_ids:
                pipe.hget(keys.GENERATION(generation_id), "code")
            codes = cast("list[str | None]", pipe.execute())
        return {id_: code for id_, code in zip(generation_ids, codes, strict=True) if code}


def _view(generation_id: str, fields: Mapping[str, str]) -> GenerationView:
    team_id, status = fields["team_id"], fields["status"]
    if status == SUCCEEDED:
        return GenerationView(generation_id, team_id, status, json.loads(fields["envelope"]))
    if status == FAILED:
        code = GenerationCode(fields["code"])
        message = fields.get("message") or COPY[code]
        return GenerationView(generation_id, team_id, status, None, code, message)
    return GenerationView(generation_id, team_id, PENDING)
