"""Where does each event of a `text/event-stream` begin and end?

Pure. Reads bytes as they come, cut anywhere: within a character, between CR and LF. What is not
ended by an empty line counts at the end of the stream too: whoever reads it sees whether it is
whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

EVENT_MAX_BYTES: Final = 8 * 1024 * 1024

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_LINE_END: Final = re.compile(b"\r\n|\r|\n")


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its name, empty where it has none, and its data."""

    name: str
    data: str


class EventReader:
    """Makes events of the pieces of one stream."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._ends_in_cr = False
        self._is_first_line = True
        self._name = b""
        self._data: list[bytes] = []
        self._data_bytes = 0

    def feed(self, chunk: bytes) -> Iterator[Event | None]:
        """The events that `chunk` completes, and None for each comment, by which servers say
        that they are there. Raises ValueError: no UTF-8, or an event longer than 8 MB."""
        if self._ends_in_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            self._ends_in_cr = False
        if not chunk:
            return
        self._ends_in_cr = chunk.endswith(b"\r")
        *ended, rest = _LINE_END.split(chunk)
        for line in ended:
            self._add(line)
            yield from self._take_line()
        self._add(rest)

    def finish(self) -> Iterator[Event | None]:
        """What the end of the stream completes. Raises as `feed` does."""
        yield from self._take_line()
        yield from self._take_event()

    def _add(self, part: bytes) -> None:
        if len(self._line) + len(part) + self._data_bytes > EVENT_MAX_BYTES:
            raise ValueError(f"it has an event longer than {EVENT_MAX_BYTES} bytes")
        self._line += part

    def _take_line(self) -> Iterator[Event | None]:
        line = bytes(self._line)
        self._line.clear()
        if self._is_first_line:
            line = line.removeprefix(_BYTE_ORDER_MARK)
            self._is_first_line = False
        if not line:
            yield from self._take_event()
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if not field:
            yield None
        elif field == b"event":
            self._name = value
        elif field == b"data":
            self._data.append(value)
            # All of the line: an empty value has to count too, or there could be any number.
            self._data_bytes += len(line) + 1

    def _take_event(self) -> Iterator[Event]:
        if self._data:
            try:
                event = Event(self._name.decode(), b"\n".join(self._data).decode())
            except UnicodeDecodeError:
                raise ValueError("it is no UTF-8") from None
            yield event
        self._name, self._data, self._data_bytes = b"", [], 0
