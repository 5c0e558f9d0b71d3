"""From studies and sweeps to a page: plan, run what is missing, draw.

A sweep is a study whose arms are the points of a grid around one spec.
"""

from __future__ import annotations

import os
import re
import shlex
import time
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from plexus.checked import suggest
from plexus.errors import PlexusError, StopRun
from plexus.experiment.progress import Tick
from plexus.report.page import write_report
from plexus.runs.run import result_of
from plexus.spec import toml
from plexus.spec.toml import EXPERIMENTS, FULL_SIZE, located, read_text, read_toml, sized
from plexus.studies.page import Album
from plexus.studies.plan import Planned, RunPlan, make_plan
from plexus.studies.pool import Order, finish, simulated
from plexus.studies.study import REALITY, SIZES, STUDIES, Sized, load_study

PAGE = "report.html"
TRIED_S = 1.5
"""A run of each kind goes on for so long to see how fast it is."""


def reproduce(
    studies: Sequence[str],
    size: str,
    out: Path | str | None,
    tasks: Sequence[str],
    experiments: Path | str | None,
    say: Callable[[str], None],
    pool: dict[str, Any],
) -> Path:
    """As `plexus.reproduce`; `say` is told what somebody should know, and `pool` is for `finish`."""
    out = default_out(studies, size) if out is None else Path(out)
    plan = make_plan(load_studies(studies, size, experiments), out, tasks)
    options = [f"--task={task}" for task in tasks]
    command = shlex.join(["plexus", "reproduce", *studies, "--size", size, *options])
    title = "The paper's results"
    if not {"all", *STUDIES}.issuperset(studies):
        title = "; ".join(dict.fromkeys(study.title for study in plan.studies))
    return write_page(carried_out(plan, say, **pool), out, f"{title}, size {size}", command, say)


def carried_out(plan: RunPlan, say: Callable[[str], None], **pool: Any) -> Album:
    """All runs of a plan; those that have no result yet are done now, as `pool` says (see `finish`)."""
    for task, why in plan.skipped.items():
        say(f"skipping the task {task}: {why}")
    if not plan.runs:
        raise PlexusError("nothing left to run: the data of every task is missing")
    finish(plan.all_runs, **pool)
    return Album(plan)


def default_out(studies: Sequence[str], size: str) -> Path:
    """Where the runs and the page go if nobody says so: studies of one's own have a place of their own."""
    own = [Path(name).stem for name in studies if name.endswith(".toml")]
    return Path("runs") / f"{own[0] if own else 'reproduce'}-{size}"


def load_studies(names: Sequence[str], size: str, experiments: Path | str | None = None) -> list[Sized]:
    """The studies with these names, part by part; `all` stands for those of the paper.

    They are in the folder `experiments` of the working directory, or those that come with Plexus.
    """
    if size not in SIZES:
        raise PlexusError(f"--size {size}: is not one of {', '.join(SIZES)}{suggest(size, SIZES)}")
    here = Path("experiments" if experiments is None else experiments)
    is_there = experiments is not None or (here / f"{STUDIES[0]}.toml").is_file()
    wanted = [each for name in names for each in (STUDIES if name == "all" else (name,))]
    named = (*STUDIES, *REALITY)
    for name in wanted:
        if name not in named and not name.endswith(".toml"):
            known = f"{', '.join((*STUDIES, 'all', *REALITY))}, nor a file that ends in .toml"
            raise PlexusError(f"{name}: is not one of {known}{suggest(name, named)}")
    folder = here if is_there else EXPERIMENTS
    return [part for name in dict.fromkeys(wanted) for part in load_study(name, size, folder)]


def write_page(album: Album, out: Path, title: str, command: str, say: Callable[[str], None]) -> Path:
    """Draw everything, put it on one page, and say what is seen there."""
    page = out / PAGE
    studies = [study for study in album.plan.studies if album.plan.tasks_of(study)]
    sections = [section for study in studies for section in album.sections(study)]
    arms = album.arms() if any(study.study.draw for study in studies) else None
    write_report(page, title, sections, list(album.runs.values()), command, arms)
    for of, seen in album.seen:
        say(f"{of}: {seen}")
    return page


def sweep_toml(
    spec: Path, grid: Sequence[str], changes: Sequence[str], seeds: str, size: str | None, folder: Path
) -> str:
    """The file of a sweep, to be kept in `folder`: all that the options of the command say."""
    file = located(spec)
    tables = read_toml(read_text(file), str(file))
    sized(tables, size or FULL_SIZE, str(file))  # there is such a size
    keys = dict(tables.get("sizes", {}).get(size, {}))
    keys |= {".".join(path): value for path, value, _ in toml.assignments(changes)}
    axes: dict[str, list[Any]] = {}
    for key, values in map(parse_axis, grid):
        if key in axes:
            raise PlexusError(f"--grid {key}: is there twice; give all its values at once")
        axes[key] = values
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
    # Seen from the first moments of the shortest, which are not kept.
    run = min(runs, key=lambda run: run.cost)
    ticks: list[tuple[float, float]] = []
    """When it was how far, first and last: what comes before the first is set-up."""

    def look(at: Tick) -> None:
        ticks[1:] = [(time.perf_counter(), at.simulated_s)]
        if ticks[-1][0] - ticks[0][0] > TRIED_S:
            raise StopRun

    with TemporaryDirectory() as folder:
        simulated(Order(run, resume=False, device=device), look, Path(folder) / "run")
    (began_s, first_s), (now_s, last_s) = ticks[0], ticks[-1]
    return (now_s - began_s) * 3600 * run.spec.hours / max(last_s - first_s, 1.0) / run.cost
