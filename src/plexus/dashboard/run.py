"""A run directory as the page wants it, finished or growing, simulated or of live peers."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from plexus import quantities
from plexus.dashboard.slices import Json, binned, node_details, peaks, plain, take, window
from plexus.dashboard.statuses import Status, Statuses, at_address, at_home
from plexus.errors import PlexusError
from plexus.report import naming
from plexus.report.arms import first_metric
from plexus.runs.directory import CHECKPOINT
from plexus.runs.run import LIVE, RESULT, SIMULATED, VERSIONS, result_of, spec_of, versions_of
from plexus.runs.tables import TABLES, Columns, TableReader, checked, rows
from plexus.spec.attackers import AttackerSpec, attackers_of

PARTS = ("sampling_s", "transfer_s", "training_s", "aggregation_s")
QUIET_S = {SIMULATED: 120.0, LIVE: 10.0}
"""A run without a result that wrote nothing for so long, and of which no peer answers, runs no more."""
SPARK_POINTS = 60
LISTED = ("phase", "round", "training", "waiting_for", "peers", "counts")
"""What the list of nodes shows of a peer's status."""
KINDS = {"TrainRequest": "train", "AggregateRequest": "aggregate", "LateModel": "late"}


class ShownRun:
    def __init__(self, id: str, path: Path) -> None:
        self.id = id
        self.path = path
        self._is_read_ahead = False
        self._tables = {name: TableReader(path / f"{name}.csv") for name in TABLES}
        self._asked: Statuses | None = None

    def table(self, name: str) -> Columns:
        return checked(self._tables[name].columns(), self.path / f"{name}.csv")

    def statuses(self) -> list[Status | None]:
        """What its peers say of themselves, in the order of their numbers; simulated ones say nothing."""
        if self._asked is None:
            homes = self.versions().get("homes", ())
            self._asked = Statuses([partial(at_home, self.path / home) for home in homes])
        return self._asked.newest()

    def stamp(self) -> str:
        """Changes whenever there is something new to see."""
        status = self.status()
        if (self.path / RESULT).exists():
            return f"{_stat(self.path / RESULT)[1]}-{status}"
        sizes = [_stat(self.path / f"{name}.csv")[0] for name in self._tables]
        looked_s = self._asked.looked_s if self._asked and any(self.statuses()) else 0
        return "-".join(map(str, [*sizes, status, looked_s]))

    def status(self) -> str:
        """finished, interrupted, running, or stopped where it ended without a result."""
        result = self.result()
        if result is not None:
            return "interrupted" if result.get("interrupted") else "finished"
        names = (*(f"{name}.csv" for name in self._tables), VERSIONS, CHECKPOINT)
        newest_s = max(_stat(self.path / name)[1] for name in names)
        is_fresh = time.time() - newest_s < QUIET_S[self._kind()]
        return "running" if is_fresh or any(self.statuses()) else "stopped"

    def summary(self) -> Json:
        spec, result, kind, versions = self.spec(), self.result(), self._kind(), self.versions()
        evaluations = self.table("evaluations")
        metric = _metric(evaluations, result)
        spark = evaluations.get(metric["name"] or "", np.empty(0))
        return {
            "id": self.id,
            "kind": kind,
            "name": spec["name"],
            "status": self.status(),
            "protocol": spec.get("protocol", {}).get("name"),
            "task": spec.get("task", {}).get("name"),
            "nodes": spec["nodes"],
            "seed": spec.get("seed"),
            "until_s": 3600 * spec["hours"] if kind == SIMULATED else None,
            "reached_s": self._reached_s(result),
            "rounds": self._rounds(result),
            "metric": metric,
            "started": versions.get("started"),
            "tags": versions.get("tags", []),
            "note": versions.get("note", ""),
            "spark": plain({"value": spark[peaks(spark, SPARK_POINTS)]}, 4)["value"],
        }

    def overview(self) -> Json:
        """All that the first picture shows."""
        spec, result, phases = self.spec(), self.result(), self.table("phases")
        specified = msgspec.convert(spec.get("attackers", []), list[AttackerSpec])
        attackers = attackers_of(specified, spec["nodes"], spec.get("seed", 0))
        found = {
            **self.summary(),
            "spec": spec,
            "versions": self.versions(),
            "result": result,
            "faults": [_fault(each) for each in spec.get("faults", ())],
            "attackers": {node: each.behaviour for node, each in attackers.items()},
            "made_twice": _made_twice(self.table("rounds")),
            "used": plain(self.table("used")),
            "evaluations": self._curve("evaluations", _metric(self.table("evaluations"), result)["name"], 5),
            "online": self._curve("online", "online"),
            "views": self._curve("views", "mean_view"),
            "traffic": self._curve("traffic", "simulated_s"),
            "phases": binned(phases, PARTS),
            "phase_means_s": {part: float(phases[part].mean()) for part in PARTS if rows(phases)},
            "nodes_known": _nodes(self.table("nodes")),
            "statuses": [{key: of[key] for key in LISTED} if of else None for of in self.statuses()],
        }
        self._read_ahead()
        return found

    def _curve(self, table: str, column: str | None, digits: int = 3) -> Json:
        """So many rows of a table that a picture of this column shows all that stands out."""
        found = self.table(table)
        return plain(take(found, peaks(found.get(column or "", np.empty(0)))), digits)

    def window(self, from_s: float, to_s: float) -> Json:
        """All that happened between two moments; and what goes on now, if that is between them."""
        found = window(self.table, from_s, to_s)
        now_s = self._reached_s(self.result())
        if any(self.statuses()) and to_s >= now_s - 5:
            found["transfers"] = _with(found["transfers"], self._transfers_at(now_s))
            found["trainings"] = _with(found["trainings"], self._trainings_at(now_s))
        return found

    def node(self, number: int) -> Json | None:
        """All that is known of one node; None if there is no such node."""
        found, statuses = node_details(self.table, number), self.statuses()
        if found is not None and number < len(statuses):
            found["status"] = statuses[number]
        return found

    def spec(self) -> Json:
        return spec_of(self.path)

    def result(self) -> Json | None:
        found: Json | None = msgspec.to_builtins(result_of(self.path))
        return found

    def versions(self) -> Json:
        return versions_of(self.path)

    def _kind(self) -> str:
        return str(self.versions().get("kind", SIMULATED))

    def _read_ahead(self) -> None:
        """The page will ask for a moment next: read what that needs while it draws its first part."""
        if not self._is_read_ahead:
            self._is_read_ahead = True
            for name in ("transfers", "trainings", "presence"):
                threading.Thread(target=self._look_into, args=(name,), daemon=True).start()

    def _look_into(self, name: str) -> None:
        with suppress(PlexusError):  # who asks for it will be told what is wrong
            self.table(name)

    def _reached_s(self, result: Json | None) -> float:
        if result is not None:
            return float(result["simulated_s"])
        tables = (self.table(name) for name in ("online", "rounds", "evaluations", "states"))
        return float(max((t["simulated_s"][-1] for t in tables if rows(t)), default=0.0))

    def _rounds(self, result: Json | None) -> int:
        if result is not None:
            return int(result["rounds"])
        tables = (self.table(name) for name in ("rounds", "evaluations"))
        told = [int(status["round"]) for status in self.statuses() if status]
        return int(max([0, *told, *(t["round"].max() for t in tables if rows(t))]))

    def _transfers_at(self, now_s: float) -> list[Json]:
        """The models on their way now, as their senders see them."""
        names = self.table("nodes").get("name", np.empty(0)).tolist()
        return [
            {
                "simulated_s": now_s + 5,
                "began_s": now_s - 5,
                "source": number,
                "destination": names.index(each["peer"]),
                "round": each["round"],
                "kind": KINDS.get(each["kind"], "exchange"),
                "cut": 0,
                "progress": each["bytes"] / max(1, each["of_bytes"]),
            }
            for number, status in enumerate(self.statuses())
            for each in (status["transfers"] if status else ())
            if each["way"] == "out" and each["peer"] in names
        ]

    def _trainings_at(self, now_s: float) -> list[Json]:
        return [
            {
                "simulated_s": now_s + 5,
                "began_s": now_s - status["training"]["since_s"],
                "node": number,
                "round": status["training"]["round"],
                "completed": 0,
            }
            for number, status in enumerate(self.statuses())
            if status and status["training"]
        ]


