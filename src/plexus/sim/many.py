"""What makes very many nodes affordable: they are made when they are needed, and their mail is kept for them.

Every message is sent, lost and accounted as among few nodes, and every node does the same at the same
moments. The digest is another one, since it covers what the kernel delivers, and mail is not among that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from plexus.protocol.api import Effect, Event, Node, Received
from plexus.protocol.messages import Joined, Left, NodeId
from plexus.protocol.view import JOINED, LEFT, event_number
from plexus.sim.kernel import Kernel

MANY = 4096
SPARSE = 16_384
"""From so many nodes on a dense view for each takes too much memory (see `protocol.sparse`)."""
MAIL = (Joined, Left)
"""Most of what is sent. A node takes note of it, and does nothing."""


class Unmade:
    """The place of a node that has not been online yet; its first event makes it."""

    __slots__ = ("_make", "_me", "_nodes")

    def __init__(self, me: NodeId, make: Callable[[NodeId], Node], nodes: list[Node]) -> None:
        self._me, self._make, self._nodes = me, make, nodes

    def handle(self, now: float, event: Event) -> list[Effect]:
        node = self._nodes[self._me] = self._make(self._me)
        return node.handle(now, event)


def made(make: Callable[[NodeId], Node], count: int) -> list[Node]:
    """So many nodes, at once or, of very many, each when it is needed."""
    if count < MANY:
        return [make(node) for node in range(count)]
    nodes: list[Node] = []
    nodes.extend(Unmade(node, make, nodes) for node in range(count))
    return nodes


def event_of(body: Joined | Left) -> tuple[int, int]:
    """What a view says of the sender of such a message: its event, and its bandwidth."""
    if isinstance(body, Joined):
        return event_number(body.counter, JOINED), body.bandwidth_bytes_per_s
    return event_number(body.counter, LEFT), 0


class Noted(NamedTuple):
    """A message that is kept for its receivers: who came or went."""

    src: NodeId
    event: int
    bandwidth_bytes_per_s: int
    received: Received


class Mail:
    """Who came and who went, of which nodes need not hear before something else happens to them.

    It arrives when it would, and what has not arrived when a node goes offline is lost. A node that heeds
    somebody hears of that one at once.
    """

    def __init__(self, kernel: Kernel, nodes: Sequence[Any]) -> None:
        self._kernel = kernel
        self._nodes = nodes
        self._boxes: list[list[tuple[float, Noted]]] = [[] for _ in nodes]
        self._heeds: dict[NodeId, NodeId] = {}
        """Who heeds whom."""

    def post(self, to: Sequence[NodeId], delays_s: Sequence[float], received: Received) -> None:
        now, boxes, src = self._kernel.now, self._boxes, received.src
        noted = Noted(src, *event_of(received.body), received)
        is_heeded = src in self._heeds.values()
        for node, delay_s in zip(to, delays_s, strict=True):
            if is_heeded and self._heeds.get(node) == src:
                self._kernel.at(now + delay_s, node, received)
            else:
                boxes[node].append((now + delay_s, noted))

    def read(self, node: NodeId) -> int:
        """Tell `node` what has come for it by now; how many bytes that was."""
        box = self._boxes[node]
        if not box:
            return 0
        now = self._kernel.now
        arrived = [noted for arrival_s, noted in box if arrival_s <= now]
        under_way = len(arrived) < len(box)
        self._boxes[node] = [mail for mail in box if mail[0] > now] if under_way else []
        self._nodes[node].take_note(arrived)
        return sum([noted[3].size_bytes for noted in arrived])

    def look_after(self, node: NodeId) -> None:
        """Something happened to `node`: if it heeds somebody now, what is under way from there is urgent."""
        heeded = self._nodes[node].heeds
        if heeded == self._heeds.get(node):
            return
        if heeded is None:
            del self._heeds[node]
            return
        self._heeds[node] = heeded
        box = self._boxes[node]
        for arrival_s, noted in box:
            if noted.src == heeded:
                self._kernel.at(arrival_s, node, noted.received)
        self._boxes[node] = [mail for mail in box if mail[1].src != heeded]

    def lose(self, node: NodeId) -> list[Received]:
        """`node` is gone: this does not reach it."""
        self._heeds.pop(node, None)
        box, self._boxes[node] = self._boxes[node], []
        return [noted.received for _, noted in box]
