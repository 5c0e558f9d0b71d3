"""From studies and sweeps to a page: plan, run what is missing, draw."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from plexus.checked import suggest
from plexus.errors import PlexusError
from plexus.report.page import write_report
from plexus.spec.toml import EXPERIMENTS
from plexus.studies.page import Album
from plexus.studies.plan import RunPlan, make_plan
from plexus.studies.pool import finish
from plexus.studies.study import REALITY, SIZES, STUDIES, Sized, load_study

PAGE = "report.html"


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
