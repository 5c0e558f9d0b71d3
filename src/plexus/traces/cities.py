"""Where nodes can live: a small table of cities on all continents, compiled from public facts."""

from __future__ import annotations

import csv
from importlib.resources import files

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
    return [
        City(row["name"], row["country"], float(row["lat"]), float(row["lon"]))
        for row in csv.DictReader(text.splitlines())
    ]


def great_circle_km(cities: list[City]) -> NDArray[np.float64]:
    """Distances between all pairs on a sphere."""
    points = _on_sphere([c.lat for c in cities], [c.lon for c in cities])
    return np.asarray(EARTH_RADIUS_KM * np.arccos(np.clip(points @ points.T, -1, 1)), np.float64)


def _on_sphere(lat: list[float], lon: list[float]) -> NDArray[np.float64]:
    phi, lam = np.radians(lat), np.radians(lon)
    return np.column_stack((np.cos(phi) * np.cos(lam), np.cos(phi) * np.sin(lam), np.sin(phi)))


def nearest_city(places: list[City], cities: list[City]) -> NDArray[np.intp]:
    """For each place the index of the city closest to it."""
    here = _on_sphere([c.lat for c in places], [c.lon for c in places])
    there = _on_sphere([c.lat for c in cities], [c.lon for c in cities])
    closeness = np.nan_to_num(here @ there.T, nan=-2.0)  # a city of unknown place is no one's nearest
    return np.asarray(np.argmax(closeness, axis=1), np.intp)
