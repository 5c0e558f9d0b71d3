"""Telling the person who waits how far all runs together have come."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import IO, TYPE_CHECKING, Self

from plexus import quantities
from plexus.studies.plan import Planned
from plexus.studies.pool import Word

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

LINE_EVERY_S = 15.0


def name_of(run: Planned) -> str:
    """`gossip on digits, seed 2`."""
    churn = ", no churn" if run.spec.traces.availability == "none" else ""
    return f"{run.spec.protocol.name} on {run.spec.task.name}{churn}, seed {run.spec.seed}"


class Display:
    """Notes what is going on and shows nothing: what `quiet` uses, and the base of the others."""

    def __init__(self, runs: Sequence[Planned], done_before: int) -> None:
        self.total = len(runs)
        self.done_before = done_before
        self._cost = sum(run.cost for run in runs)
        self._finished = 0.0
        self.done = 0
        self.under_way: dict[str, tuple[Planned, float, str]] = {}
        """By run directory: the run, its simulated time, its metric."""
        self._began_s = time.monotonic()

    def began(self, run: Planned) -> None:
        self.under_way[str(run.out)] = (run, 0.0, "")

    def at(self, run: Planned, simulated_s: float, metric: str) -> None:
        self.under_way[str(run.out)] = (run, simulated_s, metric)

    def ended(self, run: Planned, word: Word) -> None:
        del self.under_way[str(run.out)]
        if word.kind != "stopped":
            self.done += 1
            self._finished += run.cost

    def look(self) -> None:
        """Show it, if it is time to."""

    @property
    def share(self) -> float:
        """How much is done, by a guess at what runs cost."""
        partly = sum(run.cost * at / 3600 / run.spec.hours for run, at, _ in self.under_way.values())
        return (self._finished + partly) / self._cost if self._cost else 1.0

    def headline(self) -> str:
        """`12 of 40 runs, 31 %, 2:10 left`."""
        facts = [f"{self.done} of {self.total} runs", f"{100 * self.share:.0f} %"]
        elapsed_s = time.monotonic() - self._began_s
        if self.share > 0.02:
            left_s = elapsed_s * (1 - self.share) / self.share
            facts.append(f"about {quantities.clock(left_s)} left")
        if self.done_before:
            facts.append(f"{self.done_before} more were there already")
        return ", ".join(facts)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop showing."""


class Lines(Display):
    """A line every so often, for output that is kept."""

    def __init__(self, runs: Sequence[Planned], done_before: int, stream: IO[str]) -> None:
        super().__init__(runs, done_before)
        self._stream = stream
        self._due_s = 0.0

    def ended(self, run: Planned, word: Word) -> None:
        super().ended(run, word)
        if word.kind == "failed":
            self._print(f"{name_of(run)} failed: {word.text}")

    def look(self) -> None:
        if time.monotonic() >= self._due_s:
            self._due_s = time.monotonic() + LINE_EVERY_S
            now = "; ".join(name_of(run) for run, _, _ in self.under_way.values())
            self._print(f"{self.headline()}; now {now}" if now else self.headline())

    def _print(self, text: str) -> None:
        print(f"plexus: {text}", file=self._stream, flush=True)


class Bars(Display):
    """One bar for all, and a line for each run under way, redrawn in place."""

    def __init__(self, runs: Sequence[Planned], done_before: int, console: Console) -> None:
        super().__init__(runs, done_before)
        self._console = console
        self._live: Live | None = None

    def __enter__(self) -> Self:
        from rich.live import Live

        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def look(self) -> None:
        if self._live is not None:
            self._live.update(self.drawing(), refresh=True)

    def drawing(self) -> RenderableType:
        """The bar, and below it what is going on."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        lines = Table.grid(padding=(0, 2))
        for run, simulated_s, metric in self.under_way.values():
            hours = f"{quantities.hours(simulated_s)} of {run.spec.hours:g} h"
            lines.add_row(f"  {name_of(run)}", hours, metric, style="dim")
        bar = ProgressBar(total=1.0, completed=min(1.0, self.share), complete_style="cyan")
        return Group(self.headline(), bar, lines)


def display_for(
    runs: Sequence[Planned], done_before: int, stream: IO[str], *, quiet: bool = False
) -> Display:
    """What suits where `stream` goes."""
    if quiet:
        return Display(runs, done_before)
    if not stream.isatty():
        return Lines(runs, done_before, stream)
    from rich.console import Console

    return Bars(runs, done_before, Console(file=stream, highlight=False))
