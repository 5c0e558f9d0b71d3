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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plexus.protocol.view import JOINED, LEFT, NOBODY, NONE, Bandwidths, Events, Snapshot, View

LAYERS = (8, 16, 64)
"""The newest entries become part of the layer beneath when they are more than the last part of all nodes,
those of the next when they are more than the one before, and another base is taken when the first are."""


class SharedBase:
    """A dense view; immutable."""

    def __init__(self, events: Events, bandwidths: Bandwidths, before: SharedBase | None = None) -> None:
        self.events, self.bandwidths = events, bandwidths
        self.event_of, self.bandwidth_of = events.data, bandwidths.data
        self._newest: list[SharedBase] = [] if before is None else before._newest
        """The last that was made after the same first one."""
        self._newest[:] = [self]
        self.usual: Bandwidths = np.zeros_like(bandwidths) if before is None else before.usual
        """What nodes have said of their bandwidths at some time, for all bases after the same first one."""

    def near(self, view: Snapshot, differs: Layer) -> tuple[SharedBase, Layer]:
        """For a view that has become too different: this base or the newest, and what differs from that. Only
        who knows much that is not in it makes a newer one: those who hear little need none of their own."""
        events, bandwidths = view.events, view.bandwidths
        base = self._newest[0]
        if len(base.events) == len(events):
            ahead = np.count_nonzero(events > base.events)
            if ahead * LAYERS[1] < len(events):
                [apart] = ((base.events != events) | (base.bandwidths != bandwidths)).nonzero()
                if len(apart) >= len(differs):
                    return self, differs
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


@lru_cache(8)
def _of_all(base: SharedBase, layers: tuple[Layer, ...], column: str) -> NDArray[np.uint32]:
    """What a view says of all nodes; who asks for it often asks again."""
    found: NDArray[np.uint32] = getattr(base, column).copy()
    for layer in layers:
        found[layer.at] = getattr(layer, column)
    found.flags.writeable = False
    return found


class Layer:
    """Some nodes, sorted, and the events that replace those of the base; immutable."""

    __slots__ = ("_packed", "at", "bandwidths", "events", "places")

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

    def pack(self, usual: Bandwidths) -> None:
        """Take little memory until somebody asks: steps from node to node and events are small numbers, and
        bandwidths are seldom others than usual."""
        if type(self) is PackedLayer or not len(self):
            return
        at, said = self.at, self.bandwidths
        usual[at] = np.where(usual[at], usual[at], said)
        is_usual = np.where((self.events & 3) == LEFT, said == 0, (said == usual[at]) & (said > 0)).all()
        steps = np.diff(at, prepend=np.uint32(0))
        self._packed = _small(steps), _small(self.events), None if is_usual else said, usual
        del self.at, self.events, self.bandwidths, self.places
        self.__class__ = PackedLayer


class PackedLayer(Layer):
    __slots__ = ()  # alone, since with `__getattr__` all attributes are found more slowly

    def __getattr__(self, name: str) -> Any:
        if name not in ("at", "events", "bandwidths", "places"):
            raise AttributeError(name)
        steps, small, said, usual = self._packed
        at, events = np.cumsum(steps, dtype=np.uint32), small.astype(np.uint32)
        if said is None:
            said = np.where((events & 3) == LEFT, np.uint32(0), usual[at])
        del self._packed
        self.__class__ = Layer  # type: ignore[assignment]
        Layer.__init__(self, at, events, said)
        return getattr(self, name)


EMPTY = Layer(np.empty(0, np.uint32), np.empty(0, np.uint32), np.empty(0, np.uint32))
NO_LAYERS: tuple[Layer, ...] = (EMPTY,) * len(LAYERS)


class SparseSnapshot(Snapshot):
    """A base and layers, the newest last."""

    __slots__ = ("_online_count", "base", "layers")

    def __init__(self, base: SharedBase, layers: tuple[Layer, ...], is_signed: bool) -> None:
        self.base = base
        self.layers = layers
        self._online_count: int | None = None
        self.is_signed = is_signed
        self.name, self.columns = b"", []
        self._known = self._online = None

    @property
    def events(self) -> Events:  # type: ignore[override]
        """Of all nodes; made for whoever asks."""
        return _of_all(self.base, self.layers, "events")

    @property
    def bandwidths(self) -> Bandwidths:  # type: ignore[override]
        return _of_all(self.base, self.layers, "bandwidths")

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
        first, middle, last = self.layers
        changed = first.under(middle.under(last))  # the first is large, and written once so
        joined = (changed.events & 3) == JOINED
        rank = self.base.rank[changed.at]
        return rank[(rank >= 0) & ~joined], changed.at[(rank < 0) & joined]

    def apart(self, other: Snapshot) -> tuple[NDArray[np.intp], Events, Events]:
        """The nodes, sorted, of which the two have different events; these events, and those of `other`."""
        if isinstance(other, SparseSnapshot) and self.size == other.size:
            own = [layer.at for layer in self.layers if layer not in other.layers]
            others = [layer.at for layer in other.layers if layer not in self.layers]
            some: list[NDArray[Any]] = [_apart(self.base, other.base), *own, *others]
            if sum(map(len, some)) <= self.size // LAYERS[0]:
                nodes = _distinct(np.concatenate(some))
                mine, its = self.events_at(nodes), other.events_at(nodes)
                differs = mine != its
                return nodes[differs], mine[differs], its[differs]
        # Of very many all are compared sooner.
        its = other.events if other.size == self.size else other.events_at(np.arange(self.size))
        [differ] = (self.events != its).nonzero()
        return differ, self.events[differ], its[differ]

    def beyond(self, other: Snapshot) -> NDArray[np.intp]:
        nodes, mine, _ = self.apart(other)
        return nodes[mine > 0]

    def events_at(self, nodes: NDArray[np.intp]) -> Events:
        is_many = len(nodes) > self.size // LAYERS[-1]  # then all are written down sooner
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
        if len(nodes) > self.size // LAYERS[-1]:
            return self.bandwidths[nodes]
        found = self.base.bandwidths[nodes]
        for layer in self.layers:
            here, places = layer.places_of(nodes)
            found[here] = layer.bandwidths[places]
        return found

    def event_of(self, node: int) -> int:
        return SparseView(self).event_of(node)


