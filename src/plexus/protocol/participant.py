"""A participant: trains for a round and sees to it that an aggregator has the result (section III-C)."""

from __future__ import annotations

from abc import abstractmethod
from random import Random

from plexus.protocol.api import Durable, Misbehaved, PeerLost, Save, Trained, Undelivered
from plexus.protocol.late import LateTask
from plexus.protocol.machine import Handler, to
from plexus.protocol.member import Member
from plexus.protocol.membership import HEARD_ME
from plexus.protocol.messages import (
    BUSY,
    FRESH,
    Ack,
    AggregateRequest,
    LateModel,
    Message,
    Model,
    NodeId,
    Ping,
    Pong,
    TrainRequest,
)
from plexus.protocol.parameters import PlexusParameters
from plexus.protocol.quorum import RESTART, step
from plexus.protocol.roster import Roster
from plexus.protocol.sampling import PROBE, Search
from plexus.protocol.training import TrainingTask
from plexus.protocol.trust import Trust
from plexus.protocol.view import View
from plexus.protocol.watchdog import Watchdog

AGGREGATOR, LATE = "aggregator", "late"
"""What a search is for that needs no quorum; for the others see `quorum`."""
UNRIVALLED = (AGGREGATOR, LATE, PROBE)
"""What most searches are for: of these nobody can be ahead."""
FOR_A_ROUND: dict[type[Message], Handler] = {
    TrainRequest: to("_on_train_request"),
    AggregateRequest: to("_on_aggregate_request"),
    LateModel: to("_on_late_model"),
}
FEW = 2
"""In samples: of so few nodes each is in one soon."""


