"""Joining, leaving, and knowing who is there (the paper's section III-E)."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Protocol

import numpy as np

from plexus.protocol.api import Expelled
from plexus.protocol.facts import Readvertised, Refused
from plexus.protocol.lacking import Lacking
from plexus.protocol.machine import Machine
from plexus.protocol.messages import NO_ADDRESS, Joined, Left, NodeId, Ping
from plexus.protocol.roster import Roster
from plexus.protocol.view import (
    EXPELLED,
    JOINED,
    LAST,
    LEFT,
    MAX_COUNTER,
    NOBODY,
    SUSPECTED,
    Events,
    Snapshot,
    View,
    counter_of,
    event_number,
)

READVERTISE = ("readvertise", 0)
CALM = 1 / 10
"""As a share of `readvertise_s`: a node that refutes again sooner than that tells a few others, not P."""
MOST_DOUBTS = 4
"""So often in that time one member is heeded that says that this node is suspected."""
LEAST_S = 1.0
"""Between two such tellings without a sign that nobody heard, where a member may want many."""
HEARD_ME = 0
"""The exchange number of pings that belong to no search: was a re-advertisement heard?"""


class Advertising(Protocol):
    """What a protocol's parameters say about advertisements."""

    @property
    def advertise_to(self) -> int: ...
    @property
    def readvertise_to(self) -> int: ...
    @property
    def readvertise_s(self) -> float: ...


def draw(rng: Random, among: int, count: int) -> list[int]:
    """`rng.sample(range(among), count)`: the same numbers, without a call of Python for each."""
    bits = rng.getrandbits
    few = 21 + (4 ** math.ceil(math.log(3 * count, 4)) if count > 5 else 0)
    if among > few:
        drawn: dict[int, None] = {}
        unused = np.uint32(32 - among.bit_length())
        while len(drawn) < count:
            words = count - len(drawn)
            numbers = np.frombuffer(bits(32 * words).to_bytes(4 * words, "little"), "<u4") >> unused
            drawn |= dict.fromkeys(numbers[numbers < among].tolist())
        return list(drawn)
    pool, chosen = list(range(among)), []
    for left in range(among, among - count, -1):
        width = left.bit_length()
        at = bits(width)
        while at >= left:
            at = bits(width)
        chosen.append(pool[at])
        pool[at] = pool[left - 1]
    return chosen


