"""Telling the person who waits how far things have come: runs, studies, downloads.

Whoever works calls back as often as it likes; most calls only note the state. On a terminal a bar is drawn,
elsewhere (a log file, a CI job) a line is written every so often. There is no thread: the engines start
processes, and a process must not be started while a thread holds a lock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, NamedTuple, Self

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from plexus import quantities

if TYPE_CHECKING:
    from plexus.experiment.progress import Tick
    from plexus.studies.pool import Standing


class Panel(NamedTuple):
    title: str
    share: float
    """How much of the work is done, from 0 to 1."""
    how_far: str
    facts: Sequence[str]
    """The most interesting first."""
    under_way: Sequence[str] = ()


class Display(AbstractContextManager["Display"]):
    """Shows nothing: what `--quiet` uses, and the base of the others."""

    every_s = float("inf")
    _due_s = 0.0

    def offer(self, panel: Callable[[], Panel]) -> None:
        """Show it, if it is time to: only then it is made."""
        now_s = time.monotonic()
        if now_s >= self._due_s:
            self._due_s = now_s + self.every_s
            self.show(panel())

    def show(self, panel: Panel) -> None: ...

    def note(self, text: str) -> None:
        """Say something that stays."""

    def __exit__(self, *error: object) -> None: ...


class Lines(Display):
    """A line every so often, for output that is kept."""

    every_s = 10.0

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def show(self, panel: Panel) -> None:
        now = f"; now {'; '.join(panel.under_way)}" if panel.under_way else ""
        click.echo(f"{panel.title}: {', '.join([panel.how_far, *panel.facts])}{now}", self._stream)

    def note(self, text: str) -> None:
        click.echo(f"plexus: {text}", self._stream)


class Bar(Display):
    """A bar with the state below it, redrawn in place and gone at the end."""

    every_s = 0.2

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True, redirect_stdout=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.stop()

    def show(self, panel: Panel) -> None:
        self._live.update(drawing(panel), refresh=True)

    def note(self, text: str) -> None:
        self._console.print(f"plexus: {text}", markup=False)


def drawing(panel: Panel) -> RenderableType:
    """How far, what is known, and a line for each thing that is under way."""
    line = Table.grid(padding=(0, 2), expand=True)
    line.add_column(no_wrap=True)
    line.add_column(ratio=1)
    line.add_column(no_wrap=True, justify="right")
    share = min(1.0, panel.share)
    bar = ProgressBar(total=1.0, completed=share, complete_style="cyan", finished_style="cyan")
    line.add_row(Text(panel.title, style="bold"), bar, panel.how_far)
    below = [" · ".join(panel.facts), *(f"  {each}" for each in panel.under_way)]
    return Group(line, *(Text(text, style="dim", no_wrap=True, overflow="ellipsis") for text in below))


def display_for(stream: IO[str], *, quiet: bool = False) -> Display:
    if quiet:
        return Display()
    if not stream.isatty():
        return Lines(stream)
    return Bar(Console(file=stream, highlight=False))


class Pace:
    """How fast it goes, counted from the first look: what came before was set-up."""

    _began: tuple[float, float] | None = None

    def facts(self, done: float, total: float, speed: Callable[[float], str] | None = None) -> list[str]:
        """The speed, in words if there are some, and the time left; nothing before they can be known."""
        now_s = time.monotonic()
        began_s, began = self._began = self._began or (now_s, done)
        if done <= began or now_s <= began_s:
            return []
        per_s = (done - began) / (now_s - began_s)
        left = f"{quantities.clock(max(0.0, total - done) / per_s)} left"
        return [speed(per_s), left] if speed else [f"about {left}"]


@dataclass
class RunProgress:
    """What is shown of a run: give it to the run as its progress."""

    title: str
    total_s: float
    display: Display
    last: Tick | None = None
    """The newest state, shown or not."""
    _pace: Pace = field(default_factory=Pace)

    def __call__(self, at: Tick) -> None:
        """The run is here now. Without a metric the newest known one goes on being shown."""
        if at.metric_value is None and self.last is not None:
            at = at._replace(metric_name=self.last.metric_name, metric_value=self.last.metric_value)
        if self.last is not None and self.last.replay_s != at.replay_s:
            self._pace = Pace()  # from here on it learns, at a pace of its own
        self.last = at
        self.display.offer(lambda: self.panel(at))

    def panel(self, at: Tick) -> Panel:
        facts = [f"round {at.round:,}", f"{at.online:,} online"]
        if at.metric:
            facts.append(f"{at.metric_name} {at.metric}")
        until_s = self.total_s if at.replay_s is None else at.replay_s
        facts += self._pace.facts(at.simulated_s, until_s, lambda per_s: f"{per_s / 3600:.3g} h/s")
        return Panel(self.title, at.simulated_s / self.total_s, f"{self._hours(at)} h", facts)

    def _hours(self, at: Tick) -> str:
        """`3.2 of 12`, or `replaying 3.2 of 7.5` on the way to a checkpoint."""
        done = quantities.hours(at.simulated_s)
        if at.replay_s is not None:
            return f"replaying {done} of {quantities.hours(at.replay_s)}"
        return f"{done} of {self.total_s / 3600:g}"

    def how_far(self) -> str:
        """`at 3.2 of 12 simulated hours, round 57`, for the line that an interrupted run ends with."""
        if self.last is None:
            return "before the simulation began"
        way = "at" if self.last.replay_s is None else "while"
        return f"{way} {self._hours(self.last)} simulated hours, round {self.last.round}"


def study_progress(display: Display, title: str = "reproduce") -> Callable[[Standing], None]:
    pace = Pace()

    def panel(standing: Standing) -> Panel:
        facts = [f"{100 * standing.share:.0f} %", *pace.facts(standing.share, 1.0)]
        if standing.done_before:
            facts.append(f"{standing.done_before} more were there already")
        under_way = []
        for run, at in standing.under_way.values():
            hours = f"{quantities.hours(at.simulated_s if at else 0.0)} of {run.spec.hours:g} h"
            under_way.append(", ".join(filter(None, [run.title, hours, at and at.metric])))
        how_far = f"{standing.done} of {len(standing.runs)} runs"
        return Panel(title, standing.share, how_far, facts, under_way)

    told = 0

    def show(standing: Standing) -> None:
        nonlocal told
        for path, why in list(standing.failures.items())[told:]:
            display.note(f"{path} failed: {why}")
        told = len(standing.failures)
        display.offer(lambda: panel(standing))

    return show


def download_progress(title: str, total: int, display: Display) -> Callable[[int], None]:
    """What is shown of a download, which tells how many bytes are here."""
    pace = Pace()

    def panel(have: int) -> Panel:
        facts = pace.facts(have, total, lambda per_s: f"{quantities.size(per_s)}/s")
        how_far = f"{quantities.size(have)} of {quantities.size(total)}"
        return Panel(title, have / total, how_far, facts)

    return lambda have: display.offer(lambda: panel(have))
