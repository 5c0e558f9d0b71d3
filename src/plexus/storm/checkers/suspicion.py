"""Who is taken as gone, who may go on without it, and by how much rounds grow."""

from __future__ import annotations

from math import ceil

import numpy as np

from plexus.protocol.api import Effect, Event, Received
from plexus.protocol.beginning import FIRST_ROUND, FIRST_STEP
from plexus.protocol.facts import Fact, SampleDerived, Suspected
from plexus.protocol.membership import HEARD_ME
from plexus.protocol.messages import AggregateRequest, Message, NodeId, Ping, Pong, TrainRequest
from plexus.protocol.plexus import PlexusNode
from plexus.protocol.quorum import PURPOSES
from plexus.protocol.sampling import PROBE
from plexus.protocol.view import EXPELLED, JOINED, SUSPECTED, Snapshot, event_number
from plexus.storm.checkers.aggregations import CLOCK_S
from plexus.storm.checkers.api import PlexusChecker, facts_in, sends_in
from plexus.storm.checkers.participants import SampleChecker

PINGS, TIMEOUTS = 4, 2
"""How often a node is pinged before it is taken as gone, and how many ping timeouts that takes."""


class SuspicionFollowsSilence(PlexusChecker):
    """Nobody is taken as gone who was not pinged four times within two ping timeouts, and kept silent."""

    while_online = ("_pings",)
    _pings: dict[tuple[NodeId, NodeId], list[tuple[float, int]]] = {}
    """(who asks, who is asked) → when by the clock of the first, and in which exchange: not answered."""

    def sent(self, src: NodeId, to: tuple[NodeId, ...], body: Message) -> None:
        if isinstance(body, Ping) and body.exchange != HEARD_ME:
            for asked in to:
                self._pings.setdefault((src, asked), []).append((self.scene.clock_s(src), body.exchange))

    def before(self, node: NodeId, event: Event) -> None:
        if isinstance(event, Received) and isinstance(event.body, Pong):
            exchange, pings = event.body.exchange, self._pings.get((node, event.src), [])
            if exchange in self.scene.plexus(node).sampler.exchanges:  # not too late
                pings[:] = [each for each in pings if each[1] != exchange]

    def reported(self, node: NodeId, fact: Fact) -> None:
        if isinstance(fact, Suspected):
            silent_s = TIMEOUTS * self.scene.parameters.ping_timeout_s
            now, pings = self.scene.clock_s(node), self._pings.get((node, fact.node), [])
            pings[:] = [ping for ping in pings if now - ping[0] <= silent_s + CLOCK_S]
            if len(pings) < PINGS or now - pings[0][0] < silent_s - CLOCK_S:
                self.fail(node, f"at {now} takes node {fact.node} as gone, which it pinged {pings}")


class SuspicionIsRefuted(PlexusChecker):
    """Who is taken as gone is told so, by whoever finds it silent and whenever it is heard of; it says at
    once that it is there. Whoever asks for trainings looks whether one of those taken as gone is there."""

    def after(self, node: NodeId, event: Event, effects: list[Effect]) -> None:
        machine = self.scene.plexus(node)
        heard = event.body if isinstance(event, Received) else None
        if hasattr(heard, "view") or (isinstance(heard, Pong) and heard.exchange != HEARD_ME):
            assert isinstance(event, Received)
            self._is_told(machine, event.src, effects)
        for fact in facts_in(effects, Suspected):
            self._is_told(machine, fact.node, effects)
        if sends_in(effects, TrainRequest):
            suspects = set(machine.membership.view.suspected().nonzero()[0].tolist())
            searches = machine.sampler.exchanges.values()
            asked = {node for each in searches if each.purpose == PROBE for node in each.sample.waiting}
            if suspects and suspects.isdisjoint(asked):
                self.fail(machine.me, f"looks for none of {suspects}, whom it takes as gone")

    def settled(self, node: NodeId) -> None:
        membership = self.scene.plexus(node).membership
        if event_number(membership.counter, JOINED) < membership.view.event_of(node) < EXPELLED:
            self.fail(node, "is taken as gone, and does not say that it is there")

    def _is_told(self, machine: PlexusNode, node: NodeId, effects: list[Effect]) -> None:
        told = [to for to, _ in sends_in(effects, Pong)]
        if machine.membership.view.is_suspected(node) and (node,) not in told:
            self.fail(machine.me, f"takes node {node} as gone, and does not tell it")


