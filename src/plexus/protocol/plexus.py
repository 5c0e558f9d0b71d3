"""The Plexus node: the paper's protocol as one state machine.

The parts keep their own state: `Membership` (counter and local view), `Sampler` (pings), `TrainingTask`
(k_train), `AggregationTask` (k_agg), `Watchdog` (k_seen). Three layers connect them: `Member` (who
is there), `Participant` (training) and, here, the node that begins, aggregates and starts again. Every arrow
of the picture in docs/journey-of-a-round.md is a line in one of them.
"""

from __future__ import annotations

from itertools import chain
from random import Random

from plexus.protocol.aggregation import AggregationTask
from plexus.protocol.api import Aggregated, Durable, WentOffline, WentOnline
from plexus.protocol.facts import RoundRestarted, SampleDerived
from plexus.protocol.joining import COMING
from plexus.protocol.membership import HEARD_ME
from plexus.protocol.messages import (
    NO_ADDRESS,
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
from plexus.protocol.participant import AGGREGATOR, LATE, Participant
from plexus.protocol.quorum import FIRST_SAMPLE, PARTICIPANTS, PURPOSES, RESTART, step
from plexus.protocol.roster import Roster
from plexus.protocol.sampling import SampleSearch, Search
from plexus.protocol.sparse import Lazy
from plexus.protocol.view import View

START = ("start", 0)
FIRST_ROUND, FIRST_STEP = 1, 1

SMALL = 3
"""Of so few nodes nobody is left behind, where late models count."""


class PlexusNode(Participant):
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
        durable = durable or Durable(counter=0, round=0, model=initial_model)
        super().__init__(me, parameters, roster, view, bandwidth_bytes_per_s, rng, durable, address)
        self._is_starting = False
        """It knows of no round and waits for others to show up before it begins the first."""
        self.aggregation = AggregationTask(self, parameters, durable.round)
        self._on_event |= {
            WentOnline: self._on_online,
            WentOffline: lambda _: self.membership.leave(),
            Aggregated: self._on_aggregated,
        }
        self._on_message |= {
            Ping: self._on_ping,
            Pong: self._on_pong,
            AggregateRequest: self._on_aggregate_request,
            LateModel: self._on_late_model,
        }
        self._on_timeout |= {
            "aggregation": self.aggregation.on_timeout,
            "start": self._on_start,
            "watchdog": self._on_watchdog,
        }

    # Coming and going (III-E)

    def _on_online(self, _: WentOnline) -> None:
        self.forget_searches()
        self.late.reset()
        self.training.reset()
        self.trust.reset()
        self._unbelieved = self.settled = None
        self.aggregation.reset(self.held_round)
        self.has_worked = self._is_starting = False
        self.watchdog.start(self.held_round)
        self.joining.begin(self.held_round)

    def on_advertised(self) -> None:
        self._is_starting = self.watchdog.k_seen == 0
        if self._is_starting:
            self.set_timer(START, self.parameters.start_delay_s)

    # The first round: everybody derives the first sample, its members begin by themselves

    def _on_start(self, _: int) -> None:
        self._is_starting = False
        first = self.roster.candidates(self.view, FIRST_ROUND)
        # Nodes further back would be members only if earlier ones are silent: the watchdog's case.
        if self.watchdog.k_seen <= FIRST_ROUND and self.me in first[: self.parameters.sample_size]:
            self.search(FIRST_SAMPLE, FIRST_ROUND, FIRST_ROUND)

    # Sampling (III-D)

    def search(
        self, purpose: str, k: int, ordinal: int, model: Model = None, among_suspects: bool = False
    ) -> None:
        # Not among those who joined since: other participants may not know of them, and choose another.
        known = self.training.view if purpose == AGGREGATOR else None
        candidates = self.roster.candidates(self.view, k, known)
        if among_suspects:
            candidates = [*candidates, *self.roster.suspects(self.view, k)]
        size = self.parameters.sample_size
        if purpose == AGGREGATOR:
            # In the place of who is left out nobody comes, whom other participants would not choose.
            sample_of_all = self.trust.trusted([*candidates[:size]])
            candidates = Lazy(chain(sample_of_all, candidates[size:]))
            size = len(sample_of_all) or size
        else:
            candidates = self.trust.order(candidates)
        asking = purpose == RESTART
        sample = SampleSearch(self.me, candidates, size, one_by_one=asking)
        # Who only asks whether a restart is needed, or has something for later, is no sign of progress.
        announced = self.watchdog.k_seen if purpose in (RESTART, LATE) else k
        self.sampler.begin(
            Search(purpose, k, sample, announced, ordinal, model, among_suspects=among_suspects)
        )

    def search_again(self, search: Search) -> None:
        if self.watchdog.k_seen > search.round:  # somebody else has gone on meanwhile
            self.give_up(search.purpose)
        else:
            self.search(search.purpose, search.round, search.ordinal, search.model, among_suspects=True)

    def _on_ping(self, src: NodeId, ping: Ping) -> None:
        self.membership.contacted = True
        if ping.round == FIRST_ROUND:
            self._on_first_ping()
        # Answer with what was known before: nobody must take the echo of its own ping for progress.
        self.send((src,), self.pong(ping.exchange, src))
        self.notice(ping.round, src)

    def pong(self, exchange: int, to: NodeId) -> Pong:
        busy = int(self.is_busy)
        return Pong(exchange, self.watchdog.k_seen, self.held_round, self.view.event_of(to), busy)

    def _on_first_ping(self) -> None:
        """Nodes do not come at the same instant, but the first one that begins tells the others: who kept
        waiting would miss the round."""
        if self.watchdog.k_seen == 0:
            self.joining.end()
        if self._is_starting:
            self.cancel_timer(START)
            self._on_start(0)

    def _on_pong(self, src: NodeId, pong: Pong) -> None:
        self.membership.on_event_known(src, pong.event)
        if pong.exchange != HEARD_ME:
            self.tell_if_suspected(src)
        search = self.sampler.exchanges.get(pong.exchange)
        if search is not None:
            self._on_answer(src, pong, search)
        self.notice(pong.round, src)
        self._find_way_back(src, pong.round)
        self.sampler.on_answer(src, pong.exchange)

    def _on_answer(self, src: NodeId, pong: Pong, search: Search) -> None:
        if search.purpose == COMING:
            self.joining.on_answer(src, pong.round)
        if pong.busy:
            search.sample.busy.add(src)
        if self._is_overtaken(search, pong) and not self.trust.has_misbehaved(src):
            self.give_up(search.purpose)
            if search.purpose != PARTICIPANTS:
                self._wait_for_those_ahead(search, pong)

    def _wait_for_those_ahead(self, search: Search, pong: Pong) -> None:
        if pong.round >= search.round:
            self.watchdog.others_are_ahead()
            self._tell_if_left_out(search)
        else:
            self.watchdog.defer(self.held_round)

    def _is_overtaken(self, search: Search, pong: Pong) -> bool:
        """Somebody else is already where a restart wants to go, or beyond what is to be trained."""
        if search.purpose in (FIRST_SAMPLE, PARTICIPANTS):
            return pong.round > search.round
        return search.purpose == RESTART and (
            pong.round >= search.round or (pong.held > self.held_round and not self.watchdog.has_deferred)
        )

    def _tell_if_left_out(self, search: Search) -> None:
        """Others go on, and had no work for this node yet: those who know of it may never get to say so."""
        if search.purpose == RESTART and not self.has_worked:
            self.membership.advertise_again()

    def on_sample(self, search: Search) -> None:
        sample, k = search.sample.found, search.round
        if search.purpose == COMING:
            self.joining.on_sample()
            return
        if search.purpose == LATE:
            self.late.on_sample(k, self.present(sample))
            return
        if search.purpose in PURPOSES and self.quorum.is_missing(search):
            return
        if search.purpose == PARTICIPANTS:
            if self.watchdog.k_seen > k:  # others are beyond what is to be trained
                return
            # Who trains finishes that first: it is left out and nobody takes its place.
            busy = search.sample.busy | {self.me} if self.is_busy else search.sample.busy
            sample = tuple(node for node in sample if node not in busy) or sample
        self.report(SampleDerived(k, search.ordinal, search.purpose, sample, search.sample.silent))
        if search.purpose == PARTICIPANTS:
            self._push(k, search.ordinal, search.model, sample)
        elif search.purpose == AGGREGATOR:
            self.choose_aggregator(sample)
        elif search.purpose == RESTART:
            self._restart(k, search.ordinal, sample)
        elif self.me in sample and self.held_round < FIRST_ROUND:
            view = self.view.snapshot()
            self.train(TrainRequest(k, FIRST_STEP, k, len(sample), view, self.held_model))

    # Aggregation (III-C)

    def _on_aggregate_request(self, src: NodeId, request: AggregateRequest) -> None:
        self.on_contact(src, request.view)
        if self.aggregation.collecting and request.round > self.aggregation.k_agg:
            # Whoever completed the older round does not know of this node, or its models had come here too.
            self.membership.advertise_again()
        if not (self.trust.believes(src, request.round) and self.trust.may_send_model(src, request)):
            self.on_news()
            return
        if self.aggregation.on_request(src, request, self._sample_is_small, self._most):
            self.give_up(PARTICIPANTS)
            self.notice_own_work(request.round)
        self.on_news()

    @property
    def _most(self) -> int | None:
        """Participants of a round, if what others say of that is not believed."""
        if not self.trust.is_wary:
            return None
        return min(self.parameters.sample_size, self.view.online_count())

    @property
    def _sample_is_small(self) -> bool:
        if not self.parameters.late_rounds:
            return False
        return min(self.parameters.sample_size, self.view.online_count()) <= SMALL

    def on_not_coming(self, body: Message) -> None:
        if isinstance(body, AggregateRequest) and body.round > self.aggregation.k_agg:
            # The round was completed elsewhere, by somebody who does not know of this node.
            self.membership.advertise_again()

    def notice(self, k: int, src: NodeId) -> None:
        if k > self.watchdog.k_seen or self.trust.is_wary:
            super().notice(k, src)
            self.aggregation.release(self.watchdog.k_seen)

    def _find_way_back(self, src: NodeId, k: int) -> None:
        others_are_at = self.trust.way_back(src, k)
        if others_are_at is not None:
            if self.trust.is_lost(self.aggregation.k_agg, others_are_at):
                self.aggregation.skip_to(others_are_at)
                self.aggregation.k_agg = others_are_at
            self.fall_back(others_are_at)

    def _on_late_model(self, src: NodeId, late: LateModel) -> None:
        self.membership.contacted = True
        self.aggregation.on_late(src, late, self.watchdog.k_seen)

    def _on_aggregated(self, aggregated: Aggregated) -> None:
        if self.aggregation.on_aggregated(aggregated):
            k, ordinal = aggregated.round, self.aggregation.ordinal
            self.hold(k, ordinal, aggregated.model)
            # Not the held model: by the time the sample is found, that may be of a newer round.
            self.search(PARTICIPANTS, k, ordinal, aggregated.model)

    def _push(self, k: int, ordinal: int, model: Model, sample: tuple[NodeId, ...]) -> None:
        ahead = step(self.view.online_count())
        self.send(sample, TrainRequest(k, ahead, ordinal, len(sample), self.view.snapshot(), model))
        self.probe_a_suspect()

    # The watchdog: not in the paper, see watchdog.py

    def _on_watchdog(self, _: int) -> None:
        # Asking many silent nodes one by one may take longer than the watchdog waits: let it finish.
        if self.watchdog.is_due(self.held_round) and not self.is_searching(RESTART):
            self.search(RESTART, self.watchdog.k_seen + self.watchdog.step, self.held_ordinal + 1)

    def _restart(self, k: int, ordinal: int, sample: tuple[NodeId, ...]) -> None:
        if k <= self.watchdog.k_seen:  # progress came while asking
            return
        self.report(RoundRestarted(k, ordinal, self.held_round))
        if self.settled is not None:  # it said that it aggregates, and nobody has heard of it
            self.trust.failed(self.settled[0])
            self.settled = None
        self.aggregation.skip_to(k)
        self.give_up(PARTICIPANTS)
        self.watchdog.restart(k)
        self.aggregation.release(k)
        self.send(tuple(node for node in sample if node != self.me), Ping(HEARD_ME, k))
        self._push(k, ordinal, self.held_model, sample)
