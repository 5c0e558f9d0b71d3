"""Ctrl-C and a polite `kill`: asked once, a run stops between two steps, from where it can go on."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click
import msgspec

from plexus import quantities
from plexus.cli.progress import Observer, Tick
from plexus.runs.recorder import Listener
from plexus.runs.result import Metric, ProtocolBench, Result, RoundTuning, Traffic
from plexus.runs.run import VERSIONS
from plexus.runs.tensorboard import EventFile

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

SIGNALS = (signal.SIGINT, signal.SIGTERM)
PATIENCE = "plexus: stopping after this simulated minute; once more stops at once\n"


class Stoppable:
    """Passes ticks on. What was asked for by a signal is done at the next one: `KeyboardInterrupt`.

    Before the first tick there is nothing to go on from, and to ask twice is to insist: both stop at once.
    """

    def __init__(self, observer: Observer, *, quiet: bool = True) -> None:
        self._observer = observer
        self._quiet = quiet
        self._has_begun = False
        self._is_asked = False

    def tick(self, at: Tick) -> None:
        """The run is between two steps."""
        self._has_begun = True
        self._observer.tick(at)
        if self._is_asked:
            raise KeyboardInterrupt

    def ask(self, number: int, frame: FrameType | None) -> None:
        """A signal came."""
        if self._is_asked or not self._has_begun:
            raise KeyboardInterrupt
        self._is_asked = True
        if not self._quiet:
            os.write(2, PATIENCE.encode())  # a signal may come while a stream is being written to


@contextmanager
def stoppable(
    observer: Observer, signals: Sequence[signal.Signals] = SIGNALS, *, quiet: bool = True
) -> Iterator[Stoppable]:
    """What a run is to tell of its progress, so that `signals` stop it.

    Also one that a script started in the background: a shell makes such commands deaf to SIGINT, and a
    run that nobody can stop would only burn processors.
    """
    stop = Stoppable(observer, quiet=quiet)
    before = {each: signal.signal(each, stop.ask) for each in signals}
    try:
        yield stop
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def how_to_go_on(out: Path) -> str:
    """The end of the line that an interrupted run leaves, if it left more than that."""
    if not (out / VERSIONS).exists():
        return ""
    return f"; go on with: plexus run --resume {shlex.quote(str(out))}"


# Who else is told of a run's rows as they are recorded, beside the tables: TensorBoard, a pipe.


@contextmanager
def trackers(out: Path, *, tensorboard: bool, json_lines: bool) -> Iterator[Listener | None]:
    """A listener that tells all of them, or None if nobody wants to know."""
    listeners: list[Listener] = []
    events = EventFile(out) if tensorboard else None
    if events is not None:
        listeners.append(events.row)
    if json_lines:
        listeners.append(_print_row)

    def tell(table: str, row: Mapping[str, Any]) -> None:
        for listener in listeners:
            listener(table, row)

    try:
        yield tell if listeners else None
    finally:
        if events is not None:
            events.close()


def _print_row(table: str, row: Mapping[str, Any]) -> None:
    click.echo(msgspec.json.encode({"table": table, **row}))


# The outcome of a run, for a person at a terminal.


def print_summary(title: str, result: Result, console: Console) -> None:
    """Rounds, quality, cost, traffic, fingerprints, and where the files are."""
    console.print(f"\n[bold]{title}[/]")
    _print(_facts(_run_facts(result)), console)
    if result.messages:
        console.print()
        _print(_traffic(result.messages), console)
    console.print()
    _print(_facts(_where(result)), console)


def _print(table: Table, console: Console) -> None:
    """Where lines are kept, in a file or a pipe, without the spaces that fill a column up."""
    if console.is_terminal:
        console.print(table)
        return
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        console.out(line.rstrip(), highlight=False)


def _run_facts(result: Result) -> list[tuple[str, str]]:
    metric, trainings = result.metric, result.trainings
    spared = trainings.asked - trainings.computed
    cut = " (interrupted)" if result.interrupted else ""
    return [
        ("simulated", f"{quantities.hours(result.simulated_s)} hours{cut}"),
        ("rounds", quantities.whole(result.rounds)),
        *_tuned(result.tuning),
        *([] if metric.name == "none" else [(quantities.metric_name(metric.name), _quality(metric))]),
        (
            "training",
            f"{quantities.hours(result.training_s)} device hours;"
            f" {quantities.whole(trainings.asked)} trainings, {quantities.whole(spared)} never needed",
        ),
        ("sent", f"{quantities.size(result.sent_bytes)} by all nodes"),
        ("computed in", f"{result.wall_s:.1f} s ({result.cpu_s:.1f} s of processor time)"),
    ]


def _quality(metric: Metric) -> str:
    """At best and at the end; where every node has a model of its own, whose it was."""
    best, final = (
        f"[bold]{quantities.metric(metric.name, value)}[/]" for value in (metric.best, metric.final)
    )
    if metric.of_nodes:
        return f"best node {best} at best, mean over nodes {final} at the end"
    return f"{best} at best, {final} at the end"


def _tuned(tuning: RoundTuning | None) -> list[tuple[str, str]]:
    if tuning is None:
        return []
    share = f"{100 * tuning.complete:g} % of {quantities.whole(tuning.transfers)} transfers"
    return [("rounds of", f"{tuning.round_duration_s:g} s: time for {share} without churn")]


def _where(result: Result) -> list[tuple[str, str]]:
    from rich.markup import escape

    files = ", ".join(sorted(file.name for file in Path(result.out).glob("[!.]*")))
    where = [f"[bold]{escape(result.out)}[/]", *([f"[dim]{escape(files)}[/]"] if files else [])]
    return [("digest", result.digest), ("weights", result.weights_hash), ("files", "\n".join(where))]


def _facts(rows: Sequence[tuple[str, str]]) -> Table:
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(f"  {name}", value)
    return table


def _traffic(messages: Mapping[str, Traffic]) -> Table:
    """By type of message, the heaviest first."""
    from rich.table import Table

    total = sum(traffic.bytes for traffic in messages.values())
    table = Table(box=None, pad_edge=False, padding=(0, 2), header_style="dim")
    table.add_column("  messages")
    for heading in ("count", "bytes", "share"):
        table.add_column(heading, justify="right", no_wrap=True)
    by_weight = sorted(messages.items(), key=lambda item: (-item[1].bytes, item[0]))
    for name, traffic in by_weight:
        share = f"{100 * traffic.bytes / total:.1f} %" if total else "–"
        table.add_row(f"  {name}", quantities.whole(traffic.count), quantities.size(traffic.bytes), share)
    return table


def print_bench(bench: ProtocolBench, console: Console) -> None:
    """What simulating the protocol alone costs."""
    churn = "with churn" if bench.churn else "without churn"
    title = f"{bench.protocol} alone, {quantities.whole(bench.nodes)} nodes, {bench.hours:g} h, {churn}"
    sent = sum(traffic.count for traffic in bench.messages.values())
    toggles = f"{bench.joins_and_leaves_per_hour:.0f} joins and leaves an hour"
    console.print(f"\n[bold]{title}[/]")
    _print(
        _facts(
            [
                ("cpu", f"[bold]{bench.cpu_s_per_simulated_hour:.3g} s[/] per simulated hour"),
                ("speed", f"{quantities.whole(round(bench.messages_per_s))} messages per cpu second"),
                ("memory", f"{bench.peak_mb:.0f} MB at most"),
                ("simulated", f"{quantities.whole(sent)} messages, {quantities.whole(bench.rounds)} rounds"),
                ("online", f"{bench.mean_online:.0f} nodes on average, {toggles}"),
                *_tuned(bench.tuning),
                ("set-up", f"{bench.setup_cpu_s:.2f} s of cpu, not counted"),
                ("digest", bench.digest),
            ]
        ),
        console,
    )
    console.print()
    _print(_traffic(bench.messages), console)
