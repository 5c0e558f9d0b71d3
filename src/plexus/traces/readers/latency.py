"""Recorded latency between cities, and which node lives where.

A square CSV of milliseconds, with or without names, or a list of pairs (source, destination, ms).
Missing entries (empty, negative, NaN, or a pair that is not listed) are filled from the reverse
direction, else with the median of the row; how many is said in `notes`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from plexus.errors import PlexusError
from plexus.traces.readers.files import Content, CsvFile, Record, fault, field_of, load, number, records
from plexus.traces.world import City

LatencyKind = Literal["one-way", "round-trip"]
MILLISECONDS = ("ms", "avg", "latency_ms", "avg_ms")
MOST_CITIES = 10_000
"""Two names on a line are a row and a column of the matrix."""
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class LatencyTrace:
    """One-way delays between recorded cities."""

    matrix_s: Matrix
    cities: tuple[str, ...]
    """The file's name or number of each row."""
    notes: tuple[str, ...]


def read_latency(path: Path, kind: LatencyKind = "one-way", content: Content | None = None) -> LatencyTrace:
    """A latency matrix whose values are delays one way, or there and back.

    `content` is what the file holds, where that is loaded already.
    """
    content = load(path) if content is None else content
    if not isinstance(content, CsvFile):
        raise PlexusError(f"{path}: a latency matrix must be a CSV file")
    if content.header is not None and {"source", "destination"} <= set(content.header):
        matrix_ms, cities = _from_pairs(path, records(path, content))
    else:
        matrix_ms, cities = _from_square(path, content)
    notes = _repair(path, matrix_ms)
    if kind == "round-trip":
        matrix_ms /= 2
        notes.append("round trips halved")
    return LatencyTrace(matrix_ms / 1000, cities, tuple(notes))


def _from_square(path: Path, table: CsvFile) -> tuple[Matrix, tuple[str, ...]]:
    rows, header = table.rows, table.header
    size = len(rows)
    names = tuple(str(i) for i in range(size))
    if header is not None and len(header) == size + 1:  # a column of names on the left, too
        names = tuple(header[1:])
        for i, (row, name) in enumerate(zip(rows, names, strict=True), table.first_line):
            if row[0] != name:
                raise fault(path, f"line {i}", "", f"must begin with {name!r}, as the header")
        rows = [row[1:] for row in rows]
    elif header is not None:
        names = tuple(header)
    if len(names) != size:
        raise PlexusError(f"{path}: must be square, has {size} rows and names {len(names)} cities")
    matrix = np.empty((size, size))
    for i, row in enumerate(rows):
        line = f"line {i + table.first_line}"
        if len(row) != size:
            raise fault(path, line, "", f"has {len(row)} values, must have {size}")
        for j, cell in enumerate(row):
            matrix[i, j] = _milliseconds(path, line, f"column {j + 1}", cell)
    return matrix, names


def _from_pairs(path: Path, pairs: list[Record]) -> tuple[Matrix, tuple[str, ...]]:
    field = field_of(path, pairs[0], MILLISECONDS)
    index: dict[str, int] = {}
    cells = []
    for name, pair in pairs:
        i, j = (index.setdefault(str(pair[end]), len(index)) for end in ("source", "destination"))
        cells.append((i, j, _milliseconds(path, name, field, str(pair[field]))))
    if len(index) > MOST_CITIES:
        raise PlexusError(f"{path}: names {len(index):,} cities; at most {MOST_CITIES:,} are read")
    matrix = np.full((len(index), len(index)), np.nan)
    np.fill_diagonal(matrix, 0.0)
    for i, j, value in cells:
        matrix[i, j] = value
    return matrix, tuple(index)


def _milliseconds(path: Path, record: str, field: str, cell: str) -> float:
    if cell.lower() in ("", "nan", "na"):
        return np.nan
    if cell.startswith("-"):  # WonderNetwork's way to say that nothing was measured
        number(path, record, field, cell[1:])
        return np.nan
    return number(path, record, field, cell)


def _repair(path: Path, matrix_ms: Matrix) -> list[str]:
    missing = np.isnan(matrix_ms)
    if not missing.any():
        return []
    matrix_ms[missing] = matrix_ms.T[missing]
    left = np.isnan(matrix_ms)
    np.fill_diagonal(left, False)
    matrix_ms[np.eye(len(matrix_ms), dtype=np.bool_) & np.isnan(matrix_ms)] = 0.0
    known = np.where(np.eye(len(matrix_ms), dtype=np.bool_), np.nan, matrix_ms)
    for i in np.flatnonzero(left.any(axis=1)).tolist():
        if np.isnan(known[i]).all():
            raise fault(path, f"row {i}", "", "not one latency of this city is known")
        matrix_ms[i, left[i]] = np.nanmedian(known[i])
    taken = f"{int((missing & ~left).sum())} taken from the reverse direction"
    rest = f"{int(left.sum())} set to the median of their row"
    return [f"{int(missing.sum())} latencies missing: {taken}, {rest}"]


def read_places(path: Path) -> list[tuple[str, City]]:
    """A CSV of places with columns lat and lon (or latitude, longitude): (id, place) per row."""
    found = records(path, load(path))
    lat, lon = (field_of(path, found[0], names) for names in (("lat", "latitude"), ("lon", "longitude")))
    return [_place(path, i, record, lat, lon) for i, record in enumerate(found)]


def _place(path: Path, row: int, record: Record, lat: str, lon: str) -> tuple[str, City]:
    degrees = []
    for field, most in ((lat, 90.0), (lon, 180.0)):
        text = str(record[1][field])
        size = number(path, record[0], field, text.removeprefix("-"))
        if size > most:
            raise fault(path, record[0], field, f"must be between -{most:g} and {most:g}")
        degrees.append(-size if text.startswith("-") else size)
    names = [f for f in record[1] if f in ("name", "title") or f.startswith("city")]
    name = str(record[1][names[0]]) if names else str(row)
    identity = str(next((record[1][f] for f in ("id", "row") if f in record[1]), row))
    return identity, City(name, str(record[1].get("country", "")), degrees[0], degrees[1])
