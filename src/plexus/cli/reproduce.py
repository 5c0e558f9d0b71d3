"""`plexus reproduce`."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from plexus import api
from plexus.cli.groups import COUNT, flag, option
from plexus.errors import Interrupted
from plexus.machine import stopped_by
from plexus.studies.plan import RunPlan, make_plan
from plexus.studies.reproduce import default_out, load_studies
from plexus.studies.study import SIZES

DEVICE = option("--device", "NAME", "Where models are trained: cpu, cuda or cuda:N.")
JOBS = option("--jobs", "N", "How many runs at a time.  [default: one for each core]", type=COUNT)
ADDRESS = option("--address", "ADDRESS", "Do the runs on the Ray cluster there: HOST:PORT, or auto.")
QUIET = flag("--quiet -q", "Print nothing but errors.")


@click.command()
@click.argument("studies", metavar="STUDY...", nargs=-1, required=True)
@option(
    "--size",
    help="tiny: minutes; small: under an hour on two cores; paper: a GPU is of use.",
    type=click.Choice(SIZES),
    default="small",
)
@option("--out", "DIR", "Where runs and page go.  [default: runs/reproduce-SIZE]")
@option("--task tasks", "NAME", "Only this task, e.g. digits. May be repeated.", multiple=True)
@DEVICE
@JOBS
@ADDRESS
@flag("--plan only_plan", "List the runs, and do nothing.")
@QUIET
def reproduce(
    studies: tuple[str, ...], size: str, out: Path | None, only_plan: bool, quiet: bool, **options: Any
) -> None:
    """Make figures and tables of the paper, on one page.

    STUDY is fig1, fig3, table2, overhead, sample-size, success-fraction, views or all of these; crashes,
    cuts, late, fairness or attackers, which ask what reality does to a session; or the path of a study of
    your own. Runs that are there already are not done again; Ctrl-C stops, and the same command goes on.
    """
    if only_plan:
        out = out or default_out(studies, size)
        print_plan(make_plan(load_studies(studies, size), out, options["tasks"]), out)
        return
    with stopping_politely():
        page = api.reproduce(*studies, size=size, out=out, quiet=quiet, **options)
    if not quiet:
        click.echo(f"{page}: figures and tables are in {page.stem}-files, runs in runs")


@contextmanager
def stopping_politely() -> Iterator[None]:
    """Ctrl-C, and a `kill`, end the command with a line for whoever waits and a status for scripts."""
    try:
        with stopped_by(signal.default_int_handler):
            yield
    except KeyboardInterrupt as stop:
        raise Interrupted(str(stop) or "interrupted") from None


def print_plan(plan: RunPlan, out: Path) -> None:
    """A line for each run: what it is, whether it is done, and the name of its directory."""
    for (study, _, arm), runs in plan.runs.items():
        for run in runs:
            state = "done" if run.is_done else "begun" if run.can_resume else "to do"
            click.echo(f"{state:<5}  {study} {arm}: {run.title}  {run.out.name}")
    for task, why in plan.skipped.items():
        click.echo(f"skipped: {task}: {why}")
    asked = sum(map(len, plan.runs.values()))
    shared = len(plan.studies) > 1 and asked > len(plan.all_runs)
    more = ", some in more than one study" if shared else ""
    click.echo(f"{len(plan.all_runs)} runs in {out / 'runs'}{more}")
