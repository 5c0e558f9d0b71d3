"""Finds what there is to look at. What is asked for is looked up here, never joined to a path."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from plexus import quantities
from plexus.dashboard.run import AskedNodes, ShownRun
from plexus.dashboard.slices import Json
from plexus.errors import PlexusError
from plexus.report.arms import NOT_THE_SETTING, Arm, group, load
from plexus.report.comparison import compare, findings, table_of
from plexus.report.document import number, over_seeds, text_of
from plexus.report.naming import differences
from plexus.report.standard import by_setting, titles
from plexus.runs.result import Result
from plexus.runs.run import VERSIONS

DEPTH = 3
"""Runs are looked for in folders of folders, but no deeper."""
NODES = "nodes"
"""The id of nodes that are given by their addresses."""
TOTALS: tuple[tuple[str, Callable[[Result], float], Callable[[float], str]], ...] = (
    ("Rounds", lambda result: result.rounds, number),
    ("Sent by all nodes", lambda result: result.sent_bytes, quantities.size),
    ("Training on devices [h]", lambda result: result.training_s / 3600, number),
)
"""Of whole sessions."""


class Library:
    """The runs below a directory, or the nodes at some addresses."""

    def __init__(self, root: Path | None, addresses: tuple[str, ...] = ()) -> None:
        if root is not None and not root.is_dir():
            raise PlexusError(f"{root}: no such directory; `plexus run` makes runs in runs/")
        self.root = root.resolve() if root is not None else None
        self._known: dict[str, ShownRun] = {}
        self._lock = threading.Lock()
        if addresses:
            self._known[NODES] = AskedNodes(NODES, addresses)

    def sources(self) -> dict[str, ShownRun]:
        """Everything there is now, by id."""
        with self._lock:
            if self.root is not None:
                self._known = dict(self._found(self.root))
            return self._known

    def listing(self) -> Json:
        """Every run in a line, and the arms: runs of one setting, one for each seed."""
        found: list[Json] = []
        specs: dict[str, Json] = {}
        for id, source in self.sources().items():
            try:
                line, spec = source.summary(), source.spec()
            except PlexusError as error:  # one damaged run must not hide the others
                found.append({"id": id, "name": id, "error": " ".join(str(error).split())})
                continue
            specs[id] = spec
            found.append({**line, "arm": _arm(line["kind"], spec)})
        apart = differences(specs)
        found = [{**each, "differs": apart.get(each["id"], [])} for each in found]
        return {"root": self.root and str(self.root), "runs": found, "best": _best_over_seeds(found)}

    def compared(self, ids: Sequence[str]) -> Json:
        """By the rules of `plexus compare`: the arms of these runs, and for each setting who is better."""
        ids_of = {source.path: id for id in ids if (source := self.get(id))}
        every = group(map(load, ids_of))
        groups = by_setting(every)
        titled = zip(titles(groups), groups, strict=True)
        settings = [{"title": title, **_judged(arms, ids_of)} for title, arms in titled]
        return {"arms": _named(every, ids_of), "settings": settings}

    def get(self, id: str) -> ShownRun | None:
        return self._known.get(id) or self.sources().get(id)

    def _found(self, root: Path) -> Iterator[tuple[str, ShownRun]]:
        """Nothing is looked for inside a run, be it of a fleet; what is not ours to read is passed over."""
        for folder, inside, files in os.walk(root):
            path = Path(folder)
            below = path.relative_to(root)
            is_run = VERSIONS in files
            is_end = is_run or len(below.parts) == DEPTH
            inside[:] = [] if is_end else sorted(name for name in inside if not name.startswith("."))
            if is_run:
                id = below.as_posix() if below.parts else root.name
                yield id, self._known.get(id) or ShownRun(id, path)


def _named(arms: Sequence[Arm], ids_of: dict[Path, str]) -> list[Json]:
    return [{"label": arm.label, "runs": [ids_of[run.path] for run in arm.runs]} for arm in arms]


def _judged(arms: Sequence[Arm], ids_of: dict[Path, str]) -> Json:
    """Arms of one setting: who is better in words, and every number with a cell for each arm."""
    comparison = compare(arms)
    table = table_of(comparison)
    results = [[run.result for run in arm.runs if run.result] for arm in arms]
    columns = list(zip(table.columns, *table.rows, strict=True))[1:]
    for name, of, text in TOTALS:
        columns.append((name, *(over_seeds([*map(of, each)], text) for each in results)))
    rows = [[*map(text_of, column)] for column in columns]
    return {"seen": findings(comparison), "note": table.note, "rows": rows, "arms": _named(arms, ids_of)}


def _best_over_seeds(runs: list[Json]) -> dict[str, Json]:
    """By arm, the mean of its finished runs and its interval, in words and as a number."""
    of_arms: dict[str, list[Json]] = {}
    for run in runs:
        if run.get("status") == "finished" and run["metric"]["best"] is not None:
            of_arms.setdefault(run["arm"], []).append(run["metric"])
    found = {}
    for arm, metrics in of_arms.items():
        mean = over_seeds([each["best"] for each in metrics], partial(quantities.metric, metrics[0]["name"]))
        found[arm] = {"text": mean.text, "value": mean.value}
    return found


def _arm(kind: str, spec: Json) -> str:
    """The same for runs of one setting, whatever their seed and name."""
    setting = {key: value for key, value in spec.items() if key not in NOT_THE_SETTING}
    return hashlib.blake2b(json.dumps([kind, setting], sort_keys=True).encode(), digest_size=6).hexdigest()