class SparseView(View):
    """One node's knowledge as a base, layers, and entries `event << 32 | bandwidth` by node."""

    __slots__ = ("_base", "_own", "layers")

    def __init__(self, snapshot: Snapshot) -> None:
        if isinstance(snapshot, SparseSnapshot):
            self._base, self.layers = snapshot.base, snapshot.layers
        else:
            self._base, self.layers = SharedBase(snapshot.events, snapshot.bandwidths), NO_LAYERS
        self._own: dict[int, int] = {}
        self.is_signed = snapshot.is_signed
        self._snapshot: SparseSnapshot | None = snapshot if isinstance(snapshot, SparseSnapshot) else None
        self.doubted: frozenset[int] = NONE

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
        if self.doubted:
            self.doubted -= {node}
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
        apart, held, told = mine.apart(other)
        is_news = told > held
        news, ahead = apart[is_news], apart[~is_news]
        if not len(news):
            return NOBODY
        if isinstance(other, SparseSnapshot) and other.size == mine.size and len(ahead) < len(news):
            self._base, self.layers = other.base, other.layers
            newer = Layer(ahead.astype(np.uint32), held[~is_news], mine.bandwidths_at(ahead))
        else:
            newer = Layer(news.astype(np.uint32), told[is_news], other.bandwidths_at(news))
        self._add(newer)
        self._snapshot = None
        if self.doubted:
            self.doubted = self.doubted.difference(news.tolist())
        return news

    def snapshot(self) -> SparseSnapshot:
        if self._snapshot is None:
            if self._own:
                self._add(self._newer())
                self._own = {}
            self._snapshot = SparseSnapshot(self._base, self.layers, self.is_signed)
        return self._snapshot

    def _add(self, newer: Layer) -> None:
        layers = [*self.layers[:-1], self.layers[-1].under(newer)]
        at = len(layers) - 1
        while at and len(layers[at]) > len(self) // LAYERS[at]:
            layers[at - 1], layers[at] = layers[at - 1].under(layers[at]), EMPTY
            at -= 1
        if not at and len(layers[0]) > len(self) // LAYERS[0]:
            known = SparseSnapshot(self._base, tuple(layers), self.is_signed)
            self._base, layers[0] = self._base.near(known, layers[0])
        self.layers = tuple(layers)

    def _newer(self) -> Layer:
        """Of its own entries those that are newer than what is beneath."""
        noted = Layer.of(self._own)
        known = SparseSnapshot(self._base, self.layers, self.is_signed).events_at(noted.at.astype(np.intp))
        newer = noted.events > known
        return Layer(noted.at[newer], noted.events[newer], noted.bandwidths[newer])

    def online_nodes(self) -> NDArray[np.intp]:
        return self.snapshot().online_nodes()

    def online_count(self) -> int:
        return self.snapshot().online_count()

    def event_of(self, node: int) -> int:
        return self._entry(node) >> 32

    def events_at(self, nodes: NDArray[Any]) -> Events:
        return self.snapshot().events_at(nodes)

    def bandwidth_of(self, node: int) -> int:
        return self._entry(node) & 0xFFFFFFFF

    def _entry(self, node: int) -> int:
        noted, known = self._own.get(node, 0), 0
        for layer in reversed(self.layers):
            at = bisect_left(layer.places, node)
            if at < len(layer.places) and layer.places[at] == node:
                known = int(layer.events[at]) << 32 | int(layer.bandwidths[at])
                break
        else:
            if node < len(self._base.event_of):
                known = self._base.event_of[node] << 32 | self._base.bandwidth_of[node]
        return noted if noted >> 32 > known >> 32 else known

    def grow(self, size: int) -> None:
        whole = View(self.snapshot())
        whole.grow(size)
        grown = whole.snapshot()
        self._base, self.layers = SharedBase(grown.events, grown.bandwidths), NO_LAYERS
        self._snapshot = None


def _distinct(nodes: NDArray[np.intp]) -> NDArray[np.intp]:
    """Sorted, each once."""
    nodes.sort()
    return nodes[np.append(nodes[1:] != nodes[:-1], True)] if len(nodes) else nodes


def _small(values: NDArray[np.uint32]) -> NDArray[Any]:
    """The same in as few bytes as the largest needs."""
    return values.astype(np.min_scalar_type(values.max()))
