"""Sparse views say what dense ones say, whatever happens to them, and share what they have in common."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plexus.protocol import sparse
from plexus.protocol.roster import Roster
from plexus.protocol.sparse import EMPTY, Layer, PackedLayer, SparseSnapshot, SparseView
from plexus.protocol.view import JOINED, LEFT, SUSPECTED, Lazy, Snapshot, View, event_number

N, VIEWS = 48, 3
steps = st.one_of(
    st.tuples(
        st.just("learn"),
        st.integers(0, VIEWS - 1),
        st.integers(0, N + 2),
        st.integers(1, 5),
        st.sampled_from([JOINED, SUSPECTED, LEFT]),
    ),
    st.tuples(
        st.just("note"),
        st.integers(0, VIEWS - 1),
        st.lists(st.tuples(st.integers(0, N - 1), st.integers(1, 5)), max_size=20),
    ),
    st.tuples(st.just("merge"), st.integers(0, VIEWS - 1), st.integers(0, VIEWS - 1)),
    st.tuples(st.just("suspect"), st.integers(0, VIEWS - 1), st.integers(0, N - 1)),
    st.tuples(st.just("doubt"), st.integers(0, VIEWS - 1), st.integers(0, N - 1)),
    st.tuples(st.just("pack"), st.integers(0, VIEWS - 1)),
)


@pytest.fixture(autouse=True, scope="module")
def small_layers() -> Any:
    """So that few entries are enough to fill a layer and to make a base."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sparse, "LAYERS", (4, 6, 12))
        patch.setattr("plexus.protocol.view.CHUNK", 7)
        yield


def bandwidth_at(node: int, event: int) -> int:
    """The same for all events of most nodes; of some it changes, and may be none."""
    changes = event >> 2 if node % 7 == 0 else 0
    return 0 if event & 3 == LEFT else (17 * node + changes) % 1000


def do(views: list[Any], step: tuple[Any, ...]) -> Any:
    match step:
        case ("learn", view, node, counter, state):
            event = event_number(counter, state)
            return views[view].learn(node, event, bandwidth_at(node, event))
        case ("note", view, heard):
            events = [(node, event_number(counter, JOINED)) for node, counter in heard]
            views[view].note([(node, event, bandwidth_at(node, event), None) for node, event in events])
        case ("merge", view, other):
            return views[view].merge(views[other].snapshot()).tolist()
        case ("suspect", view, node):
            return views[view].suspect(node)
        case ("doubt", view, node):
            views[view].doubt(node)
        case ("pack", view):
            if isinstance(packed := views[view].snapshot(), SparseSnapshot):
                pack(packed)
    return None


def pack(snapshot: SparseSnapshot) -> None:
    for layer in snapshot.layers:
        layer.pack(snapshot.base.usual)


def said(view: View, order: Any, known: Snapshot) -> tuple[Any, ...]:
    snapshot, nodes = view.snapshot(), range(N + 4)
    return (
        snapshot.events.tolist(),
        snapshot.bandwidths.tolist(),
        snapshot.known,
        [snapshot.event_of(node) for node in nodes],
        [(view.event_of(node), view.bandwidth_of(node)) for node in nodes],
        [(view.is_online(node), view.is_suspected(node)) for node in nodes],
        view.actives(),
        view.online_nodes().tolist(),
        view.online().tolist(),
        view.suspected().tolist(),
        view.expelled().tolist(),
        view.online_count(),
        view.has_suspects,
        list(view.online_in(order)),
        list(view.online_in(order, known)),
        view.doubted,
    )


@settings(max_examples=200)
@given(st.lists(steps, max_size=30), st.integers(0, 2**32))
def test_a_sparse_view_says_what_a_dense_one_says(history: list[tuple[Any, ...]], seed: int) -> None:
    at_first = [(node, bandwidth_at(node, event_number(1, JOINED))) for node in range(0, N, 3)]
    first = View.of(N, at_first).snapshot()
    dense: list[Any] = [View(first) for _ in range(VIEWS)]
    few: list[Any] = [SparseView(first) for _ in range(VIEWS)]
    taken = []
    for step in history:
        assert do(few, step) == do(dense, step)
        taken.append((few[0].snapshot(), few[0].snapshot().events))
    order = np.array(Random(seed).sample(range(N), N))
    for mine, oracle in zip(few, dense, strict=True):
        assert said(mine, order, few[0].snapshot()) == said(oracle, order, dense[0].snapshot())
    assert all(np.array_equal(snapshot.events, then) for snapshot, then in taken), "snapshots never change"


