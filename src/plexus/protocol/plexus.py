"""The Plexus node: the paper's protocol as one state machine.

The parts keep their own state: `Membership` (counter and local view), `Sampler` (pings), `TrainingTask`
(k_train), `AggregationTask` (k_agg), `Watchdog` (k_seen). This file connects them: every arrow of the
picture in docs/journey-of-a-round.md is a line here.
"""

from __future__ import annotations

from random import Random

from plexus.protocol.aggregation import AggregationTask
from plexus.protocol.api import (
    Aggregated,
    BandwidthMeasured,
    Durable,
    Expelled,
    Offered,
    PeerLost,
    Save,
    Trained,
    Undelivered,
    WentOffline,
    WentOnline,
)
from plexus.protocol.facts import RoundRestarted, SampleDerived
from plexus.protocol.machine import Machine
from plexus.protocol.membership import HEARD_ME, Membership
from plexus.protocol.messages import (
    NO_ADDRESS,
    Ack,
    AggregateRequest,
    Joined,
    Left,
    Message,
    Model,
    NodeId,
    Ping,
    Pong,
    TrainRequest,
    ViewReply,
    ViewRequest,
)
from plexus.protocol.parameters import PlexusParameters
from plexus.protocol.roster import Roster
from plexus.protocol.sampling import Sampler, SampleSearch, Search
from plexus.protocol.training import TrainingTask
from plexus.protocol.view import JOINED, Snapshot, View, counter_of, event_number
from plexus.protocol.watchdog import Watchdog

START = ("start", 0)
FIRST_ROUND = 1

# What a search is for.
FIRST_SAMPLE, PARTICIPANTS, AGGREGATOR, RESTART = ("first sample", "participants", "aggregator", "restart")


