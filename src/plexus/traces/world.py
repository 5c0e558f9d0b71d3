"""What the rest of Plexus sees of a trace, whatever file or generator it came from; and where nodes can live,
a small table of cities on all continents, compiled from public facts."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from plexus.traces.sessions import Sessions, pack

EARTH_RADIUS_KM = 6371.0


class City(Struct, frozen=True):
    """A place, with coordinates in degrees."""

    name: str
    country: str
    lat: float
    lon: float


def world_cities() -> list[City]:
    """The cities shipped with Plexus; coordinates are rounded to a tenth of a degree."""
    text = files("plexus.traces").joinpath("cities.csv").read_text("utf-8")
    return msgspec.convert(list(csv.DictReader(text.splitlines())), list[City], strict=False)


def great_circle_km(cities: list[City]) -> NDArray[np.float64]:
    points = _on_sphere(cities)
    return np.asarray(EARTH_RADIUS_KM * np.arccos(np.clip(points @ points.T, -1, 1)), np.float64)


def _on_sphere(places: list[City]) -> NDArray[np.float64]:
    phi, lam = np.radians([(place.lat, place.lon) for place in places]).T
    return np.column_stack((np.cos(phi) * np.cos(lam), np.cos(phi) * np.sin(lam), np.sin(phi)))


def nearest_cities(places: list[City], cities: list[City], nodes: int) -> NDArray[np.intp]:
    """The city nearest to each node, when node i is at place i; nodes beyond the last place start over."""
    # A city of unknown place is no one's nearest.
    closeness = np.nan_to_num(_on_sphere(places) @ _on_sphere(cities).T, nan=-2.0)
    return np.asarray(np.argmax(closeness, axis=1)[np.arange(nodes) % len(places)], np.intp)


HOUR_S, DAY_S = 3600.0, 86400.0


class Device(Struct, frozen=True):
    """One device's hardware: compute and bandwidth always come from the same device."""

    compute_ms_per_sample: float
    up_bytes_per_s: float
    down_bytes_per_s: float


class Availability:
    """When each device is online: by its sessions, which lie within [0, period].

    A session that ends at the period and one that starts at 0 are one session across the wrap.
    """

    def __init__(
        self,
        sessions: Sequence[NDArray[np.float64]],
        period_s: float | NDArray[np.float64],
        notes: tuple[str, ...] = (),
    ) -> None:
        """The trace repeats after `period_s`, which is infinite where it does not; one for all, or one per
        device. `notes`: what a file said that the sessions no longer show, and what had to be mended."""
        self.sessions = pack(sessions)
        self.periods_s = np.broadcast_to(np.asarray(period_s, np.float64), (len(sessions),))
        self.notes = notes

    @cached_property
    def has_churn(self) -> bool:
        if (np.diff(self.sessions.bounds) != 1).any():
            return True
        rows = self.sessions.rows
        return bool((rows[:, 0] > 0).any() or (rows[:, 1] < self.periods_s).any())

    def toggles(self, device: int) -> Iterator[tuple[float, bool]]:
        """The changes of one device from time 0 on, in order: (time_s, online). Offline before."""
        # One row at a time: as lists the rows of all devices would take several times their room.
        sessions, period_s = self.sessions[device], float(self.periods_s[device])
        if sessions.tolist() == [[0.0, period_s]]:  # never offline: the loop below would find nothing
            yield 0.0, True
            return
        offset_s, online_until_s = 0.0, -1.0
        while len(sessions):
            for start_s, end_s in map(np.ndarray.tolist, sessions):
                if offset_s + start_s != online_until_s:
                    if online_until_s >= 0:
                        yield online_until_s, False
                    yield offset_s + start_s, True
                online_until_s = offset_s + end_s
            offset_s += period_s
            if math.isinf(offset_s):
                break
        if 0 <= online_until_s < math.inf:
            yield online_until_s, False

    def online_at(self, time_s: float) -> NDArray[np.bool_]:
        with np.errstate(invalid="ignore"):  # time % inf is time, whatever numpy warns of
            within_s = np.where(np.isinf(self.periods_s), time_s, np.mod(time_s, self.periods_s))
        bounds = self.sessions.bounds
        at_s = np.repeat(within_s, np.diff(bounds))
        open_now = (self.sessions.rows[:, 0] <= at_s) & (at_s < self.sessions.rows[:, 1])
        counts = np.concatenate(([0], np.cumsum(open_now)))
        return np.asarray(counts[bounds[1:]] > counts[bounds[:-1]], np.bool_)


@dataclass(frozen=True)
class Latency:
    """One-way delays between cities, and the city of each node."""

    matrix_s: NDArray[np.float64]
    city_of: NDArray[np.intp]
    cities: Sequence[City] = ()
    """What and where each row of the matrix is, as far as that is known; none where nothing is."""

    @cached_property
    def longest_round_trip_s(self) -> float:
        """Between any two of the nodes."""
        used = np.unique(self.city_of)
        one_way_s = self.matrix_s[np.ix_(used, used)]
        return float((one_way_s + one_way_s.T).max(initial=0.0))


@dataclass(frozen=True)
class World:
    """Who takes part: node i is device i, online by trace i, in city `latency.city_of[i]`."""

    devices: Sequence[Device]
    availability: Availability
    latency: Latency

    def __len__(self) -> int:
        return len(self.devices)


def training_time_s(device: Device, steps: int, batch: int, factor: float = 3.0) -> float:
    """FedScale's formula: a training step costs `factor` times the inference of its batch."""
    return factor * steps * batch * device.compute_ms_per_sample / 1000


def always_online(nodes: int) -> Availability:
    """Nobody ever leaves: the paper's setting without churn."""
    rows = np.broadcast_to(np.array([0.0, np.inf]), (nodes, 2))
    return Availability(Sessions(rows, np.arange(nodes + 1)), math.inf)
