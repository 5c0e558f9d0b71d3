"""What a trace says, in numbers."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from plexus.traces.sessions import Sessions
from plexus.traces.world import DAY_S, HOUR_S, Availability, Device, training_time_s

Floats = NDArray[np.float64]


class Spread(Struct, frozen=True):
    min: float
    p5: float
    p25: float
    p50: float
    p75: float
    p95: float
    mean: float
    max: float


class DeviceFacts(Struct, frozen=True):
    devices: int
    compute_ms_per_sample: Spread
    up_kbps: Spread
    down_kbps: Spread
    training_s: Spread
    """One local training of the paper: five steps of batch 20."""


class AvailabilityFacts(Struct, frozen=True):
    """Who is online when. Sessions and gaps are counted around the wrap, where a trace repeats."""

    devices: int
    online: float
    """Share of devices online, averaged over time."""
    online_by_hour: list[float]
    """The same by hour of the trace's day."""
    online_by_device: Spread
    """Share of the time that a device is online."""
    never_online: float
    """Share of devices that are never online."""
    period_days: Spread | None
    """After how many days each device's trace repeats; None where one never does."""
    sessions: int
    session_s: Spread | None
    """None where nobody ever comes or goes."""
    gap_s: Spread | None
    changes_per_hour: float
    """Joins and leaves in an hour among 1000 devices."""
    notes: list[str] = []


class LatencyFacts(Struct, frozen=True):
    """One-way delays between different cities."""

    cities: int
    one_way_ms: Spread
    detours: float
    """Share of ordered triples of cities where going via the third is faster."""
    notes: list[str] = []


class Facts(Struct, frozen=True):
    """What a file or spec says; a part that it says nothing of is None."""

    source: str
    devices: DeviceFacts | None = None
    availability: AvailabilityFacts | None = None
    latency: LatencyFacts | None = None


def spread(values: Floats) -> Spread:
    p5, p25, p50, p75, p95 = np.quantile(values, (0.05, 0.25, 0.5, 0.75, 0.95)).tolist()
    return Spread(float(values.min()), p5, p25, p50, p75, p95, float(values.mean()), float(values.max()))


def device_facts(compute_ms: Floats, up_bytes_per_s: Floats, down_bytes_per_s: Floats) -> DeviceFacts:
    """Facts about devices, given one value per device."""
    one_ms = training_time_s(Device(1.0, 0.0, 0.0), steps=5, batch=20)
    return DeviceFacts(
        devices=len(compute_ms),
        compute_ms_per_sample=spread(compute_ms),
        up_kbps=spread(up_bytes_per_s / 125),
        down_kbps=spread(down_bytes_per_s / 125),
        training_s=spread(compute_ms * one_ms),
    )


def availability_facts(availability: Availability) -> AvailabilityFacts:
    sessions, periods_s = first_week(availability)
    share = device_shares(sessions, periods_s)
    session_s, gap_s = lengths(sessions, periods_s)
    gaps = np.bincount(sessions.owners()[_gaps_after(sessions, periods_s) > 0], minlength=len(share))
    changes_per_hour = 2 * gaps / (periods_s / HOUR_S)
    return AvailabilityFacts(
        devices=len(share),
        online=float(share.mean()),
        online_by_hour=online_by_hour(sessions, periods_s).tolist(),
        online_by_device=spread(share),
        never_online=float((share == 0).mean()),
        period_days=None if np.isinf(availability.periods_s).any() else spread(periods_s / DAY_S),
        sessions=len(session_s),
        session_s=spread(session_s) if len(session_s) else None,
        gap_s=spread(gap_s) if len(gap_s) else None,
        changes_per_hour=float(changes_per_hour.mean() * 1000),
        notes=list(availability.notes),
    )


def first_week(availability: Availability) -> tuple[Sessions, Floats]:
    """Sessions and periods, with a week in place of one that never ends, so that it can be measured."""
    sessions, periods_s = availability.sessions, availability.periods_s
    week_s = np.where(np.isinf(periods_s), 7 * DAY_S, periods_s)
    return Sessions(np.minimum(sessions.rows, week_s[sessions.owners()][:, None]), sessions.bounds), week_s


def device_shares(sessions: Sessions, periods_s: Floats) -> Floats:
    """The share of its time that each device is online."""
    online_s = sessions.rows[:, 1] - sessions.rows[:, 0]
    total_s = np.bincount(sessions.owners(), online_s, minlength=len(sessions))
    return np.asarray(total_s / periods_s, np.float64)


