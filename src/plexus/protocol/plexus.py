"""The Plexus node: the paper's protocol as one state machine.

The parts keep their own state: `Membership` (counter and local view), `Sampler` (pings), `TrainingTask`
(k_train), `AggregationTask` (k_agg), `Watchdog` (k_seen). Three layers connect them: `Member` (who
is there), `Participant` (training) and, here, the node that begins, aggregates and starts again. Every arrow
of the picture in docs/journey-of-a-round.md is a line in one of them.
"""

from __future__ import annotations

from random import Random

from plexus.protocol.aggregation import AggregationTask
from plexus.protocol.api import Aggregated, Durable, Measured, Send, WentOnline
from plexus.protocol.beginning import FIRST_ROUND, START, Beginning
from plexus.protocol.course import ABOUT_THE_END, Ending
from plexus.protocol.facts import RoundRestarted, SampleDerived
from plexus.protocol.joining import COMING
from plexus.protocol.machine import to
from plexus.protocol.membership import HEARD_ME
from plexus.protocol.messages import (
    BUSY,
    FRESH,
    NO_ADDRESS,
    YOURS,
    AggregateRequest,
    FinalModel,
    FinalRequest,
    LateModel,
    Message,
    Model,
    NodeId,
    Ping,
    Pong,
    TrainRequest,
)
from plexus.protocol.parameters import ENDLESS, Course, PlexusParameters
from plexus.protocol.participant import AGGREGATOR, FEW, FOR_A_ROUND, LATE, UNRIVALLED, Participant
from plexus.protocol.quorum import FIRST_SAMPLE, PARTICIPANTS, PURPOSES, RESTART, step
from plexus.protocol.roster import Roster
from plexus.protocol.sampling import SampleSearch, Search
from plexus.protocol.view import SUSPECTED, View
from plexus.protocol.watchdog import WATCHDOG