class QuorumIsKept(SampleChecker):
    """Nobody begins a first round, asks for trainings or starts again with less than half of those who should
    be there, nor alone while it takes somebody as gone; unless it has waited for `watchdog_s`. Those taken
    as gone for longer than that are not missed. Where samples are of one, alone is who knows nobody else.
    Nobody waits for longer than that, and for one more search."""

    while_online = ("_since",)
    _since: dict[tuple[NodeId, str], float] = {}
    """(node, purpose) → since when its search has found too few."""
    _last: dict[NodeId, Snapshot] = {}
    _suspected: dict[tuple[NodeId, NodeId], tuple[int, float]] = {}
    """(who, of whom) → the event by which it is suspected, and since when the first knows."""

    def after(self, node: NodeId, event: Event, effects: list[Effect]) -> None:
        machine, now = self.scene.plexus(node), self.scene.clock_s(node)
        self._learn(node, machine.membership.view.snapshot(), now)
        for fact in facts_in(effects, SampleDerived):
            if fact.purpose in PURPOSES:
                self._check(node, fact, now)
        for purpose in PURPOSES:
            if machine.quorum.is_waiting(purpose):
                waited_s = now - self._since.setdefault((node, purpose), now)
                if waited_s > self._longest_s:
                    self.fail(node, f"waits for a quorum ({purpose}) since {waited_s:g} s")
            else:
                self._since.pop((node, purpose), None)

    @property
    def _longest_s(self) -> float:
        """Until `watchdog_s` is over, and then a pause and a search that asks everybody in turn."""
        parameters = self.scene.parameters
        search_s = (self.scene.plan.nodes + 1) * parameters.ping_timeout_s
        return parameters.watchdog_s + parameters.ack_timeout_s + search_s

    def restarted(self, node: NodeId, disk_is_lost: bool) -> None:
        """What a new process finds in its view it does not know the age of."""
        self._last[node] = self.scene.plexus(node).membership.view.snapshot()
        self._suspected = {pair: since for pair, since in self._suspected.items() if pair[0] != node}

    def _learn(self, node: NodeId, view: Snapshot, now: float) -> None:
        last = self._last.get(node, self.scene.initial_view)
        if view is not last:
            self._last[node] = view
            news = (view.events != last.events) & (view.events & 3 == SUSPECTED)
            for other in np.flatnonzero(news).tolist():
                self._suspected[node, other] = view.event_of(other), now

    def _check(self, node: NodeId, found: SampleDerived, now: float) -> None:
        parameters, view = self.scene.parameters, self._last[node]
        if now - self._since.get((node, found.purpose), now) >= parameters.watchdog_s - CLOCK_S:
            return
        missed = [
            other
            for (who, other), (event, since) in self._suspected.items()
            if who == node and view.event_of(other) == event and now - since < parameters.watchdog_s
        ]
        should_be = int(np.count_nonzero(view.events & 3 == JOINED)) + len(missed)
        needed = ceil(min(parameters.sample_size, should_be) / 2)
        busy = {node} if self.scene.runtime.is_training(node) and parameters.late_rounds else set()
        there = len({*found.sample, *self.answers(node, found).busy, *busy})
        if there < needed:
            self.fail(node, f"goes on with {there} nodes ({found.purpose}), {needed} are needed")
        if parameters.sample_size == 1:
            there = int(np.count_nonzero(view.events & 3 == JOINED))
        if there <= 1 and bool(np.any(view.events & 3 == SUSPECTED)):
            self.fail(node, f"goes on alone ({found.purpose}), and takes others as gone")


class RoundsGrowByTheirStep(PlexusChecker):
    """The number of a round is that of the round before and the step that its aggregator told: the square of
    the nodes that it believes online, of which the three leading binary digits count. The first step is 1."""

    _told: dict[tuple[NodeId, int], set[int]] = {}
    """(participant, round) → the numbers of the next, according to each who asked."""

    def sent(self, src: NodeId, to: tuple[NodeId, ...], body: Message) -> None:
        if isinstance(body, TrainRequest):
            online = int(np.count_nonzero(body.view.events & 3 == JOINED))
            digits = f"{online:b}"
            counted = int(digits[:3].ljust(len(digits), "0"), 2)
            if body.step != max(1, counted) ** 2:
                self.fail(src, f"believes {online} nodes online, and round {body.round} grows by {body.step}")
            for node in to:
                self._told.setdefault((node, body.round), set()).add(body.round + body.step)
        elif isinstance(body, AggregateRequest):
            k = self.scene.plexus(src).training.k_train
            told = self._told.get((src, k), set())
            if body.round not in told and (k, body.round) != (FIRST_ROUND, FIRST_ROUND + FIRST_STEP):
                self.fail(src, f"sends its model of round {k} for round {body.round}, was told {told}")
