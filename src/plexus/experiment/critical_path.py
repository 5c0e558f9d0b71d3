"""Where the time of a round goes: the way of the last model that its aggregator waited for.

    completed(k-1) → sampled → model arrives → trained → aggregator chosen → model arrives → completed(k)
      sampling       transfer     training   sampling            transfer      aggregation

Everything is known from the transfers and trainings alone, so this holds for a server as well.
"""

from __future__ import annotations

from dataclasses import dataclass

from plexus.protocol.facts import AggregationCompleted, AggregatorChosen, Fact, RoundRestarted

_SAME_S = 1e-6


@dataclass(frozen=True)
class CriticalPath:
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
    round: int = 0


class CriticalPaths:
    """Remembers the newest steps of every node."""

    def __init__(self) -> None:
        self._completed_s: dict[int, float] = {}
        """By node, when it last completed an aggregation, or started a round by itself."""
        self._fetched: dict[int, list[_Leg]] = {}
        """By participant, the models that were sent to it to train, until it trains."""
        self._trains: dict[int, _Leg] = {}
        """By participant, how the model came that it trains."""
        self._trained: dict[int, tuple[float, float]] = {}
        """By participant, when its newest training began and ended."""
        self._delivered: dict[int, list[_Leg]] = {}
        """By aggregator, the models that came since its last aggregation."""

    def training(self, node: int, now_s: float) -> None:
        """A node begins to train, the moment that a model arrives; its own needs no transfer."""
        legs = self._fetched.pop(node, [])
        arrived = [leg for leg in legs if abs(leg.arrival_s - now_s) <= _SAME_S]
        self._trains[node] = arrived[0] if arrived else _Leg(node, now_s, now_s)
        self._fetched[node] = [leg for leg in legs if leg.arrival_s > now_s + _SAME_S]

    def trained(self, node: int, began_s: float, ended_s: float) -> None:
        self._trained[node] = (began_s, ended_s)

    def arrived(
        self, kind: str, round: int, source: int, destination: int, began_s: float, arrival_s: float
    ) -> None:
        leg = _Leg(source, began_s, arrival_s, round)
        if kind == "train":
            self._fetched.setdefault(destination, []).append(leg)
        elif kind == "aggregate":
            self._delivered.setdefault(destination, []).append(leg)

    def on_fact(self, now_s: float, node: int, fact: Fact) -> CriticalPath | None:
        """The path of the round that `fact` completes, if it does and all of the path is known."""
        path = None
        if isinstance(fact, AggregatorChosen) and fact.aggregator == node:
            # A node sends nothing to itself: its own model is there at once.
            self.arrived("aggregate", fact.round, node, node, now_s, now_s)
        elif isinstance(fact, AggregationCompleted):
            path = self._path(now_s, node, fact.round)
            self._delivered.pop(node, None)
        if isinstance(fact, AggregationCompleted | RoundRestarted):
            self._completed_s[node] = now_s
        return path

    def _path(self, now_s: float, aggregator: int, round: int) -> CriticalPath | None:
        legs = [leg for leg in self._delivered.get(aggregator, []) if leg.arrival_s <= now_s + _SAME_S]
        # A participant of Plexus names the round that its model makes, a client of a server its own.
        delivered = [leg for leg in legs if leg.round == round]
        delivered = delivered or [leg for leg in legs if leg.round == round - 1]
        if not delivered:
            return None
        last = max(delivered, key=lambda leg: leg.arrival_s)
        training = self._trained.get(last.source)
        if training is None or training[1] > last.began_s + _SAME_S:
            return None
        started_s, trained_s = training
        fetched = self._trains[last.source]
        if abs(fetched.arrival_s - started_s) > _SAME_S:
            return None  # it trains for another round already
        began_s = min(self._completed_s.get(fetched.source, fetched.began_s), fetched.began_s)
        return CriticalPath(
            participant=last.source,
            began_s=began_s,
            sampling_s=(fetched.began_s - began_s) + (last.began_s - trained_s),
            transfer_s=(started_s - fetched.began_s) + (last.arrival_s - last.began_s),
            training_s=trained_s - started_s,
            aggregation_s=now_s - last.arrival_s,
        )
