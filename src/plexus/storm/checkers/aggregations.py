"""What an aggregator makes of what it was sent: enough of it, all of it, in time; and late models, each once,
whose senders are told the truth about whether they were used."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from math import floor
from typing import ClassVar

from msgspec import Struct

from plexus.protocol.aggregation import AGGREGATION
from plexus.protocol.api import (
    Aggregate,
    Aggregated,
    Effect,
    Event,
    Received,
    TimerFired,
    Trained,
    WentOffline,
)
from plexus.protocol.facts import AggregationCompleted, Fact
from plexus.protocol.messages import Ack, AggregateRequest, LateModel, Model, NodeId, TrainRequest
from plexus.protocol.quorum import PARTICIPANTS
from plexus.storm.checkers.api import PlexusChecker, is_refused, sends_in
from plexus.storm.nodes import Label

LEAST = 2
"""Models in an aggregate of a sample with more nodes, where members may lie."""
SMALL = 3
"""Where late models count, samples of so many nodes wait for everybody."""
CLOCK_S = 1e-6
"""What a difference of two moments loses by rounding, on clocks that are days apart."""


class Collected(Struct):
    """What an aggregator was sent for a round and has not answered yet."""

    round: int
    since_s: float
    """When the first model came, by the aggregator's clock."""
    models: dict[NodeId, tuple[Model, int]] = {}
    """By sender, the first that came of each: with the number of samples behind it."""
    claims: dict[NodeId, int] = {}
    """By sender: of how many participants it spoke last."""
    participants: int = 0
    """The most that a sender spoke of; where members may lie, what most of them say, and no more than a
    sample has."""
    least: int = 1
    """Models that are needed in any case: one liar's is not enough, nor that of the fastest alone."""
    is_small: bool = False
    """Whether everybody is needed."""
    ordinal: int = 0
    """According to the first that came."""


