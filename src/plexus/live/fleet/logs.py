"""What a fleet learns from the logs of its nodes, read while they grow."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from plexus.runs.tables import Columns

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


# The past of a live fleet: from the logs of its nodes, or from what they answered when asked.

COLUMNS = {
    "evaluations": ("simulated_s", "round", "value", "loss"),
    "rounds": ("simulated_s", "round", "aggregator", "models", "participants", "timed_out"),
    "trainings": ("simulated_s", "began_s", "node", "round", "completed"),
    "presence": ("simulated_s", "node", "online"),
    "phases": (
        "simulated_s",
        "round",
        "aggregator",
        "participant",
        "began_s",
        "sampling_s",
        "transfer_s",
        "training_s",
        "aggregation_s",
    ),
}


class History:
    """Tables as a run directory has them; times are seconds since the first event."""

    def __init__(self) -> None:
        self.began_s: float | None = None
        self.metric = "metric"
        self.higher_is_better = True
        self.number_of: dict[str, int] = {}
        """Node number by the name that nodes call each other."""
        self.sent_bytes = 0
        """By nodes that have stopped."""
        self.is_online: dict[int, bool] = {}
        self.last_s: dict[int, float] = {}
        """By node, when its log last said something."""
        self._rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in COLUMNS}
        self._training: dict[int, tuple[float, int]] = {}
        self._sampled: dict[int, tuple[int, float]] = {}
        self._completed: dict[int, tuple[int, float]] = {}
        self._chosen: dict[tuple[int, int], tuple[int, float, float]] = {}

    def table(self, name: str) -> Columns:
        """The columns of a table; none where nothing of that kind is known."""
        rows = self._rows.get(name)
        if not rows:
            return {}
        columns = zip(*sorted(rows), strict=True)
        return dict(zip(COLUMNS[name], map(np.array, columns), strict=True))

    def take(self, node: int, line: dict[str, Any]) -> None:
        """One line of a node's log."""
        if self.began_s is None:
            self.began_s = line["time"]
        at_s, event = round(line["time"] - self.began_s, 3), line["event"]
        self.last_s[node] = at_s
        handler = getattr(self, f"_on_{event}", None)
        if handler is not None:
            handler(at_s, node, line)

    def saw(self, at_s: float, node: int, picture: dict[str, Any]) -> None:
        """What a node answered, where there is no log."""
        metric = picture.get("metric")
        if metric and not any(row[1] == metric["round"] for row in self._rows["evaluations"]):
            self.metric = metric["name"]
            self._add("evaluations", at_s, metric["round"], metric["value"], metric["loss"])

    def online(self, at_s: float, node: int, online: bool) -> None:
        if self.is_online.get(node, False) != online:
            self.is_online[node] = online
            self._add("presence", at_s, node, online)

    def _add(self, table: str, *row: Any) -> None:
        self._rows[table].append(row)

    # Events of a log, by name

    def _on_listening(self, at_s: float, node: int, line: dict[str, Any]) -> None:
        self.online(at_s, node, True)

    def _on_stopped(self, at_s: float, node: int, line: dict[str, Any]) -> None:
        self._training.pop(node, None)
        self.sent_bytes += line.get("link_sent_bytes", 0)
        self.online(at_s, node, False)

    def _on_Evaluated(self, at_s: float, node: int, line: dict[str, Any]) -> None:  # noqa: N802
        self.metric, self.higher_is_better = line["metric"], line["higher_is_better"]
        self._add("evaluations", at_s, line["round"], line["value"], line["loss"])

    def _on_TrainingStarted(self, at_s: float, node: int, line: dict[str, Any]) -> None:  # noqa: N802
        self._end_training(at_s, node, False)
        self._training[node] = (at_s, line["round"])

    def _on_SampleDerived(self, at_s: float, node: int, line: dict[str, Any]) -> None:  # noqa: N802
        if line["purpose"] == "participants":
            self._sampled[line["round"]] = (node, at_s)
        elif line["purpose"] == "aggregator":
            self._end_training(at_s, node, True)

    def _on_AggregatorChosen(self, at_s: float, node: int, line: dict[str, Any]) -> None:  # noqa: N802
        aggregator = self.number_of.get(line["aggregator"], -1)
        self._chosen[aggregator, line["round"]] = (node, self._started_s(node, at_s), at_s)

    def _on_AggregationCompleted(self, at_s: float, node: int, line: dict[str, Any]) -> None:  # noqa: N802
        k = line["round"]
        columns = (line["models"], line["participants"], line["timed_out"])
        self._add("rounds", at_s, k, node, *columns)
        path = self._chosen.get((node, k))
        sampled = self._sampled.get(k - 1)
        before = self._completed.get(k - 1)
        self._completed[k] = (node, at_s)
        if path is None or sampled is None or before is None:
            return
        participant, started_s, chosen_s = path
        parts = (sampled[1] - before[1], started_s - sampled[1], chosen_s - started_s, at_s - chosen_s)
        if min(parts) >= -0.05:  # clocks of processes; a negative part is a path that was not this one
            self._add("phases", at_s, k, node, participant, before[1], *(max(0.0, p) for p in parts))

    def _started_s(self, node: int, at_s: float) -> float:
        rows = [row for row in self._rows["trainings"][-200:] if row[2] == node]
        return float(rows[-1][1]) if rows else at_s

    def _end_training(self, at_s: float, node: int, completed: bool) -> None:
        began = self._training.pop(node, None)
        if began is not None:
            self._add("trainings", at_s, began[0], node, began[1], completed)


class LogTail:
    """The lines appended to a log since the last look."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0

    def fresh(self) -> list[dict[str, Any]]:
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                text = file.read()
        except OSError:
            return []
        whole = text[: text.rfind(b"\n") + 1]
        self._at += len(whole)
        return list(_objects(whole.splitlines()))


def _objects(lines: Iterable[bytes]) -> Iterable[dict[str, Any]]:
    for line in lines:
        try:
            found = msgspec.json.decode(line)
        except msgspec.DecodeError:
            continue  # an interpreter's last words, or a line cut by kill -9
        if isinstance(found, dict) and {"time", "event"} <= found.keys():
            yield found
