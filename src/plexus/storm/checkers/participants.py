"""What participants are asked, whom they send what they made of it, and when they are done."""

from __future__ import annotations

from msgspec import Struct

from plexus.protocol import api, messages
from plexus.protocol.api import Effect, Event, Received, Report, Send, TimerFired, Train, Trained, Undelivered
from plexus.protocol.beginning import FIRST_STEP
from plexus.protocol.facts import AggregationCompleted, Fact, Refused, RoundRestarted, SampleDerived
from plexus.protocol.messages import BUSY, AggregateRequest, Message, Model, NodeId, Ping, Pong, TrainRequest
from plexus.protocol.participant import AGGREGATOR
from plexus.protocol.plexus import PlexusNode
from plexus.protocol.quorum import FIRST_SAMPLE, PARTICIPANTS, RESTART
from plexus.protocol.sampling import SampleSearch
from plexus.protocol.trust import FORGIVEN, TO_AGGREGATE
from plexus.storm.checkers.api import MISLED, PlexusChecker, is_refused

Made = tuple[int, Model]
"""The round of a model, and the model."""
NOTHING: Made = (-1, None)


def same(one: Made, other: Made) -> bool:
    """Of the same round, and the very same model."""
    return one[0] == other[0] and one[1] is other[1]


class Answers(Struct):
    """Who answered a search, in time."""

    round: int = 0
    search: SampleSearch | None = None
    free: set[NodeId] = set()
    busy: set[NodeId] = set()


class SampleChecker(PlexusChecker):
    """Knows who answered the searches of each node."""

    while_running = ("_answers",)
    _answers: dict[tuple[NodeId, str], Answers] = {}

    def sent(self, src: NodeId, to: tuple[NodeId, ...], body: Message) -> None:
        if isinstance(body, Ping):
            search = self.scene.plexus(src).sampler.exchanges.get(body.exchange)
            if search is not None:
                answers = self._answers.get((src, search.purpose))
                if answers is None or answers.search is not search.sample:
                    self._answers[src, search.purpose] = Answers(search.round, search.sample)

    def before(self, node: NodeId, event: Event) -> None:
        if isinstance(event, Received) and isinstance(event.body, Pong):
            search = self.scene.plexus(node).sampler.exchanges.get(event.body.exchange)
            if search is None:
                return
            answers = self._answers[node, search.purpose]
            if event.body.busy & BUSY:  # since it was asked, or since it has answered
                answers.busy.add(event.src)
                answers.free.discard(event.src)
            elif event.src in search.sample.waiting and event.src not in answers.busy:
                answers.free.add(event.src)

    def answers(self, node: NodeId, derived: SampleDerived) -> Answers:
        """Who answered when this sample was looked for."""
        answers = self._answers.get((node, derived.purpose), Answers())
        return answers if answers.round == derived.round else Answers()


