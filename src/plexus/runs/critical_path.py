"""Where the time of a round goes: the way of the last model that its aggregator waited for.

    completed(k-1) → sampled → model arrives → trained → aggregator chosen → model arrives → completed(k)
      sampling       transfer     training   sampling            transfer      aggregation

Everything is known from the transfers and trainings alone, so this holds for a server as well.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import NamedTuple

REMEMBERED = 100
"""Rounds of which steps are kept at hand."""


class Step(NamedTuple):
    """A model's way to a node, or a training there, or an aggregation."""

    source: int
    began_s: float
    ended_s: float


class CriticalPaths:
    """Is told of the steps of all nodes. `same_s`: moments this near to each other are one."""

    def __init__(self, same_s: float = 1e-6) -> None:
        self._same_s = same_s
        self._steps: dict[tuple[str, int, int], list[Step]] = defaultdict(list)
        """By kind, node and round."""
        self._trained: dict[int, deque[tuple[int, Step]]] = defaultdict(lambda: deque(maxlen=REMEMBERED))
        """By node, with the round: where nobody aggregates, trainings are all there is."""
        self._oldest = 0

    def arrived(
        self, kind: str, round: int, source: int, destination: int, began_s: float, arrival_s: float
    ) -> None:
        """A model came to be trained (`train`) or to be aggregated (`aggregate`)."""
        if kind in ("train", "aggregate"):
            self._steps[kind, destination, round].append(Step(source, began_s, arrival_s))

    def trained(self, node: int, round: int, began_s: float, ended_s: float) -> None:
        self._trained[node].append((round, Step(node, began_s, ended_s)))

    def completed(self, node: int, round: int, now_s: float) -> None:
        """A node completed a round, or started the one behind it by itself."""
        self._steps["completed", node, round].append(Step(node, now_s, now_s))
        if round > self._oldest + 2 * REMEMBERED:
            self._oldest = round - REMEMBERED
            for key in [key for key in self._steps if key[2] < self._oldest]:
                del self._steps[key]

    def phases(self, now_s: float, aggregator: int, round: int) -> dict[str, float] | None:
        """The row of `phases.csv` for a round that is completed, if all of its way is known."""
        if (last := self._last_model(now_s, aggregator, round)) is None:
            return None
        trainings = [step for number, step in self._trained[last.source] if number == round - 1]
        if (training := self._newest(trainings, last.began_s)) is None:
            return None
        fetched = self._newest(self._steps.get(("train", last.source, round - 1), []), training.began_s)
        fetched = fetched or Step(last.source, training.began_s, training.began_s)
        ended = self._steps.get(("completed", fetched.source, round - 1), [])
        before = self._newest(ended, fetched.began_s)
        began_s = min(before.ended_s, fetched.began_s) if before else fetched.began_s
        arrived_s = min(last.ended_s, now_s)
        parts = {
            "sampling_s": (fetched.began_s - began_s) + (last.began_s - training.ended_s),
            "transfer_s": (training.began_s - fetched.began_s) + (arrived_s - last.began_s),
            "training_s": training.ended_s - training.began_s,
            "aggregation_s": now_s - arrived_s,
        }
        known = {"simulated_s": _rounded(now_s), "round": round, "aggregator": aggregator}
        path = {"participant": last.source, "began_s": _rounded(began_s)}
        return {**known, **path, **{name: _rounded(max(0.0, part)) for name, part in parts.items()}}

    def _last_model(self, now_s: float, aggregator: int, round: int) -> Step | None:
        # A participant of Plexus names the round that its model makes, a client of a server its own.
        for number in (round, round - 1):
            steps = self._steps.get(("aggregate", aggregator, number), [])
            if came := [step for step in steps if step.ended_s <= now_s + self._same_s]:
                return max(came, key=lambda step: step.ended_s)
        return None

    def _newest(self, steps: list[Step], by_s: float) -> Step | None:
        return next((step for step in reversed(steps) if step.ended_s <= by_s + self._same_s), None)


def _rounded(seconds: float) -> float:
    return round(seconds, 3)
