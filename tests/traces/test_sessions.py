"""The compact arithmetic on sessions against a dumb, second-by-second version."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plexus.traces.sessions import Sessions, choose, drop_before, join, pack, shift
from plexus.traces.world import Availability, always_online

PERIOD = 20

intervals = st.lists(
    st.tuples(st.integers(0, PERIOD), st.integers(0, PERIOD)).map(lambda p: (min(p), max(p))), max_size=6
)
fleets = st.lists(intervals, min_size=1, max_size=4)


def seconds(rows) -> set[int]:
    """The whole seconds at which a device with these rows is online."""
    return {t for start, end in rows for t in range(int(start), int(end))}


def joined(fleet) -> Sessions:
    owners = [i for i, rows in enumerate(fleet) for _ in rows]
    rows = np.array([row for rows in fleet for row in rows], np.float64).reshape(-1, 2)
    return join(np.array(owners, np.int64), rows, len(fleet))


@given(fleets, st.randoms())
def test_join_keeps_the_online_time_and_leaves_rows_apart(fleet, random):
    for rows in fleet:
        random.shuffle(rows)
    result = joined(fleet)
    for device, rows in enumerate(fleet):
        mine = result[device]
        assert seconds(mine) == seconds(rows)
        assert np.all(mine[:, 1] > mine[:, 0])
        assert np.all(mine[1:, 0] > mine[:-1, 1])


def test_join_knows_sessions_without_an_end():
    owners, rows = np.array([1, 1, 0]), np.array([[5, np.inf], [0, 2], [7, np.inf]])
    result = join(owners, rows, 3)
    assert [r.tolist() for r in result] == [[[7, np.inf]], [[0, 2], [5, np.inf]], []]


@given(fleets, st.lists(st.integers(0, 3 * PERIOD), min_size=4, max_size=4))
def test_shift_begins_the_period_later(fleet, by):
    before = joined(fleet)
    by_s = np.array(by[: len(fleet)], np.float64)
    after = shift(before, by_s, np.full(len(fleet), float(PERIOD)))
    for device in range(len(fleet)):
        moved = {(t - by[device]) % PERIOD for t in seconds(before[device])}
        assert seconds(after[device]) == moved


@given(fleets, st.integers(0, PERIOD))
def test_drop_before_forgets_the_beginning(fleet, time):
    before = joined(fleet)
    after = drop_before(before, float(time))
    for device in range(len(fleet)):
        assert seconds(after[device]) == {t for t in seconds(before[device]) if t >= time}


@given(fleets, st.data())
def test_choose_repeats_and_reorders_devices(fleet, data):
    sessions = joined(fleet)
    picks = data.draw(st.lists(st.integers(0, len(fleet) - 1), max_size=6))
    chosen = choose(sessions, np.array(picks, np.intp))
    assert [c.tolist() for c in chosen] == [sessions[i].tolist() for i in picks]


@given(fleets, st.sampled_from([PERIOD, PERIOD + 7]))
def test_toggles_and_online_at_tell_the_same_story(fleet, period):
    availability = Availability(joined(fleet), float(period))
    for device in range(len(fleet)):
        online, changes = False, dict[float, bool]()
        for time, state in availability.toggles(device):
            assert state != online
            online = state
            if time >= 3 * period:
                break
            changes[time] = state
        online = False
        for time in range(3 * period):
            online = changes.get(float(time), online)
            assert availability.online_at(float(time))[device] == online


def test_a_device_that_never_leaves_a_looping_trace_has_one_toggle():
    availability = Availability([np.array([[0.0, 10.0]])], 10.0)
    assert list(availability.toggles(0)) == [(0.0, True)]


def test_a_session_across_the_wrap_is_one_session():
    availability = Availability([np.array([[0.0, 2.0], [8.0, 10.0]])], 10.0)
    toggles = availability.toggles(0)
    first = [next(toggles) for _ in range(5)]
    assert first == [(0.0, True), (2.0, False), (8.0, True), (12.0, False), (18.0, True)]


def test_each_device_repeats_after_its_own_period():
    rows = np.array([[1.0, 2.0]])
    availability = Availability([rows, rows], np.array([5.0, np.inf]))
    assert list(availability.toggles(1)) == [(1.0, True), (2.0, False)]
    assert availability.online_at(1.5).tolist() == [True, True]
    assert availability.online_at(6.5).tolist() == [True, False]


def test_never_online_means_no_toggles():
    availability = Availability([np.empty((0, 2)), np.array([[0.0, 1.0]])], 10.0)
    assert list(availability.toggles(0)) == []
    assert availability.online_at(0.5).tolist() == [False, True]


def test_always_online():
    assert always_online(2).online_at(1e9).tolist() == [True, True]
    assert list(always_online(2).toggles(1)) == [(0.0, True)]


def test_sessions_behave_as_a_sequence():
    sessions = pack([np.array([[0.0, 1.0]]), np.empty((0, 2)), np.array([[2.0, 3.0]])])
    assert len(sessions) == 3
    assert [s.tolist() for s in sessions] == [[[0.0, 1.0]], [], [[2.0, 3.0]]]
    assert sessions.owners().tolist() == [0, 2]
    for beyond in (3, -1):
        with pytest.raises(IndexError, match=f"device {beyond}"):
            sessions[beyond]
