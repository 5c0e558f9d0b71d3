"""The tables of a fleet: those of its peers, joined while they grow, on one clock and with its numbers.

What a peer alone cannot know is known here: who is online, what all of them have sent by the time that a
model is measured, and where the time of a round went.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from plexus.live.operator.peer_tables import LOOK_S, LOOKS
from plexus.live.state import RUN_FOLDER
from plexus.runs.critical_path import CriticalPaths
from plexus.runs.recorder import Recorder
from plexus.runs.run import SPEC, started_s
from plexus.runs.tables import TABLES, TableReader, read, rows, sort

HOLD_S = 3.0
"""For so long rows wait for earlier ones of other peers, which write every two seconds."""
READ = ("presence", "states", "traffic", "trainings", "transfers", "rounds", "evaluations")
NODES = ("node", "aggregator", "source", "destination")
"""Columns that hold the number of a node."""
TIMES = ("simulated_s", "began_s")
CLOCK_S = 0.5
"""A sender may learn so much later that its model has arrived."""


class Row(NamedTuple):
    """One row of a peer, with the fleet's times and numbers."""

    at_s: float
    table: str
    node: int
    """Whose row it is."""
    values: dict[str, Any]


class PeerRows:
    """The tables of one peer, row by row as they come."""

    def __init__(self, home: Path, node: int) -> None:
        self._path = home / RUN_FOLDER
        self.node = node
        self._readers = {table: TableReader(self._path / f"{table}.csv") for table in READ}
        self._taken = dict.fromkeys(READ, 0)
        self._newest_s = dict.fromkeys(READ, -math.inf)

    def fresh(self, began_s: float, numbers: Mapping[str, int]) -> Iterator[Row]:
        """What came since the last time; of nodes that are none of the fleet's, nothing."""
        if not (self._path / SPEC).exists():
            return
        later_s = started_s(self._path) - began_s
        tables = {table: reader.columns() for table, reader in self._readers.items()}
        names = read(self._path / "nodes.csv").get("name", ())  # last: a peer writes them before it uses them
        number_of = {at: numbers.get(str(name)) for at, name in enumerate(names)}
        for table, columns in tables.items():
            count, first = rows(columns), self._taken[table]
            if count < first:  # the older half was dropped
                first = int(np.searchsorted(columns["simulated_s"], self._newest_s[table], "right"))
            for at in range(first, count):
                values = {name: _plain(column[at].item()) for name, column in columns.items()}
                self._newest_s[table] = values["simulated_s"]
                values |= {name: round(values[name] + later_s, 3) for name in TIMES if name in values}
                values |= {name: number_of[values[name]] for name in NODES if name in values}
                if None not in [values.get(name, 0) for name in NODES]:
                    yield Row(values["simulated_s"], table, self.node, values)
            self._taken[table] = count


def _plain(value: Any) -> Any:
    return None if value != value else value


