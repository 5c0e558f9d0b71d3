"""What happened between two moments of a run, and all that happened to one node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plexus.report.measuring import evenly
from plexus.runs.tables import Columns, rows

Json = dict[str, Any]
Tables = Callable[[str], Columns]

MOST_POINTS = 900
"""Of a curve: few enough for a picture, without hiding what stands out."""
MOST_ROWS = 6000
"""Of each table in one answer; a picture of a moment shows a few dozen."""


def peaks(values: NDArray[Any], most: int = MOST_POINTS) -> NDArray[np.intp]:
    """Which rows to keep of a curve: the least and the greatest of each stretch, the first and the last."""
    count = len(values)
    if count <= most:
        return np.arange(count)
    kept = {0, count - 1}
    for stretch in np.array_split(np.arange(count), most // 2):
        part = np.nan_to_num(np.asarray(values[stretch], np.float64))
        kept |= {int(stretch[part.argmin()]), int(stretch[part.argmax()])}
    return np.array(sorted(kept))


def take(table: Columns, kept: NDArray[Any] | slice) -> Columns:
    return {name: column[kept] for name, column in table.items()}


def plain(table: Columns, digits: int = 3) -> dict[str, list[Any]]:
    """Lists for JSON; numbers with no more digits after the point than a picture shows."""
    found = {}
    for name, column in table.items():
        if column.dtype.kind == "f" and not (np.isfinite(column) & (column == column.round())).all():
            found[name] = [round(value, digits) for value in column.tolist()]
        else:
            found[name] = (column.astype(np.int64) if column.dtype.kind in "fb" else column).tolist()
    return found


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


def window(table: Tables, from_s: float, to_s: float) -> Json:
    """Everything that was under way between two moments, and who was online at the first.

    It begins with the round before the one under way at `from_s`, so that the whole sample of this one is in
    the answer, and the models that it began with.
    """
    rounds = table("rounds")
    if rows(rounds):
        before = int(np.searchsorted(rounds["simulated_s"], from_s, side="right")) - 1
        if before >= 0:
            from_s = min(from_s, float(rounds["simulated_s"][max(0, before - 1)]))
    online: list[int] = []
    if rows(presence := table("presence")):
        first, last = np.searchsorted(presence["simulated_s"], [from_s, to_s], side="right")
        state = np.zeros(int(presence["node"].max()) + 1, np.bool_)
        state[presence["node"][:first]] = presence["online"][:first]  # later rows overwrite earlier ones
        online, presence = np.flatnonzero(state).tolist(), take(presence, slice(first, last))
    transfers, thinned = _under_way(table("transfers"), from_s, to_s)
    trainings, also = _under_way(table("trainings"), from_s, to_s)
    return {
        "from_s": from_s,
        "to_s": to_s,
        "online": online,
        "presence": plain(presence),
        "transfers": plain(transfers),
        "trainings": plain(trainings),
        "rounds": plain(_around(rounds, from_s, to_s)),
        "phases": plain(_around(table("phases"), from_s, to_s)),
        "faults": plain(_under_way(table("faults"), from_s, to_s, "simulated_s", "until_s")[0]),
        "thinned": thinned or also,
    }


def _under_way(
    table: Columns, from_s: float, to_s: float, began: str = "began_s", ended: str = "simulated_s"
) -> tuple[Columns, bool]:
    if not rows(table):
        return {}, False
    found = np.flatnonzero((table[ended] >= from_s) & (table[began] <= to_s))
    kept = found[evenly(len(found), MOST_ROWS)]
    return take(table, kept), len(kept) < len(found)


def _around(table: Columns, from_s: float, to_s: float) -> Columns:
    """The rows in the window, and the one after it: what was under way when it ended."""
    if not rows(table):
        return {}
    first = np.searchsorted(table["simulated_s"], from_s, side="left")
    last = np.searchsorted(table["simulated_s"], to_s, side="right") + 1
    kept = np.arange(first, min(int(last), rows(table)))
    return take(table, kept[evenly(len(kept), MOST_ROWS)])


def node_details(table: Tables, number: int) -> Json | None:
    nodes = table("nodes")
    known = _where(nodes, "node", number)
    if not len(known):
        return None
    transfers = table("transfers")
    return {
        "node": number,
        **{name: values[0] for name, values in plain(take(nodes, known), 3).items()},
        "presence": plain(_of(table("presence"), "node", number)),
        "trainings": plain(_newest(_of(table("trainings"), "node", number))),
        "sent": plain(_newest(_of(transfers, "source", number))),
        "received": plain(_newest(_of(transfers, "destination", number))),
        "aggregated": plain(_newest(_of(table("rounds"), "aggregator", number))),
        "states": plain(_of(table("states"), "node", number)),
        "evaluations": plain(_of(table("node_evaluations"), "node", number), 5),
    }


def _where(table: Columns, name: str, number: int) -> NDArray[Any]:
    return np.flatnonzero(table[name] == number) if rows(table) else np.empty(0, np.intp)


def _of(table: Columns, name: str, number: int) -> Columns:
    return take(table, _where(table, name, number))


def _newest(table: Columns) -> Columns:
    return take(table, slice(-MOST_ROWS, None))
