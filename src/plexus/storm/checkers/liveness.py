"""What must happen once the storm is over. The bounds are those that docs/guarantees.md states."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from plexus.protocol.baselines.dpsgd import DpsgdNode, DpsgdParameters
from plexus.protocol.baselines.gossip import GossipParameters
from plexus.protocol.facts import AggregationCompleted, ModelUpdated
from plexus.protocol.messages import NodeId
from plexus.protocol.parameters import PlexusParameters
from plexus.protocol.view import JOINED
from plexus.protocol.watchdog import MAX_PATIENCE
from plexus.storm.checkers.api import Checker, Scene
from plexus.storm.checkers.rounds import rounds_of

READVERTISEMENTS = 8
CERTAINTY = 12
"""How many times the mean one waits for a random thing: the chance to miss it is e^-12."""
WORK_S = 120.0
"""A training and the transfers before and after it, on the slowest of a storm's devices."""


def round_bound_s(scene: Scene) -> float:
    """Within how long a new round completes, when nothing goes wrong any more."""
    parameters, nodes = scene.plan.parameters, scene.plan.nodes
    match parameters:
        case PlexusParameters():
            # The most patient watchdog, a search that finds the last candidate, one lost aggregator.
            return (
                (MAX_PATIENCE + 1) * parameters.watchdog_s
                + 2 * (nodes + 1) * parameters.ping_timeout_s
                + parameters.ack_timeout_s
                + parameters.aggregation_timeout_s
                + WORK_S
            )
        case GossipParameters():
            waits_s = CERTAINTY * (parameters.period_s + 16 * parameters.ping_timeout_s)
            return READVERTISEMENTS * parameters.readvertise_s + waits_s + WORK_S
        case DpsgdParameters():
            assert parameters.round_duration_s is not None
            return 4 * parameters.round_duration_s + WORK_S


def rounds_until_agreement(scene: Scene) -> int:
    """Within how many rounds every online node has heard what any of them knows."""
    nodes, online = scene.plan.nodes, len(scene.online())
    certainly = math.log(nodes) + CERTAINTY
    if isinstance(scene.plan.parameters, PlexusParameters):
        # Every node is in a sample, and before that somebody who knows the news.
        return math.ceil(2 * online / scene.plan.parameters.sample_size * certainly) + 10
    return math.ceil(2 * certainly) + 10


class RoundsComplete(Checker):
    """After a storm, at whose end it is made, a new round completes within the bound, and then another and
    another."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self.completed: set[int] = set()
        self._known = max(max(rounds_of(scene.node(node)).values()) for node in scene.online())
        self._bound_s = round_bound_s(scene)
        self._since_s = scene.now
        self._updated: dict[NodeId, int] = {}
        self._alone = isinstance(scene.plan.parameters, GossipParameters) and (
            len(scene.online()) == 1  # gossip needs two
        )

    @property
    def is_satisfied(self) -> bool:
        if isinstance(self.scene.plan.parameters, DpsgdParameters):
            return all(self._updated.get(node, 0) >= 2 for node in self.scene.online())
        return self._alone or len(self.completed) >= 2

    def reported(self, node: NodeId, fact: Any) -> None:
        if isinstance(fact, ModelUpdated):
            self._updated[node] = self._updated.get(node, 0) + 1
        if isinstance(fact, AggregationCompleted | ModelUpdated) and fact.round > self._known:
            if fact.round not in self.completed:
                self._since_s = self.scene.now
            self.completed.add(fact.round)

    def tick(self) -> None:
        waited_s = self.scene.now - self._since_s
        if waited_s > self._bound_s and not self._alone:
            self.fail(None, f"no new round for {waited_s:.0f} s, {self._bound_s:.0f} s are allowed")


class ViewsAgree(Checker):
    """After a storm the views of all online nodes become one, in which all of them are online, within
    so many rounds after nobody is unheard of."""

    def __init__(self, scene: Scene, rounds: RoundsComplete) -> None:
        super().__init__(scene)
        self._rounds = rounds
        parameters = scene.plan.parameters
        self.is_satisfied = isinstance(parameters, DpsgdParameters)
        if not isinstance(parameters, DpsgdParameters):
            self._from_s = scene.now + READVERTISEMENTS * parameters.readvertise_s
        if isinstance(parameters, PlexusParameters):  # who is left out asks, and tells others
            self._from_s += (MAX_PATIENCE + 1) * parameters.watchdog_s
        self._before: int | None = None
        self._allowed = rounds_until_agreement(scene)

    def tick(self) -> None:
        if self.is_satisfied:
            return
        views = [self._events(node) for node in self.scene.online()]
        online = np.zeros(len(views[0]), np.bool_)
        online[self.scene.online()] = True
        agreed = all(np.array_equal(view, views[0]) for view in views)
        if agreed and bool((views[0][online] & 3 == JOINED).all()):
            self.is_satisfied = True
        elif self.scene.now > self._from_s:
            self._before = self._passed() if self._before is None else self._before
            passed = self._passed() - self._before
            if passed > self._allowed:
                self.fail(None, f"{self._difference()} after {passed} rounds")

    def _passed(self) -> int:
        parameters = self.scene.plan.parameters
        if isinstance(parameters, GossipParameters):
            return int(self.scene.now / parameters.period_s)
        return len(self._rounds.completed)

    def _events(self, node: NodeId) -> Any:
        machine = self.scene.node(node)
        assert not isinstance(machine, DpsgdNode)
        return machine.membership.view.snapshot().events

    def _difference(self) -> str:
        online = self.scene.online()
        for node in online:
            for other in online:
                ours, theirs = self._events(node), self._events(other)
                if not np.array_equal(ours, theirs):
                    of = int((ours != theirs).argmax())
                    return f"node {node} knows event {ours[of]} of node {of}, node {other} {theirs[of]}"
        return "an online node is believed offline by all"