class AllOfTheSampleAreAsked(SampleChecker):
    """Everybody in the sample that was found is asked to train, and told how many they are; each passes on
    to its aggregator how many it was told of. Where late models count, who trains says so, and those are left
    out, unless all of the sample do."""

    while_online = ("_due",)
    _found: dict[tuple[NodeId, str], SampleDerived] = {}
    _due: dict[NodeId, SampleDerived] = {}
    """Samples that are to be asked now."""
    _told: dict[tuple[NodeId, int], set[int]] = {}
    """(participant, next round) → how many are in this one, according to each who asked."""

    def reported(self, node: NodeId, fact: Fact) -> None:
        if isinstance(fact, SampleDerived):
            self._found[node, fact.purpose] = fact
            if fact.purpose == PARTICIPANTS and fact.sample:
                self._due[node] = fact
                self._leave_out_the_busy(node, fact)
            elif fact.purpose == FIRST_SAMPLE:
                self._tell(node, fact.round + FIRST_STEP, len(fact.sample))
        elif isinstance(fact, RoundRestarted):
            self._due[node] = self._found[node, RESTART]

    def _leave_out_the_busy(self, node: NodeId, derived: SampleDerived) -> None:
        answers, sample = self.answers(node, derived), set(derived.sample)
        busy = answers.busy | ({node} if self._is_busy(node) else set())
        if not answers.free <= sample:
            self.fail(node, f"leaves {answers.free - sample} out, who are free")
        if sample & busy and not sample <= busy:
            self.fail(node, f"asks {sample & busy} to train, who do already")

    def _is_busy(self, node: NodeId) -> bool:
        parameters = self.scene.parameters
        # Who was misled about rounds has given up what it trains.
        works = self.scene.plexus(node).training.busy or not parameters.signed_views
        return parameters.late_rounds > 0 and self.scene.runtime.is_training(node) and works

    def sent(self, src: NodeId, to: tuple[NodeId, ...], body: Message) -> None:
        super().sent(src, to, body)
        if isinstance(body, TrainRequest):
            self._check(src, to, body, self._due.pop(src, None))
            for participant in to:
                self._tell(participant, body.round + body.step, body.participants)
        elif isinstance(body, AggregateRequest):
            told = self._told.get((src, body.round), set())
            if body.participants not in told:
                self.fail(src, f"was told of {told} participants, and speaks of {body.participants}")
        elif isinstance(body, Pong) and body.exchange and (body.busy & BUSY) != self._is_busy(src):
            self.fail(src, f"says that it is {'busy' if body.busy & BUSY else 'free'}, and is not")

    def settled(self, node: NodeId) -> None:
        if node in self._due:
            self.fail(node, f"found the sample {self._due[node].sample}, and does not ask it to train")

    def _tell(self, participant: NodeId, k: int, participants: int) -> None:
        self._told.setdefault((participant, k), set()).add(participants)

    def _check(
        self, node: NodeId, to: tuple[NodeId, ...], asks: TrainRequest, due: SampleDerived | None
    ) -> None:
        if due is None or due.round != asks.round:
            self.fail(node, f"asks for trainings of round {asks.round}, and has found no sample of it")
        elif sorted(to) != sorted(due.sample):
            self.fail(node, f"found {due.sample}, and asks {to} to train")
        elif asks.participants != len(due.sample):
            self.fail(node, f"tells {len(due.sample)} participants that they are {asks.participants}")


class ModelsKeepTheirLineage(PlexusChecker):
    """A node trains what it was sent, sends an aggregator what it trained, and pushes the aggregate that it
    made of that round; or, at a restart, the newest model that it holds."""

    _held: dict[NodeId, Made] = {}
    _trained: dict[NodeId, Made] = {}
    _aggregated: dict[NodeId, Made] = {}

    def after(self, node: NodeId, event: Event, effects: list[Effect]) -> None:
        machine = self.scene.plexus(node)
        if machine.trust.is_wary and self._held.get(node, NOTHING)[0] > machine.held_round + MISLED:
            self._held[node] = (machine.held_round, machine.held_model)  # it has found its way back
        if isinstance(event, Trained):
            self._trained[node] = (event.round, event.model)
        elif isinstance(event, Received) and isinstance(event.body, TrainRequest):
            if not is_refused(machine, event, effects):
                self._hold(node, (event.body.round, event.body.model))
        elif isinstance(event, api.Aggregated):
            self._aggregated[node] = (event.round, event.model)
        restarts = False
        for effect in effects:
            if isinstance(effect, Train):
                self._train(node, event, (machine.training.k_train, effect.model))
            elif isinstance(effect, Report):
                restarts = restarts or isinstance(effect.fact, RoundRestarted)
                if isinstance(effect.fact, AggregationCompleted):
                    self._hold(node, (effect.fact.round, effect.fact.model))
            elif isinstance(effect, Send) and isinstance(effect.body, AggregateRequest):
                if not same((effect.body.ordinal - 1, effect.body.model), self._trained.get(node, NOTHING)):
                    self.fail(node, f"sends {effect.body.model}, which it has not trained just now")
            elif isinstance(effect, Send) and isinstance(effect.body, TrainRequest):
                self._push(node, (effect.body.round, effect.body.model), restarts)

    def restarted(self, node: NodeId, disk_is_lost: bool) -> None:
        machine = self.scene.plexus(node)
        self._held[node] = (machine.held_round, machine.held_model)

    def _train(self, node: NodeId, event: Event, made: Made) -> None:
        asked = event.body if isinstance(event, Received) else None
        # What was not believed at first may be taken up when another one comes: that is newer.
        older = isinstance(asked, TrainRequest) and made[0] <= asked.round
        if asked is not None and older and not same(made, (asked.round, asked.model)):
            self.fail(node, f"was sent {asked.model} and trains {made[1]}")
        self._hold(node, made)

    def _hold(self, node: NodeId, made: Made) -> None:
        if node not in self._held or made[0] > self._held[node][0]:
            self._held[node] = made

    def _push(self, node: NodeId, pushed: Made, restarts: bool) -> None:
        if not restarts and not same(pushed, self._aggregated.get(node, NOTHING)):
            self.fail(node, f"pushes {pushed[1]}, which is not its aggregate of round {pushed[0]}")
        if restarts and node in self._held and pushed[1] is not self._held[node][1]:
            self.fail(node, f"starts again from {pushed[1]}, and holds {self._held[node][1]}")