class AskedNodes(ShownRun):
    """Nodes at some addresses: nothing is known of their past but what they answered since this began."""

    def __init__(self, id: str, addresses: tuple[str, ...]) -> None:
        super().__init__(id, Path())
        self._addresses = addresses
        self._asked = Statuses([at_address(address) for address in addresses])
        self._began_s = time.time()
        self._online: set[int] = set()
        self._rows: dict[str, list[Json]] = {"presence": [], "evaluations": []}

    def statuses(self) -> list[Status | None]:
        found = super().statuses()
        now_s = round(time.time() - self._began_s, 3)
        for number, status in enumerate(found):
            if (status is not None) != (number in self._online):
                self._online ^= {number}
                row = {"simulated_s": now_s, "node": number, "online": status is not None}
                self._rows["presence"].append(row)
            metric = status and status["metric"]
            seen = self._rows["evaluations"]
            if metric and not any(row["round"] == metric["round"] for row in seen):
                values = {metric["name"]: metric["value"], "loss": metric["loss"]}
                seen.append({"simulated_s": now_s, "round": metric["round"], **values})
        return found

    def table(self, name: str) -> Columns:
        if name == "nodes":
            pairs = zip(self._addresses, super().statuses(), strict=False)
            names = [status["node"] if status else address for address, status in pairs]
            return {"node": np.arange(len(names)), "name": np.array(names)}
        found = list(self._rows.get(name, ()))  # as it is now: others go on asking
        columns = dict.fromkeys(column for row in found for column in row)  # not all measure the same
        return {column: np.array([row.get(column, np.nan) for row in found]) for column in columns}

    def overview(self) -> Json:
        counts = [status["counts"] for status in self.statuses() if status]
        return {**super().overview(), "sent_bytes": sum(each.get("link_sent_bytes", 0) for each in counts)}

    def status(self) -> str:
        return "running" if any(self.statuses()) else "stopped"

    def spec(self) -> Json:
        told = next((status["session"] for status in self.statuses() if status), "live nodes")
        return {"name": told, "nodes": len(self._addresses)}

    def result(self) -> None:
        return None

    def versions(self) -> Json:
        return {"kind": LIVE, "started": datetime.fromtimestamp(self._began_s, UTC).isoformat()}

    def _reached_s(self, result: Json | None) -> float:
        return time.time() - self._began_s


