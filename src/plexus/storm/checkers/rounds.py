"""Rounds only grow, and the newest one wins; aggregates hold what they should, acknowledgements are true."""

from __future__ import annotations

from plexus.protocol.api import Aggregate, Effect, Event, Merge, Received, Report, Send, Train, Trained
from plexus.protocol.baselines.gossip import GossipNode
from plexus.protocol.facts import RoundRestarted
from plexus.protocol.messages import Ack, AggregateRequest, NodeId, TrainRequest
from plexus.protocol.plexus import PlexusNode
from plexus.storm.checkers.api import Checker, Scene
from plexus.storm.nodes import INITIAL, AnyNode, Label

AGGREGATING = "aggregates"


def rounds_of(node: AnyNode) -> dict[str, int]:
    """The rounds a node knows of itself, in words."""
    if isinstance(node, PlexusNode):
        return {
            "has seen": node.watchdog.k_seen,
            "trains": node.training.k_train,
            AGGREGATING: node.aggregation.k_agg,
            "holds": node.held_round,
        }
    if isinstance(node, GossipNode):
        return {"is of age": node.age}
    return {"is in": node.rounds.k}


class RoundsNeverGoBack(Checker):
    """The rounds a process has seen, trains, aggregates and holds never fall. What it collected for
    an aggregation is gone with its session, so that one starts anew with the next."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._last: dict[NodeId, dict[str, int]] = {}

    def settled(self, node: NodeId) -> None:
        rounds, last = rounds_of(self.scene.node(node)), self._last.get(node, {})
        for what, k in rounds.items():
            if k < last.get(what, k):
                self.fail(node, f"{what} round {k} after round {last[what]}")
        self._last[node] = rounds

    def gone(self, node: NodeId) -> None:
        self._last.get(node, {}).pop(AGGREGATING, None)

    def restarted(self, node: NodeId, disk_is_lost: bool) -> None:
        self._last.pop(node, None)


class NewestRoundWins(Checker):
    """A node that is asked to train for a newer round does, whatever it was at."""

    def after(self, node: NodeId, event: Event, effects: list[Effect]) -> None:
        if isinstance(event, Received) and isinstance(event.body, TrainRequest):
            machine, k = self.scene.node(node), event.body.round
            if isinstance(machine, PlexusNode) and machine.training.k_train < k:
                self.fail(node, f"was asked to train round {k}, but is at {machine.training.k_train}")


class OneTrainingAtATime(Checker):
    """A node has one training under way at most, and what comes out is of the one it began last."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._round: dict[NodeId, int] = {}

    def before(self, node: NodeId, event: Event) -> None:
        if isinstance(event, Trained) and self._round.pop(node, None) != event.round:
            self.fail(node, f"a training of round {event.round} ended that was given up")

    def after(self, node: NodeId, event: Event, effects: list[Effect]) -> None:
        begun = [effect.round for effect in effects if isinstance(effect, Train)]
        if len(begun) > 1:
            self.fail(node, f"began {len(begun)} trainings at once")
        if begun:
            self._round[node] = begun[0]

    def gone(self, node: NodeId) -> None:
        self._round.pop(node, None)

    def tick(self) -> None:
        training: set[NodeId] = set()
        for node, event in self.scene.runtime.kernel.pending():
            if isinstance(event, Trained):
                if node in training:
                    self.fail(node, "trains twice at the same time")
                training.add(node)


class ModelsEnterOnce(Checker):
    """No aggregate holds a model twice, nor two models of one node."""

    reads_labels = True

    def after(self, node: NodeId, event: Event, effects: list[Effect]) -> None:
        for effect in effects:
            if not isinstance(effect, Aggregate | Merge):
                continue
            numbers = [model.number for model in effect.models if model != INITIAL]
            if len(set(numbers)) < len(numbers):
                self.fail(node, f"a model entered the aggregate of round {effect.round} twice")
            trainers = [model.node for model in effect.models if model.kind == "trained"]
            if len(set(trainers)) < len(trainers) and not isinstance(self.scene.node(node), GossipNode):
                self.fail(node, f"two models of one node entered the aggregate of round {effect.round}")


class AggregatesHoldTheirRound(Checker):
    """An aggregate holds only models that were trained for it: in Plexus, in the round before; in
    D-PSGD, in this round, besides the node's own."""

    reads_labels = True

    def after(self, node: NodeId, event: Event, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Aggregate):
                self._check(node, effect.round, effect.round - 1, effect.models)
            elif isinstance(effect, Merge) and not isinstance(self.scene.node(node), GossipNode):
                others = tuple(model for model in effect.models if model.node not in (node, -1))
                if len(others) < len(effect.models) - 1:
                    self.fail(node, f"round {effect.round} was merged with models of nobody else's")
                self._check(node, effect.round, effect.round, others)

    def _check(self, node: NodeId, k: int, trained_in: int, models: tuple[Label, ...]) -> None:
        for model in models:
            if model.kind != "trained" or model.round != trained_in:
                self.fail(node, f"the aggregate of round {k} holds a {model.kind} model of {model.round}")


class AcknowledgedIsAggregated(Checker):
    """Who is told to stop looking for an aggregator can rely on it: the round is done or overtaken."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._done: set[tuple[NodeId, int]] = set()

    def after(self, node: NodeId, event: Event, effects: list[Effect]) -> None:
        machine = self.scene.node(node)
        if not isinstance(machine, PlexusNode):
            return
        for effect in effects:
            if isinstance(effect, Aggregate):
                self._done.add((node, effect.round))
            elif isinstance(effect, Report) and isinstance(effect.fact, RoundRestarted):
                self._done.add((node, effect.fact.round))
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.body, Ack):
                k = effect.body.round
                overtaken = k < machine.aggregation.k_agg or k <= machine.held_round
                if not overtaken and (node, k) not in self._done:
                    self.fail(node, f"acknowledged round {k}, which it has not aggregated")


class NoModelIsIgnored(Checker):
    """Whoever sends a model is answered: at once if it comes too late, else when the aggregator completes
    the round or leaves it behind."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._kept: dict[NodeId, dict[NodeId, int]] = {}
        """Aggregator → sender → round."""

    def after(self, node: NodeId, event: Event, effects: list[Effect]) -> None:
        machine = self.scene.node(node)
        if not isinstance(machine, PlexusNode):
            return
        kept = self._kept.setdefault(node, {})
        if isinstance(event, Received) and isinstance(event.body, AggregateRequest):
            kept[event.src] = event.body.round
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.body, Ack):
                for to in effect.to:
                    if kept.get(to, 0) <= effect.body.round:
                        kept.pop(to, None)
        collecting = machine.aggregation.k_agg if machine.aggregation.collecting else None
        for src, k in kept.items():
            if k != collecting:
                self.fail(node, f"never answers node {src}, which sent it a model for round {k}")

    def gone(self, node: NodeId) -> None:
        self._kept.pop(node, None)
