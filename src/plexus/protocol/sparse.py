"""Views of many thousand nodes: what one node knows differs little from what it was once told.

A dense view has eight bytes for each node of the session, and as many nodes have one: memory grows with the
square. Here a view is a dense one that is shared, and what differs from it: layers of sorted entries, the
older shared too, and a few newest entries of its own. Who takes over a view shares its base and its layers.
Where a layer says something of a node, it replaces what is beneath, be that older or newer: any view can be
told on any base, and all laws of `view` hold as they are.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from plexus.protocol.view import JOINED, NOBODY, Bandwidths, Events, Snapshot, View

LAST_LAYER = 64
BOTH_LAYERS = 16
"""The newest entries become part of the shared layer when they are more than this part of all nodes, and
another base is taken when the layer is."""


class SharedBase:
    """A dense view; immutable."""

    def __init__(self, events: Events, bandwidths: Bandwidths, before: SharedBase | None = None) -> None:
        self.events, self.bandwidths = events, bandwidths
        self.event_of, self.bandwidth_of = events.data, bandwidths.data
        self._newest: list[SharedBase] = [] if before is None else before._newest
        """The last that was made after the same first one."""
        self._newest[:] = [self]

    def near(self, view: Snapshot) -> tuple[SharedBase, Layer]:
        """For a view that has become too different: the newest base, and what differs from that. Only who
        knows much that is not in it makes a newer one: those who hear little need none of their own."""
        events, bandwidths = view.events, view.bandwidths
        base = self._newest[0]
        if len(base.events) == len(events):
            ahead = np.count_nonzero(events > base.events)
            if ahead * BOTH_LAYERS < len(events):
                [apart] = ((base.events != events) | (base.bandwidths != bandwidths)).nonzero()
                return base, Layer(apart.astype(np.uint32), events[apart], bandwidths[apart])
        return SharedBase(events, bandwidths, before=base), EMPTY

    @cached_property
    def actives(self) -> NDArray[np.intp]:
        return np.flatnonzero((self.events & 3) == JOINED)

    @cached_property
    def rank(self) -> NDArray[np.int32]:
        """The place of each node among the actives, below 0 if it has none."""
        rank = np.full(len(self.events), -1, np.int32)
        rank[self.actives] = np.arange(len(self.actives))
        return rank


@lru_cache(64)
def _apart(base: SharedBase, other: SharedBase) -> NDArray[np.intp]:
    """The nodes of which the two have different events; there are few bases, and many to compare."""
    return NOBODY if base is other else np.flatnonzero(base.events != other.events)


class Layer:
    """Some nodes, sorted, and the events that replace those of the base; immutable."""

    __slots__ = ("at", "bandwidths", "events", "places")

    def __init__(self, at: NDArray[np.uint32], events: Events, bandwidths: Bandwidths) -> None:
        self.at, self.events, self.bandwidths = at, events, bandwidths
        self.places = at.data
        """A memoryview reads single elements several times faster than the array itself."""

    @classmethod
    def of(cls, own: dict[int, int]) -> Layer:
        """From packed entries (see `SparseView`), in any order."""
        at = np.fromiter(own.keys(), np.uint32, len(own))
        entries = np.fromiter(own.values(), np.uint64, len(own))
        order = np.argsort(at)
        entries = entries[order]
        return cls(at[order], (entries >> np.uint64(32)).astype(np.uint32), entries.astype(np.uint32))

    def __len__(self) -> int:
        return len(self.at)

    def places_of(self, nodes: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Which of these nodes are among its own, and where."""
        if not len(self):
            return NOBODY, NOBODY
        places = np.minimum(self.at.searchsorted(nodes.astype(np.uint32)), len(self) - 1)
        [here] = (self.at[places] == nodes).nonzero()
        return here, places[here]

    def under(self, newer: Layer) -> Layer:
        """Both in one, the entries of `newer` in place of others of the same nodes."""
        if not len(self) or not len(newer):
            return newer if len(newer) else self
        at = np.concatenate([self.at, newer.at])
        order = np.argsort(at, kind="stable")  # two sorted runs: in linear time
        at = at[order]
        last = np.append(at[1:] != at[:-1], True)
        chosen = order[last]
        return Layer(
            at[last],
            np.concatenate([self.events, newer.events])[chosen],
            np.concatenate([self.bandwidths, newer.bandwidths])[chosen],
        )


EMPTY = Layer(np.empty(0, np.uint32), np.empty(0, np.uint32), np.empty(0, np.uint32))