class BestConnectedIsChosen(PlexusChecker):
    """The aggregator is whoever has the most bandwidth of the sample found, as far as the chooser knows:
    the first of equals, nobody who is known to have left, and none who failed while others have not."""

    while_online, while_running = ("_tried",), ("_failed",)
    _sample: dict[NodeId, tuple[NodeId, ...]] = {}
    _tried: dict[NodeId, tuple[tuple[int, int], set[NodeId]]] = {}
    """Participant → round and that of its training, and to whom it sent its model."""
    _failed: dict[tuple[NodeId, NodeId], float] = {}
    """(participant, aggregator) → until when that is asked last, by the participant's clock; 0 if the
    participant may have changed its mind."""

    def reported(self, node: NodeId, fact: Fact) -> None:
        if isinstance(fact, SampleDerived) and fact.purpose == AGGREGATOR:
            self._sample[node] = fact.sample
        elif isinstance(fact, Refused) and fact.what == TO_AGGREGATE:
            self._has_failed(node, fact.src)

    def before(self, node: NodeId, event: Event) -> None:
        awaited = self.scene.plexus(node).training.awaited
        if isinstance(event, api.TimerFired) and event.key == ("ack", 0) and awaited not in (None, node):
            self._has_failed(node, awaited)
        answered = isinstance(event, Received) and isinstance(event.body, messages.Ack) and event.src
        if isinstance(event, Undelivered) and isinstance(event.body, Ping | AggregateRequest):
            answered = event.to
        if (node, answered) in self._failed:
            self._failed[node, answered] = 0

    def sent(self, src: NodeId, to: tuple[NodeId, ...], body: Message) -> None:
        if isinstance(body, AggregateRequest):
            self._check(src, (body.round, body.trained_in), self._sample.pop(src, ()), to)

    def _check(
        self, node: NodeId, k: tuple[int, int], sample: tuple[NodeId, ...], chosen: tuple[NodeId, ...]
    ) -> None:
        view = self.scene.plexus(node).membership.view
        before, tried = self._tried.get(node, (k, set()))
        present = [other for other in sample if view.is_online(other)]
        fresh = [other for other in present if before != k or other not in tried]
        if before != k or not fresh:
            fresh, tried = fresh or present, set()
        if chosen != (max(self._fit(node, fresh, chosen), key=view.bandwidth_of, default=None),):
            known = {other: view.bandwidth_of(other) for other in fresh}
            self.fail(node, f"sends its model to {chosen}, and knows bandwidths {known}")
        self._tried[node] = (k, tried | set(chosen))

    def _fit(self, node: NodeId, fresh: list[NodeId], chosen: tuple[NodeId, ...]) -> list[NodeId]:
        """Without those who failed; unless that may be all of them, if one was chosen who certainly did."""
        failed = {other for other in fresh if (node, other) in self._failed}
        if self.scene.parameters.signed_views:  # to whom others send nothing leaves itself out
            failed.add(node)
        if any(self._failed.get((node, other), 0) > self.scene.clock_s(node) for other in chosen):
            return fresh if failed >= set(fresh) else []
        return [other for other in fresh if other not in failed or other in chosen]

    def _has_failed(self, node: NodeId, aggregator: NodeId) -> None:
        if self.scene.parameters.signed_views:
            forgiven_s = self.scene.clock_s(node) + FORGIVEN * self.scene.parameters.ack_timeout_s
            self._failed[node, aggregator] = max(forgiven_s, self._failed.get((node, aggregator), 0))


