"""The local view: newest event per node, merged by the laws of a join-semilattice."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plexus.protocol.view import JOINED, LEFT, MAX_COUNTER, SUSPECTED, Snapshot, View, event_number

Entry: TypeAlias = tuple[int, int, bool]

N = 6
entries: st.SearchStrategy[Entry] = st.tuples(
    st.integers(0, N - 1), st.integers(0, 4) | st.just(MAX_COUNTER), st.booleans()
)
histories = st.lists(entries, max_size=12)


def bandwidth_at(node: int, event: int) -> int:
    """A bandwidth belongs to its event: the same wherever the event is known."""
    return (17 * node + event) % 1000 if event & 3 == JOINED else 0


def learn(view: View, entry: Entry) -> bool:
    node, counter, online = entry
    event = event_number(counter, JOINED if online else LEFT)
    return view.learn(node, event, bandwidth_at(node, event))


def view_after(history: list[Entry], size: int = 0) -> View:
    view = View.of(size)
    for entry in history:
        learn(view, entry)
    return view


def known(view: View | Snapshot) -> dict[int, tuple[int, int]]:
    """All it says, whatever room it has for nodes it knows nothing of."""
    snapshot = view.snapshot() if isinstance(view, View) else view
    pairs = zip(snapshot.events.tolist(), snapshot.bandwidths.tolist(), strict=True)
    return {node: pair for node, pair in enumerate(pairs) if pair[0]}


def newest(history: list[Entry]) -> dict[int, tuple[int, int]]:
    """The dumb oracle: look at everything, keep the largest."""
    events: dict[int, int] = {}
    for node, counter, online in history:
        events[node] = max(events.get(node, 0), event_number(counter, JOINED if online else LEFT))
    return {node: (event, bandwidth_at(node, event)) for node, event in events.items() if event}


@given(histories)
def test_a_view_is_the_newest_event_of_each_node(history: list[Entry]) -> None:
    view = view_after(history)
    assert known(view) == newest(history)
    assert view.actives() == sorted(n for n, (event, _) in newest(history).items() if event & 3 == JOINED)
    assert view.online().tolist() == [view.is_online(node) for node in range(len(view))]
    for node in range(N + 2):
        event, bandwidth = newest(history).get(node, (0, 0))
        assert (view.event_of(node), view.bandwidth_of(node)) == (event, bandwidth)
        assert view.is_online(node) == (event & 3 == JOINED)


@given(histories, histories, st.sets(st.integers(0, N - 1)))
def test_what_is_noted_at_once_is_learnt_one_by_one(
    before: list[Entry], told: list[Entry], doubted: set[int]
) -> None:
    view, oracle = view_after(before, N // 2), view_after(before, N // 2)
    events = [(node, event_number(counter, JOINED if online else LEFT)) for node, counter, online in told]
    for node in doubted:
        view.doubt(node)
        oracle.doubt(node)
    taken = view.snapshot(), known(view)
    view.note([(node, event, bandwidth_at(node, event), None) for node, event in events])
    for entry in told:
        learn(oracle, entry)
    assert (known(view), view.actives(), view.doubted) == (known(oracle), oracle.actives(), oracle.doubted)
    assert known(taken[0]) == taken[1], "a snapshot stays as it is"


@given(histories, histories, st.permutations(range(N)), st.integers(1, N))
def test_those_online_are_found_in_any_order_as_far_as_somebody_looks(
    mine: list[Entry], others: list[Entry], order: list[int], chunk: int
) -> None:
    view, known_to_others = view_after(mine, N), view_after(others).snapshot()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("plexus.protocol.view.CHUNK", chunk)
        online = [node for node in order if view.is_online(node)]
        assert list(view.online_in(np.array(order))) == online
        both = [node for node in online if known_to_others.event_of(node) & 3 == JOINED]
        found = view.online_in(np.array(order), known_to_others)
        view.learn(order[0], event_number(MAX_COUNTER, LEFT))
        assert list(found) == (both or online), "whatever is learnt meanwhile"


@given(st.lists(entries | histories, max_size=8))
def test_who_is_online_is_up_to_date_after_every_change(changes: list[Entry | list[Entry]]) -> None:
    """The list is kept between changes; nothing may show it."""
    view, history = View.of(0), []
    for change in changes:
        if isinstance(change, list):
            view.merge(view_after(change).snapshot())
            history += change
        else:
            learn(view, change)
            history.append(change)
        assert view.actives() == sorted(n for n, (event, _) in newest(history).items() if event & 3 == JOINED)


@given(histories, entries)
def test_only_a_newer_event_wins_and_learn_says_so(history: list[Entry], entry: Entry) -> None:
    view = view_after(history)
    node, counter, online = entry
    is_newer = event_number(counter, JOINED if online else LEFT) > view.event_of(node)
    before = known(view)
    assert learn(view, entry) == is_newer
    assert known(view) == (newest([*history, entry]) if is_newer else before)


@given(histories, histories)
def test_merge_is_the_union_of_histories(ours: list[Entry], theirs: list[Entry]) -> None:
    view = view_after(ours)
    changed = view.merge(view_after(theirs).snapshot())
    assert known(view) == newest(ours + theirs)
    before, after = newest(ours), newest(ours + theirs)
    assert changed.tolist() == sorted(node for node in after if after[node] != before.get(node))


@given(histories)
def test_merge_is_idempotent(history: list[Entry]) -> None:
    view = view_after(history)
    assert not view.merge(view.snapshot()).size
    assert not view.merge(view_after(history, size=N).snapshot()).size
    assert known(view) == newest(history)


@given(histories, histories)
def test_merge_is_commutative(a: list[Entry], b: list[Entry]) -> None:
    ab, ba = view_after(a), view_after(b)
    ab.merge(view_after(b).snapshot())
    ba.merge(view_after(a).snapshot())
    assert known(ab) == known(ba)


@given(histories, histories, histories)
def test_merge_is_associative(a: list[Entry], b: list[Entry], c: list[Entry]) -> None:
    left = view_after(a)
    left.merge(view_after(b).snapshot())
    left.merge(view_after(c).snapshot())
    bc = view_after(b)
    bc.merge(view_after(c).snapshot())
    right = view_after(a)
    right.merge(bc.snapshot())
    assert known(left) == known(right)


@given(histories, st.lists(entries | histories, max_size=8))
def test_a_snapshot_never_changes(history: list[Entry], later: list[Entry | list[Entry]]) -> None:
    """It is shared by all who receive it, and by the view itself until that changes."""
    view = view_after(history)
    taken: list[tuple[Snapshot, dict[int, tuple[int, int]]]] = []
    for change in later:
        taken.append((view.snapshot(), known(view)))
        if isinstance(change, list):
            view.merge(view_after(change).snapshot())
        else:
            learn(view, change)
    for snapshot, then in taken:
        assert known(snapshot) == then
        assert snapshot.known == len(then)


@given(histories, histories)
def test_a_view_made_of_a_snapshot_leaves_it_alone(history: list[Entry], more: list[Entry]) -> None:
    """How all nodes of a simulation share the initial view."""
    shared = view_after(history, size=N).snapshot()
    first, second = View(shared), View(shared)
    for entry in more:
        learn(first, entry)
    assert known(first) == newest(history + more)
    assert known(second) == known(shared) == newest(history)


@given(histories, st.integers(0, 5))
def test_growing_makes_room_and_changes_nothing(history: list[Entry], more: int) -> None:
    view = view_after(history)
    snapshot, size = view.snapshot(), len(view) + more
    view.grow(size)
    assert len(view) == size
    assert known(view) == known(snapshot) == newest(history)
    assert not view.merge(snapshot).size
    view.learn(size, event_number(1, JOINED), 5)
    assert (view.event_of(size), view.bandwidth_of(size)) == (5, 5)


def test_snapshots_of_an_unchanged_view_are_one_and_the_same() -> None:
    view = view_after([(0, 1, True)])
    snapshot = view.snapshot()
    assert view.snapshot() is snapshot
    assert not view.merge(snapshot).size
    learn(view, (0, 0, True))  # old news
    assert view.snapshot() is snapshot
    learn(view, (0, 1, False))
    assert view.snapshot() is not snapshot


def test_snapshots_compare_by_content_and_say_how_much_they_know() -> None:
    a, b = view_after([(0, 1, True)]).snapshot(), view_after([(0, 1, True)]).snapshot()
    other = view_after([(0, 2, True)]).snapshot()
    faster = Snapshot(a.events, a.bandwidths + np.uint32(1))
    assert a == b
    assert a != other
    assert a != faster
    assert a != "a view"
    assert repr(view_after([(0, 1, True), (3, 2, False)]).snapshot()) == "Snapshot(2 nodes)"


def test_the_first_view_has_its_nodes_online_by_their_first_event() -> None:
    view = View.of(4, [(1, 100), (3, 300)])
    assert known(view) == {1: (5, 100), 3: (5, 300)}
    assert view.actives() == [1, 3]


def test_whoever_is_suspected_is_offline_until_its_next_event() -> None:
    view = View.of(3, [(0, 100), (1, 200)])
    assert view.suspect(1) and not view.suspect(1) and not view.suspect(2)
    assert (view.actives(), view.suspected().tolist()) == ([0], [False, True, False])
    assert view.bandwidth_of(1) == 200, "all who suspect this event say the same of it"
    assert not view.learn(1, event_number(1, JOINED), 200), "what was known before is no refutation"
    other = View.of(3, [(0, 100), (1, 200)])
    other.merge(view.snapshot())
    assert other.snapshot() == view.snapshot()
    assert view.learn(1, event_number(2, JOINED), 300) and view.is_online(1)
    assert other.learn(1, event_number(1, LEFT)) and not other.suspected().any(), "it said goodbye"


def test_nobody_is_pushed_out_for_good() -> None:
    """Whatever numbers somebody claims: after the last one it is online."""
    view = View.of(1)
    for state in (LEFT, SUSPECTED, JOINED):
        view.learn(0, event_number(MAX_COUNTER, state))
    assert view.is_online(0) and not view.suspect(0)