class AggregationChecker(PlexusChecker):
    """Knows what each aggregator collects: what it neither answered at once nor gave up since."""

    while_online: ClassVar[tuple[str, ...]] = ("_collected", "_lone")
    _collected: dict[NodeId, Collected] = {}
    _lone: dict[NodeId, dict[NodeId, tuple[float, AggregateRequest]]] = {}
    """Where members may lie: aggregator → sender → since when its model waits for a second of its round."""

    def after(self, node: NodeId, event: Event, effects: list[Effect]) -> None:
        received = event if isinstance(event, Received) and isinstance(event.body, AggregateRequest) else None
        lone = self._lone.setdefault(node, {})
        if (
            received is None
            and not isinstance(event, TimerFired)
            and node not in self._collected
            and not lone
        ):
            return  # nothing that makes an aggregator begin or end
        made = [effect for effect in effects if isinstance(effect, Aggregate)]
        acks = [(to, ack.round) for to, ack in sends_in(effects, Ack) if not ack.late]
        answered = [k for _, k in acks]
        begun = {aggregate.round for aggregate in made}
        if self.scene.plexus(node).aggregation.collecting:
            begun.add(self.scene.plexus(node).aggregation.k_agg)
        if received is not None:
            k = received.body.round
            is_kept = k not in answered and not is_refused(self.scene.plexus(node), received, effects)
            if is_kept or any(aggregate.round == k for aggregate in made):
                self._collect(node, received.src, received.body)
        self._begin(node, begun)
        for to, k in acks:
            for src in to:
                if src in lone and lone[src][1].round == k:
                    del lone[src]
        collected = self._collected.get(node)
        for aggregate in made:
            if collected is None or collected.round != aggregate.round:
                self.fail(node, f"aggregates round {aggregate.round}, for which it was sent nothing")
            else:
                timed_out = isinstance(event, TimerFired) and event.key == AGGREGATION
                self.aggregated(node, collected, aggregate, timed_out)
        if collected is None:
            return
        if collected.round in answered:
            del self._collected[node]
        else:
            self.waits(node, collected)

    def aggregated(self, node: NodeId, collected: Collected, aggregate: Aggregate, timed_out: bool) -> None:
        """The aggregator waits no longer."""

    def waits(self, node: NodeId, collected: Collected) -> None:
        """Something has happened, and the aggregator waits for more."""

    def _collect(self, node: NodeId, src: NodeId, request: AggregateRequest) -> None:
        collected, now = self._collected.get(node), self.scene.clock_s(node)
        is_new = collected is None or collected.round < request.round
        if is_new and self.scene.plan.is_wary and self._sample_size(node) > LEAST:
            lone = self._lone[node]
            if src not in lone or lone[src][1].round != request.round:
                lone[src] = now, request
            return
        self._add(node, src, request, now)

    def _begin(self, node: NodeId, begun: set[int]) -> None:
        """What waited for others of its round does so no more."""
        lone, now = self._lone[node], self.scene.clock_s(node)
        waiting = [(src, *each) for src, each in lone.items() if each[1].round in begun]
        for src, _, request in waiting:
            since_s = min(since for _, since, _ in waiting)
            del lone[src]
            # Another round may have been finished first.
            self._add(node, src, request, max(since_s, now - self.scene.parameters.aggregation_timeout_s))

    def _add(self, node: NodeId, src: NodeId, request: AggregateRequest, since_s: float) -> None:
        collected = self._collected.get(node)
        if collected is None or collected.round < request.round:
            collected = self._collected[node] = Collected(request.round, since_s)
            collected.is_small = self.scene.parameters.late_rounds > 0 and self._sample_size(node) <= SMALL
            collected.ordinal = request.ordinal
        if collected.round == request.round:
            collected.models.setdefault(src, (request.model, request.samples))
            collected.claims[src] = request.participants
            self._derive(node, collected)

    def _derive(self, node: NodeId, collected: Collected) -> None:
        claims, parameters = sorted(collected.claims.values()), self.scene.parameters
        collected.participants = claims[-1]
        if parameters.signed_views:
            most = self._sample_size(node)
            collected.participants = max(1, min(claims[len(claims) // 2], most))
            collected.least = LEAST if most > LEAST else 1
        if (parameters.late_rounds or parameters.signed_views) and collected.participants > 1:
            collected.least = LEAST

    def _sample_size(self, node: NodeId) -> int:
        return min(self.scene.parameters.sample_size, len(self.scene.plexus(node).membership.view.actives()))


class OneBeginsNothing(AggregationChecker):
    """Where members may lie, a model alone begins no round before its time is up, and ends none that is under
    way; a second one of the same round does, and what waits is not forgotten."""

    _at_work: dict[NodeId, float] = {}
    """Until when an aggregator that something waits for was at another round."""

    def after(self, node: NodeId, event: Event, effects: list[Effect]) -> None:
        before = self._collected.get(node)
        super().after(node, event, effects)
        machine, now = self.scene.plexus(node), self.scene.clock_s(node)
        collected, timeout_s = self._collected.get(node), self.scene.parameters.aggregation_timeout_s
        if collected is not None and collected is not before and self.scene.plan.is_wary:
            is_alone = len(collected.models) < LEAST < self._sample_size(node)
            if is_alone and now - collected.since_s < timeout_s - CLOCK_S:
                self.fail(
                    node, f"begins round {collected.round} on the word of {list(collected.models)} alone"
                )
        lone = self._lone.get(node, {})
        rounds = Counter(request.round for _, request in lone.values())
        for src, (since_s, request) in lone.items():
            if rounds[request.round] >= LEAST:
                self.fail(node, f"has {rounds[request.round]} models of round {request.round}, and waits")
            if machine.aggregation.collecting or machine.is_indispensable:
                self._at_work[node] = now
            free_s = max(since_s + timeout_s, self._at_work.get(node, since_s))
            if now - free_s > self.scene.parameters.ack_timeout_s:
                self.fail(node, f"forgets the model that node {src} sent it for round {request.round}")


class OneWordEndsNoWork(PlexusChecker):
    """Where members may lie, what is aggregated is pushed, unless two others hold something as new."""

    while_online = ("_made",)
    _made: dict[NodeId, int] = {}
    """Aggregator → the round whose participants it looks for."""

    def after(self, node: NodeId, event: Event, effects: list[Effect]) -> None:
        machine = self.scene.plexus(node)
        if isinstance(event, Aggregated) and machine.is_searching(PARTICIPANTS):
            self._made[node] = event.round
        if machine.is_searching(PARTICIPANTS) or not self.scene.plan.is_wary:
            return
        k = self._made.pop(node, None)
        if k is None or isinstance(event, WentOffline) or machine.aggregation.k_agg > k:
            return
        is_pushed = any(request.round == k for _, request in sends_in(effects, TrainRequest))
        others = [other for other in range(self.scene.plan.nodes) if other != node]
        holding = [other for other in others if self.scene.plexus(other).held_round >= k]
        if not is_pushed and len(holding) < machine.trust.several:
            self.fail(node, f"has made round {k}, which nodes {holding} have, and does not push it")


class EnoughModels(AggregationChecker):
    """An aggregation takes as many models as the success fraction asks of the participants announced, no
    more and, unless its time is up, no fewer; and it reports what it took. Where late models count, small
    samples need everybody, and no aggregation waits for a change."""

    _report: dict[NodeId, tuple[int, int, int, int, bool]] = {}

    def aggregated(self, node: NodeId, collected: Collected, aggregate: Aggregate, timed_out: bool) -> None:
        models, needed = len(aggregate.models), self._needed(collected)
        # Where the view says how many there are, fewer may be needed by the time that another comes.
        too_many = models > needed and not self.scene.parameters.signed_views
        k, participants = aggregate.round, collected.participants
        if too_many or (models < needed and not timed_out):
            self.fail(node, f"aggregated {models} of {participants} models in round {k}, not {needed}")
        self._report[node] = (k, models, len(aggregate.changes), participants, timed_out)

    def waits(self, node: NodeId, collected: Collected) -> None:
        if len(collected.models) >= self._needed(collected):
            self.fail(node, f"has the {len(collected.models)} models that it needs, and waits for more")

    def reported(self, node: NodeId, fact: Fact) -> None:
        if isinstance(fact, AggregationCompleted):
            said = (fact.round, fact.models, fact.late, fact.participants, fact.timed_out)
            if said != self._report.get(node):
                self.fail(node, f"reports an aggregation {said} that was {self._report.get(node)}")

    def _needed(self, collected: Collected) -> int:
        share = Fraction(1 if collected.is_small else str(self.scene.parameters.success_fraction))
        return max(collected.least, floor(share * collected.participants))


class AllCollectedCounts(AggregationChecker):
    """An aggregate holds all that was collected for it, once, and every model weighs as many samples as it
    was trained on. So does every change that waited for it, unless that is older than is allowed."""

    reads_labels = True
    while_online = ("_collected", "_late")
    _samples: dict[Model, int] = {}
    _late: dict[NodeId, dict[NodeId, LateModel]] = {}
    """Aggregator → sender → the change that it has neither used nor declined."""

    def before(self, node: NodeId, event: Event) -> None:
        if isinstance(event, Trained):
            self._samples[event.model] = event.samples

    def after(self, node: NodeId, event: Event, effects: list[Effect]) -> None:
        late = self._late.setdefault(node, {})
        if isinstance(event, Received) and isinstance(event.body, LateModel):
            late.setdefault(event.src, event.body)
        answers = sends_in(effects, Ack)
        for to, ack in answers:
            if not ack.used:
                self._settle(late, to, ack)
        super().after(node, event, effects)
        for to, ack in answers:
            self._settle(late, to, ack)

    def aggregated(self, node: NodeId, collected: Collected, aggregate: Aggregate, timed_out: bool) -> None:
        if Counter(aggregate.models) != Counter(model for model, _ in collected.models.values()):
            self.fail(node, f"{len(collected.models)} models came for round {aggregate.round}, not these")
        late = self._late[node].values()
        if Counter(aggregate.changes) != Counter(each.model for each in late):
            self.fail(node, f"{len(late)} changes wait for round {aggregate.round}, not {aggregate.changes}")
        trained = (*aggregate.models, *(change.trained for change in aggregate.changes))
        for model, samples in zip(trained, aggregate.samples + aggregate.change_samples, strict=True):
            if samples != self._samples.get(model) and not self._is_made_up(model, collected):
                self.fail(node, f"{model} of {self._samples.get(model)} samples counts as {samples}")
        for each in late:
            age = collected.ordinal - 1 - each.ordinal
            if age > self.scene.parameters.late_rounds:
                self.fail(node, f"uses a change of node {each.model.trained.node} that is {age} rounds old")

    def _is_made_up(self, model: Model, collected: Collected) -> bool:
        """What a liar sends it may not have trained."""
        return any(
            made == model and src in self.scene.plan.liars for src, (made, _) in collected.models.items()
        )

    def _settle(self, late: dict[NodeId, LateModel], to: tuple[NodeId, ...], ack: Ack) -> None:
        for src in to:
            if src in late and (late[src].trained_in, late[src].round) == (ack.round, ack.late):
                del late[src]


class AggregationsEndInTime(AggregationChecker):
    """The aggregation timeout runs from the first model of the round: an aggregator waits no longer, and
    goes on with less than it needs no earlier. By its own clock."""

    def aggregated(self, node: NodeId, collected: Collected, aggregate: Aggregate, timed_out: bool) -> None:
        self.waits(node, collected)
        left_s = self._left_s(node, collected)
        if timed_out and left_s > CLOCK_S:
            self.fail(node, f"gave up waiting for models {left_s:g} s early")

    def waits(self, node: NodeId, collected: Collected) -> None:
        left_s = self._left_s(node, collected)
        if left_s < -CLOCK_S:
            self.fail(node, f"waits for models of round {collected.round} {-left_s:g} s too long")

    def _left_s(self, node: NodeId, collected: Collected) -> float:
        return collected.since_s + self.scene.parameters.aggregation_timeout_s - self.scene.clock_s(node)


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
    while_running = ("_used",)
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
        for receivers, ack in sends_in(effects, Ack):
            for to in receivers:
                if to in self.scene.plan.liars:  # one may send the same again and again
                    continue
                models = self._sent.get((node, to, ack.round, ack.late), set())
                if not (models & used if ack.used else models - used):
                    self.fail(node, f"answers {ack} to node {to}, which sent {models}")