class SparseSnapshot(Snapshot):
    """A base and two layers."""

    __slots__ = ("_online_count", "base", "layers")

    def __init__(self, base: SharedBase, layers: tuple[Layer, Layer], is_signed: bool) -> None:
        self.base = base
        self.layers = layers
        self._online_count: int | None = None
        self.is_signed = is_signed
        self.name, self.columns = b"", []
        self._known = self._online = None

    @property
    def events(self) -> Events:  # type: ignore[override]
        """Of all nodes; made for whoever asks."""
        events = self.base.events.copy()
        for layer in self.layers:
            events[layer.at] = layer.events
        return events

    @property
    def bandwidths(self) -> Bandwidths:  # type: ignore[override]
        bandwidths = self.base.bandwidths.copy()
        for layer in self.layers:
            bandwidths[layer.at] = layer.bandwidths
        return bandwidths

    @property
    def size(self) -> int:
        return len(self.base.events)

    def online_nodes(self) -> NDArray[np.intp]:
        """As of a view. Those of the base, less who has left since, and who has joined since."""
        left, joined = self._changes()
        stays = np.ones(len(self.base.actives), np.bool_)
        stays[left] = False
        actives = np.concatenate([self.base.actives[stays], joined])
        actives.sort(kind="stable")
        return actives

    def online_count(self) -> int:
        """As of a view."""
        if self._online_count is None:
            left, joined = self._changes()
            self._online_count = len(self.base.actives) - len(left) + len(joined)
        return self._online_count

    def _changes(self) -> tuple[NDArray[np.int32], NDArray[np.uint32]]:
        """Of those that the base has online, who has left since, by its rank; and who has joined since."""
        changed = self.layers[0].under(self.layers[1])
        joined = (changed.events & 3) == JOINED
        rank = self.base.rank[changed.at]
        return rank[(rank >= 0) & ~joined], changed.at[(rank < 0) & joined]

    def apart(self, other: Snapshot) -> NDArray[np.intp]:
        """Among these are all nodes of which the two have different events."""
        if not isinstance(other, SparseSnapshot) or self.size != other.size:
            return np.arange(other.size)
        own = [layer.at for layer in self.layers if layer not in other.layers]
        others = [layer.at for layer in other.layers if layer not in self.layers]
        return np.concatenate([_apart(self.base, other.base), *own, *others])

    def beyond(self, other: Snapshot) -> NDArray[np.intp]:
        if not isinstance(other, SparseSnapshot) or self.size != other.size:
            return super().beyond(other)
        apart = _distinct(self.apart(other))
        is_beyond: NDArray[np.bool_] = self.events_at(apart) != other.events_at(apart)
        return apart[is_beyond]

    def events_at(self, nodes: NDArray[np.intp]) -> Events:
        is_many = len(nodes) > self.size // LAST_LAYER  # then all are written down sooner
        events = self.events if is_many else self.base.events
        found = Snapshot(events, self.base.bandwidths).events_at(nodes)
        for layer in () if is_many else self.layers:
            here, places = layer.places_of(nodes)
            found[here] = layer.events[places]
        return found

    def online_among(self, nodes: list[int]) -> list[int]:
        events = self.events_at(np.array(nodes, np.intp)).tolist()
        return [node for node, event in zip(nodes, events, strict=True) if event & 3 == JOINED]

    def bandwidths_at(self, nodes: NDArray[np.intp]) -> Bandwidths:
        if len(nodes) > self.size // LAST_LAYER:
            return self.bandwidths[nodes]
        found = self.base.bandwidths[nodes]
        for layer in self.layers:
            here, places = layer.places_of(nodes)
            found[here] = layer.bandwidths[places]
        return found

    def event_of(self, node: int) -> int:
        return SparseView(self).event_of(node)


