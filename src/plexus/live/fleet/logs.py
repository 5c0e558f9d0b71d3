"""What a fleet learns from the logs of its nodes, read while they grow: how they fare, and why they ended.

What they did is in their tables (`live.operator.peer_tables`).
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

LOG_FILE = "log.jsonl"
"""A node's log, in its home."""

FAILURES = ("training_failed", "evaluation_failed")
"""What a node's log calls it when its worker could not do a job."""


class LogReader:
    """One node's log file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0
        self._rest = b""
        self.newest: dict[str, dict[str, Any]] = {}
        """By event, its newest line."""
        self.counts: Counter[str] = Counter()
        """By event, how many lines there are."""
        self.errors = 0
        self.last_words = ""
        """The last line that is not of the log: an interpreter's, or why the peer did not start."""

    @property
    def round(self) -> int:
        """The newest round that this node aggregated."""
        return self._number("AggregationCompleted")

    @property
    def worked_on(self) -> int:
        """The newest round that it trained in or aggregated."""
        return max(self.round, self._number("TrainingStarted"))

    @property
    def failure(self) -> str:
        """Why the node could not train or evaluate."""
        return next((str(self.newest[event]["reason"]) for event in FAILURES if event in self.newest), "")

    def read(self) -> None:
        """Take in the lines written since the last time."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._at)
            text = file.read()
        self._at += len(text)
        *lines, self._rest = (self._rest + text).split(b"\n")
        for line in lines:
            try:
                self._take(msgspec.json.decode(line))
            except (msgspec.DecodeError, KeyError, TypeError):
                # Not one of ours: an interpreter's last words, a line cut by kill -9.
                self.errors += 1
                self.last_words = line.decode(errors="replace")

    def _take(self, line: dict[str, Any]) -> None:
        self.errors += line["level"] == "error"
        self.newest[line["event"]] = line
        self.counts[line["event"]] += 1

    def _number(self, event: str) -> int:
        return int(self.newest.get(event, {}).get("round", 0))