@given(st.lists(st.tuples(st.integers(0, 255), st.integers(1, 9)), max_size=60), st.integers(0, 256))
def test_of_a_few_nodes_it_says_the_same_as_of_all(heard: list[tuple[int, int]], asked: int) -> None:
    view = SparseView(View.of(256, [(node, 100) for node in range(0, 256, 5)]).snapshot())
    for node, counter in heard:
        view.learn(node, event_number(counter, JOINED), 10 * counter)
    snapshot = view.snapshot()
    nodes = np.array(Random(asked).sample(range(256), asked), np.intp)
    assert snapshot.events_at(nodes).tolist() == snapshot.events[nodes].tolist()
    assert snapshot.bandwidths_at(nodes).tolist() == snapshot.bandwidths[nodes].tolist()


def test_who_takes_over_a_view_shares_it() -> None:
    """That is what makes it small: a newcomer's own part is what it heard itself."""
    first = SparseView(View.of(N, [(node, 100) for node in range(N)]).snapshot())
    for node in range(20):
        first.learn(node, event_number(1, LEFT))
        first.snapshot()
    newcomer = SparseView(View.of(N).snapshot())
    newcomer.learn(N - 1, event_number(7, JOINED), 5)
    assert len(newcomer.merge(first.snapshot())) == N - 1
    assert newcomer.snapshot().base is first.snapshot().base
    assert newcomer.snapshot().layers[0] is first.snapshot().layers[0]
    assert (newcomer.event_of(N - 1), newcomer.event_of(3)) == (
        event_number(7, JOINED),
        event_number(1, LEFT),
    )


def test_a_packed_layer_takes_a_quarter_and_comes_back_whole() -> None:
    view = SparseView(View.of(2048, [(node, 100 + node) for node in range(0, 2048, 2)]).snapshot())
    for node in range(0, 2048, 16):
        view.learn(node, event_number(3, SUSPECTED if node % 32 else LEFT), 100 + node if node % 32 else 0)
    snapshot = view.snapshot()
    layers = [layer for layer in snapshot.layers if layer is not EMPTY]
    before = [(layer.at, layer.events, layer.bandwidths) for layer in layers]
    entries = sum(map(len, layers))
    pack(snapshot)
    assert {type(layer) for layer in layers} == {PackedLayer} and type(EMPTY) is Layer
    steps, events = zip(*(layer._packed[:2] for layer in layers), strict=True)
    assert 4 * sum(column.nbytes for column in (*steps, *events)) <= 12 * entries
    assert all(layer._packed[2] is None for layer in layers), "bandwidths are as usual"
    for layer, columns in zip(layers, before, strict=True):
        for now, then in zip((layer.at, layer.events, layer.bandwidths), columns, strict=True):
            assert now.dtype == then.dtype and np.array_equal(now, then)
    assert {type(layer) for layer in layers} == {Layer}


def test_candidates_are_looked_for_as_far_as_somebody_looks() -> None:
    looked: list[int] = []

    def nodes() -> Any:
        for node in range(9):
            looked.append(node)
            yield [node]

    found = Lazy(nodes())
    assert (found[:2], found[1], looked) == ([0, 1], 1, [0, 1])
    rest = found[3:]
    assert (rest[:1], looked) == ([3], [0, 1, 2, 3])
    assert (found[4:6], len(found), found[-1], list(rest)) == ([4, 5], 9, 8, [3, 4, 5, 6, 7, 8])


def test_a_roster_takes_either_view() -> None:
    roster, view = Roster.simulated(b"session", N), View.of(N, [(node, 1) for node in range(0, N, 2)])
    few = SparseView(view.snapshot())
    assert list(roster.candidates(few, 7)) == list(roster.candidates(view, 7))
    few.doubt(4)
    view.doubt(4)
    assert list(roster.candidates(few, 7)) == list(roster.candidates(view, 7))