def _fault(fault: Json) -> Json:
    """What goes wrong on purpose, in words and seconds."""
    from_s, to_s = 3600 * fault["from_h"], 3600 * fault["to_h"]
    return {"words": naming.fault(fault), "kind": fault["kind"], "from_s": from_s, "to_s": to_s}


def _made_twice(rounds: Columns) -> int:
    """How many rounds several nodes have aggregated: there models of one round go different ways."""
    if not rows(rounds):
        return 0
    made = np.unique(np.stack([rounds["round"], rounds["aggregator"]]), axis=1)
    return int((np.unique(made[0], return_counts=True)[1] > 1).sum())


def _metric(evaluations: Columns, result: Json | None) -> Json:
    if result is not None:
        return dict(result["metric"])
    name = first_metric(evaluations)
    if name is None:
        return {"name": None, "best": None, "final": None, "higher_is_better": True}
    values, higher = evaluations[name], quantities.is_percentage(name)
    known = values[~np.isnan(values)]  # a model may diverge after a good one
    best = float(known.max() if higher else known.min()) if len(known) else None
    return {"name": name, "best": best, "final": float(values[-1]), "higher_is_better": higher}


def _nodes(nodes: Columns) -> Json:
    """Who takes part: peers by their names; simulated nodes by city, the cities apart, as many share one."""
    if not rows(nodes):
        return {}
    if "name" in nodes:
        return {"names": nodes["name"].tolist()}
    names = ("city", "country", "latitude", "longitude")
    keys = list(zip(*(nodes[name].tolist() for name in names), strict=True))
    index: dict[Any, int] = {}
    # A missing number is not equal to itself, but the text of one is.
    place_of = [index.setdefault(str(key), len(index)) for key in keys]
    first = [place_of.index(place) for place in range(len(index))]
    others = {name: column for name, column in nodes.items() if name not in (*names, "node")}
    text = {}
    for name in ("city", "country"):
        text[name] = ["" if value != value else str(value) for value in nodes[name][first].tolist()]
    where = plain({name: nodes[name][first] for name in ("latitude", "longitude")})
    return {"places": {**text, **where}, "place_of": place_of, **plain(others)}


def _with(table: dict[str, list[Any]], more: list[Json]) -> dict[str, list[Any]]:
    count = rows(table)  # type: ignore[arg-type]
    names = dict.fromkeys([*table, *(more[0] if more else ())])
    return {name: [*table.get(name, [None] * count), *(row.get(name) for row in more)] for name in names}


def _stat(path: Path) -> tuple[int, float]:
    """Size and time of the last change; nothing and never if it is not there."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0.0
    return found.st_size, found.st_mtime
