"""Late models: each counts once, and whoever is told whether its model was used is told the truth."""

from __future__ import annotations

from plexus.protocol.api import Aggregate, Aggregated, Effect, Event, Received, Send
from plexus.protocol.messages import Ack, AggregateRequest, LateModel, Model, NodeId
from plexus.storm.checkers.api import PlexusChecker
from plexus.storm.nodes import Label


class ChangesCountOnce(PlexusChecker):
    """What entered an aggregate as a change enters no other, neither as a change nor as a model.

    Except what an aggregator used whose process was lost since: it does not remember, and cannot but say no
    when it is sent the same once more."""

    reads_labels = True
    _making: dict[NodeId, Aggregate] = {}
    _used: dict[Label, dict[tuple[NodeId, int], str]] = {}
    """What was trained → (aggregator, round) → whether as a model or a change."""

    def before(self, node: NodeId, event: Event) -> None:
        if isinstance(event, Aggregated):
            made = self._making.pop(node)
            for model in made.models:
                self._enter(node, made.round, model, "model")
            for change in made.changes:
                self._enter(node, made.round, change.trained, "change")

    def after(self, node: NodeId, event: Event, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Aggregate):
                self._making[node] = effect

    def restarted(self, node: NodeId, disk_is_lost: bool) -> None:
        for used in self._used.values():
            for aggregate in [each for each in used if each[0] == node]:
                del used[aggregate]

    def _enter(self, node: NodeId, k: int, model: Label, what: str) -> None:
        used = self._used.setdefault(model, {})
        is_twice = used and "change" in (what, *used.values())
        if is_twice and model.node not in self.scene.plan.liars:  # a liar may send the same to several
            self.fail(node, f"round {k} has {model} as a {what}, which is in {used}")
        used[node, k] = what


class AnswersAreTrue(PlexusChecker):
    """An answer says that a model is used if it is in an aggregate of whoever says so, and that it is not
    only if it is not. A process that was lost since has forgotten."""

    reads_labels = True
    _sent: dict[tuple[NodeId, NodeId, int, int], set[Model]] = {}
    """(aggregator, sender, what an answer names) → what it is about: one model, unless its sender lost
    its process."""
    _used: dict[NodeId, set[Model]] = {}

    def after(self, node: NodeId, event: Event, effects: list[Effect]) -> None:
        if isinstance(event, Received) and isinstance(event.body, AggregateRequest | LateModel):
            body, is_late = event.body, isinstance(event.body, LateModel)
            about = (body.trained_in, body.round) if is_late else (body.round, 0)
            self._sent.setdefault((node, event.src, *about), set()).add(body.model)
        used = self._used.setdefault(node, set())
        for effect in effects:
            if isinstance(effect, Aggregate):
                used.update(effect.models, effect.changes)
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.body, Ack):
                ack = effect.body
                for to in effect.to:
                    models = self._sent.get((node, to, ack.round, ack.late), set())
                    if not (models & used if ack.used else models - used):
                        self.fail(node, f"answers {ack} to node {to}, which sent {models}")

    def restarted(self, node: NodeId, disk_is_lost: bool) -> None:
        self._used.pop(node, None)
