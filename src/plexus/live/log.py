"""Structured logs: one JSON object a line, with a time, a level, an event and its fields."""

from __future__ import annotations

import sys
import time
import traceback
from typing import IO, Any

import msgspec

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
MAX_TEXT = 2000


class Log:
    """Writes lines to a stream, and counts errors."""

    def __init__(self, stream: IO[str] | None = None, level: str = "info", **fields: Any) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._threshold = LEVELS[level]
        self._fields = fields
        self.errors = 0
        self.lost = 0
        """Lines that could not be written: the disk is full, or who read them is gone."""

    @property
    def is_detailed(self) -> bool:
        """Whether debug lines are written."""
        return self._threshold <= LEVELS["debug"]

    def debug(self, event: str, **fields: Any) -> None:
        self._write("debug", event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._write("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._write("warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        """Something failed, and it is known why."""
        self.errors += 1
        self._write("error", event, fields)

    def exception(self, event: str, **fields: Any) -> None:
        """An exception that is being handled; with its traceback."""
        self.error(event, **fields, traceback=traceback.format_exc())

    def _write(self, level: str, event: str, fields: dict[str, Any]) -> None:
        if LEVELS[level] < self._threshold:
            return
        shown = {key: _plain(value) for key, value in fields.items()}
        line = {"time": round(time.time(), 3), "level": level, "event": event}
        text = msgspec.json.encode({**line, **self._fields, **shown}).decode()
        try:
            self._stream.write(text + "\n")
            self._stream.flush()
        except OSError:
            self.lost += 1  # there is nowhere to say so but in the status; the peer goes on


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, str):
        return value[-MAX_TEXT:]
    if isinstance(value, float):
        return round(value, 6)
    return value
