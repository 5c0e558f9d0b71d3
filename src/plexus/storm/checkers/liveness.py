"""What must happen once the storm is over. The bounds are those that docs/guarantees.md states."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from plexus.protocol.api import Aggregate, Aggregated, Effect, Event, Train, Trained
from plexus.protocol.baselines.dpsgd import DpsgdNode, DpsgdParameters
from plexus.protocol.baselines.gossip import GossipParameters
from plexus.protocol.facts import AggregationCompleted, ModelUpdated
from plexus.protocol.messages import NodeId
from plexus.protocol.parameters import PlexusParameters
from plexus.protocol.view import JOINED
from plexus.protocol.watchdog import MAX_PATIENCE
from plexus.storm.checkers.api import FAR, Checker, PlexusChecker, Scene
from plexus.storm.checkers.rounds import rounds_of
from plexus.storm.nodes import Label
from plexus.storm.plan import Partition

READVERTISEMENTS = 8
CERTAINTY = 12
"""How many times the mean one waits for a random thing: the chance to miss it is e^-12."""
ENOUGH_LATE_ROUNDS = 10
"""With fewer, the slowest of a storm's devices may always be too late: it takes as long as several rounds."""
TRIES = 3
WORK_S = 120.0
"""A training and the transfers before and after it, on the slowest of a storm's devices."""


