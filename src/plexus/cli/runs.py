"""`plexus runs`: what there is, what it came to, and putting it away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.console import Console

from plexus import quantities
from plexus.cli.groups import JSON, PATH, Group, answer, flag, option, print_json
from plexus.cli.summary import print_summary
from plexus.dashboard.library import Library
from plexus.dashboard.run import ShownRun
from plexus.runs.directory import archive, remove
from plexus.runs.run import result_of, versions_of

runs = Group("runs")
RUNS = click.argument("paths", metavar="RUN...", nargs=-1, required=True, type=PATH)
YES = flag("--yes -y", "Do not ask.")
ORDERS = {
    "started": lambda run: str(run.get("started") or ""),
    "name": lambda run: run["id"],
    "best": lambda run: _worth(run.get("metric", {})),
}


@runs.command("list")
@click.argument("folder", type=PATH, default=Path("runs"))
@option("--tag tags", "WORD", "Only those that have it.", multiple=True)
@option("--search", "WORDS", "Only those with all these words.", default="", show_default=False)
@option("--sort", help="The newest or best first.", type=click.Choice(list(ORDERS)), default="started")
@JSON
def list_runs(folder: Path, tags: tuple[str, ...], search: str, sort: str, as_json: bool) -> None:
    """List the runs in FOLDER.

    Each with what it is and came to. One that is damaged is a line that says what is wrong.
    """
    words, found = search.lower().split(), []
    for run in Library(folder).listing()["runs"]:
        told = " ".join(_lines(run)).lower()
        if set(tags) <= set(run.get("tags", ())) and all(word in told for word in words):
            found.append(run)
    found.sort(key=ORDERS[sort], reverse=sort != "name")
    lines = (f"{first}\n{click.style(second, dim=True)}" for first, second in map(_lines, found))
    answer(found, as_json, f"{len(found)} runs in {folder}", *lines)


def _lines(run: dict[str, Any]) -> tuple[str, str]:
    """What it came to, and what it is."""
    if "error" in run:
        return f"{'damaged':<11} {'':>8} {'':>8}  {run['id']}", f"  {run['error']}"
    metric, reached = run["metric"], f"{quantities.hours(run['reached_s'])} h"
    best = quantities.metric(metric["name"] or "", metric["best"])
    what = [f"{run['protocol']} on {run['task']}", f"{run['nodes']} nodes", f"seed {run['seed']}"]
    about = [", ".join([*what, *run["differs"]]), *(f"#{tag}" for tag in run["tags"]), run["note"]]
    return f"{run['status']:<11} {best:>8} {reached:>8}  {run['id']}", f"  {'  '.join(filter(None, about))}"


def _worth(metric: dict[str, Any]) -> float:
    best = metric.get("best")
    return float("-inf") if best is None else best if metric["higher_is_better"] else -best


@runs.command()
@click.argument("path", metavar="RUN", type=PATH)
@JSON
def show(path: Path, as_json: bool) -> None:
    """Say what a run is and came to."""
    versions, found = versions_of(path), ShownRun(path.name, path).summary()
    if as_json:
        print_json(found)
        return
    made = f"  plexus {versions.get('plexus', '–')}, started {versions.get('started', '–')}"
    click.echo("\n".join([*_lines({**found, "differs": []}), made]))
    if (result := result_of(path)) is not None:
        print_summary(found["name"], result, Console(highlight=False))


@runs.command()
@RUNS
@YES
def rm(paths: tuple[Path, ...], yes: bool) -> None:
    """Delete what runs wrote.

    Anything else in their directories stays.
    """
    for path in paths:
        versions_of(path)  # it is one, before anything is deleted
    if not yes:
        click.confirm(f"Delete {', '.join(map(str, paths))}?", abort=True)
    for path in paths:
        click.echo(f"{path}: deleted" + ("" if remove(path) else ", but for what no run wrote"))


@runs.command("archive")
@RUNS
@option("--to folder", "DIR", "Where it goes.  [default: beside the run]")
def archive_runs(paths: tuple[Path, ...], folder: Path | None) -> None:
    """Pack runs into files.

    Each into NAME.tar.gz; its directory is deleted when that is written. `tar -xzf` brings it back.
    """
    for path in paths:
        click.echo(f"{path}: now {archive(path, folder or path.resolve().parent)}")
