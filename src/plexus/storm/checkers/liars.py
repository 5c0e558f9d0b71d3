"""Where members may lie, no honest one is misled by a single liar, nor named as one."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from plexus.protocol.api import Collect, Effect, Event, Offered, Received, Train
from plexus.protocol.facts import AggregationCompleted, Fact, Refused, RoundRestarted, Suspected
from plexus.protocol.messages import AggregateRequest, Message, NodeId, Ping, TrainRequest
from plexus.protocol.plexus import PlexusNode
from plexus.protocol.quorum import step
from plexus.protocol.trust import A_MODEL, TO_TRAIN
from plexus.protocol.view import SUSPECTED, Snapshot
from plexus.storm.checkers.api import FAR, MISLED, PlexusChecker, facts_in, refusals

REACH = 4
"""Rounds that may have passed without a sign."""
ROOM, LEAST_SAMPLE, PAUSE = 2, 2, 1 / 2
"""Who is among the first two samples of a round's order, of at least two nodes each, may speak of it; after
half of `watchdog_s` without progress anybody may."""
ANSWER_TIMEOUTS = 4
FEWEST = 3
"""Nodes without which there are no two others to say the same."""


def reach_of(machine: PlexusNode) -> int:
    return REACH * max(step(machine.view.online_count()), machine.watchdog.step)


class NobodyIsFarAhead(PlexusChecker):
    """The newest round that an honest node knows of is at most a few steps beyond those of which somebody
    spoke who did not lie; unless it knows of nobody else but one, whom it cannot but believe, or somebody did
    who is a second witness since. It finds its way back if others are not that far."""

    _made: int = 0
    _misled: set[NodeId] = set()
    """Who believed the one other that it knew."""

    def after(self, node: NodeId, event: Event, effects: list[Effect]) -> None:
        if node in self.scene.plan.liars or not self.scene.plan.is_wary:
            return
        machine = self.scene.plexus(node)
        online, k = machine.membership.view.online_count(), machine.watchdog.k_seen
        if k + MISLED < self._made:
            self._misled.discard(node)
        elif k > self._made + reach_of(machine):
            if online >= FEWEST:
                self.fail(node, f"has seen round {k}, and the newest one is {self._made}")
            self._misled.add(node)
            self._made = k

    def sent(self, src: NodeId, to: tuple[NodeId, ...], body: Message) -> None:
        if isinstance(body, Ping | TrainRequest | AggregateRequest):
            self._work(src, body.round)

    def reported(self, node: NodeId, fact: Fact) -> None:
        if isinstance(fact, AggregationCompleted | RoundRestarted):
            self._work(node, fact.round)

    def _work(self, node: NodeId, k: int) -> None:
        machine = self.scene.plexus(node)
        if node not in self.scene.plan.liars or k <= machine.watchdog.k_seen + reach_of(machine):
            self._made = max(self._made, k)

    def ended(self) -> None:
        honest = set(self.scene.honest())
        back = honest - self._misled
        for node in self._misled & honest if len(back) >= FEWEST else ():
            k = min(self.scene.plexus(other).watchdog.k_seen for other in back)
            if self.scene.plexus(node).watchdog.k_seen > k + FAR:
                self.fail(node, f"was misled about rounds, and has not found its way back to {k}")


class TheHonestAreBelieved(PlexusChecker):
    """Nobody is said to have forged a view who did not."""

    def reported(self, node: NodeId, fact: Any) -> None:
        is_named = isinstance(fact, Refused) and fact.what == "view"
        if is_named and self.scene.plan.liars.get(fact.src) != "forged-views":
            self.fail(node, f"says that node {fact.src} has forged a view")


class TheHashDecides(PlexusChecker):
    """Who asks to train is in the sample of that round, or a little behind it; so is who trains. Who sends a
    model was in the sample that trained, a few steps before, and who takes it is in that of its round. Nobody
    else is refused."""

    _pause_s: float = 0.0
    """Of whoever handles an event now: for how long it saw no progress."""
    _queued: TrainRequest | None = None
    """What it was to train next: that may come twice."""

    def before(self, node: NodeId, event: Event) -> None:
        watchdog = self.scene.plexus(node).watchdog
        self._queued = self.scene.plexus(node).training.queued
        self._pause_s = max(watchdog._pause_s, self.scene.clock_s(node) - watchdog._progress_at)

    def after(self, node: NodeId, event: Event, effects: list[Effect]) -> None:
        if not isinstance(event, Received) or not self.scene.plan.is_wary:
            return
        machine, asks = self.scene.plexus(node), event.body
        if not isinstance(asks, TrainRequest | AggregateRequest):
            return
        used = [effect.model for effect in effects if isinstance(effect, Train | Collect)]
        is_heeded = asks.model in used or self._queued is not machine.training.queued is asks
        what = TO_TRAIN if isinstance(asks, TrainRequest) else A_MODEL
        # What somebody else asked for may be looked at again by now.
        is_refused = (event.src, what) in refusals(effects)
        if is_heeded and not self._may(machine, event.src, asks):
            self.fail(node, f"does what node {event.src} says of round {asks.round}, which may not")
        if is_refused and self._may(machine, event.src, asks):
            self.fail(node, f"refuses what node {event.src} says of round {asks.round}, which may")

    def _may(self, machine: PlexusNode, src: NodeId, asks: TrainRequest | AggregateRequest) -> bool:
        trained_in = asks.round
        if isinstance(asks, TrainRequest):
            if asks.step > REACH * step(machine.view.online_count()):
                return False
        else:
            trained_in = asks.trained_in
            if not 0 < asks.round - trained_in <= reach_of(machine):
                return False
        parameters, view = machine.parameters, machine.view
        room = ROOM * max(parameters.sample_size, LEAST_SAMPLE)
        if view.online_count() <= room or self._pause_s >= PAUSE * parameters.watchdog_s:
            return True
        spoken_of = machine.roster.in_order(view, trained_in)[:room]
        return src in spoken_of and machine.me in machine.roster.in_order(view, asks.round)[:room]


class OneWordIsNotEnough(PlexusChecker):
    """Who takes another as gone has found it silent, or was told so by two; whom one alone holds to be gone
    is asked last."""

    _last: dict[NodeId, Snapshot] = {}
    _tellers: dict[tuple[NodeId, NodeId, int], set[NodeId]] = {}
    """(who, of whom, by which event it is gone) → who told so."""

    def after(self, node: NodeId, event: Event, effects: list[Effect]) -> None:
        if not self.scene.plan.is_wary:
            return
        machine, last = self.scene.plexus(node), self._last.get(node, self.scene.initial_view)
        view = self._last[node] = machine.view.snapshot()
        told = getattr(event.body, "view", None) if isinstance(event, Received | Offered) else None
        told = told and machine.membership.lacking.whole(told)
        if told is not None and "view" not in [what for _, what in refusals(effects)]:
            self._listen(machine, event.src, told, last)  # type: ignore[attr-defined]
        if view is last:
            return
        found = {fact.node for fact in facts_in(effects, Suspected)}
        for other in np.flatnonzero((view.events != last.events) & (view.events & 3 == SUSPECTED)).tolist():
            tellers = self._tellers.get((node, other, view.event_of(other)), set())
            if other not in (node, *found) and len(tellers) < 2:
                self.fail(node, f"takes node {other} as gone, as {tellers} said")

    def restarted(self, node: NodeId, disk_is_lost: bool) -> None:
        self._last[node] = self.scene.plexus(node).view.snapshot()
        self._tellers = {told: by for told, by in self._tellers.items() if told[0] != node}

    def _listen(self, machine: PlexusNode, src: NodeId, told: Snapshot, last: Snapshot) -> None:
        for other in np.flatnonzero((told.events & 3 == SUSPECTED) & (told.events > last.events)).tolist():
            self._tellers.setdefault((machine.me, other, told.event_of(other)), set()).add(src)
            order = machine.roster.candidates(machine.view, machine.watchdog.k_seen)
            is_asked = other in order and other != machine.me
            if is_asked and other not in order[len(order) - len(machine.view.doubted) :]:
                self.fail(machine.me, f"was told by node {src} that node {other} is gone, and does not doubt")


class LiarsAreNamed(PlexusChecker):
    """Who speaks of rounds far ahead to several is named in the end, once these have heard from others how
    far the session is."""

    _heard: dict[tuple[NodeId, NodeId], float] = {}
    """(liar, who heard it) → when it did so first."""
    _knows: dict[NodeId, set[NodeId]] = {}
    """Liar → who can know that it is one."""
    _named: set[NodeId] = set()
    _seen: int = 0

    def before(self, node: NodeId, event: Event) -> None:
        machine = self.scene.plexus(node)
        self._seen = machine.watchdog.k_seen
        if isinstance(event, Received) and event.src in self.scene.plan.liars:
            is_far = isinstance(event.body, Ping) and event.body.round > self._seen + FAR
            if is_far and machine.view.online_count() >= FEWEST and node not in self.scene.plan.liars:
                self._heard.setdefault((event.src, node), self.scene.now)

    def after(self, node: NodeId, event: Event, effects: list[Effect]) -> None:
        machine = self.scene.plexus(node)
        if not self._heard or not isinstance(event, Received) or machine.watchdog.k_seen <= self._seen:
            return
        answered_s = ANSWER_TIMEOUTS * machine.parameters.ping_timeout_s
        for liar in self.scene.plan.liars:
            if self.scene.now > self._heard.get((liar, node), inf) + answered_s:
                self._knows.setdefault(liar, set()).add(node)

    def reported(self, node: NodeId, fact: Fact) -> None:
        if isinstance(fact, Refused) and node not in self.scene.plan.liars:
            self._named.add(fact.src)

    def ended(self) -> None:
        for liar, those in self._knows.items():
            if len(those) >= FEWEST and liar not in self._named:
                self.fail(None, f"nobody of {those} says that node {liar} spoke of far rounds")
