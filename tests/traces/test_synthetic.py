"""Generated availability: its week is a circle, and laying it out needs no sorting."""

import numpy as np
import pytest

from plexus.errors import PlexusError
from plexus.rng import array_stream
from plexus.traces import synthetic
from plexus.traces.describe.facts import online_over_time
from plexus.traces.readers.availability import fit_period
from plexus.traces.synthetic import CALIBRATIONS, PERIOD_S, generate_availability


@pytest.mark.parametrize("name", CALIBRATIONS)
def test_sessions_are_sorted_apart_and_within_the_week(name):
    sessions = generate_availability(500, CALIBRATIONS[name], 1).sessions
    starts, ends = sessions.rows.T
    assert starts.min() >= 0
    assert ends.max() <= PERIOD_S
    assert np.all(ends > starts)
    same = np.diff(sessions.owners()) == 0
    assert np.all((starts[1:] > ends[:-1])[same])


def test_placing_equals_sorting():
    """The fast layout against the general functions: wrap each row, sort, join."""
    rng = array_stream(5, "test")
    shares, seam_s = rng.random(300), rng.random(300) * PERIOD_S
    sessions = synthetic._renewal(shares, seam_s, CALIBRATIONS["strict"], rng)
    fast = synthetic._wrap(sessions)
    later = sessions.rows >= PERIOD_S
    rows = sessions.rows - np.where(later[:, :1], PERIOD_S, 0.0)
    slow = fit_period(sessions.owners(), rows, np.full(300, PERIOD_S), crosses=True).sessions
    assert np.array_equal(fast.bounds, slow.bounds)
    assert np.array_equal(fast.rows, slow.rows)


@pytest.mark.parametrize("name", CALIBRATIONS)
def test_nothing_special_happens_when_the_week_repeats(name):
    """No wave of joins and leaves, and every day of the week is like the others."""
    availability = generate_availability(20_000, CALIBRATIONS[name], 1)
    end, beginning = availability.online_at(PERIOD_S - 0.001), availability.online_at(0.0)
    assert np.array_equal(end, beginning)
    days = online_over_time(availability.sessions, availability.periods_s, 86400.0, 7)
    assert np.ptp(days) < 0.01


def test_devices_differ_and_some_are_hardly_ever_online():
    availability = generate_availability(4000, CALIBRATIONS["strict"], 2)
    rows = availability.sessions.rows
    online_s = np.bincount(availability.sessions.owners(), rows[:, 1] - rows[:, 0], minlength=4000)
    shares = online_s / PERIOD_S
    assert 0.2 < (shares < 0.005).mean() < 0.4
    assert np.quantile(shares, 0.95) > 0.25


def test_the_best_hour_follows_peak_online():
    """The paper: 8.8 % of the devices online in the best case."""
    availability = generate_availability(20_000, CALIBRATIONS["strict"].with_peak(0.088), 1)
    by_hour = np.array([availability.online_at(h * 3600.0).mean() for h in range(168)])
    assert by_hour.reshape(7, 24).mean(0).max() == pytest.approx(0.088, abs=0.005)


def test_an_impossible_peak_is_refused():
    with pytest.raises(PlexusError, match=r"traces.peak_online = 1.5: must be below 1\.\d\d"):
        CALIBRATIONS["fedscale"].with_peak(1.5)


def test_a_clock_with_quiet_hours_reaches_the_same_midnight():
    clock = synthetic._DayClock((0.0001,) * 12 + (2.0,) * 12)
    start, gap = np.array([0.0, 100.0]), np.array([86400.0, 2 * 86400.0])
    assert clock.later(start, gap) == pytest.approx(start + gap)
    assert clock.later(np.array([0.0]), np.array([3600.0]))[0] > 12 * 3600