class PlexusNode(Machine):
    """One node. Give it its world at construction; it starts with `WentOnline`."""

    def __init__(
        self,
        me: NodeId,
        parameters: PlexusParameters,
        roster: Roster,
        view: View,
        bandwidth_bytes_per_s: int,
        initial_model: Model,
        rng: Random,
        durable: Durable | None = None,
        address: bytes = NO_ADDRESS,
    ) -> None:
        super().__init__(me)
        durable = durable or Durable(counter=0, round=0, model=initial_model)
        self.parameters = parameters
        self.roster = roster
        self.held_round = durable.round
        self.held_model = durable.model
        self._has_worked = False
        """Since it came online: trained, or collected models."""
        self._is_starting = False
        """It knows of no round and waits for others to show up before it begins the first."""
        self.membership = Membership(
            self, parameters, view, bandwidth_bytes_per_s, rng, self._save, durable.counter, address
        )
        self.sampler = Sampler(self, parameters.ping_timeout_s, self._on_sample)
        self.training = TrainingTask(self, parameters, self.membership, durable.round)
        self.aggregation = AggregationTask(self, parameters, durable.round)
        self.watchdog = Watchdog(self, parameters, rng, durable.round)
        self._on_event |= {
            WentOnline: self._on_online,
            WentOffline: lambda _: self.membership.leave(),
            BandwidthMeasured: self._on_bandwidth_measured,
            Offered: self._on_offered,
            Undelivered: self._on_undelivered,
            PeerLost: self._on_peer_lost,
            Expelled: self._on_expelled,
            Trained: self._on_trained,
            Aggregated: self._on_aggregated,
        }
        self._on_message |= {
            Ping: self._on_ping,
            Pong: self._on_pong,
            Joined: self._on_joined,
            Left: self._on_left,
            Ack: self._on_ack,
            TrainRequest: self._on_train_request,
            AggregateRequest: self._on_aggregate_request,
            ViewRequest: self._on_view_request,
            ViewReply: self._on_view_reply,
        }
        self._on_timeout |= {
            "ping": self.sampler.on_timeout,
            "ack": self._on_ack_timeout,
            "aggregation": self.aggregation.on_timeout,
            "readvertise": self.membership.on_readvertise,
            "start": self._on_start,
            "watchdog": self._on_watchdog,
        }

    # Coming and going (III-E)

    def _on_online(self, _: WentOnline) -> None:
        self.sampler.reset()
        self.training.reset()
        self.aggregation.reset(self.held_round)
        self._has_worked = False
        self.membership.join()
        self.watchdog.start(self.held_round)
        self._is_starting = self.watchdog.k_seen == 0
        if self._is_starting:
            self.set_timer(START, self.parameters.start_delay_s)

    def _on_joined(self, src: NodeId, joined: Joined) -> None:
        self.membership.on_joined(src, joined)
        self.roster.learn_address(src, event_number(joined.counter, JOINED), joined.address)

    def _on_left(self, src: NodeId, left: Left) -> None:
        self.membership.on_left(src, left)
        self._retry_if_aggregator_left()

    def _on_expelled(self, expelled: Expelled) -> None:
        self.membership.on_expelled(expelled)
        self._retry_if_aggregator_left()

    def _on_view_request(self, src: NodeId, _: ViewRequest) -> None:
        self.send((src,), ViewReply(self.membership.view.snapshot()))

    def _on_view_reply(self, src: NodeId, reply: ViewReply) -> None:
        # It heard the question, which does not mean that it heard of the join.
        self._merge(src, reply.view)
        self._retry_if_aggregator_left()

    def _on_offered(self, offered: Offered) -> None:
        # What the sender knows is of use even if its model is not.
        self._merge(offered.src, offered.body.view)
        self._retry_if_aggregator_left()

    def _merge(self, src: NodeId, view: Snapshot) -> None:
        known = counter_of(view.event_of(self.me))
        if known and src != self.me:
            self.membership.on_counter_known(src, known)
        self.membership.merge(view)

    def _on_contact(self, src: NodeId, view: Snapshot) -> None:
        if src != self.me:
            self.membership.contacted = True
        self._merge(src, view)

    def _on_bandwidth_measured(self, measured: BandwidthMeasured) -> None:
        # A bandwidth belongs to an event, so a new one needs a new event.
        self.membership.bandwidth_bytes_per_s = measured.bandwidth_bytes_per_s
        self.membership.join()

    # The first round: everybody derives the first sample, its members begin by themselves

    def _on_start(self, _: int) -> None:
        self._is_starting = False
        first = self.roster.candidates(self.membership.view, FIRST_ROUND)
        # Nodes further back would be members only if earlier ones are silent: the watchdog's case.
        if self.watchdog.k_seen <= FIRST_ROUND and self.me in first[: self.parameters.sample_size]:
            self._search(FIRST_SAMPLE, FIRST_ROUND)

    # Sampling (III-D)

    def _search(self, purpose: str, k: int, model: Model = None) -> None:
        candidates = self.roster.candidates(self.membership.view, k)
        asking = purpose == RESTART
        sample = SampleSearch(self.me, candidates, self.parameters.sample_size, one_by_one=asking)
        # Who only asks whether a restart is needed is no sign of progress.
        announced = k - 1 if asking else k
        self.sampler.begin(Search(purpose, k, sample, announced, model))

    def _on_ping(self, src: NodeId, ping: Ping) -> None:
        self.membership.contacted = True
        if self._is_starting and ping.round == FIRST_ROUND:
            # Nodes do not come at the same instant, but the first one that begins tells the others: who kept
            # waiting would miss the round.
            self.cancel_timer(START)
            self._on_start(0)
        # Answer with what was known before: nobody must take the echo of its own ping for progress.
        counter = self.membership.counter_of(src)
        self.send((src,), Pong(ping.exchange, self.watchdog.k_seen, self.held_round, counter))
        self.watchdog.notice(ping.round)

    def _on_pong(self, src: NodeId, pong: Pong) -> None:
        self.membership.on_counter_known(src, pong.counter)
        if pong.counter > self.membership.counter:
            self.membership.refute_if_misrepresented()
        search = self.sampler.exchanges.get(pong.exchange)
        if search is not None and self._is_overtaken(search, pong):
            self.sampler.give_up(search.purpose)
            if pong.round >= search.round:
                self.watchdog.others_are_ahead()
                self._tell_if_left_out(search)
            else:
                self.watchdog.defer(self.held_round)
        self.watchdog.notice(pong.round)
        self.sampler.on_answer(src, pong.exchange)

    def _is_overtaken(self, search: Search, pong: Pong) -> bool:
        """Somebody else is already where a first sample or a restart wants to go."""
        if search.purpose == FIRST_SAMPLE:
            return pong.round > FIRST_ROUND
        return search.purpose == RESTART and (
            pong.round >= search.round or (pong.held > self.held_round and not self.watchdog.has_deferred)
        )

    def _tell_if_left_out(self, search: Search) -> None:
        """Others go on, and had no work for this node yet: those who know of it may never get to say so."""
        if search.purpose == RESTART and not self._has_worked:
            self.membership.advertise_again()

    def _on_sample(self, search: Search) -> None:
        sample, k = search.sample.found, search.round
        self.report(SampleDerived(k, search.purpose, sample, search.sample.silent))
        if search.purpose == PARTICIPANTS:
            self._push(k, search.model, sample)
        elif search.purpose == AGGREGATOR:
            self._choose_aggregator(k, sample)
        elif search.purpose == RESTART:
            self._restart(k, sample)
        elif self.me in sample and self.held_round < FIRST_ROUND:
            self._train(k, self.held_model, len(sample))

    # Training (III-C)

    def _on_train_request(self, src: NodeId, request: TrainRequest) -> None:
        self._on_contact(src, request.view)
        self._train(request.round, request.model, request.participants)
        self._retry_if_aggregator_left()

    def _train(self, k: int, model: Model, participants: int) -> None:
        if self.training.begin(k, model, participants):
            self.sampler.give_up(AGGREGATOR)
            self._notice_own_work(k)
            self._hold(k, model)

    def _on_trained(self, trained: Trained) -> None:
        if self.training.on_trained(trained):
            self._search(AGGREGATOR, trained.round + 1)

    def _choose_aggregator(self, k: int, sample: tuple[NodeId, ...]) -> None:
        # Who answered and then said goodbye, while others were still pinged, would be waited for in vain.
        present = tuple(filter(self.membership.view.is_online, sample))
        if present:
            self.training.send_to_best(present)
        else:
            self._search(AGGREGATOR, k)

    def _on_ack(self, _: NodeId, ack: Ack) -> None:
        self.watchdog.notice(ack.round)
        if self.training.on_ack(ack.round):
            self.sampler.give_up(AGGREGATOR)

    def _on_ack_timeout(self, _: int) -> None:
        if self.training.awaited is not None:
            self.training.stop_waiting()
            self._search(AGGREGATOR, self.training.k_train + 1)

    def _retry_if_aggregator_left(self) -> None:
        """The awaited aggregator is known to have left: no need to wait for the timeout."""
        awaited = self.training.awaited
        if awaited is not None and not self.membership.view.is_online(awaited):
            self._on_ack_timeout(0)

    def _on_undelivered(self, lost: Undelivered) -> None:
        body = lost.body
        if lost.to == self.me:
            if isinstance(body, AggregateRequest) and body.round > self.aggregation.k_agg:
                # The round was completed elsewhere, by somebody who does not know of this node.
                self.membership.advertise_again()
        elif not isinstance(body, Ping | AggregateRequest):
            return
        elif lost.declined or self.is_obsolete(body):
            # The round is complete: this is what its aggregator would have answered to a stale model.
            self._on_ack(lost.to, Ack(body.round))
            return
        elif isinstance(body, AggregateRequest) and body.round != self.training.k_train + 1:
            return
        # To its search a ping is silence, and takes as long: a node that reaches nobody must not race on.
        if lost.to == self.training.awaited != self.me:
            # It has not got the model, or cannot be reached any more: no need to wait for the timeout.
            self._on_ack_timeout(0)

    def _on_peer_lost(self, lost: PeerLost) -> None:
        if lost.node == self.training.awaited:
            # Is it gone, or just the connection? If this does not get there, another is looked for.
            self.send((lost.node,), Ping(HEARD_ME, self.training.k_train))

    def is_obsolete(self, body: Message) -> bool:
        """A model for the aggregator of a complete round would be ignored when it arrives. One to train is
        carried to its end, however late: a node with a slow link might otherwise never get any."""
        complete = max(self.watchdog.k_seen - 1, self.held_round)
        return isinstance(body, AggregateRequest) and body.round <= complete

    # Aggregation (III-C)

    def _on_aggregate_request(self, src: NodeId, request: AggregateRequest) -> None:
        self._on_contact(src, request.view)
        if self.aggregation.collecting and request.round > self.aggregation.k_agg:
            # Whoever completed the older round does not know of this node, or its models had come here too.
            self.membership.advertise_again()
        if self.aggregation.on_request(src, request):
            self.sampler.give_up(PARTICIPANTS)
            self._notice_own_work(request.round)
        self._retry_if_aggregator_left()

    def _on_aggregated(self, aggregated: Aggregated) -> None:
        if self.aggregation.on_aggregated(aggregated):
            self._hold(aggregated.round, aggregated.model)
            # Not the held model: by the time the sample is found, that may be of a newer round.
            self._search(PARTICIPANTS, aggregated.round, aggregated.model)

    def _push(self, k: int, model: Model, sample: tuple[NodeId, ...]) -> None:
        view = self.membership.view.snapshot()
        self.send(sample, TrainRequest(k, len(sample), view, model))

    # The watchdog: not in the paper, see watchdog.py

    def _on_watchdog(self, _: int) -> None:
        # Asking many silent nodes one by one may take longer than the watchdog waits: let it finish.
        if self.watchdog.is_due(self.held_round) and not self.sampler.is_searching(RESTART):
            self._search(RESTART, self.watchdog.k_seen + 1)

    def _notice_own_work(self, k: int) -> None:
        """A node that has work need not ask whether to start some."""
        self._has_worked = True
        self.watchdog.notice_own_work(k)
        self.sampler.give_up(RESTART)

    def _restart(self, k: int, sample: tuple[NodeId, ...]) -> None:
        if k <= self.watchdog.k_seen:  # progress came while asking
            return
        self.report(RoundRestarted(k, self.held_round))
        self.aggregation.skip_to(k)
        self.sampler.give_up(PARTICIPANTS)
        self.watchdog.notice_own_work(k)
        self.send(tuple(node for node in sample if node != self.me), Ping(HEARD_ME, k))
        self._push(k, self.held_model, sample)

    # State that outlives a crash

    def _hold(self, k: int, model: Model) -> None:
        """Keep the newest aggregated model: the watchdog starts again from it."""
        if k > self.held_round:
            self.held_round, self.held_model = k, model
            self._save()

    def _save(self) -> None:
        view = self.membership.view.snapshot()
        state = Durable(self.membership.counter, self.held_round, self.held_model, view)
        self.outbox.append(Save(state))
