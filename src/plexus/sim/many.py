"""What makes very many nodes affordable: they are made when they are needed, and their mail is kept for them.

Every message is sent, lost and accounted as if it were delivered when it arrives, every node does the same at
the same moments, and the digest is the same.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from msgspec import Struct

from plexus.protocol.api import Effect, Event, Node, Received
from plexus.protocol.messages import Joined, Left, NodeId
from plexus.protocol.view import JOINED, LEFT, Snapshot, View, event_number
from plexus.sim.kernel import Kernel, Token

MANY = 4096
SPARSE = 16_384
"""From so many nodes on a dense view for each takes too much memory (see `protocol.sparse`)."""
MAIL = (Joined, Left)
"""Most of what is sent. A node takes note of it, and does nothing."""
PACK_EVERY_S = 900.0
Delay: TypeAlias = Callable[[NodeId, NodeId], float]


class Unmade(NamedTuple):
    """The place of a node that has not been online yet; its first event makes it."""

    me: NodeId
    make: Callable[[NodeId], Node]
    nodes: list[Node]

    def handle(self, now: float, event: Event) -> list[Effect]:
        node = self.nodes[self.me] = self.make(self.me)
        return node.handle(now, event)


def made(make: Callable[[NodeId], Node], count: int) -> list[Node]:
    """So many nodes, at once or, of very many, each when it is needed."""
    if count < MANY:
        return [make(node) for node in range(count)]
    nodes: list[Node] = []
    nodes.extend(Unmade(node, make, nodes) for node in range(count))
    return nodes


class RestingView(View):
    """A view that takes little memory while its node is away, which may be for long."""

    __slots__ = ("_apart", "_first")

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(snapshot)
        self._first = snapshot

    def rest(self) -> None:
        """Keep just what differs from the view it began with, as all others did, until somebody asks."""
        apart = (self._events != self._first.events) | (self._bandwidths != self._first.bandwidths)
        if 3 * np.count_nonzero(apart) > 2 * len(apart):  # then it would take more
            return
        self._apart = apart.nonzero()[0].astype(np.uint32), self._events[apart], self._bandwidths[apart]
        self._snapshot = None
        del self._events, self._bandwidths, self._event_of, self._bandwidth_of
        self.__class__ = Asleep  # alone, since with `__getattr__` all attributes are found more slowly


class Asleep(RestingView):
    __slots__ = ()  # it wakes when somebody asks for what has been put away

    def __getattr__(self, name: str) -> Any:
        if name not in ("_events", "_bandwidths", "_event_of", "_bandwidth_of"):
            raise AttributeError(name)
        apart, events, bandwidths = self._apart
        self._adopt(self._first.events.copy(), self._first.bandwidths.copy())
        self._events[apart], self._bandwidths[apart] = events, bandwidths
        del self._apart
        self.__class__ = RestingView  # type: ignore[assignment]
        return getattr(self, name)


class Letter(Struct, frozen=True, gc=False):
    """What is kept for its receivers."""

    received: Received
    sent_s: float
    to: array[int]
    first: Token
    """Of the kernel's tokens those from here on stand for the arrivals at `to`."""


Noted: TypeAlias = tuple[NodeId, int, int, Letter]
"""Who came or went, its event and bandwidth, as a view notes it; and how that is told. A plain tuple is taken
apart much faster than one with names."""


