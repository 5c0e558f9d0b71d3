"""What is in an aggregate, and what an acknowledgement is worth."""

from __future__ import annotations

from plexus.protocol.api import Aggregate, Effect, Event, Merge, Received, Report, Send
from plexus.protocol.baselines.gossip import GossipNode
from plexus.protocol.facts import RoundRestarted
from plexus.protocol.messages import Ack, AggregateRequest, NodeId
from plexus.protocol.plexus import PlexusNode
from plexus.storm.checkers.api import Checker, Scene
from plexus.storm.labels import INITIAL, Label


class ModelsEnterOnce(Checker):
    """No aggregate holds a model twice, nor two models of one node."""

    reads_labels = True

    def after(self, node: NodeId, event: Event, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Aggregate | Merge):
                self._check(node, effect.round, effect.models)

    def _check(self, node: NodeId, k: int, models: tuple[Label, ...]) -> None:
        numbers = [model.number for model in models if model != INITIAL]
        if len(set(numbers)) < len(numbers):
            self.fail(node, f"a model entered the aggregate of round {k} twice")
        trainers = [model.node for model in models if model.kind == "trained"]
        if len(set(trainers)) < len(trainers) and not isinstance(self.scene.node(node), GossipNode):
            self.fail(node, f"two models of one node entered the aggregate of round {k}")


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
                self.fail(
                    node, f"the aggregate of round {k} holds a {model.kind} model of {model.round}"
                )


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
