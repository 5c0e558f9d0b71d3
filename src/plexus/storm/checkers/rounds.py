"""Rounds only grow, and the newest one wins; aggregates hold what they should, acknowledgements are true."""

from __future__ import annotations

from collections import Counter
from typing import Any

from plexus.protocol.api import Aggregate, Effect, Event, Merge, Received, Train, Trained
from plexus.protocol.baselines.gossip import GossipNode
from plexus.protocol.facts import RoundRestarted
from plexus.protocol.messages import Ack, AggregateRequest, LateModel, Message, NodeId, TrainRequest
from plexus.protocol.plexus import PlexusNode
from plexus.storm.checkers.api import MISLED, Checker, PlexusChecker, facts_in, is_refused, sends_in
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
    return {"is of age": node.age} if isinstance(node, GossipNode) else {"is in": node.rounds.k}


class RoundsNeverGoBack(Checker):
    """The rounds a process has seen, trains, aggregates and holds never fall. What it collected for
    an aggregation is gone with its session, so that one starts anew with the next. Who was misled about
    rounds goes back to where the others are."""

    while_running = ("_last",)
    _last: dict[NodeId, dict[str, int]] = {}

    def settled(self, node: NodeId) -> None:
        rounds, last = rounds_of(self.scene.node(node)), self._last.get(node, {})
        for what, k in rounds.items():
            is_way_back = self.scene.plan.is_wary and last.get(what, k) - k > MISLED
            if k < last.get(what, k) and not is_way_back:
                self.fail(node, f"{what} round {k} after round {last[what]}")
        self._last[node] = rounds

    def gone(self, node: NodeId) -> None:
        self._last.get(node, {}).pop(AGGREGATING, None)


class NewestRoundWins(PlexusChecker):
    """A node that is asked to train for a newer round does, whatever it was at; or it has queued that, if
    late models count, and begins as soon as it has finished."""

    while_online = ("_asked",)
    _asked: dict[NodeId, int] = {}
    """Node → the newest round it was asked to train for."""

    def after(self, node: NodeId, event: Event, effects: list[Effect]) -> None:
        machine = self.scene.plexus(node)
        asks = isinstance(event, Received) and isinstance(event.body, TrainRequest) and event
        if asks and not is_refused(machine, asks, effects):
            self._asked[node] = max(self._asked.get(node, 0), asks.body.round)
        if machine.trust.is_wary and machine.watchdog.k_seen < self._asked.get(node, 0):
            del self._asked[node]  # it was misled, and has found its way back
        task, k = machine.training, self._asked.get(node, 0)
        queued = task.queued.round if task.queued and task.is_training else 0
        if max(task.k_train, queued) < k:
            self.fail(node, f"was asked to train round {k}, but is at {task.k_train}")


class OneTrainingAtATime(Checker):
    """A node has one training under way at most, and what comes out is of the one it began last."""

    while_online = ("_round",)
    _round: dict[NodeId, int] = {}

    def before(self, node: NodeId, event: Event) -> None:
        if isinstance(event, Trained) and self._round.pop(node, None) != event.round:
            self.fail(node, f"a training of round {event.round} ended that was given up")

    def after(self, node: NodeId, event: Event, effects: list[Effect]) -> None:
        begun = [effect.round for effect in effects if isinstance(effect, Train)]
        if begun != sorted(set(begun)):  # each ends the one before, so the newest has to be the last
            self.fail(node, f"began trainings of rounds {begun} at once")
        if begun:
            self._round[node] = begun[-1]

    def tick(self) -> None:
        pending = self.scene.runtime.kernel.pending()
        for node, trainings in Counter(at for at, event in pending if isinstance(event, Trained)).items():
            if trainings > 1:
                self.fail(node, "trains twice at the same time")


class ModelsEnterOnce(Checker):
    """No aggregate holds a model twice, nor two models or two changes of one node."""

    reads_labels = True

    def after(self, node: NodeId, event: Event, effects: list[Effect]) -> None:
        for effect in effects:
            if not isinstance(effect, Aggregate | Merge):
                continue
            changes = [change.trained for change in getattr(effect, "changes", ())]
            # What a liar sends twice counts twice, if it calls it by two names.
            liars, all_of_them = self.scene.plan.liars, (*effect.models, *changes)
            numbers = [each.number for each in all_of_them if each != INITIAL and each.node not in liars]
            if len(set(numbers)) < len(numbers):
                self.fail(node, f"a model entered the aggregate of round {effect.round} twice")
            if isinstance(self.scene.node(node), GossipNode):
                continue
            for models in (effect.models, changes):
                trainers = [model.node for model in models if model.kind == "trained"]
                if len(set(trainers)) < len(trainers):
                    self.fail(node, f"two models of one node entered the aggregate of round {effect.round}")


