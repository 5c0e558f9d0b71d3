"""Where nodes can live: a small table of cities on all continents, compiled from public facts."""

from __future__ import annotations

import csv
from importlib.resources import files

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

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
    """Distances between all pairs on a sphere."""
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