class Membership:
    """The node's own counter and local view, and the advertisements that spread them."""

    __slots__ = (
        "_advertise_to", "_advertised_at", "_again_at", "_attempts", "_doubters", "_doubts", "_node",
        "_proof", "_readvertise_s", "_readvertise_to", "_roster", "_save", "_suspected", "_told", "address",
        "bandwidth_bytes_per_s", "contacted", "counter", "event", "is_wary", "lacking", "rng", "suspicion_s",
        "view",
    )  # fmt: skip

    def __init__(
        self,
        node: Machine,
        parameters: Advertising,
        view: View,
        bandwidth_bytes_per_s: int,
        rng: Random,
        save: Callable[[], None],
        counter: int = 0,
        address: bytes = NO_ADDRESS,
        roster: Roster | None = None,
    ) -> None:
        """`save` puts the counter on disk, before anybody hears of it; `roster` proves events."""
        self._node = node
        self._save = save
        self._roster = roster or Roster(b"")
        self._proof = b""
        self.address = address
        self._advertise_to = parameters.advertise_to
        self._readvertise_to = parameters.readvertise_to
        self._readvertise_s = parameters.readvertise_s
        self.rng = rng
        self._attempts = 0
        self.view = view
        self.lacking = Lacking(view.snapshot(), self._roster, is_on=False)
        self.bandwidth_bytes_per_s = bandwidth_bytes_per_s
        self.counter = counter
        self.event = event_number(counter, JOINED)
        """That the node is online, as others should know it."""
        self.is_wary = False
        """Whether one member's word is not enough to hold another for gone."""
        self.suspicion_s = math.inf
        """For how long it matters since when somebody is suspected."""
        self.contacted = False
        """Somebody contacted this node since it joined, or said that it heard of that."""
        self._advertised_at = self._again_at = -math.inf
        self._suspected: dict[NodeId, tuple[int, float]] = {}
        """Node → the event by which it is suspected, and when this node learnt of that."""
        self._told: list[tuple[float, Events, Events]] = []
        """The same of what others told: when, nodes, events. In a large session these are many."""
        self._doubts: dict[NodeId, tuple[int, NodeId]] = {}
        """Node → the event by which one other alone suspects it, and who."""
        self._doubters: dict[NodeId, tuple[float, int]] = {}
        """Who told this node that it is suspected: since when, and how often."""

    def come(self) -> None:
        """The node is online: from now on it says so to whoever does not know."""
        self._raise_counter(online=True)
        self.contacted = False
        self._attempts = 0
        self._node.set_timer(READVERTISE, self._readvertise_s)

    def advertise(self) -> None:
        """Tell a random set P that the node is online; again later if nobody shows that it heard."""
        self._advertised_at = self._node.now
        self._node.send(self.random_set(self._advertise_to), self._joined())

    def join(self) -> None:
        self.come()
        self.advertise()

    def advertise_again(self) -> None:
        """Tell a few that the node is online, without a sign that nobody heard."""
        if self.is_wary and self._node.now < self._again_at + LEAST_S:
            return
        self._again_at = self._node.now
        self._node.send(self.random_set(self._readvertise_to), self._joined())

    def leave(self) -> None:
        """Tell a random set P that the node goes offline."""
        self.suspected_for_less_than(self.suspicion_s)  # when it is back it will not ask about older ones
        self._raise_counter(online=False)
        self._node.send(self.random_set(self._advertise_to), Left(self.counter, self._proof, self.address))

    def on_joined(self, src: NodeId, joined: Joined) -> None:
        self.view.learn(src, event_number(joined.counter, JOINED), joined.bandwidth_bytes_per_s)

    def on_left(self, src: NodeId, left: Left) -> None:
        self.view.learn(src, event_number(left.counter, LEFT))

    def on_expelled(self, expelled: Expelled) -> None:
        self.view.learn(expelled.node, EXPELLED)

    def merge(self, src: NodeId, snapshot: Snapshot) -> None:
        """Adopt what a sender knew, unless it says of others what they have not said."""
        if self._roster.forged(self.view, snapshot) is not None:
            self._node.report(Refused(src, "view", "an event that is not its node's own"))
            return
        alone = self._suspected_by_one(src, snapshot.events) if self.is_wary else []
        if alone:
            events = snapshot.events.copy()
            events[alone] -= SUSPECTED - JOINED
            snapshot = Snapshot(events, snapshot.bandwidths, snapshot.is_signed)
        news = self.view.merge(snapshot)
        for node in alone:
            self.view.doubt(node)
        if len(news):
            told = snapshot.events_at(news)
            suspected = (told & 3 == SUSPECTED).nonzero()[0]
            if len(suspected):
                events = told[suspected]
                events = events.astype(np.min_scalar_type(events.max()))
                self._told.append((self._node.now, news[suspected].astype(np.uint32), events))
        self.refute_if_misrepresented()

    def _suspected_by_one(self, src: NodeId, told: Events) -> list[NodeId]:
        """Whom nobody but `src` suspects: one member's word moves a node to the end of the order, and no
        further."""
        mine = self.view.events_of_first(len(told))
        suspected = np.flatnonzero(((told & 3) == SUSPECTED) & (told > mine)).tolist()
        # What is said of the node itself it hears in any case, to refute it.
        others = [node for node in suspected if node != self._node.me]
        return [node for node in others if self._is_told_by_one(node, int(told[node]), src)]

    def _is_told_by_one(self, node: NodeId, event: int, src: NodeId) -> bool:
        known, teller = self._doubts.get(node, (0, src))
        if known == event and teller != src:
            return False
        if event > known:
            self._doubts[node] = event, src
        return True

    def suspect(self, node: NodeId) -> bool:
        """`node` is silent: it is taken as gone until it shows that it is not. Says whether that is new."""
        is_new = self.view.suspect(node)
        if is_new:
            self._suspected[node] = self.view.event_of(node), self._node.now
        return is_new

    def some_doubted(self) -> list[NodeId]:
        """A few of those whom one other alone suspects."""
        return sorted(self.view.doubted)[: self._readvertise_to]

    def suspected_for_less_than(self, seconds: float) -> int:
        """How many nodes are suspected since so little time that they may just be cut off."""
        since = self._node.now - seconds
        event_of = self.view.event_of
        self.forget_before(since)
        self._suspected = {n: told for n, told in self._suspected.items() if event_of(n) == told[0]}
        still = []
        for at, nodes, events in self._told:
            same = self.view.events_at(nodes) == events
            still.append((at, nodes[same], events[same]))
        self._told = [lot for lot in still if len(lot[1])]
        return len(self._suspected) + sum(len(nodes) for _, nodes, _ in self._told)

    def forget_before(self, since: float) -> None:
        """It does not matter any more who was suspected before."""
        self._suspected = {n: told for n, told in self._suspected.items() if told[1] > since}
        self._told = [lot for lot in self._told if lot[0] > since]

    def refute_if_misrepresented(self, src: NodeId | None = None) -> None:
        """Say that the node is there, if others hold otherwise: first of all to `src`, which said so."""
        if not self.is_misrepresented:
            return
        self.come()
        is_calm = self._node.now - self._advertised_at >= CALM * self._readvertise_s
        to = self.random_set(self._advertise_to if is_calm else self._readvertise_to)
        if is_calm:
            self._advertised_at = self._node.now
        if src is not None and src not in to:
            to = (*to, src)
        self._node.send(to, self._joined())

    @property
    def is_misrepresented(self) -> bool:
        """Others suspect this node to be gone, or hold an event of it that it does not remember: it lost its
        disk."""
        return self.event < self.view.event_of(self._node.me) < EXPELLED

    def on_event_known(self, src: NodeId, event: int) -> None:
        """`src` shows which event of this node it knows; if that is an old one, it is told the newest.

        Without that, a node whose join was heard only by nodes that never get to send a model would be
        left out for ever.
        """
        if event == self.event:
            self.contacted = True
        elif event < self.event:
            self._node.send((src,), self._joined())
        elif self.is_wary and self._is_doubt(event) and not self._may_doubt(src):
            return
        elif event <= LAST and (self._is_doubt(event) or self._roster.is_own(self._node.me, event)):
            self.view.learn(self._node.me, event, self.bandwidth_bytes_per_s)
            self.refute_if_misrepresented(src)
        elif event <= LAST:
            # A number alone proves nothing; what the node has forgotten comes with its proof.
            self._node.send((src,), self.lacking.ask())

    def _may_doubt(self, src: NodeId) -> bool:
        """To refute takes a write to the disk and some messages: one member must not ask for many."""
        since, times = self._doubters.get(src, (self._node.now, 0))
        if self._node.now - since > CALM * self._readvertise_s:
            since, times = self._node.now, 0
        self._doubters[src] = since, times + 1
        return times < MOST_DOUBTS

    def _is_doubt(self, event: int) -> bool:
        """Whether this just says that the node is suspected to be gone."""
        return event == self.event + SUSPECTED - JOINED

    def on_readvertise(self, _: int) -> None:
        """Nobody showed that it heard: tell a few others, and ask them to answer.

        Every second try is addressed to anybody, for the case that all nodes believed online are gone.
        """
        if self.contacted:
            return
        self._attempts += 1
        to = self.random_set(self._readvertise_to, anybody=self._attempts % 2 == 0)
        self._node.send(to, self._joined())
        self._node.send(to, Ping(HEARD_ME, 0))
        self._node.set_timer(READVERTISE, self._readvertise_s)
        self._node.report(Readvertised(self._attempts))

    def _raise_counter(self, online: bool) -> None:
        """A new event of this node itself: the only place where its counter grows."""
        newest = max(self.counter, counter_of(self.view.event_of(self._node.me)))
        # Never reached by going on- and offline; but somebody may claim it.
        self.counter = min(newest + 1, MAX_COUNTER)
        self.event = event_number(self.counter, JOINED)
        me, event = self._node.me, event_number(self.counter, JOINED if online else LEFT)
        bandwidth_bytes_per_s = self.bandwidth_bytes_per_s if online else 0
        self.view.learn(me, event, bandwidth_bytes_per_s)
        self._proof = self._roster.sign(me, event, bandwidth_bytes_per_s, self.address)
        self._save()

    def _joined(self) -> Joined:
        return Joined(self.counter, self.bandwidth_bytes_per_s, self.address, self._proof)

    def random_set(self, size: int, anybody: bool = False) -> tuple[NodeId, ...]:
        """P: random nodes believed online; if there are too few, random others, which may be back."""
        me = self._node.me
        actives = NOBODY if anybody else self.view.online_nodes()
        actives = actives[actives != me]
        if len(actives) >= size:
            return tuple(actives[draw(self.rng, len(actives), size)].tolist())
        left_out = self.view.expelled()
        left_out[actives] = left_out[me] = True
        [others] = (~left_out).nonzero()
        missing = min(size - len(actives), len(others))
        return (*actives.tolist(), *others[draw(self.rng, len(others), missing)].tolist())
