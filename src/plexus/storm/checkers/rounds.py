"""Rounds: they only grow, the newest one wins, and a node trains for one at a time."""

from __future__ import annotations

from plexus.protocol.api import Effect, Event, Received, Train, Trained
from plexus.protocol.baselines.gossip import GossipNode
from plexus.protocol.messages import NodeId, TrainRequest
from plexus.protocol.plexus import PlexusNode
from plexus.storm.checkers.api import Checker, Scene
from plexus.storm.nodes import AnyNode

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
                self.fail(
                    node, f"was asked to train round {k}, but is at {machine.training.k_train}"
                )


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