class Participant(Member):
    """Trains, and holds the newest model it was sent. The node of Plexus builds on it."""

    __slots__ = (
        "_unbelieved", "came_at", "has_worked", "held_model", "held_ordinal", "held_round", "late",
        "parameters", "settled", "training", "trust", "watchdog",
    )  # fmt: skip

    _on_event = Member._on_event | {
        Undelivered: to("_on_undelivered"),
        PeerLost: to("_on_peer_lost"),
        Misbehaved: to("_on_misbehaved"),
        Trained: to("_on_trained"),
    }
    _on_message = Member._on_message | {Ack: to("_on_ack"), TrainRequest: to("_on_train_request")}
    _on_timeout = Member._on_timeout | {
        "ack": to("_on_no_ack"),
        "late ack": to("late.on_timeout"),
        "look": to("_on_look"),
    }

    def __init__(
        self,
        me: NodeId,
        parameters: PlexusParameters,
        roster: Roster,
        view: View,
        bandwidth_bytes_per_s: int,
        rng: Random,
        durable: Durable,
        address: bytes,
    ) -> None:
        super().__init__(me, parameters, roster, view, bandwidth_bytes_per_s, rng, durable.counter, address)
        self.parameters = parameters
        self.held_round = durable.round
        self.held_model = durable.model
        self.held_ordinal = durable.ordinal
        self.has_worked = False
        """Since it came online: trained, or collected models."""
        self.came_at = 0.0
        self.watchdog = Watchdog(self, parameters, rng, durable.round, self._usual_step)
        self.trust = Trust(
            self, parameters, roster, view, self.watchdog, self.ask_about, self.aggregator_rank
        )
        self._unbelieved: tuple[NodeId, TrainRequest] | None = None
        """A request to train for a round far ahead, until others have been asked about it."""
        self.settled: tuple[NodeId, int] | None = None
        """Who has acknowledged the last training, and the round of its aggregate."""
        self.training = TrainingTask(self, parameters, self.membership, self.trust, durable.round)
        self.late = LateTask(self, parameters, self.trust, self._rounds, self._search_late)

    def _usual_step(self) -> int:
        return step(self.view.online_count())

    def _rounds(self) -> tuple[int, int]:
        return self.watchdog.k_seen, self.watchdog.step

    def _search_late(self, k: int) -> None:
        self.search(LATE, k, 0)

    def aggregator_rank(self, node: NodeId) -> float:
        """Who of a sample aggregates: the highest rank does; here the most bandwidth according to B_i.

        A variation of Plexus may rank by something else that participants know alike; else they choose
        different aggregators, and rounds fork.
        """
        return self.view.bandwidth_of(node)

    @property
    def newest_round(self) -> int:
        return self.watchdog.k_seen

    @property
    @abstractmethod
    def ended_round(self) -> int:
        """With which the session has ended; 0 if it goes on."""

    @property
    def is_fresh(self) -> bool:
        """It has come back just now, and had no work since."""
        if self.has_worked or self.now - self.came_at >= self.parameters.ack_timeout_s:
            return False
        return self.held_round > 0 and not self.ended_round

    def pong(self, exchange: int, to: NodeId, hint: int = 0) -> Pong:
        busy = hint
        if not self.has_worked:
            busy += FRESH * self.is_fresh
        if self.parameters.late_rounds:
            busy += BUSY * self.is_busy
        return Pong(exchange, self.watchdog.k_seen, self.held_round, self.view.event_of(to), busy)

    @property
    def is_busy(self) -> bool:
        """It trains, and will finish that first."""
        return self.parameters.late_rounds > 0 and self.training.is_training

    @abstractmethod
    def search(
        self, purpose: str, k: int, ordinal: int, model: Model = None, among_suspects: bool = False
    ) -> None:
        """Derive the sample of round k."""

    @abstractmethod
    def on_final_lost(self, body: Message) -> None:
        """A message has not arrived, which may be about the final model."""

    @abstractmethod
    def on_not_coming(self, body: Message) -> None:
        """What was on its way here is not any more."""

    def _on_train_request(self, src: NodeId, request: TrainRequest) -> None:
        self.on_contact(src, request.view)
        if not self.trust.believes(src, request.round):
            self._unbelieved = src, request
        elif self.trust.may_ask_to_train(src, request):
            task, chosen = self.training, self.training.awaited
            if self.settled is not None and self.settled[1] == request.round and self.trust.is_wary:
                chosen = self.settled[0]
            if chosen not in (None, src) and request.round >= task.next_round:
                self.trust.overtaken(chosen)
                self.settled = None
            self.train(request)
        self.on_news()

    def ask_about(self, k: int, besides: NodeId | None = None) -> None:
        """Is there a round k? Those who would be in its sample should know, `besides` who spoke of it."""
        some = [node for node in self.roster.candidates(self.view, k) if node not in (self.me, besides)]
        most = max(self.parameters.sample_size, 2 * self.trust.witnesses)
        self.sampler.probe(some[:most], self.newest_round)

    def train(self, request: TrainRequest) -> None:
        task = self.training
        if self.is_busy and request.round > task.k_train:
            # What is begun is finished: it is not too late for another round.
            if task.queued is None or request.round > task.queued.round:
                task.queued = request
                self.notice_own_work(request.round)
                self.hold(request.round, request.ordinal, request.model)
            return
        late, had_by, k = task.as_late(), task.had_by, task.next_round
        if task.begin(request):
            if late is not None and had_by is not None:
                self.late.offer_unless_used(k, had_by, late)
            elif late is not None:
                self.late.offer(late)
            self.watchdog.step = task.next_round - request.round
            self.sampler.give_up(AGGREGATOR)
            self.notice_own_work(request.round)
            self.hold(request.round, request.ordinal, request.model)
            self.probe_some()

    def _on_trained(self, trained: Trained) -> None:
        task = self.training
        if not task.on_trained(trained):
            return
        late, queued = task.as_late(), task.queued
        is_too_late = self.watchdog.k_seen > task.next_round and not self.trust.is_wary
        if late is not None and (queued is not None or is_too_late):
            task.finish()
            self.late.offer(late)
            if queued is not None:
                self.train(queued)
        else:
            self._find_aggregator()

    def _find_aggregator(self) -> None:
        self.search(AGGREGATOR, self.training.next_round, self.training.ordinal + 1)

    def is_corroborated(self, search: Search) -> bool:
        """Whether that others are beyond the round of a search is more than the word of one, which all others
        repeat: several hold a model of that round, as they would if there was one after it."""
        return not self.trust.is_wary or len(search.sample.ahead) >= self.trust.several

    def choose_aggregator(self, search: Search) -> None:
        task = self.training
        if self.trust.is_wary and self.watchdog.k_seen > task.next_round and task.had_by is None:
            late = task.as_late() if self.is_corroborated(search) else None
            if late is not None:
                task.finish()
                self.late.offer(late)
                return
        present = self.present(search.sample.found)
        if present:
            self.training.send_to_best(present)
            if self.trust.is_wary:  # what it alone suspects nobody passes on
                self.probe_a_suspect()
        else:
            self._find_aggregator()

    def _on_ack(self, src: NodeId, ack: Ack) -> None:
        is_of_task = self.training.busy and not ack.late and ack.round == self.training.next_round
        is_asked = src in self.training.asked or self.late.is_in_doubt(src, ack.round)
        if self.trust.is_wary and is_of_task and not is_asked:
            self.trust.refuse(src, "an acknowledgement", "it was sent no model")
            return
        self.notice(ack.round, src)
        if self.late.on_ack(src, ack) and not (is_of_task and src in self.training.asked):
            return
        late = None if ack.used or src != self.training.had_by else self.training.as_late()
        if self.training.on_ack(ack.round):
            self.settled = src, ack.round
            self.sampler.give_up(AGGREGATOR)
            if late is not None:
                self.late.offer(late)

    def _on_no_ack(self, _: int) -> None:
        if self.training.awaited is not None:
            self.trust.failed(self.training.awaited)
            self.settled = None
        self.look_elsewhere()

    def look_elsewhere(self) -> None:
        if self.training.awaited is not None:
            self.training.stop_waiting()
            self._find_aggregator()

    def _on_look(self, _: int) -> None:
        """Is the awaited aggregator still there? If it is silent, another is looked for."""
        awaited = self.training.awaited
        if awaited is not None:
            if awaited != self.me:
                self.sampler.probe((awaited,), self.training.k_train)
            self.training.look_after_awaited()

    def on_news(self) -> None:
        """The awaited aggregator is known to have left: no need to wait for the timeout."""
        awaited = self.training.awaited
        if awaited is not None and not self.view.is_online(awaited):
            self.look_elsewhere()

    def _on_undelivered(self, lost: Undelivered) -> None:
        body = lost.body
        if lost.to == self.me:
            self.on_not_coming(body)
        elif isinstance(body, LateModel):
            self.late.on_undelivered(lost.to, body)
        elif not isinstance(body, Ping | AggregateRequest):
            self.on_final_lost(body)
        elif lost.declined or self.is_obsolete(body):
            # The round is complete: this is what its aggregator would have answered to a stale model.
            self._on_ack(lost.to, Ack(body.round, used=0))
        elif isinstance(body, AggregateRequest) and body.round != self.training.next_round:
            self.late.on_ack(lost.to, Ack(body.round, used=0))
        # To its search a ping is silence, and takes as long: a node that reaches nobody must not race on.
        elif lost.to == self.training.awaited != self.me:
            # It has not got the model, or cannot be reached any more: no need to wait for the timeout.
            self.look_elsewhere()

    def _on_peer_lost(self, lost: PeerLost) -> None:
        if lost.node == self.training.awaited:
            # Is it gone, or just the connection? If this does not get there, another is looked for.
            self.send((lost.node,), Ping(HEARD_ME, self.training.k_train))
        elif not self.training.busy and self.settled is not None and self.settled[0] == lost.node:
            # It has everybody's models, and nobody else goes on: what it made of them may be gone with it.
            self.watchdog.orphan(self.held_round)

    def _on_misbehaved(self, it: Misbehaved) -> None:
        self.trust.misbehaved(it.node)

    def is_obsolete(self, body: Message) -> bool:
        """A model for the aggregator of a complete round would be ignored when it arrives. One to train is
        carried to its end, however late: a node with a slow link might otherwise never get any."""
        if self.ended_round:
            return type(body) in FOR_A_ROUND
        newest = self.held_round + 1 if self.trust.is_wary else self.watchdog.k_seen
        return isinstance(body, AggregateRequest) and (body.round < newest or body.round <= self.held_round)

    @property
    def heeds(self) -> NodeId | None:
        """Somebody else is looked for if the awaited aggregator leaves."""
        return self.training.awaited

    def notice(self, k: int, src: NodeId, own: int | None = None) -> None:
        """`src` says that somebody works on round k; itself it has to do with round `own`."""
        if self.trust.believes(src, k) and self.trust.ends.get(src) != k:
            # That somebody goes on with what it made is not for the aggregator itself to say.
            if self.settled is not None and k > self.settled[1] and src != self.settled[0]:
                self.trust.succeeded(self.settled[0])
                self.settled = None
            is_progress = self.trust.is_progress(src, k, k if own is None else own)
            self.watchdog.notice(k, is_progress)
            if is_progress and self.trust.is_wary:
                self.give_up(RESTART)
            self._believe()

    def _believe(self) -> None:
        """Do what was asked for a round that is not so far ahead any more."""
        if self._unbelieved is not None:
            src, request = self._unbelieved
            if request.round <= self.watchdog.k_seen + self.trust.reach:
                self._unbelieved = None
                if self.trust.may_ask_to_train(src, request):
                    self.train(request)

    def restart_number(self) -> int | None:
        """Of the round to begin if others have vanished; None: that is for others to do."""
        first = self.watchdog.k_seen + self.watchdog.step
        if not self.watchdog.is_early:
            return first
        # So early, others believe those in front alone. Where all have just come back, who holds the newest
        # model may not be there: if nobody has begun, it takes a number for which it is.
        is_late = self.watchdog.is_hurried and self.now - self.came_at > self.parameters.ack_timeout_s / 2
        last = self.watchdog.k_seen + step(self.view.online_count()) if is_late else first
        in_front = FEW * self.parameters.sample_size
        numbers = range(first, max(first, last) + 1)
        return next((k for k in numbers if self.me in self.roster.in_order(self.view, k)[:in_front]), None)

    def fall_back(self, k: int) -> None:
        """The node was misled about rounds: the others are at k. What it did beyond that is void."""
        if self.trust.is_lost(self.training.k_train, k):
            self.training.finish()
            self.training.k_train = k
            self.sampler.give_up(AGGREGATOR)
        if self.trust.is_lost(self.held_round, k):
            self.held_round = k
            self.save()
        self.watchdog.k_seen = max(k, self.training.k_train, self.held_round)

    def notice_own_work(self, k: int) -> None:
        """A node that has work need not ask whether to start some."""
        self.has_worked = True
        self.notice(k, self.me)
        self.watchdog.notice_own_work(k)
        self.give_up(RESTART)

    # State that outlives a crash

    def hold(self, k: int, ordinal: int, model: Model) -> None:
        """Keep the newest aggregated model: the watchdog starts again from it."""
        if k > self.held_round:
            self.held_round, self.held_ordinal, self.held_model = k, ordinal, model
            self.save()

    def save(self) -> None:
        view = self.view.snapshot()
        counter = self.membership.counter
        held = self.held_round, self.held_model, view, self.held_ordinal
        state = Durable(counter, *held, self.ended_round)
        self.outbox.append(Save(state))

    def keep_final(self, k: int, ordinal: int, model: Model) -> None:
        """Hold this model and no other from now on, even if it is an older one."""
        self.held_round, self.held_ordinal, self.held_model = k, ordinal, model
        self.save()
