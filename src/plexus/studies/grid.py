"""A sweep: a study whose arms are the points of a grid around one spec, and what it will take."""

from __future__ import annotations

import os
import re
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from plexus.errors import PlexusError, StopRun
from plexus.experiment.progress import Tick
from plexus.runs.run import result_of
from plexus.spec import toml
from plexus.spec.toml import FULL_SIZE, located, read_text, read_toml, sized
from plexus.studies.plan import Planned, RunPlan
from plexus.studies.pool import Order, simulated

TRIED_S = 1.5
"""A run of each kind goes on for so long to see how fast it is."""


def sweep_toml(
    spec: Path, grid: Sequence[str], changes: Sequence[str], seeds: str, size: str | None, folder: Path
) -> str:
    """The file of a sweep, to be kept in `folder`: all that the options of the command say."""
    file = located(spec)
    tables = read_toml(read_text(file), str(file))
    sized(tables, size or FULL_SIZE, str(file))  # there is such a size
    keys = dict(tables.get("sizes", {}).get(size, {}))
    keys |= {".".join(path): value for path, value, _ in toml.assignments(changes)}
    axes = dict(parse_axis(each) for each in grid)
    # A mere name is looked up wherever the sweep is.
    task = str(spec) if file != spec else os.path.relpath(file, folder)
    swept = " × ".join(key.removesuffix(".name").rpartition(".")[2].replace("_", " ") for key in axes)
    title = f"{tables.get('name', file.stem)}: {swept or 'seeds'}"
    _, listed = parse_axis(f"seeds={seeds}", "--seeds")
    sweep = {"title": title, "tasks": [task], "seeds": listed, "spec": keys, "grid": axes}
    text = toml.dumps({key: value for key, value in sweep.items() if value})
    lists = re.compile(r"\[\n    (.*?),\n\]", re.DOTALL)
    return lists.sub(lambda found: f"[{found[1]}]".replace("\n    ", " "), text)


def is_sweep(tables: dict[str, Any]) -> bool:
    """Whether a TOML file is a sweep or another study, and not a spec."""
    return not {"tasks", "parts"}.isdisjoint(tables)


def parse_axis(text: str, option: str = "--grid") -> tuple[str, list[Any]]:
    """`section.key=2,5,10` or `1..5` as a key and values. These are TOML; a bare word is a string."""
    key, equals, values = (part.strip() for part in text.partition("="))
    said = f"{option} {text if option == '--grid' else values}"
    if not (equals and key and values):
        raise PlexusError(f"{said}: expected section.key=value,value, e.g. protocol.sample_size=2,5,10")
    if ends := re.fullmatch(r"(\d+)\.\.(\d+)", values):
        found: list[Any] = list(range(int(ends[1]), int(ends[2]) + 1))
        if not found:
            raise PlexusError(f"{said}: give the lesser number first, e.g. 1..5")
        return key, found
    try:
        return key, tomllib.loads(f"values = [{values}]")["values"]
    except tomllib.TOMLDecodeError:
        return key, [toml.parse_assignment(f"{key}={each}")[1] for each in values.split(",")]


def seconds_left(plan: RunPlan, jobs: int, device: str | None) -> float:
    """A guess at how long the runs that are left take, from those that are done or first moments of some."""
    kinds: dict[tuple[str, str], list[Planned]] = {}
    for run in plan.all_runs:
        kinds.setdefault(_kind(run), []).append(run)
    todo = [run for run in plan.all_runs if not run.is_done]
    pace = {kind: _pace(kinds[kind], device) for kind in set(map(_kind, todo))}
    each_s = [run.cost * pace[_kind(run)] for run in todo]
    return max(sum(each_s) / jobs, max(each_s)) if each_s else 0.0


def _kind(run: Planned) -> tuple[str, str]:
    return run.spec.task.name, run.spec.protocol.name


def _pace(runs: Sequence[Planned], device: str | None) -> float:
    """Seconds for each unit of cost."""
    results = [(run, result_of(run.out)) for run in runs if run.is_done]
    if done := [(run.cost, result.wall_s) for run, result in results if result is not None]:
        return sum(wall_s for _, wall_s in done) / sum(cost for cost, _ in done)
    run = min(runs, key=lambda run: run.cost)
    return tried_s(run, device) / run.cost


def tried_s(run: Planned, device: str | None) -> float:
    """How long a run takes in all, seen from its first moments; they are not kept."""
    ticks: list[tuple[float, float]] = []
    """When it was how far, first and last: what comes before the first is set-up."""

    def look(at: Tick) -> None:
        ticks[1:] = [(time.perf_counter(), at.simulated_s)]
        if ticks[-1][0] - ticks[0][0] > TRIED_S:
            raise StopRun

    with TemporaryDirectory() as folder:
        simulated(Order(run, resume=False, device=device), look, Path(folder) / "run")
    (began_s, first_s), (now_s, last_s) = ticks[0], ticks[-1]
    return (now_s - began_s) * 3600 * run.spec.hours / max(last_s - first_s, 1.0)
