"""Where the time of a round goes: the way of the last model that its aggregator waited for.

    completed(k-1) → sampled → model arrives → trained → aggregator chosen → model arrives → completed(k)
      sampling       transfer     training   sampling            transfer      aggregation

Everything is known from the transfers and trainings alone, so this holds for a server as well.
"""

from __future__ import annotations

from dataclasses import dataclass

from plexus.protocol.facts import AggregationCompleted, AggregatorChosen, Fact, RoundRestarted


@dataclass(frozen=True)
class Path:
    """The parts of one round; they add up to the time since it began."""

    participant: int
    began_s: float
    sampling_s: float
    transfer_s: float
    training_s: float
    aggregation_s: float


@dataclass(frozen=True)
class _Leg:
    """A model on its way."""

    source: int
    began_s: float
    arrival_s: float


class CriticalPaths:
    """Remembers the newest steps of every node."""

    def __init__(self) -> None:
        self._completed_s: dict[int, float] = {}
        """By node, when it last completed an aggregation, or started a round by itself."""
        self._fetched: dict[int, _Leg] = {}
        """By participant, how the model came that it was asked to train."""
        self._trained: dict[int, tuple[float, float]] = {}
        """By participant, when its newest training began and ended."""
        self._delivered: dict[int, list[_Leg]] = {}
        """By aggregator, the models that came since its last aggregation."""

    def trained(self, node: int, began_s: float, ended_s: float) -> None:
        self._trained[node] = (began_s, ended_s)

    def arrived(
        self, kind: str, source: int, destination: int, began_s: float, arrival_s: float
    ) -> None:
        leg = _Leg(source, began_s, arrival_s)
        if kind == "train":
            self._fetched[destination] = leg
        elif kind == "aggregate":
            self._delivered.setdefault(destination, []).append(leg)

    def on_fact(self, now_s: float, node: int, fact: Fact) -> Path | None:
        """The path of the round that `fact` completes, if it does and all of the path is known."""
        path = None
        if isinstance(fact, AggregatorChosen) and fact.aggregator == node:
            # A node sends nothing to itself: its own model is there at once.
            self.arrived("aggregate", node, node, now_s, now_s)
        elif isinstance(fact, AggregationCompleted):
            path = self._path(now_s, node)
            self._delivered.pop(node, None)
        if isinstance(fact, AggregationCompleted | RoundRestarted):
            self._completed_s[node] = now_s
        return path

    def _path(self, now_s: float, aggregator: int) -> Path | None:
        delivered = [
            leg for leg in self._delivered.get(aggregator, []) if leg.arrival_s <= now_s + 1e-6
        ]
        if not delivered:
            return None
        last = max(delivered, key=lambda leg: leg.arrival_s)
        training = self._trained.get(last.source)
        if training is None or training[1] > last.began_s + 1e-6:
            return None
        started_s, trained_s = training
        fetched = self._fetched.get(last.source)
        if fetched is None or abs(fetched.arrival_s - started_s) > 1e-6:
            # Its own model, or the first round: nothing had to be fetched.
            fetched = _Leg(last.source, started_s, started_s)
        began_s = min(self._completed_s.get(fetched.source, fetched.began_s), fetched.began_s)
        return Path(
            participant=last.source,
            began_s=began_s,
            sampling_s=(fetched.began_s - began_s) + (last.began_s - trained_s),
            transfer_s=(started_s - fetched.began_s) + (last.arrival_s - last.began_s),
            training_s=trained_s - started_s,
            aggregation_s=now_s - last.arrival_s,
        )