class AggregatesHoldTheirRound(Checker):
    """An aggregate holds only models that were trained for it: in Plexus, in a round that leads to it; in
    D-PSGD, in this round, besides the node's own. Changes are what their senders trained, and of what."""

    reads_labels = True
    _sent: dict[Label, int] = {}
    """A trained model → the number of the round for which it was sent to an aggregator."""
    _made_up: set[Label] = set()
    """What liars sent, for whatever round."""
    _base: dict[Label, Label] = {}
    """A trained model → what the training began with."""
    _begun: dict[NodeId, Label] = {}
    _late: dict[Label, tuple[Label, int]] = {}
    """A trained model → the base and the samples with which it was sent as a change."""

    def before(self, node: NodeId, event: Event) -> None:
        if isinstance(event, Trained):
            self._base[event.model] = self._begun[node]

    def sent(self, src: NodeId, to: tuple[NodeId, ...], body: Message) -> None:
        if isinstance(body, AggregateRequest) and self.scene.plan.liars.get(src) == "newer-model":
            self._made_up.add(body.model)
        elif isinstance(body, AggregateRequest):
            self._check(src, body.ordinal, body.ordinal - 1, (body.model,))
            if self._sent.setdefault(body.model, body.round) != body.round:
                self.fail(src, f"sends {body.model} for round {body.round} and {self._sent[body.model]}")
        elif isinstance(body, LateModel):
            trained, base = body.model.trained, body.model.base
            self._check(src, body.round, body.ordinal, (trained,))
            if trained.node != src or self._base.get(trained) != base:
                self.fail(src, f"offers the change from {base} to {trained}, which it has not trained")
            self._late[trained] = base, body.samples

    def after(self, node: NodeId, event: Event, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Train):
                self._begun[node] = effect.model
            elif isinstance(effect, Aggregate):
                for model in effect.models:
                    if self._sent.get(model) != effect.round and model not in self._made_up:
                        self.fail(node, f"the aggregate of round {effect.round} holds {model}")
                for change, samples in zip(effect.changes, effect.change_samples, strict=True):
                    if self._late.get(change.trained) != (change.base, samples):
                        self.fail(node, f"the aggregate of round {effect.round} holds the change {change}")
            elif isinstance(effect, Merge) and not isinstance(self.scene.node(node), GossipNode):
                others = tuple(model for model in effect.models if model.node not in (node, -1))
                if len(others) < len(effect.models) - 1:
                    self.fail(node, f"round {effect.round} was merged with models of nobody else's")
                self._check(node, effect.round, effect.round, others)

    def _check(self, node: NodeId, k: int, trained_in: int, models: tuple[Label, ...]) -> None:
        for model in models:
            if model.kind != "trained" or model.round != trained_in:
                self.fail(node, f"the aggregate of round {k} holds a {model.kind} model of {model.round}")


class AcknowledgedIsAggregated(PlexusChecker):
    """Who is told to stop looking for an aggregator can rely on it: the round is done or overtaken, or what
    came alone is sent back. An answer about a late model names the round in which that was trained, and the
    one for which it was sent."""

    _done: set[tuple[NodeId, int]] = set()
    _late: set[tuple[NodeId, NodeId, int, int]] = set()
    """(aggregator, sender, round in which it was trained, round for which it was sent)"""

    def after(self, node: NodeId, event: Event, effects: list[Effect]) -> None:
        machine = self.scene.plexus(node)
        if isinstance(event, Received) and isinstance(event.body, LateModel):
            self._late.add((node, event.src, event.body.trained_in, event.body.round))
        made: list[Any] = [effect for effect in effects if isinstance(effect, Aggregate)]
        made += facts_in(effects, RoundRestarted)
        self._done.update((node, each.round) for each in made)
        for to, ack in sends_in(effects, Ack):
            k, late = ack.round, ack.late
            overtaken = k < machine.aggregation.k_agg or k <= machine.held_round
            is_void = self.scene.plan.is_wary and k > machine.watchdog.k_seen + MISLED
            if late and not all((node, each, k, late) in self._late for each in to):
                self.fail(node, f"answers {to} about a late model of round {k} that did not come")
            is_sent_back = self.scene.plan.is_wary and not ack.used
            is_relied_on = not late and not is_sent_back
            if is_relied_on and not overtaken and not is_void and (node, k) not in self._done:
                self.fail(node, f"acknowledged round {k}, which it has not aggregated")


class NoModelIsIgnored(PlexusChecker):
    """Whoever sends a model is answered: at once if it comes too late, else when the aggregator completes
    the round or leaves it behind. The first of a round may wait for a second one where members may lie, and
    a late model until the round for which it is meant is over."""

    while_online = ("_kept", "_late")
    _kept: dict[NodeId, dict[NodeId, int]] = {}
    """Aggregator → sender → round."""
    _late: dict[NodeId, dict[tuple[NodeId, int], int]] = {}
    """Aggregator → (sender, trained in) → the round for which it is meant."""

    def after(self, node: NodeId, event: Event, effects: list[Effect]) -> None:
        machine = self.scene.plexus(node)
        kept, late = self._kept.setdefault(node, {}), self._late.setdefault(node, {})
        if isinstance(event, Received) and isinstance(event.body, AggregateRequest):
            if not is_refused(machine, event, effects):
                kept[event.src] = event.body.round
        elif isinstance(event, Received) and isinstance(event.body, LateModel):
            late.setdefault((event.src, event.body.trained_in), event.body.round)
        for receivers, ack in sends_in(effects, Ack):
            for to in receivers:
                if ack.late:
                    late.pop((to, ack.round), None)
                elif kept.get(to, 0) <= ack.round:
                    kept.pop(to, None)
        collecting = machine.aggregation.k_agg if machine.aggregation.collecting else None
        rounds = Counter(kept.values())
        for src, k in kept.items():
            is_lone = self.scene.plan.is_wary and rounds[k] == 1 and k > machine.aggregation.k_agg
            if k != collecting and not is_lone:
                self.fail(node, f"never answers node {src}, which sent it a model for round {k}")
        if late and collecting is None and min(late.values()) < machine.watchdog.k_seen:
            self.fail(node, f"keeps late models for rounds {sorted(late.values())}, which are over")
