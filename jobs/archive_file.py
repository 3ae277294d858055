"""How do ended jobs leave Redis without being lost? As lines of a file, written first (A24).

One JSON object a line and a job: the record, its history, the prompt with its text, all that
came of it, and of a chat turn the request as it is then. A batch is written, brought to the disk
(fsync), and only then removed. Who is killed in between leaves lines whose jobs are still stored;
the next run writes those again, and the last line of a job counts.
"""

from __future__ import annotations

import errno
import fcntl
import json
import mmap
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from jobs.domain.canonical_json import compact_json
from jobs.domain.errors import GenqueueError
from jobs.store.dossiers import Dossier, Dossiers, StoredRequest, StoredText
from jobs.store.records import Records
from jobs.store.upkeep import Upkeep

BATCH: Final = 100
"""Jobs that are written, then removed, at a time: few enough for a script of some ms."""

TRIES: Final = 3
"""A job that moves while it is archived is written again so often, then left for another run."""

FORMAT: Final = 1
_BEGINNING: Final = b'{"archive":'
_LINE_BEGINNING: Final = f'{{"archive":{FORMAT},"job_id":"'.encode()
_ID_MAX_BYTES: Final = 64
_INSTANTS: Final = (
    "created_at",
    "updated_at",
    "claimed_at",
    "started_at",
    "running_heartbeat_at",
    "finished_at",
    "run_at",
    "scheduled_for",
    "escalated_at",
    "deadline_at",
    "ended_at",
)
_NUMBERS: Final = ("priority", "attempt", "max_attempts", "schema_version", "seq")
_REQUEST_NUMBERS: Final = ("runs", "deaths", "max_attempts", "idle_ms")
_RESPONSE_NUMBERS: Final = ("prompt_tokens", "completion_tokens", "cost_usd_micros")


class ArchiveFileError(GenqueueError):
    """The file can't take the jobs; `reason` says why. Jobs of the batch at hand were not
    removed."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}")


@dataclass(frozen=True, slots=True)
class Archived:
    """What a run did: jobs `removed`; of those, `repeated` stood in the file before, since a run
    was killed between writing and removing; `left` could not be read or kept moving;
    `mended_bytes` of a line that a killed run had not finished were cut off."""

    removed: int
    repeated: int
    left: int
    mended_bytes: int


class ArchiveFile:
    """A file of JSON lines, one writer at a time, made with mode 0600. A context manager.

    Opening raises ArchiveFileError where it is no regular file, is not one of ours, or another
    run holds it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        is_new = not path.exists()
        try:
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
            self._file = os.open(path, flags, 0o600)
        except OSError as error:
            raise ArchiveFileError(path, _said(error)) from error
        try:
            self._lock()
            self.mended_bytes = self._mend()
            if is_new:
                _sync_folder(path.parent)
        except OSError as error:
            self.close()
            raise ArchiveFileError(path, _said(error)) from error
        except ArchiveFileError:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)

    def append(self, lines: Sequence[bytes]) -> None:
        """Write whole lines and bring them to the disk. Raises ArchiveFileError, and leaves the
        file as it was as far as that can be done."""
        size_bytes = os.fstat(self._file).st_size
        data = memoryview(b"".join(lines))
        try:
            while data:
                data = data[os.write(self._file, data) :]
            os.fsync(self._file)
        except OSError as error:
            os.ftruncate(self._file, size_bytes)
            raise ArchiveFileError(self.path, _said(error)) from error

    def last_ids(self, most: int = BATCH) -> set[str]:
        """The jobs of the last `most` lines: those that a killed run may not have removed."""
        found: set[str] = set()
        if os.fstat(self._file).st_size == 0:
            return found
        with mmap.mmap(self._file, 0, access=mmap.ACCESS_READ) as view:
            end = len(view)
            for _ in range(most):
                start = view.rfind(b"\n", 0, end - 1) + 1
                head = view[start : start + len(_LINE_BEGINNING) + _ID_MAX_BYTES + 1]
                if head.startswith(_LINE_BEGINNING):
                    found.add(head[len(_LINE_BEGINNING) :].partition(b'"')[0].decode())
                if start == 0:
                    break
                end = start
        return found

    def _lock(self) -> None:
        if not stat.S_ISREG(os.fstat(self._file).st_mode):
            raise ArchiveFileError(self.path, "is no regular file: what is written may not stay")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ArchiveFileError(self.path, "another run writes to it") from error

    def _mend(self) -> int:
        """Cut off a line that was not finished: its job was not removed."""
        size_bytes = os.fstat(self._file).st_size
        if size_bytes == 0:
            return 0
        with mmap.mmap(self._file, 0, access=mmap.ACCESS_READ) as view:
            head = view[: len(_BEGINNING)]
            whole_bytes = view.rfind(b"\n") + 1
        if not _BEGINNING.startswith(head):
            raise ArchiveFileError(self.path, "is not an archive of genqueue")
        if whole_bytes < size_bytes:
            os.ftruncate(self._file, whole_bytes)
            os.fsync(self._file)
        return size_bytes - whole_bytes