class FleetTables:
    """Appends what the peers wrote to the tables of the fleet."""

    def __init__(self, recorder: Recorder, homes: Mapping[str, Path], began_s: float) -> None:
        """`homes` by the names of the nodes, in the order of their numbers."""
        self._recorder = recorder
        self._began_s = began_s
        self._numbers = {name: number for number, name in enumerate(homes)}
        self._peers = [PeerRows(home, number) for number, home in enumerate(homes.values())]
        self._waiting: list[Row] = []
        self._paths = CriticalPaths(CLOCK_S)
        self._told: dict[int, bool] = {}
        """By node, whether it was online when last heard of."""
        self._online: set[int] = set()
        self._looks: dict[tuple[str, int], list[dict[str, Any]]] = {}
        """By table and node: the row of `states.csv` or `traffic.csv` whose turn was last, and later ones."""
        self._next_look_s = 0.0
        self.metrics: list[tuple[int, float]] = []
        """Round and value of each evaluation that counts."""
        unknown = dict.fromkeys(TABLES["nodes"].columns)
        for name, number in self._numbers.items():
            recorder.record("nodes", **{**unknown, "node": number, "name": name})

    @property
    def now_s(self) -> float:
        return round(time.time() - self._began_s, 3)

    def look(self, is_running: Sequence[bool], is_last: bool = False) -> None:
        """Take in what is new, and write what nothing earlier can come before any more."""
        now_s = self.now_s
        until_s = math.inf if is_last else now_s - HOLD_S
        for peer, runs in zip(self._peers, is_running, strict=True):
            for row in peer.fresh(self._began_s, self._numbers):
                self._learn(row)
            if not runs and self._told.get(peer.node):  # it was killed
                gone = {"simulated_s": now_s, "node": peer.node, "online": False}
                self._learn(Row(now_s, "presence", peer.node, gone))
        self._waiting.sort(key=lambda row: row.at_s)
        ready = [row for row in self._waiting if row.at_s <= until_s]
        self._waiting = self._waiting[len(ready) :]
        for row in ready:
            self._look_around(row.at_s)
            self._take(row)
        if is_last:
            self._record_traffic(now_s)
        self._recorder.flush()

    def put_in_order(self, directory: Path) -> None:
        """Rows of a peer that was held up may have come too late for their places."""
        for path in directory.glob("*.csv"):
            if path.stem in TABLES and "simulated_s" in TABLES[path.stem].columns:
                sort(path)

    def evaluated(self, at_s: float, number: int, metrics: Mapping[str, float]) -> None:
        """A model of a round was measured. The first stands for its round, and older ones say nothing new."""
        if not self.metrics or number > self.metrics[-1][0]:
            self.metrics.append((number, next(iter(metrics.values()))))
            all_of = self.all_of("states", at_s)
            sums = {name: all_of.get(name, 0) for name in ("sent_bytes", "training_s")}
            self._recorder.record("evaluations", simulated_s=at_s, round=number, **metrics, **sums)

    def state_of(self, node: int) -> dict[str, Any]:
        """The newest row of `states.csv` of a node; nothing if it never came as far."""
        rows = self._looks.get(("states", node))
        return rows[-1] if rows else {}

    def _learn(self, row: Row) -> None:
        """Keep a row until its turn, and remember what others will need by theirs."""
        self._waiting.append(row)
        values, number = row.values, row.values.get("round", 0)
        if row.table == "presence":
            self._told[row.node] = values["online"]
        elif row.table in ("states", "traffic"):
            self._looks.setdefault((row.table, row.node), []).append(values)
        elif row.table == "transfers" and not values["cut"]:
            way = values["source"], values["destination"], values["began_s"]
            self._paths.arrived(values["kind"], number, *way, row.at_s)
        elif row.table == "trainings" and values["completed"]:
            self._paths.trained(row.node, number, values["began_s"], row.at_s)
            # Where the node itself aggregates, its model needs no transfer.
            self._paths.arrived("aggregate", number + 1, row.node, row.node, row.at_s, row.at_s)
        elif row.table == "rounds":
            self._paths.completed(row.node, number, row.at_s)

    def _take(self, row: Row) -> None:
        values = row.values
        if row.table == "evaluations":
            known = {"simulated_s", "round", "sent_bytes", "training_s"}
            metrics = {name: value for name, value in values.items() if name not in known}
            self.evaluated(row.at_s, values["round"], metrics)
            return
        if row.table == "presence":
            if values["online"] == (row.node in self._online):
                return
            self._online ^= {row.node}
        elif row.table in ("states", "traffic"):
            rows = self._looks[row.table, row.node]
            del rows[: rows.index(values)]
        if row.table != "traffic":
            self._recorder.record(row.table, **values)
        if row.table == "rounds":
            phases = self._paths.phases(row.at_s, row.node, values["round"])
            if phases is not None:
                self._recorder.record("phases", **phases)

    def _look_around(self, until_s: float) -> None:
        """Write down what all nodes together have sent and believe, as often as that is due by then."""
        while self._next_look_s <= until_s:
            now_s = self._next_look_s
            self._next_look_s += max(LOOK_S, now_s / LOOKS)
            self._recorder.record("online", simulated_s=now_s, online=len(self._online))
            self._record_traffic(now_s)
            states = [
                self._looks["states", node][0] for node in self._online if ("states", node) in self._looks
            ]
            views = [row["view"] for row in states if row["view"] is not None]
            if views:
                extent = {"mean_view": fmean(views), "min_view": min(views), "max_view": max(views)}
                self._recorder.record("views", simulated_s=now_s, online=len(self._online), **extent)

    def _record_traffic(self, now_s: float) -> None:
        sums = self.all_of("traffic", now_s)
        if sums:
            self._recorder.record("traffic", simulated_s=now_s, **sums)

    def all_of(self, table: str, at_s: float) -> dict[str, Any]:
        """The numbers of all nodes together at a moment: between two looks they are taken to grow evenly."""
        looks = [rows for (name, _), rows in self._looks.items() if name == table]
        sums = {}
        for name in looks[0][0] if looks else ():
            if name.endswith(("_count", "_bytes", "training_s")):
                total = 0.0
                for rows in looks:
                    times_s, values = zip(*((row["simulated_s"], row[name]) for row in rows), strict=True)
                    total += float(np.interp(at_s, times_s, values, left=0.0))
                sums[name] = round(total, 3 if name.endswith("_s") else None)
        return sums
