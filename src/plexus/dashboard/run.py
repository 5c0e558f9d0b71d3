"""A run directory, finished or growing, as the page wants it."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from plexus.dashboard.slices import binned, node_details, peaks, plain, take, window
from plexus.dashboard.source import Json
from plexus.errors import PlexusError
from plexus.files import named
from plexus.runs.directory import CHECKPOINT
from plexus.runs.run import RESULT, VERSIONS, result_of, spec_of, versions_of
from plexus.runs.tables import TABLES, Columns, TableReader, checked, rows

PARTS = ("sampling_s", "transfer_s", "training_s", "aggregation_s")
QUIET_S = 120.0
"""A run without a result that wrote nothing for so long is not running any more."""
SPARK_POINTS = 60
NOT_METRICS = {"simulated_s", "round", "loss", "sent_bytes", "training_s", "nodes"}


class SimulatedRun:
    """One run directory."""

    kind = "run"

    def __init__(self, id: str, path: Path) -> None:
        self.id = id
        self.path = path
        self._is_read_ahead = False
        self._tables = {name: TableReader(path / f"{name}.csv") for name in TABLES}

    def table(self, name: str) -> Columns:
        return checked(self._tables[name].columns(), self.path / f"{name}.csv")

    def stamp(self) -> str:
        files = [self.path / f"{name}.csv" for name in self._tables]
        sizes = (
            [_stat(each)[0] for each in files] if not self._is_finished else [_stat(self.path / RESULT)[1]]
        )
        return "-".join(map(str, [*sizes, self.status()]))

    @property
    def _is_finished(self) -> bool:
        return (self.path / RESULT).exists()

    def status(self) -> str:
        """finished, interrupted, running, or stopped where it ended without a result."""
        result = self._result()
        if result is not None:
            return "interrupted" if result.get("interrupted") else "finished"
        names = (*(f"{name}.csv" for name in self._tables), VERSIONS, CHECKPOINT)
        newest_s = max(_stat(self.path / name)[1] for name in names)
        return "running" if time.time() - newest_s < QUIET_S else "stopped"

    def summary(self) -> Json:
        spec, result = self.spec(), self._result()
        evaluations = self.table("evaluations")
        metric = self._metric(evaluations, result)
        spark = evaluations.get(metric["name"] or "", np.empty(0))
        return {
            "id": self.id,
            "kind": self.kind,
            "name": spec["name"],
            "status": self.status(),
            "protocol": spec.get("protocol", {}).get("name"),
            "task": spec.get("task", {}).get("name"),
            "nodes": spec["nodes"],
            "seed": spec.get("seed"),
            "until_s": 3600 * spec["hours"],
            "reached_s": self._reached_s(result),
            "rounds": self._rounds(result),
            "metric": metric,
            "started": self._versions().get("started"),
            "spark": plain({"value": spark[peaks(spark, SPARK_POINTS)]}, 4)["value"],
        }

    def overview(self) -> Json:
        result = self._result()
        evaluations, phases = self.table("evaluations"), self.table("phases")
        metric = self._metric(evaluations, result)
        value = evaluations.get(metric["name"] or "")
        kept = peaks(value) if value is not None else np.empty(0, np.intp)
        online, traffic = self.table("online"), self.table("traffic")
        found = {
            **self.summary(),
            "spec": self.spec(),
            "versions": self._versions(),
            "result": result,
            "evaluations": plain(take(evaluations, kept), 5),
            "online": plain(take(online, peaks(online.get("online", np.empty(0))))),
            "views": self._views(),
            "traffic": plain(take(traffic, peaks(traffic.get("simulated_s", np.empty(0))))),
            "phases": binned(phases, PARTS),
            "phase_means_s": {part: float(phases[part].mean()) for part in PARTS if rows(phases)},
            "nodes_known": _nodes(self.table("nodes")),
        }
        self._read_ahead()
        return found

    def window(self, from_s: float, to_s: float) -> Json:
        return window(self.table, from_s, to_s)

    def node(self, number: int) -> Json | None:
        return node_details(self.table, number)

    def _read_ahead(self) -> None:
        """The page will ask for a moment next: read what that needs while it draws its first part."""
        if not self._is_read_ahead:
            self._is_read_ahead = True
            for name in ("transfers", "trainings", "presence"):
                threading.Thread(target=self._look_into, args=(name,), daemon=True).start()

    def _look_into(self, name: str) -> None:
        with suppress(PlexusError):  # who asks for it will be told what is wrong
            self.table(name)

    def _views(self) -> Json:
        """The size of views over time: recorded as such, or taken from the states of the nodes."""
        views = self.table("views")
        if rows(views):
            return plain(take(views, peaks(views["mean_view"])))
        states = self.table("states")
        if not rows(states) or states["view"].dtype.kind not in "if":
            return {}
        seen = states["online"].astype(np.bool_) & ~np.isnan(states["view"].astype(np.float64))
        view, at_s = states["view"][seen].astype(np.float64), states["simulated_s"][seen]
        times_s, first = np.unique(at_s, return_index=True)
        if not len(times_s):
            return {}
        counts = np.diff(np.append(first, len(at_s)))
        return plain(
            {
                "simulated_s": times_s,
                "online": counts,
                "mean_view": np.add.reduceat(view, first) / counts,
                "min_view": np.minimum.reduceat(view, first),
                "max_view": np.maximum.reduceat(view, first),
            }
        )

    def _metric(self, evaluations: Columns, result: Json | None) -> Json:
        if result is not None:
            metric: Json = result["metric"]
            return metric
        name = next((each for each in evaluations if each not in NOT_METRICS), None)
        if name is None:
            return {"name": None, "best": None, "final": None, "higher_is_better": True}
        values, higher = evaluations[name], name == "accuracy"
        best = values.max() if higher else values.min()
        return {"name": name, "best": float(best), "final": float(values[-1]), "higher_is_better": higher}

    def _reached_s(self, result: Json | None) -> float:
        if result is not None:
            return float(result["simulated_s"])
        tables = (self.table(name) for name in ("online", "rounds", "evaluations"))
        return float(max((t["simulated_s"][-1] for t in tables if rows(t)), default=0.0))

    def _rounds(self, result: Json | None) -> int:
        if result is not None:
            return int(result["rounds"])
        tables = (self.table(name) for name in ("rounds", "evaluations"))
        return int(max((t["round"].max() for t in tables if rows(t)), default=0))

    def spec(self) -> Json:
        with named(self.path):
            return spec_of(self.path)

    def _result(self) -> Json | None:
        with named(self.path):
            found: Json | None = msgspec.to_builtins(result_of(self.path))
        return found

    def _versions(self) -> Json:
        with named(self.path):
            return versions_of(self.path)


def _nodes(nodes: Columns) -> Json:
    """Who takes part, the cities apart: many nodes share one."""
    if not rows(nodes):
        return {}
    names = ("city", "country", "latitude", "longitude")
    keys = list(zip(*(nodes[name].tolist() for name in names), strict=True))
    index: dict[Any, int] = {}
    # A missing number is not equal to itself, but the text of one is.
    place_of = [index.setdefault(str(key), len(index)) for key in keys]
    first = [place_of.index(place) for place in range(len(index))]
    others = {name: column for name, column in nodes.items() if name not in (*names, "node")}
    text = {name: _texts(nodes[name][first].tolist()) for name in ("city", "country")}
    where = plain({name: nodes[name][first] for name in ("latitude", "longitude")})
    return {"places": {**text, **where}, "place_of": place_of, **plain(others)}


def _texts(values: list[Any]) -> list[str]:
    return ["" if value != value else str(value) for value in values]


def _stat(path: Path) -> tuple[int, float]:
    """Size and time of the last change; nothing and never if it is not there."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0.0
    return found.st_size, found.st_mtime
