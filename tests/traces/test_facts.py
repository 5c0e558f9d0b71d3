"""What is said about a trace, against a dumb second-by-second count."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plexus.traces.describe.facts import (
    availability_facts,
    device_facts,
    latency_facts,
    lengths,
    online_by_hour,
    online_over_time,
)
from plexus.traces.describe.text import seconds
from plexus.traces.world import Availability, always_online
from tests.traces.test_sessions import PERIOD, fleets, joined


@given(fleets)
def test_lengths_are_counted_around_the_wrap(fleet):
    sessions = joined(fleet)
    session_s, gap_s = lengths(sessions, np.full(len(fleet), float(PERIOD)))
    dumb = {True: [], False: []}
    for rows in sessions:
        online = [any(a <= t < b for a, b in rows) for t in range(PERIOD)]
        changes = [t for t in range(PERIOD) if online[t] != online[t - 1]]
        for i, start in enumerate(changes):
            length = (changes[(i + 1) % len(changes)] - start) % PERIOD
            dumb[online[start]].append(length)
    assert sorted(session_s) == sorted(dumb[True])
    assert sorted(gap_s) == sorted(dumb[False])


def test_online_by_hour_is_exact():
    rows = [np.array([[1800.0, 5400.0], [90000.0, 93600.0]]), np.array([[0.0, 3600.0]])]
    availability = Availability(rows, np.array([2 * 86400.0, 86400.0]))
    by_hour = online_by_hour(availability.sessions, availability.periods_s)
    # Device 0 is online half of hour 0, half of hour 1, and all of hour 1 of its second day.
    assert by_hour[:3] == pytest.approx([(0.25 + 1) / 2, 0.75 / 2, 0])
    assert by_hour[3:].sum() == pytest.approx(0)


def test_online_over_time_repeats_each_device_by_its_own_period():
    rows = [np.array([[0.0, 5.0]]), np.array([[10.0, 20.0]]), np.array([[0.0, 1.0]])]
    availability = Availability(rows, np.array([10.0, 20.0, 4.0]))
    shares = online_over_time(availability.sessions, availability.periods_s, 5.0, 6)
    # The third repeats within a slot: a quarter of it in every slot.
    assert shares * 3 == pytest.approx(np.array([1, 0, 2, 1, 1, 0]) + 0.25)


def test_facts_of_availability():
    day = 86400.0
    rows = [np.array([[0.0, 600.0], [day - 600, day]]), np.array([[0.0, 3600.0]]), np.empty((0, 2))]
    facts = availability_facts(Availability(rows, day, ("a note",)))
    assert facts.devices == 3
    assert facts.online == pytest.approx((1200 + 3600) / (3 * day))
    assert facts.never_online == pytest.approx(1 / 3)
    assert facts.sessions == 2
    assert (facts.session_s.min, facts.session_s.max) == (1200, 3600)
    assert (facts.gap_s.min, facts.gap_s.max) == (day - 3600, day - 1200)
    assert facts.changes_per_hour == pytest.approx(4 / 3 / 24 * 1000)
    assert facts.online_by_hour[0] == pytest.approx((600 / 3600 + 1) / 3)
    assert facts.notes == ["a note"]


def test_facts_of_those_who_never_leave():
    facts = availability_facts(always_online(4))
    assert facts.online == 1
    assert facts.online_by_hour == pytest.approx([1.0] * 24)
    assert (facts.sessions, facts.session_s, facts.gap_s, facts.period_days) == (0, None, None, None)


def test_facts_of_devices():
    facts = device_facts(np.array([10.0, 30.0]), np.array([125.0, 375.0]), np.array([1250.0, 1250.0]))
    assert facts.compute_ms_per_sample.p50 == 20
    assert facts.up_kbps.mean == 2
    assert facts.down_kbps.max == 10
    # FedScale's formula: 3 x 5 steps x 20 samples x 10 ms.
    assert facts.training_s.min == pytest.approx(3.0)


def test_facts_of_latency():
    direct = np.array([[0.0, 0.01, 0.05], [0.01, 0.0, 0.01], [0.05, 0.01, 0.0]])
    facts = latency_facts(direct)
    assert facts.one_way_ms.max == pytest.approx(50)
    assert facts.detours == pytest.approx(2 / 6)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.5, "0.5 s"), (59, "59 s"), (60, "1 min"), (7000, "117 min"), (7300, "2.03 h"), (172800, "2 d")],
)
def test_durations_in_the_unit_people_use(value, text):
    assert seconds(value) == text


@given(st.floats(0, 1e7))
def test_durations_always_have_a_unit(value):
    assert seconds(value).split()[1] in ("s", "min", "h", "d")
