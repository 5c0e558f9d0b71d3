"""The command `plexus`. What is heavy is imported by the command that needs it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from plexus import __version__, loading
from plexus.cli.groups import LazyGroup
from plexus.errors import Interrupted, PlexusError, TaskError

if TYPE_CHECKING:
    from plexus.cli.dashboard import Page
    from plexus.runs.result import ProtocolBench, Result
    from plexus.spec.experiment import ExperimentSpec

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130

SECTIONS = {
    "Simulate": ("run", "new", "reproduce", "storm"),
    "Look at results": ("report", "compare", "dashboard"),
    "Devices and data": ("traces", "data"),
    "Run it for real": ("fleet", "session", "node", "export"),
    "This machine": ("doctor", "bench", "completion"),
}
ENDINGS = """\b
Exit status: 0 done · 1 it ran, and something in it failed · 2 bad input, in one line that
names it · 130 stopped early by Ctrl-C or SIGTERM, what there is was kept.
NO_COLOR=1 turns colours off; without a terminal there are none. `plexus COMMAND --help` has examples.
"""


@click.group(
    cls=LazyGroup,
    elsewhere={
        "completion": ("plexus.cli.groups:completion", "Let your shell complete commands."),
        "dashboard": ("plexus.cli.dashboard:dashboard", "Look at runs and live fleets in a browser."),
        "data": ("plexus.cli.data:data", "Fetch and check data sets."),
        "doctor": ("plexus.cli.doctor:doctor", "Check this machine."),
        "export": ("plexus.cli.live:export", "Write a peer's newest model to a file."),
        "fleet": ("plexus.cli.live:fleet", "Run many live peers on this machine."),
        "node": ("plexus.cli.live:node", "Run one live peer and look after it."),
        "compare": ("plexus.cli.report:compare", "Compare runs in the terminal."),
        "report": (
            "plexus.cli.report:report",
            "Write a page about runs: figures, tables, how to repeat them.",
        ),
        "reproduce": ("plexus.cli.reproduce:reproduce", "Figures and tables of the paper, on one page."),
        "session": ("plexus.cli.live:session", "Found a session and admit nodes to it."),
        "new": ("plexus.cli.new:new", "Write the beginnings of a task of your own."),
        "storm": ("plexus.cli.storm:storm", "Find ways in which a session fails."),
        "traces": ("plexus.cli.traces:traces", "Look into traces of devices, and make some."),
    },
    sections=SECTIONS,
    epilog=ENDINGS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, "-V", "--version", prog_name="plexus")
@click.pass_context
def cli(context: click.Context) -> None:
    """Train one model across many unreliable devices, with no server.

    Start with: plexus run quickstart
    """
    if os.environ.get("NO_COLOR"):  # rich looks by itself, click does not
        context.color = False


@cli.command()
@click.argument("spec_file", metavar="[SPEC]", type=click.Path(path_type=Path), required=False)
@click.option(
    "--set",
    "overrides",
    metavar="KEY=VALUE",
    multiple=True,
    help="Change a key of the spec, e.g. protocol.sample_size=10. May be given several times.",
)
@click.option("--size", metavar="NAME", help="One of the sizes that the spec has, e.g. tiny.")
@click.option("--seed", type=int, metavar="N", help="Change the seed of the spec.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The run directory.  [default: runs/NAME-DIGEST]",
)
@click.option("--force", is_flag=True, help="Replace an earlier run in the run directory.")
@click.option(
    "--engine",
    metavar="NAME",
    default="auto",
    show_default=True,
    help="What trains: auto, inline, processes, stacked or ray.",
)
@click.option("--device", metavar="NAME", help="Where it trains: cpu, cuda or cuda:N.")
@click.option("--workers", type=click.IntRange(min=1), metavar="N", help="How many processes train.")
@click.option("--address", metavar="ADDRESS", help="The Ray cluster that the engine ray uses.")
@click.option(
    "--model-memory",
    "model_memory_gb",
    type=click.FloatRange(min=0, min_open=True),
    metavar="GB",
    default=2.0,
    show_default=True,
    help="Models that nodes hold go to disk past this.",
)
@click.option(
    "--checkpoint-every",
    type=click.FloatRange(min=0),
    metavar="MINUTES",
    default=5.0,
    show_default=True,
    help="Write down how to go on after a crash this often.",
)
@click.option(
    "--resume",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Go on with the run in DIR from its checkpoint. Takes the place of SPEC.",
)
@click.option("--tensorboard", is_flag=True, help="Write TensorBoard's files into the directory.")
@click.option("--watch", is_flag=True, help="Open the dashboard of the run in a browser.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
@click.option(
    "--json-lines",
    is_flag=True,
    help="Print every row as it is recorded, one JSON object a line, then the result.",
)
@click.option("--quiet", "-q", is_flag=True, help="Print nothing but errors and the JSON object.")
def run(
    spec_file: Path | None,
    overrides: tuple[str, ...],
    size: str | None,
    seed: int | None,
    out: Path | None,
    force: bool,
    resume: Path | None,
    tensorboard: bool,
    watch: bool,
    as_json: bool,
    json_lines: bool,
    quiet: bool,
    **machinery: Any,
) -> None:
    """Simulate the experiment in SPEC.

    SPEC is a TOML file, or the name of one that comes with Plexus, such as quickstart. Prints a summary, and
    leaves a run directory with the resolved spec, the metrics and a figure. Ctrl-C stops early and keeps
    what there is (twice: at once); --resume goes on with a run that was stopped or killed.
    """
    from plexus.cli.run import how_to_go_on, trackers
    from plexus.experiment.checkpoint import outcome_of
    from plexus.runs.directory import CHECKPOINT, claim
    from plexus.runs.run import spec_dir_of
    from plexus.spec.experiment import load_spec, located

    if resume is not None:
        if spec_file or overrides or size or seed is not None or out or force:
            raise click.UsageError("--resume goes on with a run as it is: give it no spec")
        outcome = outcome_of(resume)
        if outcome is not None:
            _note(f"{resume}: the run is finished", quiet)
            if as_json or json_lines:
                _print_json(outcome)
            return
        spec, base_dir, out = load_spec(resume / "spec.toml"), spec_dir_of(resume), resume
        if not (resume / CHECKPOINT).exists():
            _note(f"{resume} has no checkpoint: the run begins anew", quiet)
    elif spec_file is None:
        raise click.UsageError("give a spec, e.g. quickstart, or --resume DIR")
    else:
        spec = load_spec(spec_file, overrides, seed, size)
        base_dir = located(spec_file).parent
        out = out or Path("runs") / f"{spec.name}-{spec.digest()}"
        moved = claim(out, spec.digest(), force=force)
        if moved is not None:
            _note(f"the earlier run in {out} is now {moved}", quiet)
    machinery["checkpoint_every_s"] = 60 * machinery.pop("checkpoint_every")
    extras: dict[str, Any] = {"resume": resume is not None}
    with (
        _watching(out, watch, quiet) as page,
        trackers(out, tensorboard=tensorboard, json_lines=json_lines) as listen,
    ):
        if listen is not None:
            extras["listen"] = listen
        result, reached = _simulate(spec, base_dir, out, quiet, machinery, extras)
        _draw(out, quiet)
        _show(spec, result, as_json or json_lines, quiet)
        if page is not None and not result.interrupted:
            page.linger()
    if result.interrupted:
        raise Interrupted(f"interrupted {reached}; what there is, is in {out}{how_to_go_on(out)}")


def _watching(out: Path, watch: bool, quiet: bool) -> AbstractContextManager[Page | None]:
    """The dashboard beside the run, if somebody wants it."""
    if not watch:
        return nullcontext()
    beside: AbstractContextManager[Page] = loading.load("plexus.cli.dashboard:watching")(out, quiet=quiet)
    return beside


def _simulate(
    spec: ExperimentSpec,
    base_dir: Path,
    out: Path,
    quiet: bool,
    machinery: dict[str, Any],
    extras: dict[str, Any],
) -> tuple[Result, str]:
    """The result, and how far it came in words."""
    from plexus.cli.progress import progress_for
    from plexus.cli.run import how_to_go_on, stoppable

    progress = progress_for(spec.name, spec.hours * 3600, sys.stderr, quiet=quiet)
    simulate, options = (
        loading.load(f"plexus.experiment.simulation:{name}") for name in ("simulate", "Machinery")
    )
    try:
        with stoppable(progress, quiet=quiet) as watched, progress:
            result: Result = simulate(spec, base_dir, out, watched, options(**machinery), **extras)
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted {progress.how_far()}{how_to_go_on(out)}") from None
    return result, progress.how_far()


def _draw(out: Path, quiet: bool) -> None:
    """The figure is a courtesy: a run does not fail for want of it."""
    from plexus.report.learning_curve import accuracy_over_time
    from plexus.runs.directory import FIGURE
    from plexus.runs.run import load_run

    try:
        accuracy_over_time(load_run(out), out / FIGURE)
    except PlexusError as error:
        _note(f"no figure drawn: {error}", quiet)


def _show(spec: ExperimentSpec, result: Result, as_json: bool, quiet: bool) -> None:
    if not quiet:
        from rich.console import Console

        from plexus.cli.run import print_summary

        title = f"{spec.name}: {spec.protocol.name} on {spec.task.name}, {spec.nodes} nodes, seed {spec.seed}"
        print_summary(title, result, Console(stderr=as_json, highlight=False))
    if as_json:
        _print_json(result)


def _print_json(value: Result | ProtocolBench) -> None:
    import msgspec

    click.echo(msgspec.json.encode(value))


def _note(text: str, quiet: bool) -> None:
    if not quiet:
        click.echo(f"plexus: {text}", err=True)


@cli.group(
    cls=LazyGroup,
    elsewhere={
        "training": ("plexus.cli.new:bench_training", "Local trainings a second, by engine."),
        "transport": ("plexus.cli.live:bench_transport", "Live peers' network on loopback."),
    },
)
def bench() -> None:
    """Measure what simulating costs on this machine."""


@bench.command()
@click.option("--nodes", type=click.IntRange(min=1), metavar="N", default=1000, show_default=True)
@click.option(
    "--hours",
    type=click.FloatRange(min=0, min_open=True),
    metavar="H",
    default=1.0,
    show_default=True,
    help="Simulated hours.",
)
@click.option("--churn", is_flag=True, help="Nodes come and go; about 8 % are online.")
@click.option("--protocol", "name", default="plexus", show_default=True, metavar="NAME")
@click.option(
    "--set",
    "overrides",
    metavar="KEY=VALUE",
    multiple=True,
    help="Change a parameter of the protocol, e.g. topology=regular.",
)
@click.option("--seed", type=click.IntRange(min=0), metavar="N", default=1, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
def protocol(
    nodes: int, hours: float, churn: bool, name: str, overrides: tuple[str, ...], seed: int, as_json: bool
) -> None:
    """A protocol alone: messages, views, timers and transfers, without training."""
    result: ProtocolBench = loading.load("plexus.bench.protocol:bench_protocol")(
        nodes=nodes, hours=hours, churn=churn, seed=seed, protocol=name, overrides=overrides
    )
    if as_json:
        _print_json(result)
        return
    from rich.console import Console

    from plexus.cli.run import print_bench

    print_bench(result, Console(highlight=False))


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command, and end the process with a line for the user and a status for scripts."""
    try:
        status = cli.main(arguments, prog_name="plexus", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except PlexusError as error:
        click.echo(f"plexus: {' '.join(str(error).split())}", err=True)
        sys.exit(FAILED if isinstance(error, TaskError) else BAD_INPUT)
    except (Interrupted, KeyboardInterrupt, click.Abort) as stop:
        click.echo(f"plexus: {str(stop) or 'interrupted'}", err=True)
        sys.exit(INTERRUPTED)
    sys.exit(status if isinstance(status, int) else 0)
