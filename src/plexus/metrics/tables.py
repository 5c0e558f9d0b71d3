"""The tables of a run directory, and how a table becomes text and numpy columns again.

A table is one CSV file: a header line, then one line per row, only ever appended to. A cell is an
integer, a number (shortest text that reads back exactly), `true` or `false`, text, or empty for
"unknown". A file that ends in the middle of a line was cut off there; that line is not a row.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plexus.errors import PlexusError

Columns = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Table:
    """One kind of row. Rows may have further columns, the same in all rows of a run."""

    meaning: str
    columns: Mapping[str, str]
    """What every row has, with its meaning."""
    further: str = ""
    """What may follow."""


TABLES: dict[str, Table] = {
    "evaluations": Table(
        "One row for each time that models were measured on the test set.",
        {
            "simulated_s": "simulated time, in seconds",
            "round": "the newest round that a model is of; for Gossip Learning, the greatest age",
        },
        "one column for each metric of the task (`accuracy`, or `mse` and `rmse`, …) and `loss`; "
        "`sent_bytes` and `training_s`, if present, are what all nodes together had sent and trained "
        "by then. Where every node has a model of its own, a metric is the mean over the `nodes` "
        "measured, and `accuracy_std` and `accuracy_best` (or `mse_std`, …) are their standard deviation "
        "and the best of them",
    ),
    "node_evaluations": Table(
        "One row for each node whose own model was measured, at the times of evaluations.",
        {
            "simulated_s": "simulated time, in seconds",
            "node": "the number of the node",
            "round": "the round that its model is of; for Gossip Learning, its age",
        },
        "one column for each metric of the task and `loss`",
    ),
    "rounds": Table(
        "One row for each aggregation into a global model that was completed.",
        {
            "simulated_s": "simulated time, in seconds",
            "round": "the round that it belongs to",
            "aggregator": "the number of the node that aggregated; a server comes after all nodes",
            "models": "how many models it aggregated",
            "participants": "how many nodes had been asked to train",
            "timed_out": "whether it went on because of the aggregation timeout",
            "waited_s": "time from the first model to completion, in seconds",
        },
    ),
    "online": Table(
        "How many nodes were online, whenever it was looked at.",
        {
            "simulated_s": "simulated time, in seconds",
            "online": "number of nodes online",
        },
    ),
}


def line(values: tuple[Any, ...]) -> str:
    """One row as a line of CSV, without its end."""
    return ",".join(map(_cell, values))


def _cell(value: Any) -> str:
    write = _WRITE.get(type(value))
    if write is not None:
        return write(value)
    if isinstance(value, np.generic):
        return _cell(value.item())
    raise TypeError(f"a cell holds a number, truth value or text, not {value!r}")


def _text(value: str) -> str:
    if "\n" in value or "\r" in value:
        raise ValueError(f"a cell is one line of text, not {value!r}")
    quoted = '"' + value.replace('"', '""') + '"'
    return quoted if "," in value or '"' in value else value


_WRITE: dict[type, Callable[[Any], str]] = {
    float: repr,
    int: str,
    bool: lambda value: "true" if value else "false",
    str: _text,
    type(None): lambda value: "",
}


def read(path: Path) -> Columns:
    """The columns of the table at `path`, each with the narrowest type that holds all its cells.

    None at all where the file does not exist: no row was recorded.
    """
    if not path.exists():
        return {}
    try:
        text = path.read_text(encoding="utf-8")
        whole = text[: text.rfind("\n") + 1]
        rows = list(csv.reader(whole.split("\n")[:-1]))
    except (UnicodeDecodeError, csv.Error) as error:
        raise PlexusError(f"{path}: {error}") from None
    if not rows:
        return {}
    header, body = rows[0], rows[1:]
    for number, row in enumerate(body, start=2):
        if len(row) != len(header):
            raise PlexusError(
                f"{path}: line {number} has {len(row)} cells, the header {len(header)}"
            )
    cells = zip(*body, strict=True) if body else [()] * len(header)
    return {name: _column(list(column)) for name, column in zip(header, cells, strict=True)}


def _column(cells: list[str]) -> NDArray[Any]:
    if cells and all(cell in ("true", "false") for cell in cells):
        return np.array([cell == "true" for cell in cells])
    for kind in (int, float):
        try:
            return np.array([kind(cell or "nan") for cell in cells], np.dtype(kind))
        except ValueError:
            continue
    return np.array(cells)