class SparseView(View):
    """One node's knowledge as a base, two layers, and entries `event << 32 | bandwidth` by node."""

    __slots__ = ("_base", "_layers", "_own")

    def __init__(self, snapshot: Snapshot) -> None:
        if isinstance(snapshot, SparseSnapshot):
            self._base, self._layers = snapshot.base, snapshot.layers
        else:
            self._base, self._layers = SharedBase(snapshot.events, snapshot.bandwidths), (EMPTY, EMPTY)
        self._own: dict[int, int] = {}
        self.is_signed = snapshot.is_signed
        self._snapshot: SparseSnapshot | None = snapshot if isinstance(snapshot, SparseSnapshot) else None
        self.doubted: set[int] = set()

    def __len__(self) -> int:
        return len(self._base.events)

    @property
    def _events(self) -> Events:  # type: ignore[override]
        return self.snapshot().events

    def learn(self, node: int, event: int, bandwidth_bytes_per_s: int = 0) -> bool:
        if node >= len(self):
            self.grow(node + 1)
        if event <= self.event_of(node):
            return False
        self._snapshot = None
        self.doubted.discard(node)
        self._own[node] = event << 32 | bandwidth_bytes_per_s
        return True

    def note(self, heard: Collection[tuple[int, int, int, object]]) -> None:
        if self.doubted:
            for node, event, bandwidth_bytes_per_s, _ in heard:
                self.learn(node, event, bandwidth_bytes_per_s)
            return
        own = self._own
        for node, event, bandwidth_bytes_per_s, _ in heard:
            if event > own.get(node, 0) >> 32:
                # Whether it is newer than what is beneath will be seen when that matters.
                own[node] = event << 32 | bandwidth_bytes_per_s
        self._snapshot = None

    def merge(self, other: Snapshot) -> NDArray[np.intp]:
        """As of a dense view. Of two bases the one that leaves fewer differences is kept."""
        mine = self.snapshot()
        if other is mine:
            return NOBODY
        if other.size > len(self):
            self.grow(other.size)
            mine = self.snapshot()
        apart = mine.apart(other)
        told, held = other.events_at(apart), mine.events_at(apart)
        news = _distinct(apart[told > held])
        if not len(news):
            return NOBODY
        newer = _layer(other, news)
        if isinstance(other, SparseSnapshot) and other.size == mine.size:
            ahead = _distinct(apart[held > told])
            if len(ahead) < len(news):
                self._base, self._layers = other.base, other.layers
                newer = _layer(mine, ahead)
        self._add(newer)
        self._snapshot = None
        if self.doubted:
            self.doubted.difference_update(news.tolist())
        return news

    def snapshot(self) -> SparseSnapshot:
        if self._snapshot is None:
            if self._own:
                self._add(self._newer())
                self._own = {}
            self._snapshot = SparseSnapshot(self._base, self._layers, self.is_signed)
        return self._snapshot

    def _add(self, newer: Layer) -> None:
        first, last = self._layers
        last = last.under(newer)
        if len(last) > len(self) // LAST_LAYER:
            first, last = first.under(last), EMPTY
            if len(first) > len(self) // BOTH_LAYERS:
                self._base, first = self._base.near(SparseSnapshot(self._base, (first, last), self.is_signed))
        self._layers = first, last

    def _newer(self) -> Layer:
        """Of its own entries those that are newer than what is beneath."""
        noted = Layer.of(self._own)
        known = SparseSnapshot(self._base, self._layers, self.is_signed).events_at(noted.at.astype(np.intp))
        newer = noted.events > known
        return Layer(noted.at[newer], noted.events[newer], noted.bandwidths[newer])

    def online_nodes(self) -> NDArray[np.intp]:
        return self.snapshot().online_nodes()

    def online_count(self) -> int:
        return self.snapshot().online_count()

    def event_of(self, node: int) -> int:
        return self._entry(node) >> 32

    def bandwidth_of(self, node: int) -> int:
        return self._entry(node) & 0xFFFFFFFF

    def _entry(self, node: int) -> int:
        noted = self._own.get(node, 0)
        first, last = self._layers
        at = bisect_left(last.places, node)
        if at == len(last.places) or last.places[at] != node:
            last = first
            at = bisect_left(first.places, node)
        if at < len(last.places) and last.places[at] == node:
            known = int(last.events[at]) << 32 | int(last.bandwidths[at])
        elif node < len(self._base.event_of):
            known = self._base.event_of[node] << 32 | self._base.bandwidth_of[node]
        else:
            known = 0
        return noted if noted >> 32 > known >> 32 else known

    def grow(self, size: int) -> None:
        whole = View(self.snapshot())
        whole.grow(size)
        grown = whole.snapshot()
        self._base, self._layers = SharedBase(grown.events, grown.bandwidths), (EMPTY, EMPTY)
        self._snapshot = None


def _layer(view: Snapshot, nodes: NDArray[np.intp]) -> Layer:
    """What it says of these nodes, which are sorted."""
    return Layer(nodes.astype(np.uint32), view.events_at(nodes), view.bandwidths_at(nodes))


def _distinct(nodes: NDArray[np.intp]) -> NDArray[np.intp]:
    """Sorted, each once."""
    nodes.sort()
    return nodes[np.append(nodes[1:] != nodes[:-1], True)] if len(nodes) else nodes
