"""What a fleet learns from the logs of its nodes, read while they grow."""

from __future__ import annotations

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
        self.round = 0
        """The newest round that this node aggregated."""
        self.worked_on = 0
        """The newest round that it trained in or aggregated."""
        self.begun = 0
        """How often the node came as far as to listen (and to leave politely when told to)."""
        self.chosen = (0, "")
        """(round, node): the newest round that this node found an aggregator for, and whom."""
        self.trained = 0
        self.aggregated = 0
        self.errors = 0
        self.last_words = ""
        """The last line that is not of the log: an interpreter's, or why the peer did not start."""
        self.failure = ""
        """Why the node could not train or evaluate."""
        self.sent_bytes = 0
        self.received_bytes = 0
        self.metrics: list[tuple[int, float]] = []
        """(round, value) of every evaluation."""
        self.rounds: list[tuple[float, int]] = []
        """(wall-clock time, round) of every aggregation by this node."""

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
        event = line["event"]
        if line["level"] == "error":
            self.errors += 1
        if event in FAILURES:
            self.failure = line["reason"]
        elif event == "listening":
            self.begun += 1
        elif event == "AggregationCompleted":
            self.aggregated += 1
            self.round = max(self.round, line["round"])
            self.worked_on = max(self.worked_on, line["round"])
            self.rounds.append((line["time"], line["round"]))
        elif event == "AggregatorChosen":
            self.chosen = max(self.chosen, (line["round"], line["aggregator"]))
        elif event == "TrainingStarted":
            self.trained += 1
            self.worked_on = max(self.worked_on, line["round"])
        elif event == "Evaluated":
            self.metrics.append((line["round"], line["value"]))
        elif event == "stopped":
            self.sent_bytes += line["link_sent_bytes"]
            self.received_bytes += line["link_received_bytes"]