class PlexusNode(Participant):
    """One node. Give it its world at construction; it starts with `WentOnline`."""

    _on_event = Participant._on_event | {
        WentOnline: to("_on_online"),
        Aggregated: to("_on_aggregated"),
        Measured: to("ending.on_measured"),
    }
    _on_message = Participant._on_message | ABOUT_THE_END | {Ping: to("_on_ping"), Pong: to("_on_pong")}
    _on_message |= dict.fromkeys(FOR_A_ROUND, to("_unless_over"))
    _on_timeout = Participant._on_timeout | {
        "aggregation": to("aggregation.on_timeout"),
        "lone": to("_on_lone"),
        "start": to("beginning.on_start"),
        "watchdog": to("_on_watchdog"),
        "final": to("ending.on_timeout"),
    }

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
        course: Course = ENDLESS,
    ) -> None:
        durable = durable or Durable(counter=0, round=0, model=initial_model)
        super().__init__(me, parameters, roster, view, bandwidth_bytes_per_s, rng, durable, address)
        self.beginning = Beginning(self, course)
        self._met: list[bool] = []
        """Of those who answered when it came online and hold a model: whether they have just come, too."""
        self.course = course
        self.aggregation = AggregationTask(self, parameters, durable.round, view.online_count)
        self.ending = Ending(self, course, durable.ended, rng)

    # Coming and going (III-E)

    def _on_online(self, _: WentOnline) -> None:
        self.forget_searches()
        self.late.reset()
        self.training.reset()
        self.trust.reset()
        self._unbelieved = self.settled = None
        self.aggregation.reset(self.held_round)
        self.has_worked = self.beginning.is_near = False
        self.came_at = self.now
        self._met.clear()
        if self.ending.is_over:
            self.ending.come_back()
        else:
            self.watchdog.start(self.held_round)
        self.joining.begin(self.held_round)

    def on_advertised(self) -> None:
        if self._met and all(self._met) and self.is_fresh:
            self.watchdog.hurry(self.held_round)
        if self.watchdog.k_seen == 0:
            self.beginning.wait(self.parameters.start_delay_s)

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
            candidates, size = self.trust.aggregators(candidates, size, self.training.tried)
        else:
            candidates = self.trust.order(candidates)
        sample = SampleSearch(self.me, candidates, size, one_by_one=purpose == RESTART)
        # Who only asks whether a restart is needed, or has something for later, is no sign of progress.
        announced = self.watchdog.k_seen if purpose in (RESTART, LATE) else k
        search = Search(purpose, k, sample, announced, ordinal, model, among_suspects=among_suspects)
        self.sampler.begin(search)

    def search_again(self, search: Search) -> None:
        if self._others_are_beyond(search):  # somebody else has gone on meanwhile
            self.give_up(search.purpose)
        else:
            self.search(search.purpose, search.round, search.ordinal, search.model, among_suspects=True)

    def _on_ping(self, src: NodeId, ping: Ping) -> None:
        self.membership.contacted = True
        if ping.round == FIRST_ROUND:
            self.beginning.on_ping()
        # Answer with what was known before: nobody must take the echo of its own ping for progress.
        self.outbox.append(Send((src,), self.pong(ping.exchange, src)))
        if ping.round > self.watchdog.k_seen or self.trust.is_wary or self.settled is not None:
            self.notice(ping.round, src)
        if self.ending.round:
            self.ending.tell((src,))

    def _on_pong(self, src: NodeId, pong: Pong) -> None:
        if pong.event == self.membership.event:
            self.membership.contacted = True
        else:
            self.membership.on_event_known(src, pong.event)
        if self.view.event_of(src) & 3 == SUSPECTED and pong.exchange != HEARD_ME:
            self.tell_if_suspected(src)
        search = self.sampler.exchanges.get(pong.exchange)
        if search is not None and (pong.busy or search.purpose not in UNRIVALLED or self.trust.is_wary):
            self._on_answer(src, pong, search)
        if pong.round > self.watchdog.k_seen or self.trust.is_wary or self.settled is not None:
            self.notice(pong.round, src, pong.held)
        if self.trust.is_wary:
            self._find_way_back(src, pong.round)
            self.ending.on_held(src, pong.held)
        if pong.busy & YOURS and self.is_fresh and not self.watchdog.is_hurried:
            self.watchdog.hurry(self.held_round)
            self._ask_for_restart()
        self.sampler.on_answer(src, pong.exchange)

    def _on_answer(self, src: NodeId, pong: Pong, search: Search) -> None:
        if search.purpose == COMING:
            self.joining.on_answer(src, pong.round)
            self._met += [bool(pong.busy & FRESH)] * (pong.held > 0)
        if search.purpose == RESTART and self.watchdog.is_hurried and pong.held and not pong.busy & FRESH:
            # It was there all the time, and will know when to start again.
            self.watchdog.hurry(self.held_round, is_so=False)
            self.give_up(RESTART)
            return
        if pong.busy & BUSY:
            search.sample.busy.add(src)
        if pong.held >= search.round:
            search.sample.ahead.add(src)
        if self._is_overtaken(search, pong) and self.trust.believes(src, pong.round):
            self.give_up(search.purpose)
            if search.purpose != PARTICIPANTS:
                self._wait_for_those_ahead(src, search, pong)

    def _others_are_beyond(self, search: Search) -> bool:
        """What this sample was to train is not the newest any more."""
        return self.watchdog.k_seen > search.round and self.is_corroborated(search)

    def _wait_for_those_ahead(self, src: NodeId, search: Search, pong: Pong) -> None:
        if pong.round >= search.round:
            self.watchdog.others_are_ahead()
            self.watchdog.has_waited = self.trust.is_wary
            if search.purpose == RESTART and not self.has_worked:
                # It is left out: those who know of it may never get to say so, or it knows of few.
                self.membership.advertise_again()
                self.send((src,), self.membership.lacking.ask())
        else:
            if self.watchdog.is_hurried:
                self.send((src,), self.pong(HEARD_ME, src, YOURS))
            self.watchdog.defer(self.held_round)

    def _is_overtaken(self, search: Search, pong: Pong) -> bool:
        """Somebody else is already where a restart wants to go, or beyond what is to be trained."""
        if search.purpose == FIRST_SAMPLE:  # others speak of the next round as soon as they have trained
            return pong.held > search.round and self.is_corroborated(search)
        if search.purpose == PARTICIPANTS:
            return pong.round > search.round and self.is_corroborated(search)
        if search.purpose != RESTART:
            return False
        # One word is believed once, and then only if there is progress.
        is_believed = not self.watchdog.has_waited or self.is_corroborated(search)
        is_newer = pong.held > self.held_round and not self.watchdog.has_deferred
        return (pong.round >= search.round and is_believed) or is_newer

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
            if self._others_are_beyond(search):
                return
            # Who is cut off must not end it alone, nor with what it alone trained: one more round follows.
            if self.ending.is_last(search.ordinal) and not self.aggregation.is_lone:
                self.ending.declare(k, search.ordinal, search.model)
                return
            # Who trains finishes that first: it is left out and nobody takes its place.
            busy = search.sample.busy | {self.me} if self.is_busy else search.sample.busy
            sample = tuple(node for node in sample if node not in busy) or sample
        self.report(SampleDerived(k, search.ordinal, search.purpose, sample, search.sample.silent))
        if search.purpose == PARTICIPANTS:
            self._push(k, search.ordinal, search.model, sample)
        elif search.purpose == AGGREGATOR:
            self.choose_aggregator(search)
        elif search.purpose == RESTART:
            self._restart(k, search.ordinal, sample)
        else:
            self.beginning.on_sample(sample)

    # Aggregation (III-C)

    def _on_aggregate_request(self, src: NodeId, request: AggregateRequest) -> None:
        self.on_contact(src, request.view)
        if self.aggregation.collecting and request.round > self.aggregation.k_agg:
            # Whoever completed the older round does not know of this node, or its models had come here too.
            self.membership.advertise_again()
        if self.trust.believes(src, request.round) and self.trust.may_send_model(src, request):
            if self.aggregation.on_request(src, request):
                self._on_begun()
            else:
                self.notice(request.round, src)
        self.on_news()

    def _on_lone(self, _: int) -> None:
        if self.aggregation.collecting or self.is_indispensable:
            self.aggregation.wait()
        elif self.aggregation.on_lone(self.held_round):
            self._on_begun()

    def _on_begun(self) -> None:
        self.give_up(PARTICIPANTS)
        self.notice_own_work(self.aggregation.k_agg)

    @property
    def is_indispensable(self) -> bool:
        return self.aggregation.is_combining or self.is_searching(PARTICIPANTS)

    def on_not_coming(self, body: Message) -> None:
        self.on_final_lost(body)
        if isinstance(body, AggregateRequest) and body.round > self.aggregation.k_agg:
            # The round was completed elsewhere, by somebody who does not know of this node.
            self.membership.advertise_again()

    def notice(self, k: int, src: NodeId, own: int | None = None) -> None:
        if k > self.watchdog.k_seen or self.trust.is_wary or self.settled is not None:
            self.view.trust(src)
            super().notice(k, src, own)
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
        view = self.membership.lacking.excerpt(self.view.snapshot())
        self.membership.lacking.keep(view)
        self.send(sample, TrainRequest(k, ahead, ordinal, len(sample), view, model))
        self.probe_a_suspect()

    # The watchdog: not in the paper, see watchdog.py

    def _on_watchdog(self, _: int) -> None:
        # Asking many silent nodes one by one may take longer than the watchdog waits: let it finish.
        has_begun = self.watchdog.k_seen > 0 or self.view.online_count() >= self.beginning.least
        if self.watchdog.is_hurried and not self.is_fresh:  # it was long ago that all came back
            self.watchdog.hurry(self.held_round, is_so=False)
        elif self.watchdog.is_due(self.held_round):
            if has_begun:
                self._ask_for_restart()
        elif not self.has_worked and self.view.online_count() <= FEW * self.parameters.sample_size:
            self.membership.advertise_again()  # of so few it should have been in a sample

    def _ask_for_restart(self) -> None:
        k = self.restart_number()
        if k is not None and not self.is_searching(RESTART):
            self.search(RESTART, k, self.held_ordinal + 1)

    def _restart(self, k: int, ordinal: int, sample: tuple[NodeId, ...]) -> None:
        if k <= self.watchdog.k_seen and not self.trust.is_wary:  # progress came while asking
            return
        self.report(RoundRestarted(k, ordinal, self.held_round))
        if self.settled is not None:  # it said that it aggregates, and nobody has heard of it
            self.ending.failed(self.settled[0])
            self.settled = None
        self.aggregation.skip_to(k)
        self.give_up(PARTICIPANTS)
        self.watchdog.restart(k)
        self.aggregation.release(k)
        self.send(tuple(node for node in sample if node != self.me), Ping(HEARD_ME, k))
        self._push(k, ordinal, self.held_model, sample)

    # The end: not in the paper, see course.py

    def _unless_over(self, src: NodeId, body: Message) -> None:
        """Who asks for more after the end is told of it."""
        if self.ending.is_over:
            self.ending.tell((src,))
        else:
            FOR_A_ROUND[type(body)](self)(src, body)

    def on_final_lost(self, body: Message) -> None:
        if isinstance(body, FinalRequest | FinalModel):
            self.ending.on_lost()

    @property
    def ended_round(self) -> int:
        return self.ending.round

    def lay_down(self) -> None:
        """There are no more rounds: nothing is trained, aggregated or begun."""
        self.training.finish()
        self.settled = self._unbelieved = None
        self.aggregation.skip_to(self.ending.round, is_said=not self.ending.is_doubtful)
        self.late.reset()
        for purpose in (*PURPOSES, AGGREGATOR, LATE):
            self.give_up(purpose)
        self.cancel_timer(START)
        self.cancel_timer(WATCHDOG)