class ParticipantsStopForTheirAck(PlexusChecker):
    """A participant is done when it hears that the round after its own is aggregated, and not before: no
    other acknowledgement ends its work, nor does anything else but a newer round; or, where late models
    count, that it has trained too late for its own. Others say that, where one alone may lie."""

    while_online = ("_busy",)
    _busy: dict[NodeId, int] = {}
    """Participant → the round that is to be aggregated of its work."""
    _asked: dict[NodeId, set[NodeId]] = {}
    """Participant → who was sent what it has trained last."""

    def sent(self, src: NodeId, to: tuple[NodeId, ...], body: Message) -> None:
        if isinstance(body, AggregateRequest):
            self._asked.setdefault(src, set()).update(to)

    def after(self, node: NodeId, event: Event, effects: list[Effect]) -> None:
        machine = self.scene.plexus(node)
        task, k = machine.training, self._busy.pop(node, None)
        asked = self._asked.get(node, set())
        if task.busy:
            self._busy[node] = task.next_round
        if task.trained is None:
            self._asked.pop(node, None)
        if k is None:
            return
        is_told = self._done(machine, event) == k
        if is_told and machine.trust.is_wary and isinstance(event, Received):
            is_told = event.src in asked  # nobody else can know
        if is_told and self._busy.get(node) == k:
            self.fail(node, f"was told that round {k} is aggregated, and goes on")
        # Where members may lie, it asks those of the next sample whether they are there already.
        has_asked = machine.trust.is_wary and (
            isinstance(event, TimerFired) or isinstance(getattr(event, "body", None), Pong)
        )
        is_late = (has_asked or isinstance(event, Trained)) and machine.watchdog.k_seen > k
        is_back = machine.trust.is_wary and machine.watchdog.k_seen < k - MISLED
        if not is_told and not task.busy and not (is_late and machine.parameters.late_rounds) and not is_back:
            self.fail(node, f"stops working for round {k} by {event}")

    def _done(self, machine: PlexusNode, event: Event) -> int | None:
        """The round that is aggregated, according to the event."""
        if isinstance(event, Received) and isinstance(event.body, messages.Ack):
            return event.body.round
        if isinstance(event, Undelivered) and isinstance(event.body, AggregateRequest):
            obsolete = event.declined or machine.is_obsolete(event.body)
            return event.body.round if obsolete and event.to != machine.me else None
        return None


class HeldIsOnDisk(PlexusChecker):
    """The model that a node holds is on its disk, and was before anybody is sent one of that round. A new
    process goes on from what it finds there."""

    def settled(self, node: NodeId) -> None:
        machine, saved = self.scene.plexus(node), self.scene.runtime.disks[node].newest
        held = machine.held_round, machine.held_model
        if saved is None or not same(held, (saved.round, saved.model)):
            self.fail(node, f"holds {held[1]} of round {held[0]}, which is not on its disk")

    def sent(self, src: NodeId, to: tuple[NodeId, ...], body: Message) -> None:
        if isinstance(body, TrainRequest):
            saved = self.scene.runtime.disks[src].newest
            if saved is None or (saved.round < body.round and saved.model is not body.model):
                self.fail(src, f"pushes {body.model} of round {body.round} before it is on its disk")

    def restarted(self, node: NodeId, disk_is_lost: bool) -> None:
        machine, disk = self.scene.plexus(node), self.scene.runtime.disks[node]
        held = machine.held_round, machine.held_model
        found = [(saved.round, saved.model) for saved in (disk.newest, disk.before) if saved is not None]
        if found and not any(same(held, saved) for saved in found):
            self.fail(node, f"found {found} on its disk, and goes on with {held}")