def lengths(sessions: Sessions, periods_s: Floats) -> tuple[Floats, Floats]:
    """Seconds of all sessions and of the gaps between them, counted around the wrap."""
    gap_s = _gaps_after(sessions, periods_s)
    session_s = sessions.rows[:, 1] - sessions.rows[:, 0]
    first, last = _ends(sessions)
    wraps = gap_s[last] == 0  # its last session goes on in its first
    whole = session_s.copy()
    whole[first[wraps]] += session_s[last[wraps]]
    counted = np.ones(len(whole), np.bool_)
    counted[last[wraps]] = False
    return whole[counted], gap_s[gap_s > 0]


def _ends(sessions: Sessions) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The first and the last row of each device that has any."""
    some = np.diff(sessions.bounds) > 0
    return sessions.bounds[:-1][some], sessions.bounds[1:][some] - 1


def _gaps_after(sessions: Sessions, periods_s: Floats) -> Floats:
    """How long each device is offline after each of its rows; after the last, until its first."""
    rows, (first, last) = sessions.rows, _ends(sessions)
    gap_s = np.zeros(len(rows))
    gap_s[:-1] = rows[1:, 0] - rows[:-1, 1]
    gap_s[last] = periods_s[sessions.owners()[last]] - rows[last, 1] + rows[first, 0]
    return gap_s


def online_by_hour(sessions: Sessions, periods_s: Floats) -> Floats:
    """The share of devices online in each of the 24 hours of the trace's day."""
    weight = DAY_S / periods_s[sessions.owners()]  # a device counts once, however long it was recorded
    hours = int(np.ceil(periods_s.max(initial=DAY_S) / HOUR_S))
    online_s = _online_s(sessions.rows, weight, HOUR_S, hours)
    by_hour = np.bincount(np.arange(hours) % 24, online_s, minlength=24)
    return np.asarray(by_hour / (HOUR_S * len(sessions)), np.float64)


def online_over_time(sessions: Sessions, periods_s: Floats, slot_s: float, slots: int) -> Floats:
    """The share of devices online in each of the first slots of time, on average over the slot."""
    rows, period_s = sessions.rows, periods_s[sessions.owners()]
    # What repeats within a slot is the same in all of them; unrolling it would take for ever.
    brief = period_s < slot_s
    share = ((rows[:, 1] - rows[:, 0]) / period_s)[brief].sum()
    online_s = np.full(slots, slot_s * float(share))
    rows, period_s = rows[~brief], period_s[~brief]
    for repeat in range(int(np.ceil(slot_s * slots / period_s.min(initial=np.inf)))):
        later = rows + repeat * period_s[:, None]
        online_s += _online_s(later, np.ones(len(later)), slot_s, slots)
    return np.asarray(online_s / (slot_s * len(sessions)), np.float64)


def _online_s(rows: Floats, weight: Floats, slot_s: float, slots: int) -> Floats:
    """Weighted seconds online within each slot."""
    since_start_s = _since(rows[:, 0], weight, slot_s, slots)
    since_end_s = _since(rows[:, 1], weight, slot_s, slots)
    return np.diff(np.subtract(since_start_s, since_end_s))


def _since(times_s: Floats, weight: Floats, slot_s: float, slots: int) -> Floats:
    """At each boundary of slots, the weighted time since those `times_s` that lie before it."""
    times_s = np.minimum(times_s, slot_s * slots)
    slot = np.ceil(times_s / slot_s).astype(np.int64)
    count = np.cumsum(np.bincount(slot, weight, minlength=slots + 1))
    total_s = np.cumsum(np.bincount(slot, weight * times_s, minlength=slots + 1))
    return np.asarray(count * np.arange(slots + 1) * slot_s - total_s, np.float64)


def latency_facts(matrix_s: Floats, notes: tuple[str, ...] = ()) -> LatencyFacts:
    between = ~np.eye(len(matrix_s), dtype=np.bool_)
    slower = total = 0
    for via in range(len(matrix_s)):
        others = between.copy()
        others[via] = others[:, via] = False
        detour_s = matrix_s[:, via, None] + matrix_s[None, via, :]
        slower += int((detour_s < matrix_s)[others].sum())
        total += int(others.sum())
    pairs_ms = matrix_s[between] * 1000 if len(matrix_s) > 1 else matrix_s.ravel() * 1000
    return LatencyFacts(len(matrix_s), spread(pairs_ms), slower / max(total, 1), list(notes))
