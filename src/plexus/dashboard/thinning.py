"""Making columns small enough for a picture, without hiding what stands out."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from plexus.runs.tables import Columns

MOST_POINTS = 900


def rows(table: Columns) -> int:
    return len(next(iter(table.values()), ()))


def peaks(values: NDArray[Any], most: int = MOST_POINTS) -> NDArray[np.intp]:
    """Which rows to keep of a curve: the least and the greatest of each stretch, the first and the last."""
    count = len(values)
    if count <= most:
        return np.arange(count)
    stretches = np.array_split(np.arange(count), most // 2)
    kept = {0, count - 1}
    for stretch in stretches:
        part = np.nan_to_num(np.asarray(values[stretch], np.float64))
        kept |= {int(stretch[part.argmin()]), int(stretch[part.argmax()])}
    return np.array(sorted(kept))


def evenly(count: int, most: int) -> NDArray[np.intp]:
    """`most` rows out of `count`, the first and the last among them."""
    if count <= most:
        return np.arange(count)
    return np.unique(np.linspace(0, count - 1, most).round().astype(np.intp))


def take(table: Columns, kept: NDArray[Any]) -> Columns:
    return {name: column[kept] for name, column in table.items()}


def plain(table: Columns, digits: int = 3) -> dict[str, list[Any]]:
    """Lists for JSON; numbers with no more digits after the point than a picture shows."""
    return {name: _list(column, digits) for name, column in table.items()}


def _list(column: NDArray[Any], digits: int) -> list[Any]:
    if column.dtype.kind == "f":
        if np.isfinite(column).all() and not (column % 1).any():
            return [int(value) for value in column.tolist()]
        return [round(value, digits) for value in column.tolist()]
    if column.dtype.kind == "b":
        return [int(value) for value in column.tolist()]
    values: list[Any] = column.tolist()
    return values


def binned(table: Columns, parts: tuple[str, ...], most: int = 240) -> dict[str, list[Any]]:
    """Rows of `table` in order, so many to a bin that there are at most `most`: the mean of each part,
    where the bin begins and ends, and how many rows are in it."""
    count = rows(table)
    if not count:
        return {}
    bounds = np.unique(np.linspace(0, count, min(count, most) + 1).round().astype(np.intp))
    sizes = np.diff(bounds)
    found: Columns = {
        part: np.add.reduceat(table[part].astype(np.float64), bounds[:-1]) / sizes for part in parts
    }
    found["from_s"] = table["began_s"][bounds[:-1]].astype(np.float64)
    found["to_s"] = table["simulated_s"][bounds[1:] - 1].astype(np.float64)
    found["first_round"] = table["round"][bounds[:-1]]
    found["last_round"] = table["round"][bounds[1:] - 1]
    found["rounds"] = sizes
    return plain(found)
