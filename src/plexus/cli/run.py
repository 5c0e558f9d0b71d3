"""`plexus run`: simulate an experiment, or go on with one, and tell whoever wants to know."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any, NamedTuple, get_args

import click
from rich.console import Console

from plexus.cli import groups
from plexus.cli.dashboard import linger, need_server, watching
from plexus.cli.groups import COUNT, JSON, NOTE, PATH, POSITIVE, TAGS, flag, option
from plexus.cli.progress import RunProgress, display_for
from plexus.cli.summary import print_summary
from plexus.errors import Interrupted, PlexusError
from plexus.experiment.progress import stoppable
from plexus.learn.engines import Precision
from plexus.runs.directory import CHECKPOINT, FIGURE, claim
from plexus.runs.recorder import Listener
from plexus.runs.result import Result
from plexus.runs.run import SPEC, VERSIONS, load_run, versions_of
from plexus.runs.tensorboard import EventFile
from plexus.spec.experiment import ExperimentSpec, load_spec


class Job(NamedTuple):
    spec: ExperimentSpec
    base_dir: Path
    out: Path
    resume: bool
    force: bool = False


@click.command()
@click.argument("spec_file", metavar="[SPEC]", type=PATH, required=False)
@groups.set_option("a key of the spec, e.g. protocol.sample_size=10")
@option("--size", "NAME", "One of the sizes that the spec has, e.g. tiny.")
@option("--seed", "N", "Change the seed of the spec.", type=int)
@option("--out", "DIR", "The run directory.  [default: runs/NAME-DIGEST]")
@flag("--force", "Replace an earlier run in the run directory.")
@option(
    "--engine", "NAME", "What trains: auto, inline, processes, stacked, ray or ray-stacked.", default="auto"
)
@option("--device", "NAME", "Where it trains: cpu, cuda or cuda:N.")
@option(
    "--precision",
    help="Of products on a GPU: bf16 is fastest, float32 the CPU's.",
    type=click.Choice(get_args(Precision)),
    default="tf32",
)
@option("--workers", "N", "How many processes train.", type=COUNT)
@option("--address", "ADDRESS", "The Ray cluster that the engine ray uses.")
@option(
    "--model-memory model_memory_gb",
    "GB",
    "Models that nodes hold go to disk past this.",
    type=POSITIVE,
    default=2.0,
)
@option(
    "--checkpoint-every",
    "MINUTES",
    "Write down how to go on after a crash this often; 0: as often as costs a tenth of the time.",
    type=groups.Numbers(min=0),
    default=5.0,
)
@option(
    "--ahead/--no-ahead",
    help="Whether learning has a process of its own, so that events need not wait.  [default: if it pays]",
    default=None,
)
@option("--resume", "DIR", "Go on with the run in DIR from its checkpoint; takes no SPEC.")
@TAGS
@NOTE
@flag("--tensorboard", "Write TensorBoard's files into the directory.")
@flag("--watch", "Open the dashboard of the run in a browser.")
@JSON
@flag("--json-lines", "Print rows as they are recorded, a JSON object each, then the result.")
@flag("--quiet -q", "Print nothing but errors and the JSON object.")
def run(
    spec_file: Path | None,
    overrides: tuple[str, ...],
    size: str | None,
    seed: int | None,
    out: Path | None,
    force: bool,
    resume: Path | None,
    tags: tuple[str, ...],
    note: str,
    tensorboard: bool,
    watch: bool,
    as_json: bool,
    json_lines: bool,
    quiet: bool,
    checkpoint_every: float,
    **machinery: Any,
) -> None:
    """Simulate the experiment in SPEC.

    SPEC is a TOML file, or the name of one that comes with Plexus, such as quickstart. Prints a summary, and
    leaves a run directory with the resolved spec, the metrics and a figure. Ctrl-C stops early and keeps
    what there is (twice: at once); --resume goes on with a run that was stopped or killed.
    """
    as_json = as_json or json_lines
    if watch:
        need_server("--watch")
    if resume is not None:
        if spec_file or overrides or size or seed is not None or out or force or tags or note:
            raise click.UsageError("--resume goes on with a run as it is: give it no spec")
        job = _resumed(resume, as_json, quiet)
        if job is None:
            return
    elif spec_file is None:
        raise click.UsageError("give a spec, e.g. quickstart, or --resume DIR")
    else:
        spec = load_spec(spec_file, overrides, seed, size)
        out = out or Path("runs") / f"{spec.name}-{spec.digest()}"
        moved = claim(out, spec.digest(), force=force)
        if moved is not None:
            _note(f"the earlier run in {out} is now {moved}", quiet)
        job = Job(spec, spec_file.parent, out, resume=False, force=force)
    machinery["checkpoint_every_s"] = 60 * checkpoint_every
    if json_lines and machinery["ahead"] is None:
        machinery["ahead"] = False  # rows in the order in which things happened
    watched = watching(job.out, quiet=quiet) if watch else nullcontext()
    board = closing(EventFile(job.out)) if tensorboard else nullcontext()
    with watched as url, board as events:

        def listen(table: str, row: Mapping[str, Any]) -> None:
            """Beside the tables, others are told of rows as they are recorded: TensorBoard, a pipe."""
            if events is not None:
                events.row(table, row)
            if json_lines:
                groups.print_json({"table": table, **row})

        result, reached = _simulate(job, machinery, listen, quiet, groups.about(tags, note))
        _draw(job.out, quiet)
        _show(job.spec, result, as_json, quiet)
        if url is not None and not result.interrupted:
            linger(url)
    if result.interrupted:
        raise Interrupted(f"interrupted {reached}; what there is, is in {job.out}{_how_to_go_on(job.out)}")


def _resumed(out: Path, as_json: bool, quiet: bool) -> Job | None:
    """A run that goes on; None, and its outcome printed, if it came to its end already."""
    from plexus.experiment.checkpoint import outcome_of  # torch comes with it

    outcome = outcome_of(out)
    if outcome is not None:
        _note(f"{out}: the run is finished", quiet)
        if as_json:
            groups.print_json(outcome)
        return None
    job = Job(load_spec(out / SPEC), Path(versions_of(out).get("spec_dir", ".")), out, resume=True)
    if not (out / CHECKPOINT).exists():
        _note(f"{out} has no checkpoint: the run begins anew", quiet)
    return job


def _simulate(
    job: Job, machinery: dict[str, Any], listen: Listener, quiet: bool, said: dict[str, Any]
) -> tuple[Result, str]:
    """The result, and how far it came in words."""
    from plexus.experiment.simulation import Machinery, simulate

    display, options = display_for(sys.stderr, quiet=quiet), Machinery(**machinery)
    shown = RunProgress(job.spec.name, job.spec.hours * 3600, display)
    try:
        with stoppable(shown, quiet=quiet) as progress, display:
            where = job.spec, job.base_dir, job.out
            result = simulate(*where, progress, options, job.resume, listen, said, job.force)
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted {shown.how_far()}{_how_to_go_on(job.out)}") from None
    return result, shown.how_far()


def _how_to_go_on(out: Path) -> str:
    """The end of the line that an interrupted run leaves, if it left more than that."""
    has_begun = (out / VERSIONS).exists()
    return f"; go on with: plexus run --resume {shlex.quote(str(out))}" if has_begun else ""


def _draw(out: Path, quiet: bool) -> None:
    """The figure is a courtesy: a run does not fail for want of it."""
    from plexus.report.learning_curve import accuracy_over_time

    try:
        accuracy_over_time(load_run(out), out / FIGURE)
    except PlexusError as error:
        _note(f"no figure drawn: {error}", quiet)


def _show(spec: ExperimentSpec, result: Result, as_json: bool, quiet: bool) -> None:
    if not quiet:
        title = f"{spec.name}: {spec.protocol.name} on {spec.task.name}, {spec.nodes} nodes, seed {spec.seed}"
        print_summary(title, result, Console(stderr=as_json, highlight=False))
    if as_json:
        groups.print_json(result)


def _note(text: str, quiet: bool) -> None:
    if not quiet:
        click.echo(f"plexus: {text}", err=True)
