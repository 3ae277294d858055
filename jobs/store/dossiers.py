"""What all is stored about ended jobs? Read in bulk, before they are removed (A24)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from redis import Redis

from jobs.store import keys
from jobs.store.connection import store_errors

_LISTS = (keys.REPLACED, keys.EDGES, keys.LEDGER, keys.AUDIT)


@dataclass(frozen=True, slots=True)
class StoredText:
    """A prompt or a response: the fields of its hash, and its text."""

    id: str
    fields: Mapping[str, str]
    text: str | None


@dataclass(frozen=True, slots=True)
class StoredRequest:
    """A chat request: the fields of its hash, the plan that is carried out, where its outcome goes,
    its failed attempts, and the detail or question of its end."""

    id: str
    fields: Mapping[str, str]
    plan: str | None
    target: str | None
    attempts: Sequence[str]
    note: str | None


@dataclass(frozen=True, slots=True)
class Dossier:
    """A job and all that belongs to its prompt, spelled as Redis has it: fields that this
    release does not know are kept. `request` is the chat request that the prompt was sent as."""

    job_id: str
    record: Mapping[str, str]
    options: str | None
    error: str | None
    history: Sequence[str]
    prompt: StoredText
    metadata: str | None
    replaced: Sequence[str]
    edges: Sequence[str]
    ledger: Sequence[str]
    audit: Sequence[str]
    responses: Sequence[StoredText]
    request: StoredRequest | None = None


@dataclass(frozen=True, slots=True)
class Remains:
    """What is left of an archived job, for 30 days."""

    org_id: str
    state: str
    finished_at_ms: int


class Dossiers:
    """Reads; nothing here writes. All raise StoreUnavailableError."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    def count_ended_before(self, at_ms: int) -> int:
        """How many ended jobs ended before an instant of the Redis clock."""
        with store_errors():
            count: int = self._redis.zcount(keys.ENDED(), "-inf", f"({at_ms}")
        return count

    def read(self, job_ids: Sequence[str]) -> list[Dossier]:
        """The dossiers of these jobs, in four round trips at most; ids that name none are left
        out."""
        records = self._records(job_ids)
        prompts = self._prompts({row[0]["prompt_id"] for row in records.values()})
        responses = self._responses(
            {target for prompt in prompts.values() for target in _targets(prompt[4])}
        )
        requests = self._requests(
            {prompt[0]["request"] for prompt in prompts.values() if "request" in prompt[0]}
        )
        return [
            self._dossier(job_id, row, prompts[row[0]["prompt_id"]], responses, requests)
            for job_id, row in records.items()
        ]

    def unchanged(self, dossiers: Iterable[Dossier]) -> list[str]:
        """The ids of those jobs that did not move since they were read."""
        dossiers = list(dossiers)
        with store_errors():
            pipe = self._redis.pipeline(transaction=False)
            for one in dossiers:
                pipe.hmget(keys.JOB(one.job_id), ["state", "updated_at"])
            found = pipe.execute()
        return [
            one.job_id
            for one, now in zip(dossiers, found, strict=True)
            if now == [one.record["state"], one.record["updated_at"]]
        ]

    def remains(self, job_id: str) -> Remains | None:
        """What is left to say of an archived job of any org; None where there was none."""
        with store_errors():
            row = cast("str | None", self._redis.get(keys.TOMBSTONE(job_id)))
        if row is None:
            return None
        org_id, state, finished_at_ms = row.rsplit("|", 2)
        return Remains(org_id, state, int(finished_at_ms))

    def _records(self, job_ids: Sequence[str]) -> dict[str, list[Any]]:
        with store_errors():
            pipe = self._redis.pipeline(transaction=True)
            for job_id in job_ids:
                pipe.hgetall(keys.JOB(job_id))
                pipe.get(keys.OPTIONS(job_id))
                pipe.get(keys.ERROR(job_id))
                pipe.lrange(keys.HISTORY(job_id), 0, -1)
            found = pipe.execute()
        rows = {job_id: found[4 * n : 4 * n + 4] for n, job_id in enumerate(job_ids)}
        return {job_id: row for job_id, row in rows.items() if row[0]}

    def _prompts(self, prompt_ids: Iterable[str]) -> dict[str, list[Any]]:
        prompt_ids = list(prompt_ids)
        size = 3 + len(_LISTS)
        with store_errors():
            pipe = self._redis.pipeline(transaction=True)
            for prompt_id in prompt_ids:
                pipe.hgetall(keys.PROMPT(prompt_id))
                pipe.get(keys.TEXT(prompt_id))
                pipe.get(keys.METADATA(prompt_id))
                for key in _LISTS:
                    pipe.lrange(key(prompt_id), 0, -1)
            found = pipe.execute()
        return {one: found[size * n : size * (n + 1)] for n, one in enumerate(prompt_ids)}

    def _responses(self, response_ids: Iterable[str]) -> dict[str, StoredText]:
        response_ids = list(response_ids)
        with store_errors():
            pipe = self._redis.pipeline(transaction=True)
            for response_id in response_ids:
                pipe.hgetall(keys.RESPONSE(response_id))
                pipe.get(keys.TEXT(response_id))
            found = pipe.execute()
        return {
            one: StoredText(one, found[2 * n], found[2 * n + 1])
            for n, one in enumerate(response_ids)
            if found[2 * n]
        }

    def _requests(self, request_ids: Iterable[str]) -> dict[str, StoredRequest]:
        request_ids = list(request_ids)
        if not request_ids:
            return {}
        with store_errors():
            pipe = self._redis.pipeline(transaction=True)
            for request_id in request_ids:
                pipe.hgetall(keys.REQUEST(request_id))
                pipe.get(keys.REQUEST_PLAN(request_id))
                pipe.get(keys.REQUEST_TARGET(request_id))
                pipe.lrange(keys.REQUEST_ATTEMPTS(request_id), 0, -1)
                pipe.get(keys.REQUEST_NOTE(request_id))
            found = pipe.execute()
        return {
            one: StoredRequest(one, *found[5 * n : 5 * n + 5])
            for n, one in enumerate(request_ids)
            if found[5 * n]
        }

    @staticmethod
    def _dossier(
        job_id: str,
        row: Sequence[Any],
        prompt: Sequence[Any],
        responses: Mapping[str, StoredText],
        requests: Mapping[str, StoredRequest],
    ) -> Dossier:
        record, options, error, history = row
        fields, text, metadata, replaced, edges, ledger, audit = prompt
        return Dossier(
            job_id=job_id,
            record=record,
            options=options,
            error=error,
            history=history,
            prompt=StoredText(record["prompt_id"], fields, text),
            metadata=metadata,
            replaced=replaced,
            edges=edges,
            ledger=ledger,
            audit=audit,
            responses=[responses[one] for one in _targets(edges) if one in responses],
            request=requests.get(fields.get("request", "")),
        )


def _targets(edges: Iterable[str]) -> list[str]:
    """Where the edges lead, each once: the responses that a prompt's removal takes along."""
    return list(dict.fromkeys(edge.rsplit("|", 1)[-1] for edge in edges))