class Mail:
    """Who came and who went, of which nodes need not hear before something else happens to them.

    It arrives when it would: the kernel knows of it, and delivers what cannot wait. A node that heeds
    somebody hears of that one at once, and what reaches a node after it has gone is lost, unless it is back.
    """

    def __init__(
        self, kernel: Kernel, nodes: Sequence[Any], online: Sequence[bool], delay_s: Delay, longest_s: float
    ) -> None:
        self._kernel = kernel
        self._nodes, self._online = nodes, online
        self._packed_s = 0.0
        self._delay_s, self._longest_s = delay_s, longest_s + 1e-6  # more than is lost by rounding
        self.boxes: list[list[Noted]] = [[] for _ in nodes]
        """In the order in which it was sent."""
        self._heeds: dict[NodeId, NodeId] = {}
        """Who heeds whom."""

    def post(self, to: Sequence[NodeId], received: Received) -> None:
        src, targets = received.src, array("i", to)
        letter = Letter(received, self._kernel.now, targets, self._kernel.announce(src, targets))
        body = received.body
        event = event_number(body.counter, JOINED if isinstance(body, Joined) else LEFT)
        noted = (src, event, getattr(body, "bandwidth_bytes_per_s", 0), letter)
        for box in map(self.boxes.__getitem__, to):
            box.append(noted)
        if src in self._heeds.values():
            for node in [node for node in to if self._heeds.get(node) == src]:
                self._hurry(node, [noted])

    def read(self, node: NodeId) -> int:
        """Tell `node` what has come for it by now; how many bytes that was."""
        arrived = self._arrived(node)
        if not arrived:
            return 0
        self._nodes[node].membership.view.note(arrived)
        return sum([noted[3].received.size_bytes for noted in arrived])

    def look_after(self, node: NodeId) -> None:
        """Something happened to `node`: if it heeds somebody now, what is under way from there is urgent."""
        heeded = self._nodes[node].heeds
        if heeded == self._heeds.get(node):
            return
        if heeded is None:
            del self._heeds[node]
            return
        self._heeds[node] = heeded
        self._hurry(node, [noted for noted in self.boxes[node] if noted[0] == heeded])

    def forget(self, node: NodeId) -> None:
        """`node` is gone: what has not reached it is on its own."""
        if isinstance(view := self._nodes[node].membership.view, RestingView):
            view.rest()
        elif self._kernel.now >= self._packed_s + PACK_EVERY_S:
            self._pack()
        self._heeds.pop(node, None)
        self._hurry(node, self.boxes[node])

    def _pack(self) -> None:
        """Let what only those know who are away take little memory."""
        self._packed_s = self._kernel.now
        made = [node for node in self._nodes if not isinstance(node, Unmade)]
        for node in made:
            node.membership.forget_before(self._kernel.now - node.membership.suspicion_s)
        used = {layer for node in made if self._online[node.me] for layer in node.membership.view.layers}
        away = [node.membership for node in made if not self._online[node.me]]
        for each in away:
            each.rng.rest()
        for snapshot in [known for each in away for known in (each.view.snapshot(), *each.lacking.kept)]:
            for layer in set(snapshot.layers) - used:
                layer.pack(snapshot.base.usual)

    def _hurry(self, node: NodeId, urgent: list[Noted]) -> None:
        self.boxes[node] = [noted for noted in self.boxes[node] if noted not in urgent]
        for noted in urgent:
            arrival_s, token = self._arrival_s(node, noted), self._token(node, noted)
            self._kernel.hand_over(arrival_s, token, node, noted[3].received)

    def _arrived(self, node: NodeId) -> list[Noted]:
        """Taken out of the box."""
        box, since_s = self.boxes[node], self._kernel.now - self._longest_s
        kept: list[Noted] = []
        self.boxes[node] = kept
        if not box or box[-1][3].sent_s < since_s:  # as most often: all has been under way for long enough
            return box
        at = bisect_left(box, since_s, key=lambda noted: noted[3].sent_s)
        arrived = box[:at]
        for noted in box[at:]:
            (arrived if self._has_come(node, noted) else kept).append(noted)
        return arrived

    def _has_come(self, node: NodeId, noted: Noted) -> bool:
        arrival_s, now = self._arrival_s(node, noted), self._kernel.now
        return arrival_s < now or (arrival_s == now and self._token(node, noted) < self._kernel.token)

    def _arrival_s(self, node: NodeId, noted: Noted) -> float:
        return noted[3].sent_s + self._delay_s(noted[0], node)

    @staticmethod
    def _token(node: NodeId, noted: Noted) -> Token:
        letter = noted[3]
        return letter.first + letter.to.index(node)
