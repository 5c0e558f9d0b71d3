"""The local view V_i = (E_i, B_i): who is online, and how well connected, as far as one node knows.

A view is a join-semilattice. Each node's newest event is one integer, `4 * counter + state`; the
larger integer is the newer event, so merging two views is an element-wise maximum: idempotent,
commutative and associative. Only its owner raises a counter, and others can only add that they suspect it
to be gone (joined < suspected < left), hence equal integers mean equal events. Whoever is suspected and there
refutes it by its next joined event.
A node's bandwidth belongs to its joined event and travels with it, also if that is suspected; with a
left event it is 0. The largest integer is nobody's event: it stands for a node that was expelled.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

Events = NDArray[np.uint32]
Bandwidths = NDArray[np.uint32]
JOINED, SUSPECTED, LEFT = 1, 2, 3
MAX_COUNTER = 2**30 - 2
LAST = 4 * MAX_COUNTER + JOINED
"""The last event that a node can have: somebody may claim large numbers of it, but not that it is gone for
good."""
EXPELLED = 2**32 - 1
"""Beyond the events of all counters, so no event replaces it."""
MAX_BANDWIDTH_BYTES_PER_S = 2**32 - 1
NOBODY = np.empty(0, np.intp)
NONE: frozenset[Any] = frozenset()
"""One for all nodes: Python makes each empty set anew, and a node has many."""
CHUNK, SOME = 256, 32
"""Nodes that are looked at together in the search for some that are online; of those whom others have online,
fewer."""


def event_number(counter: int, state: int) -> int:
    """An event as the one integer that views compare."""
    return min(4 * counter + state, LAST)


def counter_of(event: int) -> int:
    """The number that its node gave to an event."""
    return event >> 2


class Snapshot:
    """A view at one moment; immutable, so it can be shared by all who receive it."""

    __slots__ = ("_known", "_online", "bandwidths", "columns", "events", "is_signed", "name")

    def __init__(self, events: Events, bandwidths: Bandwidths, is_signed: bool = False) -> None:
        self.events = events
        self.bandwidths = bandwidths
        self.is_signed = is_signed
        """Whether each event travels with its proof."""
        self.name = b""
        """By which others know the same view, once somebody has asked (see `wire.name_of`)."""
        self.columns: list[bytes] = []
        """As it came, if it did: who passes it on must not change what the name stands for."""
        self._known: int | None = None
        self._online: tuple[NDArray[np.intp], Lazy] | None = None

    @property
    def size(self) -> int:
        """How many nodes it has room for."""
        return len(self.events)

    @property
    def whole(self) -> Snapshot:
        """All that the sender knows, as far as it has come."""
        return self

    @property
    def known(self) -> int:
        """How many nodes it says something about; event 0 says nothing and is not sent."""
        if self._known is None:
            self._known = int(np.count_nonzero(self.events))
        return self._known

    def event_of(self, node: int) -> int:
        """The newest event of `node` it knows; 0 says nothing."""
        return int(self.events[node]) if node < len(self.events) else 0

    def events_at(self, nodes: NDArray[np.intp]) -> Events:
        """The events of these, heard of or not."""
        try:
            return self.events[nodes]
        except IndexError:
            events = np.zeros(len(nodes), np.uint32)
            heard_of = nodes < len(self.events)
            events[heard_of] = self.events[nodes[heard_of]]
            return events

    def bandwidths_at(self, nodes: NDArray[np.intp]) -> Bandwidths:
        """Of these, who are heard of."""
        return self.bandwidths[nodes]

    def online_among(self, nodes: list[int]) -> list[int]:
        """Those of these nodes, all heard of, that it has online."""
        event_of = self.events.data
        return [node for node in nodes if event_of[node] & 3 == JOINED]

    def online_in(self, order: NDArray[np.intp]) -> Lazy:
        """Those online in this order of all nodes. All who train for a round ask the same of one snapshot."""
        if self._online is None or self._online[0] is not order:
            self._online = order, Lazy(_online(order, self))
        return self._online[1]

    def beyond(self, other: Snapshot) -> NDArray[np.intp]:
        """The nodes, in order, of which it says something else than `other`."""
        events = self.events
        before = other.events if len(other.events) == len(events) else other.events_at(np.arange(len(events)))
        apart: NDArray[np.intp] = (events != before).nonzero()[0]
        return apart[events[apart] > 0]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Snapshot):
            return NotImplemented
        return np.array_equal(self.events, other.events) and np.array_equal(self.bandwidths, other.bandwidths)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Snapshot({self.known} nodes)"


class Excerpt(Snapshot):
    """A view as it travels where only what the receiver lacks is sent: what differs from another view, which
    the receiver has; or all."""

    __slots__ = ("_told", "base", "size_bytes", "whole")
    whole: Snapshot

    def __init__(self, whole: Snapshot, base: bytes = b"", told: NDArray[np.intp] | None = None) -> None:
        """`base` is the name of that other view, and `told` are the nodes of which the two differ. On the way
        the rest is lost: then `whole` is what was told."""
        self.whole, self.base, self._told = whole, base, told
        self.is_signed = whole.is_signed
        self._known = self._online = None
        self.size_bytes = 0
        """On the wire, once somebody has asked."""

    @classmethod
    def of(cls, whole: Snapshot, base: Snapshot | None) -> Excerpt:
        """Of what differs from `base`, which has a name."""
        return cls(whole) if base is None else cls(whole, base.name, whole.beyond(base))

    @property
    def events(self) -> Events:  # type: ignore[override]
        return self.whole.events

    @property
    def bandwidths(self) -> Bandwidths:  # type: ignore[override]
        return self.whole.bandwidths

    def event_of(self, node: int) -> int:
        return self.whole.event_of(node)

    def events_at(self, nodes: NDArray[np.intp]) -> Events:
        return self.whole.events_at(nodes)

    @property
    def told(self) -> NDArray[np.intp]:
        """The nodes of which it says something."""
        return np.flatnonzero(self.events) if self._told is None else self._told

    def on(self, base: Snapshot | None) -> Snapshot:
        """What its sender knows, for somebody who has `base`; what was told, for who has not."""
        if not self.base or (base is not None and self._told is not None):
            return self.whole
        size = max(len(self.events), 0 if base is None else len(base.events))
        events, bandwidths = np.zeros(size, np.uint32), np.zeros(size, np.uint32)
        if base is not None:
            events[: len(base.events)], bandwidths[: len(base.events)] = base.events, base.bandwidths
        events[self.told], bandwidths[self.told] = self.events[self.told], self.bandwidths[self.told]
        return Snapshot(events, bandwidths, self.is_signed)


class View:
    """One node's knowledge; grows when it hears of more nodes."""

    __slots__ = ("_bandwidth_of", "_bandwidths", "_event_of", "_events", "_snapshot", "doubted", "is_signed")

    def __init__(self, snapshot: Snapshot) -> None:
        self._adopt(snapshot.events, snapshot.bandwidths)
        self.is_signed = snapshot.is_signed
        self._snapshot: Snapshot | None = snapshot
        self.doubted: frozenset[int] = NONE
        """Nodes that one member alone suspects to be gone: they are asked last."""

    @classmethod
    def of(cls, size: int, joined: Iterable[tuple[int, int]] = (), is_signed: bool = False) -> View:
        """A view of `size` nodes in which `joined` (node, bandwidth) are online by their first event."""
        view = cls(Snapshot(np.zeros(size, np.uint32), np.zeros(size, np.uint32), is_signed))
        for node, bandwidth_bytes_per_s in joined:
            view.learn(node, event_number(1, JOINED), bandwidth_bytes_per_s)
        return view

    def __len__(self) -> int:
        return len(self._events)

    def learn(self, node: int, event: int, bandwidth_bytes_per_s: int = 0) -> bool:
        """Record an event if it is newer than the one known; say whether it was.

        This, `note` and `merge` are the only places where events are compared.
        """
        if node >= len(self._events):
            self.grow(node + 1)
        if event <= self._event_of[node]:
            return False
        self._write()
        if self.doubted:
            self.doubted -= {node}
        self._event_of[node] = event
        self._bandwidth_of[node] = bandwidth_bytes_per_s
        return True

    def note(self, heard: Collection[tuple[int, int, int, object]]) -> None:
        """Learn (node, event, bandwidth) of each; what comes after that is of no concern."""
        event_of, bandwidth_of = self._event_of, self._bandwidth_of
        try:
            for node, event, bandwidth_bytes_per_s, _ in heard:
                if event > event_of[node]:
                    if self._snapshot is not None:
                        self._write()
                        event_of, bandwidth_of = self._event_of, self._bandwidth_of
                    event_of[node] = event
                    bandwidth_of[node] = bandwidth_bytes_per_s
                    if self.doubted:
                        self.doubted -= {node}
        except IndexError:  # of somebody new
            self.grow(1 + max(told[0] for told in heard))
            self.note(heard)

    def merge(self, other: Snapshot) -> NDArray[np.intp]:
        """Adopt every newer event of `other`; these are the nodes of which there was one."""
        if other is self._snapshot:
            return NOBODY
        if len(other.events) > len(self._events):
            self.grow(len(other.events))
        size = len(other.events)
        [news] = (other.events > self._events[:size]).nonzero()
        if not len(news):
            return NOBODY
        self._write()
        self._events[news] = other.events[news]
        self._bandwidths[news] = other.bandwidths[news]
        if self.doubted:
            self.doubted = self.doubted.difference(news.tolist())
        return news

    def suspect(self, node: int) -> bool:
        """Take `node` as gone, until it shows that it is not; say whether it was taken as online."""
        if not self.is_online(node) or self.event_of(node) == LAST:
            return False
        return self.learn(node, self.event_of(node) + SUSPECTED - JOINED, self.bandwidth_of(node))

    def doubt(self, node: int) -> None:
        """Ask `node` last, until there is news of it."""
        if self.is_online(node):
            self.doubted |= {node}

    def trust(self, node: int) -> None:
        """`node` was heard: whoever doubts that it is there is wrong."""
        if self.doubted:
            self.doubted -= {node}

    def events_at(self, nodes: NDArray[Any]) -> Events:
        """The events of these, who are all heard of."""
        events: Events = self._events[nodes]
        return events

    def events_of_first(self, size: int) -> Events:
        """The events of the first `size` nodes, heard of or not. Not to be changed."""
        if size > len(self):
            self.grow(size)
        return self._events[:size]

    def snapshot(self) -> Snapshot:
        """The view as it is now. Costs nothing until the view changes again (copy on write)."""
        if self._snapshot is None:
            self._snapshot = Snapshot(self._events, self._bandwidths, self.is_signed)
        return self._snapshot

    def online(self) -> NDArray[np.bool_]:
        """A mask over all nodes: whose newest event is joined."""
        is_online: NDArray[np.bool_] = (self._events & 3) == JOINED
        return is_online

    def online_in(self, order: NDArray[np.intp], known: Snapshot | None = None) -> Sequence[int]:
        """Those online in this order of all nodes: of those that `known` has online too, if there are any."""
        mine = self.snapshot()
        return Lazy(_online(order, mine) if known is None else _online_too(order, mine, known))

    def suspected(self) -> NDArray[np.bool_]:
        """A mask over all nodes: who is taken as gone without having said so."""
        return np.asarray((self._events & 3) == SUSPECTED, np.bool_)

    @property
    def has_suspects(self) -> bool:
        return bool(np.count_nonzero(self.suspected()))

    def expelled(self) -> NDArray[np.bool_]:
        """A mask over all nodes: who will not come back."""
        return np.equal(self._events, EXPELLED)

    def online_count(self) -> int:
        """How many nodes are online, as far as this view knows."""
        return int(np.count_nonzero(self.online()))

    def actives(self) -> list[int]:
        """The nodes whose newest event is joined (the paper's Actives)."""
        return [*self.online_nodes().tolist()]

    def online_nodes(self) -> NDArray[np.intp]:
        """The same as an array."""
        return self.online().nonzero()[0]

    def is_online(self, node: int) -> bool:
        return self.event_of(node) & 3 == JOINED

    def is_suspected(self, node: int) -> bool:
        return self.event_of(node) & 3 == SUSPECTED

    def event_of(self, node: int) -> int:
        try:
            return self._event_of[node]
        except IndexError:  # not heard of
            return 0

    def bandwidth_of(self, node: int) -> int:
        """The paper's B_i[node], in bytes per second."""
        try:
            return self._bandwidth_of[node]
        except IndexError:
            return 0

    def grow(self, size: int) -> None:
        """Make room for nodes heard of since."""
        events, bandwidths = np.zeros(size, np.uint32), np.zeros(size, np.uint32)
        events[: len(self._events)] = self._events
        bandwidths[: len(self._events)] = self._bandwidths
        self._adopt(events, bandwidths)
        self._snapshot = None

    def _write(self) -> None:
        """Before a change: leave the shared arrays to the snapshot and go on with copies."""
        if self._snapshot is not None:
            self._adopt(self._events.copy(), self._bandwidths.copy())
            self._snapshot = None

    def _adopt(self, events: Events, bandwidths: Bandwidths) -> None:
        # A memoryview reads and writes single elements several times faster than the array itself.
        self._events, self._bandwidths = events, bandwidths
        self._event_of, self._bandwidth_of = events.data, bandwidths.data