def round_bound_s(scene: Scene) -> float:
    """Within how long a new round completes, when nothing goes wrong any more."""
    parameters, nodes = scene.plan.parameters, scene.plan.nodes
    match parameters:
        case PlexusParameters():
            # The most patient watchdog, a search that finds the last candidate, a lost aggregator, liars.
            return (
                (MAX_PATIENCE + 1) * parameters.watchdog_s
                + 2 * (nodes + 1) * parameters.ping_timeout_s
                + (1 + len(scene.plan.liars)) * parameters.ack_timeout_s
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


def rounds_until_all_count(scene: Scene) -> int:
    """Within how many rounds a training of everybody's own is in an aggregate, if late models count."""
    samples = len(scene.online()) / scene.parameters.sample_size
    trainings = samples * (math.log(scene.plan.nodes) + CERTAINTY)
    return TRIES * math.ceil(trainings + scene.parameters.late_rounds)


class RoundsComplete(Checker):
    """After a storm, at whose end it is made, a new round completes within the bound, and then another and
    another."""

    completed: set[int] = set()
    _updated: dict[NodeId, int] = {}
    _known: int = 0
    _bound_s: float = 0.0
    _since_s: float = 0.0
    _alone: bool = False

    def __post_init__(self) -> None:
        scene = self.scene
        known = [max(rounds_of(scene.node(node)).values()) for node in scene.honest()]
        # Who was misled about rounds goes back to where the others are.
        self._known = max(k for k in known if k < min(known) + FAR)
        self._bound_s, self._since_s = round_bound_s(scene), scene.now
        is_gossip = isinstance(scene.plan.parameters, GossipParameters)
        self._alone = is_gossip and len(scene.online()) == 1  # it needs two

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

    _rounds: RoundsComplete
    is_satisfied: bool = False
    _from_s: float = 0.0
    _before: int | None = None

    def __post_init__(self) -> None:
        parameters = self.scene.plan.parameters
        self.is_satisfied = isinstance(parameters, DpsgdParameters)
        if not isinstance(parameters, DpsgdParameters):
            self._from_s = self.scene.now + READVERTISEMENTS * parameters.readvertise_s
        if isinstance(parameters, PlexusParameters):  # who is left out asks, and tells others
            self._from_s += (MAX_PATIENCE + 1) * parameters.watchdog_s

    def tick(self) -> None:
        if self.is_satisfied:
            return
        views = [self._events(node) for node in self.scene.honest()]
        online = np.zeros(len(views[0]), np.bool_)
        online[self.scene.honest()] = True
        agreed = all(np.array_equal(view, views[0]) for view in views)
        if agreed and bool((views[0][online] & 3 == JOINED).all()):
            self.is_satisfied = True
        elif self.scene.now > self._from_s:
            self._before = self._passed() if self._before is None else self._before
            passed = self._passed() - self._before
            if passed > rounds_until_agreement(self.scene):
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
        node, *others = self.scene.honest()
        for other in others:
            ours, theirs = self._events(node), self._events(other)
            if not np.array_equal(ours, theirs):
                of = int((ours != theirs).argmax())
                return f"node {node} knows event {ours[of]} of node {of}, node {other} {theirs[of]}"
        return "an online node is believed offline by all"


class NobodyIsStarved(Checker):
    """Where late models count, a training of everybody's own is in an aggregate after the storm, within so
    many rounds after nobody is unheard of."""

    _rounds: RoundsComplete
    _views: ViewsAgree
    _hungry: set[NodeId] = set()
    _before: int | None = None

    def __post_init__(self) -> None:
        parameters = self.scene.plan.parameters
        if isinstance(parameters, PlexusParameters) and parameters.late_rounds >= ENOUGH_LATE_ROUNDS:
            self._hungry = set(self.scene.honest())

    @property
    def is_satisfied(self) -> bool:
        return not self._hungry

    def after(self, node: NodeId, event: Event, effects: list[Effect]) -> None:
        for effect in effects if self._hungry else ():
            if isinstance(effect, Aggregate):
                self._hungry.difference_update(model.node for model in effect.models)
                self._hungry.difference_update(change.trained.node for change in effect.changes)

    def tick(self) -> None:
        if self._hungry and self._views.is_satisfied:
            passed = len(self._rounds.completed)
            self._before = passed if self._before is None else self._before
            if passed - self._before > rounds_until_all_count(self.scene):
                self.fail(min(self._hungry), f"no training of {self._hungry} counted in {passed} rounds")


class HeavierSideSurvives(PlexusChecker):
    """After a cut that parted few nodes from many, and nothing else, the session goes on with what the many
    made: their newest aggregate when the cut healed is behind the newest one of all."""

    reads_labels = True
    _cut: Partition | None = None
    _behind: dict[Label, set[Label]] = {}
    """A model → the aggregates that led to it."""
    _begun: dict[NodeId, Label] = {}
    _making: dict[NodeId, Aggregate] = {}
    _newest: tuple[int, Label] | None = None
    _heavier: tuple[int, frozenset[Label]] = (0, frozenset())
    """The newest round of the many when the cut healed, and its aggregates."""

    def __post_init__(self) -> None:
        self._cut = self.scene.plan.cut

    def before(self, node: NodeId, event: Event) -> None:
        if self._cut is None:
            return
        if isinstance(event, Trained):
            self._behind[event.model] = self._behind.get(self._begun[node], set())
        elif isinstance(event, Aggregated):
            made = self._making.pop(node)
            self._behind[event.model] = {event.model}.union(*map(self._behind.__getitem__, made.models))
            if self._newest is None or made.round >= self._newest[0]:
                self._newest = made.round, event.model
            if self.scene.now <= self._cut.until_s and node not in self._cut.side:
                k, models = self._heavier
                if made.round >= k:
                    others = models if made.round == k else ()
                    self._heavier = made.round, frozenset({event.model, *others})

    def after(self, node: NodeId, event: Event, effects: list[Effect]) -> None:
        for effect in effects if self._cut is not None else ():
            if isinstance(effect, Train):
                self._begun[node] = effect.model
            elif isinstance(effect, Aggregate):
                self._making[node] = effect

    def ended(self) -> None:
        if self._newest is not None and self._heavier[1].isdisjoint(self._behind[self._newest[1]]):
            k, model = self._newest
            self.fail(None, f"{model} of round {k} has nothing behind it of round {self._heavier[0]}")