def archive(
    file: ArchiveFile,
    records: Records,
    dossiers: Dossiers,
    upkeep: Upkeep,
    *,
    before_ms: int,
    on_progress: Callable[[int], None] = lambda _: None,
) -> Archived:
    """Write every job that ended before an instant to the file, then remove it; `on_progress`
    hears how many are gone. May be run again after any end.

    Raises ArchiveFileError and StoreUnavailableError; what was not written is still stored.
    """
    before_us = file.last_ids()
    removed = repeated = 0
    tries: dict[str, int] = {}
    left: set[str] = set()
    while True:
        found = records.ended_before(before_ms, BATCH + len(left))
        job_ids = [job_id for job_id in found if job_id not in left][:BATCH]
        if not job_ids:
            return Archived(removed, repeated, len(left), file.mended_bytes)
        batch = dossiers.read(job_ids)
        file.append([line_of(dossier) for dossier in batch])
        gone = set(upkeep.archive(dossiers.unchanged(batch)))
        removed += len(gone)
        repeated += len(gone & before_us)
        read = {dossier.job_id for dossier in batch}
        for job_id in set(job_ids) - gone:
            tries[job_id] = tries.get(job_id, 0) + 1
            if job_id not in read or tries[job_id] >= TRIES:
                left.add(job_id)
        on_progress(removed)


def line_of(dossier: Dossier) -> bytes:
    """The line of a job: UTF-8, ended by a line feed, none inside."""
    value = {
        "archive": FORMAT,
        "job_id": dossier.job_id,
        "job": {
            **_typed(dossier.record, _NUMBERS),
            "execution_options": _value(dossier.options),
            "error_message": dossier.error,
        },
        "history": [
            _row(row, ("seq", "at_ms", "verb", "from", "state", "attempt", "reason"))
            for row in dossier.history
        ],
        "prompt": {
            **_text(dossier.prompt),
            "metadata": _value(dossier.metadata),
            "replaced": list(dossier.replaced),
        },
        "request": None if dossier.request is None else _request(dossier.request),
        "responses": [_text(response) for response in dossier.responses],
        "edges": [_row(row, ("from", "type", "to")) for row in dossier.edges],
        "ledger": [_row(row, ("at_ms", "job_id", "attempt", "usage")) for row in dossier.ledger],
        "audit": [
            _row(row, ("at_ms", "verb", "job_id", "attempt", "detail")) for row in dossier.audit
        ],
    }
    text = compact_json(value)
    return text.encode("utf-8") + b"\n"


def _text(stored: StoredText) -> dict[str, Any]:
    fields = _typed(stored.fields, _RESPONSE_NUMBERS)
    if "source_refs" in fields:
        fields["source_refs"] = json.loads(fields["source_refs"])
    return {"id": stored.id, **fields, "text": stored.text}


def _request(stored: StoredRequest) -> dict[str, Any]:
    return {
        "id": stored.id,
        **_typed(stored.fields, _REQUEST_NUMBERS),
        "plan": _value(stored.plan) or None,
        "target": stored.target,
        "attempts": [json.loads(entry) for entry in stored.attempts],
        "note": stored.note,
    }


def _typed(fields: Mapping[str, str], numbers: Sequence[str]) -> dict[str, Any]:
    """Every field of a hash; instants get their unit into their name."""
    typed: dict[str, Any] = {}
    for name, value in fields.items():
        if name in _INSTANTS:
            typed[f"{name}_ms"] = int(value)
        else:
            typed[name] = int(value) if name in numbers else value
    return typed


def _row(row: str, names: Sequence[str]) -> dict[str, Any]:
    """A row of a list by its parts; the last one may hold the separator."""
    typed: dict[str, Any] = dict(zip(names, row.split("|", len(names) - 1), strict=True))
    for name in ("seq", "at_ms", "attempt"):
        if name in typed:
            typed[name] = int(typed[name])
    if "usage" in typed:
        typed["usage"] = json.loads(typed["usage"])
    return typed


def _value(text: str | None) -> Any:
    return json.loads(text) if text else {}


def _said(error: OSError) -> str:
    if error.errno == errno.ENXIO:
        return "is no regular file: what is written may not stay"
    return (error.strerror or type(error).__name__).lower()


def _sync_folder(folder: Path) -> None:
    """Bring the name of a new file to the disk as well."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