class Lazy(Sequence[int]):
    """A sequence that is found as far as somebody looks: of very many candidates few are ever asked."""

    def __init__(self, chunks: Iterable[Sequence[int]]) -> None:
        self._found: list[int] = []
        self._rest = iter(chunks)

    def __len__(self) -> int:
        self._found.extend(chain.from_iterable(self._rest))
        return len(self._found)

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice) and at.stop is None:
            return Lazy([node] for node in islice(self, at.start, None))
        end = at.stop if isinstance(at, slice) else at + 1
        while len(self._found) < end:
            chunk = next(self._rest, None)
            if chunk is None:
                break
            self._found += chunk
        return self._found[at]


def _online(order: NDArray[np.intp], view: Snapshot) -> Iterator[list[int]]:
    """Those whom this view has online, some at a time."""
    for at in range(0, len(order), CHUNK):
        nodes = order[at : at + CHUNK]
        yield nodes[view.events_at(nodes) & 3 == JOINED].tolist()


def _online_too(order: NDArray[np.intp], mine: Snapshot, known: Snapshot) -> Iterator[list[int]]:
    among, at, nobody = known.online_in(order), 0, True
    while some := among[at : at + SOME]:
        at += SOME
        nodes = mine.online_among(some)
        nobody &= not nodes
        yield nodes
    if nobody:
        yield from _online(order, mine)
