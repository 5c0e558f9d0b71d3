"""Joining, leaving, and knowing who is there (the paper's section III-E)."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Protocol

from plexus.protocol.api import Expelled
from plexus.protocol.facts import Readvertised
from plexus.protocol.machine import Machine
from plexus.protocol.messages import NO_ADDRESS, Joined, Left, NodeId, Ping
from plexus.protocol.view import EXPELLED, JOINED, LEFT, MAX_COUNTER, Snapshot, View, counter_of, event_number

READVERTISE = ("readvertise", 0)
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


class Membership:
    """The node's own counter and local view, and the advertisements that spread them."""

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
    ) -> None:
        """`save` puts the counter on disk, before anybody hears of it."""
        self._node = node
        self._save = save
        self._address = address
        self._advertise_to = parameters.advertise_to
        self._readvertise_to = parameters.readvertise_to
        self._readvertise_s = parameters.readvertise_s
        self._rng = rng
        self._attempts = 0
        self.view = view
        self.bandwidth_bytes_per_s = bandwidth_bytes_per_s
        self.counter = counter
        self.contacted = False
        """Somebody contacted this node since it joined, or said that it heard of that."""

    def join(self) -> None:
        """Tell a random set P that the node is online; again later if nobody shows that it heard."""
        self._raise_counter(online=True)
        self.contacted = False
        self._attempts = 0
        self._node.send(self._random_set(self._advertise_to), self._joined())
        self._node.set_timer(READVERTISE, self._readvertise_s)

    def advertise_again(self) -> None:
        """Tell a few that the node is online, without a sign that nobody heard."""
        self._node.send(self._random_set(self._readvertise_to), self._joined())

    def leave(self) -> None:
        """Tell a random set P that the node goes offline."""
        self._raise_counter(online=False)
        self._node.send(self._random_set(self._advertise_to), Left(self.counter))

    def on_joined(self, src: NodeId, joined: Joined) -> None:
        self.view.learn(src, event_number(joined.counter, JOINED), joined.bandwidth_bytes_per_s)

    def on_left(self, src: NodeId, left: Left) -> None:
        self.view.learn(src, event_number(left.counter, LEFT))

    def on_expelled(self, expelled: Expelled) -> None:
        self.view.learn(expelled.node, EXPELLED)

    def merge(self, snapshot: Snapshot) -> None:
        """Adopt what a sender knew."""
        self.view.merge(snapshot)
        self.refute_if_misrepresented()

    def refute_if_misrepresented(self) -> None:
        if self.is_misrepresented:
            self.join()

    @property
    def is_misrepresented(self) -> bool:
        """Others hold an event of this node that it does not remember: it lost its disk."""
        return event_number(self.counter, JOINED) < self.view.event_of(self._node.me) < EXPELLED

    def counter_of(self, node: NodeId) -> int:
        """The number of the newest event known of `node`."""
        return counter_of(self.view.event_of(node))

    def on_counter_known(self, src: NodeId, counter: int) -> None:
        """`src` shows which event of this node it knows; if that is an old one, it is told the newest.

        Without that, a node whose join was heard only by nodes that never get to send a model would be
        left out for ever.
        """
        if counter == self.counter:
            self.contacted = True
        elif counter > self.counter:
            self.view.learn(self._node.me, event_number(counter, JOINED), self.bandwidth_bytes_per_s)
        else:
            self._node.send((src,), self._joined())

    def on_readvertise(self, _: int) -> None:
        """Nobody showed that it heard: tell a few others, and ask them to answer.

        Every second try is addressed to anybody, for the case that all nodes believed online are gone.
        """
        if self.contacted:
            return
        self._attempts += 1
        to = self._random_set(self._readvertise_to, anybody=self._attempts % 2 == 0)
        self._node.send(to, self._joined())
        self._node.send(to, Ping(HEARD_ME, 0))
        self._node.set_timer(READVERTISE, self._readvertise_s)
        self._node.report(Readvertised(self._attempts))

    def _raise_counter(self, online: bool) -> None:
        """A new event of this node itself: the only place where its counter grows."""
        newest = max(self.counter, counter_of(self.view.event_of(self._node.me)))
        # Never reached by going on- and offline; but somebody may claim it.
        self.counter = min(newest + 1, MAX_COUNTER)
        bandwidth_bytes_per_s = self.bandwidth_bytes_per_s if online else 0
        self.view.learn(
            self._node.me, event_number(self.counter, JOINED if online else LEFT), bandwidth_bytes_per_s
        )
        self._save()

    def _joined(self) -> Joined:
        return Joined(self.counter, self.bandwidth_bytes_per_s, self._address)

    def _random_set(self, size: int, anybody: bool = False) -> tuple[NodeId, ...]:
        """P: random nodes believed online; if there are too few, random others, which may be back."""
        online = self.view.online()
        if anybody:
            online[:] = False
        online[self._node.me] = False
        actives: list[NodeId] = online.nonzero()[0].tolist()
        if len(actives) >= size:
            return tuple(self._rng.sample(actives, size))
        online[self._node.me] = True
        online |= self.view.expelled()
        others: list[NodeId] = (~online).nonzero()[0].tolist()
        missing = min(size - len(actives), len(others))
        return (*actives, *self._rng.sample(others, missing))
