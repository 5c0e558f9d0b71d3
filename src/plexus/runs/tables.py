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
KNOWN = ("simulated_s", "round")
"""Columns in which no cell is empty."""


@dataclass(frozen=True)
class Table:
    """One kind of row. Rows may have further columns, the same in all rows of a run."""

    meaning: str
    columns: Mapping[str, str]
    """What every row has, with its meaning."""
    further: str = ""
    """What may follow."""
    is_detail: bool = False
    """For looking closely: `load_run` does not read it, `Run.detail` does when asked."""


DETAILS: dict[str, Table] = {
    "nodes": Table(
        "One row for each node: where it is and what its device can do.",
        {
            "node": "the number of the node",
            "city": "the name or number of its city in the latency trace",
            "country": "the country of the city, if known",
            "latitude": "of the city, in degrees, if known",
            "longitude": "of the city, in degrees, if known",
            "up_bytes_per_s": "capacity of its up link",
            "down_bytes_per_s": "capacity of its down link",
            "ms_per_sample": "inference of one example, in milliseconds",
            "training_s": "one local training, in seconds",
        },
        is_detail=True,
    ),
    "traffic": Table(
        "What all nodes together had sent and trained, whenever it was looked at.",
        {
            "simulated_s": "simulated time, in seconds",
            "training_s": "time that devices had spent training, in seconds",
        },
        "two columns for each type of message, `ping_count` and `ping_bytes` and so on: sent so far",
        is_detail=True,
    ),
    "phases": Table(
        "One row for each aggregation whose critical path is known: where its time went, on the way of the "
        "last model that it waited for.",
        {
            "simulated_s": "when the aggregation was completed, in seconds of simulated time",
            "round": "the round that it belongs to",
            "aggregator": "the number of the node that aggregated",
            "participant": "the node whose model came last",
            "began_s": "when the round before was completed, in seconds of simulated time",
            "sampling_s": "until a sample had answered: of the participants, then of the aggregators",
            "transfer_s": "until the model had arrived: at the participant, then at the aggregator",
            "training_s": "until the participant had trained",
            "aggregation_s": "from the arrival of the last model to completion",
        },
        is_detail=True,
    ),
    "trainings": Table(
        "One row for each local training that ended on a device.",
        {
            "simulated_s": "when it ended, in seconds of simulated time",
            "began_s": "when it began",
            "node": "the number of the node",
            "round": "the round that it trained in; for Gossip Learning, the age",
            "completed": "whether it came to its end; if not, it was interrupted",
        },
        is_detail=True,
    ),
    "transfers": Table(
        "One row for each transfer of a model that ended.",
        {
            "simulated_s": "when the last byte was sent, in seconds of simulated time",
            "began_s": "when it began",
            "source": "the number of the node that sent",
            "destination": "the number of the node that received",
            "round": "the round that the message belongs to; for Gossip Learning, the age",
            "kind": "`train` (to a participant), `aggregate` (to an aggregator), `exchange` (of equals)",
            "cut": "whether it was cut: an end went offline, or the sender stopped",
        },
        is_detail=True,
    ),
    "presence": Table(
        "One row for each time that a node came online or went offline.",
        {
            "simulated_s": "simulated time, in seconds",
            "node": "the number of the node",
            "online": "whether it is online from now on",
        },
        is_detail=True,
    ),
    "states": Table(
        "One row for each node, whenever all nodes were looked at.",
        {
            "simulated_s": "simulated time, in seconds",
            "node": "the number of the node",
            "online": "whether it was online",
            "view": "how many nodes it held to be online; nothing where a protocol has no views",
            "round": "the newest round that it had trained in or aggregated",
            "sent_bytes": "what it had sent by then",
            "received_bytes": "what it had received by then",
            "training_s": "how long it had trained by then, in seconds",
        },
        is_detail=True,
    ),
}
"""For looking closely at a run. `plexus.experiment.recording` says how their size is bounded."""

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
        {"simulated_s": "simulated time, in seconds", "online": "number of nodes online"},
    ),
    "views": Table(
        "What nodes believe, every five simulated minutes, for protocols whose nodes have views: how many "
        "nodes are online according to the views of the nodes online.",
        {
            "simulated_s": "simulated time, in seconds",
            "online": "number of nodes online",
            "mean_view": "nodes online according to a view, as the mean over the views",
            "min_view": "the least according to any view",
            "max_view": "the most according to any view",
        },
    ),
    **DETAILS,
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
    if len(rows) < 2:  # a run that was killed may leave a header alone
        return {}
    header, body = rows[0], rows[1:]
    for number, row in enumerate(body, start=2):
        if len(row) != len(header):
            raise PlexusError(f"{path}: line {number} has {len(row)} cells, the header {len(header)}")
    cells = zip(*body, strict=True)
    return {name: column(list(cells_of)) for name, cells_of in zip(header, cells, strict=True)}


def checked(columns: Columns, path: Path) -> Columns:
    """`columns`, if they are what the table in the file `path` has and, but in details, numbers."""
    table = TABLES[path.stem]
    for each in table.columns if columns else ():
        if each not in columns:
            raise PlexusError(f"{path}: no column {each}")
    for each, values in columns.items() if not table.is_detail else ():
        is_number = values.dtype.kind in "bif"
        if not is_number or (each in KNOWN and not np.isfinite(values).all()):
            raise PlexusError(f"{path}: {each} is not a number in every row")
    return columns


def column(cells: list[str]) -> NDArray[Any]:
    """Cells with the narrowest type that holds all of them."""
    if cells and all(cell in ("true", "false") for cell in cells):
        return np.array([cell == "true" for cell in cells])
    for kind in (int, float):
        try:
            return np.array([kind(cell or "nan") for cell in cells], np.dtype(kind))
        except (ValueError, OverflowError):
            continue
    return np.array(cells)
