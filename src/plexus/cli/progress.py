"""Telling the person who waits how far a run has come.

A runtime calls `tick` as often as it likes; most calls only note the state. On a terminal a bar is
drawn, elsewhere (a log file, a CI job) a line is written every so often. There is no thread: the
engines start processes, and a process must not be started while a thread holds a lock.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import IO, TYPE_CHECKING, NamedTuple, Protocol, Self

from plexus import quantities

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

BAR_EVERY_S = 0.2
LINE_EVERY_S = 10.0


class Tick(NamedTuple):
    """The state of a run at one moment."""

    simulated_s: float
    round: int
    online: int
    metric_name: str | None = None
    metric_value: float | None = None
    replay_s: float | None = None
    """Up to where a resumed run passes time again, as long as it does."""

    @property
    def metric(self) -> str:
        """`91.2 %`; nothing before the first evaluation."""
        if self.metric_name is None or self.metric_value is None:
            return ""
        return quantities.metric(self.metric_name, self.metric_value)


class Observer(Protocol):
    """Who wants to see a run progress."""

    def tick(self, at: Tick) -> None:
        """The run is between two steps."""


class Progress:
    """Notes how far a run has come, and shows nothing: what `--quiet` uses, and the base of the others."""

    every_s = float("inf")

    def __init__(self, title: str, total_s: float) -> None:
        self.title = title
        self.total_s = total_s
        self.last: Tick | None = None
        """The newest state, shown or not."""
        self._began: tuple[float, float] | None = None
        self._due_s = 0.0

    def tick(self, at: Tick) -> None:
        """The run is here now. Without a metric the newest known one goes on being shown."""
        if at.metric_value is None and self.last is not None:
            at = at._replace(metric_name=self.last.metric_name, metric_value=self.last.metric_value)
        if self.last is not None and self.last.replay_s != at.replay_s:
            self._began = None  # from here on it learns, at a pace of its own
        self.last = at
        now_s = time.monotonic()
        if now_s >= self._due_s:
            self._due_s = now_s + self.every_s
            self._began = self._began or (now_s, at.simulated_s)
            self.show(at)

    def show(self, at: Tick) -> None:
        """Draw `at`; called only every so often."""

    def how_far(self) -> str:
        """`3.2 of 12 simulated hours, round 57`, for the line that an interrupted run ends with."""
        if self.last is None:
            return "before the simulation began"
        way = "at" if self.last.replay_s is None else "while"
        return f"{way} {self.hours(self.last)} simulated hours, round {self.last.round}"

    def hours(self, at: Tick) -> str:
        """`3.2 of 12`, or `replaying 3.2 of 7.5` on the way to a checkpoint."""
        done = quantities.hours(at.simulated_s)
        if at.replay_s is not None:
            return f"replaying {done} of {quantities.hours(at.replay_s)}"
        return f"{done} of {self.total_s / 3600:g}"

    def facts(self, at: Tick) -> list[str]:
        """The state in words, the most interesting first."""
        facts = [f"round {quantities.whole(at.round)}", f"{quantities.whole(at.online)} online"]
        if at.metric:
            facts.append(f"{at.metric_name} {at.metric}")
        return [*facts, *self._pace(at)]

    def _pace(self, at: Tick) -> list[str]:
        """Speed and time left, counted from the first tick: what came before was set-up."""
        began_s, from_s = self._began or (0.0, at.simulated_s)
        elapsed_s, done_s = time.monotonic() - began_s, at.simulated_s - from_s
        if done_s <= 0 or elapsed_s <= 0:
            return []
        until_s = self.total_s if at.replay_s is None else at.replay_s
        left_s = max(0.0, until_s - at.simulated_s) * elapsed_s / done_s
        return [f"{done_s / 3600 / elapsed_s:.3g} h/s", f"{quantities.clock(left_s)} left"]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop showing."""


class Lines(Progress):
    """A line every so often, for output that is kept."""

    every_s = LINE_EVERY_S

    def __init__(self, title: str, total_s: float, stream: IO[str]) -> None:
        super().__init__(title, total_s)
        self._stream = stream

    def show(self, at: Tick) -> None:
        facts = [f"{self.title}: {self.hours(at)} h", *self.facts(at)]
        print(", ".join(facts), file=self._stream, flush=True)


class Bar(Progress):
    """A bar with the state below it, redrawn in place and gone at the end."""

    every_s = BAR_EVERY_S

    def __init__(self, title: str, total_s: float, console: Console) -> None:
        super().__init__(title, total_s)
        self._console = console
        self._live: Live | None = None

    def __enter__(self) -> Self:
        from rich.live import Live

        self._live = Live(console=self._console, auto_refresh=False, transient=True, redirect_stdout=False)
        self._live.start()
        return super().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, at: Tick) -> None:
        if self._live is not None:
            self._live.update(self.drawing(at), refresh=True)

    def drawing(self, at: Tick) -> RenderableType:
        """Two lines: how far, and what is going on."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        line = Table.grid(padding=(0, 2), expand=True)
        line.add_column(no_wrap=True)
        line.add_column(ratio=1)
        line.add_column(no_wrap=True, justify="right")
        line.add_row(
            Text(self.title, style="bold"),
            ProgressBar(
                total=self.total_s,
                completed=min(at.simulated_s, self.total_s),
                complete_style="cyan",
                finished_style="cyan",
            ),
            f"{self.hours(at)} h",
        )
        below = Text(" · ".join(self.facts(at)), style="dim", no_wrap=True, overflow="ellipsis")
        return Group(line, below)


def progress_for(title: str, total_s: float, stream: IO[str], *, quiet: bool = False) -> Progress:
    """What suits where `stream` goes."""
    if quiet:
        return Progress(title, total_s)
    if not stream.isatty():
        return Lines(title, total_s, stream)
    from rich.console import Console

    return Bar(title, total_s, Console(file=stream))
