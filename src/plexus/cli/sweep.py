"""`plexus sweep`: a spec with every value of a grid and every seed, on all cores."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import click

from plexus import quantities
from plexus.cli.compare import print_comparison
from plexus.cli.groups import JSON, NOTE, PATH, TAGS, about, flag, option, set_option
from plexus.cli.progress import display_for, study_progress
from plexus.cli.reproduce import ADDRESS, DEVICE, JOBS, QUIET, print_plan, stopping_politely
from plexus.errors import PlexusError
from plexus.files import write_text
from plexus.machine import usable_cores
from plexus.spec.toml import FULL_SIZE, located, read_text, read_toml
from plexus.studies.plan import make_plan
from plexus.studies.reproduce import carried_out, is_sweep, seconds_left, sweep_toml, write_page
from plexus.studies.study import sized_parts


@click.command()
@click.argument("spec", metavar="SPEC", type=PATH)
@option(
    "--grid",
    "KEY=A,B,…",
    "Values of a key, e.g. protocol.sample_size=2,5,10. Several: each with each of the others.",
    multiple=True,
)
@set_option("a key of the spec for all runs, e.g. hours=2")
@option("--size", "NAME", "One of the sizes that the spec has, e.g. tiny.")
@option("--seeds", "A..B", "Seeds of every point: 1..5, or 1,2,7.  [default: 1..3]")
@option("--out", "DIR", "Where runs and page go.  [default: runs/sweep-NAME]")
@option("--save", "FILE", "Keep the sweep as a file, to be run again as SPEC.")
@flag("--plan only_plan", "List the runs and how long they take; do nothing.")
@TAGS
@NOTE
@DEVICE
@JOBS
@ADDRESS
@JSON
@QUIET
def sweep(
    spec: Path,
    grid: tuple[str, ...],
    overrides: tuple[str, ...],
    size: str | None,
    seeds: str | None,
    out: Path | None,
    save: Path | None,
    only_plan: bool,
    tags: tuple[str, ...],
    note: str,
    device: str | None,
    jobs: int | None,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Run a spec with every value of a grid and every seed.

    SPEC is an experiment, as for `plexus run`, or a sweep that was kept with --save. Ends with a table, with
    95 % intervals over seeds, and a page. Runs that are there already are not done again; Ctrl-C stops, and
    the same command goes on.
    """
    said = [*(f"--grid={each}" for each in grid), *(f"--set={each}" for each in overrides)]
    said += [f"--{name}={value}" for name, value in (("size", size), ("seeds", seeds)) if value]
    command = shlex.join(["plexus", "sweep", str(spec), *said])
    text, file = read_text(located(spec)), spec
    tables = read_toml(text, str(spec))
    if is_sweep(tables):
        if grid or overrides or seeds or save:
            raise click.UsageError(f"{spec} says what is swept: give it no --grid, --set, --seeds or --save")
        out = out or Path("runs") / spec.stem
    else:
        file = save or Path("sweep")
        text = sweep_toml(spec, grid, overrides, seeds or "1..3", size, file.parent)
        out, size = out or Path("runs") / f"sweep-{tables.get('name', located(spec).stem)}", None
    studies, cores = sized_parts(text, file, size or FULL_SIZE), jobs or usable_cores()
    plan = make_plan(studies, out)
    if save is not None:
        if save.exists() and save.read_text() != text:
            raise PlexusError(f"{save}: is another sweep; choose another name with --save")
        write_text(save, text)
    if only_plan:
        print_plan(plan, out)
        left_s = seconds_left(plan, cores, device)
        click.echo(f"about {quantities.clock(left_s)}, {cores} at a time" if left_s else "nothing to do")
        return
    with stopping_politely(), display_for(sys.stderr, quiet=quiet) as display:
        pool = {"jobs": jobs, "progress": study_progress(display, "sweep"), "about": about(tags, note)}
        album = carried_out(plan, display.note, device=device, **pool, **options)
        page = write_page(album, out, studies[0].title, command, display.note)
    if as_json or not quiet:
        print_comparison(list(album.runs.values()), as_json)
    if not quiet:
        click.echo(f"\n{page}: figures and tables are in {page.stem}-files, runs in runs", err=as_json)
