"""Structured logs: one JSON object a line, with a time, a level, an event and its fields.

Warnings, errors and whatever has a reason can be caused by others, who must not be able to fill the disk: of
those alike in event, reason and peer, some are written each minute and the rest are counted.
"""

from __future__ import annotations

import io
import select
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partialmethod
from pathlib import Path
from typing import IO, Any

import msgspec
from msgspec import Struct

from plexus.errors import PlexusError
from plexus.files import read_bytes
from plexus.live.identity.keys import short

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
MAX_TEXT = 2000
ALIKE, PERIOD_S = 5, 60.0
"""So many warnings that are alike are written in so many seconds."""
LOG_FILE = "log.jsonl"
"""A peer's log in its home, where a fleet keeps it."""
REFUSED = "Refused"
MAX_KINDS, MAX_KINDS_OF_PEER = 100, 10
"""Kinds of lines of a level told apart, of all and of one peer, as others may think up new reasons."""
OTHERS = "other reasons"


class Tally(Struct):
    since_s: float
    count: int = 0


class Refusal(Struct, frozen=True):
    """A line of a log about what a peer refused."""

    event: str
    peer: str = "others"
    reason: str = ""
    more: str = ""
    """Starts with how many lines this one stands for, if it stands for many."""


class Refusals(Struct, frozen=True):
    """What several peers refused from one node for one reason."""

    node: str
    reason: str
    times: int
    homes: list[str]
    """Of those who refused it."""


def suspects(homes: Sequence[Path]) -> list[Refusals]:
    """What the logs in these homes say of others, those first that were refused most often."""
    found: dict[tuple[str, str], Counter[str]] = {}
    """By peer and reason, how often in which home."""
    totals: Counter[str] = Counter()
    for path in dict.fromkeys(each for home in homes for each in _logs(home)):
        for said in _refused(path):
            count = int(said.more.split()[0]) if said.more else 1
            found.setdefault((said.peer, said.reason), Counter())[str(path.parent)] += count
            totals[said.peer] += count
    order = sorted(found, key=lambda key: (-totals[key[0]], key[0], -found[key].total(), key[1]))
    return [Refusals(*key, found[key].total(), list(found[key])) for key in order]


def _refused(path: Path) -> Iterator[Refusal]:
    for line in read_bytes(path).splitlines():
        with suppress(msgspec.DecodeError):  # cut by the end of the process, or an interpreter's words
            said = msgspec.json.decode(line, type=Refusal)
            if said.event == REFUSED:
                yield said


def _logs(home: Path) -> list[Path]:
    """Of a peer's home, of a fleet's folder, or the log itself."""
    if home.is_file():
        return [home]
    found = [each for each in (home / LOG_FILE, *sorted(home.glob(f"*/{LOG_FILE}"))) if each.is_file()]
    if not found:
        raise PlexusError(
            f"{home}: no {LOG_FILE} of a peer; a peer of your own logs to its standard error: start it with"
            f" 2>> {home / LOG_FILE}, or give the file that its log went to"
        )
    return found


class Log:
    """Writes lines to a stream, and counts errors."""

    def __init__(self, stream: IO[str] | None = None, level: str = "info") -> None:
        self._stream = sys.stderr if stream is None else stream
        self._threshold = LEVELS[level]
        self._tallies: dict[tuple[str, str, str, bytes | None], Tally] = {}
        self.errors = 0
        self.lost = 0
        """Lines that could not be written: the disk is full, or who read them is gone or does not read."""

    @property
    def is_detailed(self) -> bool:
        return self._threshold <= LEVELS["debug"]

    def error(self, event: str, **fields: Any) -> None:
        """Something failed, and it is known why."""
        self.errors += 1
        self._write("error", event, **fields)

    def exception(self, event: str, **fields: Any) -> None:
        """An exception that is being handled; with its traceback."""
        self.error(event, **fields, traceback=traceback.format_exc())

    def settle(self, at_end: bool = False) -> None:
        """Say how many were not written; to be called now and then, and at the end."""
        now = time.monotonic()
        for kind, tally in list(self._tallies.items()):
            took_s = now - tally.since_s
            if took_s < PERIOD_S and not at_end:
                continue
            self._tallies.pop(kind, None)
            level, event, about, peer = kind
            if tally.count > ALIKE:
                more = f"{tally.count - ALIKE} more like this in {took_s:.0f} s"
                whose = {} if peer is None else {"peer": peer}
                self._put(level, event, {**whose, "reason": about, "more": more})

    def _write(self, level: str, event: str, /, **fields: Any) -> None:
        is_own = LEVELS[level] < LEVELS["info" if "reason" in fields else "warning"]
        if is_own or self._count(level, event, fields) <= ALIKE:
            self._put(level, event, fields)

    debug = partialmethod(_write, "debug")
    info = partialmethod(_write, "info")
    warning = partialmethod(_write, "warning")

    def _count(self, level: str, event: str, fields: dict[str, Any]) -> int:
        """How many of this kind there were lately, with this one."""
        self.settle()
        peer, why = fields.get("peer"), str(fields.get("reason", fields.get("where", "")))
        if (level, event, why, peer) not in self._tallies:
            peers = [each[3] for each in self._tallies if each[0] == level]
            if len(peers) >= MAX_KINDS:
                why, peer = OTHERS, None
            elif peer and peers.count(peer) >= MAX_KINDS_OF_PEER:
                why = OTHERS
        tally = self._tallies.setdefault((level, event, why, peer), Tally(time.monotonic()))
        tally.count += 1
        return tally.count

    def _put(self, level: str, event: str, fields: dict[str, Any]) -> None:
        if LEVELS[level] < self._threshold:
            return
        shown = {key: _plain(value) for key, value in fields.items()}
        line = {"time": round(time.time(), 3), "level": level, "event": event}
        text = msgspec.json.encode({**line, **shown}).decode()
        with suppress(OSError):
            if self._can_write():
                self._stream.write(text + "\n")
                self._stream.flush()
                return
        self.lost += 1  # there is nowhere to say so but in the status; the peer goes on

    def _can_write(self) -> bool:
        """Whether a line can be written without waiting for somebody to read those before it."""
        try:
            descriptor = self._stream.fileno()
        except io.UnsupportedOperation:  # memory
            return True
        poll = select.poll()
        poll.register(descriptor, select.POLLOUT)
        return bool(poll.poll(0))


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return short(value)
    if isinstance(value, str):
        return value[-MAX_TEXT:]
    if isinstance(value, float):
        return round(value, 6)
    return value
