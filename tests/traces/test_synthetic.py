"""Generated availability: its week is a circle, and laying it out needs no sorting."""

import numpy as np
import pytest

from plexus.errors import PlexusError
from plexus.rng import array_stream
from plexus.traces import synthetic
from plexus.traces.calibrations import CALIBRATIONS, FEDSCALE, STRICT
from plexus.traces.sessions import join, shift
from plexus.traces.synthetic import PERIOD_S, generate_availability


@pytest.mark.parametrize("name", CALIBRATIONS)
def test_sessions_are_sorted_apart_and_within_the_week(name):
    sessions = generate_availability(500, CALIBRATIONS[name], 1).packed
    starts, ends = sessions.rows.T
    assert starts.min() >= 0
    assert ends.max() <= PERIOD_S
    assert np.all(ends > starts)
    same = np.diff(sessions.owners()) == 0
    assert np.all((starts[1:] > ends[:-1])[same])


def test_placing_equals_sorting():
    """The fast layout against the general functions: shift each device's week, then join."""
    rng = array_stream(5, "test")
    shares = rng.random(300)
    seam_s = np.floor(rng.random(300) * PERIOD_S)
    steps = synthetic._renewal(shares, seam_s, STRICT, rng)
    fast = synthetic._rotate(steps, seam_s)

    owners = np.concatenate([step.devices for step in steps]).astype(np.int64)
    rows = np.concatenate([np.column_stack((s.start_s, s.end_s)) for s in steps])
    from_seam = join(owners, rows - seam_s[owners][:, None], 300)
    slow = shift(from_seam, PERIOD_S - seam_s, np.full(300, PERIOD_S))
    assert np.array_equal(fast.bounds, slow.bounds)
    np.testing.assert_allclose(fast.rows, slow.rows, atol=1e-6)


def test_devices_differ_and_some_are_hardly_ever_online():
    availability = generate_availability(4000, STRICT, 2)
    rows = availability.packed.rows
    online_s = np.bincount(availability.packed.owners(), rows[:, 1] - rows[:, 0], minlength=4000)
    shares = online_s / PERIOD_S
    assert 0.2 < (shares < 0.005).mean() < 0.4
    assert np.quantile(shares, 0.95) > 0.25


def test_the_best_hour_follows_peak_online():
    """The paper: 8.8 % of the devices online in the best case."""
    availability = generate_availability(20_000, STRICT.with_peak(0.088), 1)
    by_hour = np.array([availability.online_at(h * 3600.0).mean() for h in range(168)])
    assert by_hour.reshape(7, 24).mean(0).max() == pytest.approx(0.088, abs=0.005)


def test_an_impossible_peak_is_refused():
    with pytest.raises(PlexusError, match=r"traces.peak_online = 1.5: must be below 1.14"):
        FEDSCALE.with_peak(1.5)


def test_a_clock_with_quiet_hours_reaches_the_same_midnight():
    clock = synthetic._DayClock((0.0001,) * 12 + (2.0,) * 12)
    start, gap = np.array([0.0, 100.0]), np.array([86400.0, 2 * 86400.0])
    assert clock.later(start, gap) == pytest.approx(start + gap)
    assert clock.later(np.array([0.0]), np.array([3600.0]))[0] > 12 * 3600
