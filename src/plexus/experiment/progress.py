"""How far a run has come, told between two steps; that is also where Ctrl-C and a polite `kill` stop it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import NamedTuple

from plexus import quantities

SIGNALS = (signal.SIGINT, signal.SIGTERM)
PATIENCE = "plexus: stopping after this simulated minute; once more stops at once\n"


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


Progress = Callable[[Tick], None]
"""A callback, told of every tick. What it raises ends the run there: `KeyboardInterrupt`, `StopRun`."""


class Stoppable:
    """Passes ticks on. What was asked for by a signal is done at the next one: `KeyboardInterrupt`.

    Before the first tick there is nothing to go on from, and to ask twice is to insist: both stop at once.
    """

    def __init__(self, progress: Progress, *, quiet: bool) -> None:
        self._progress = progress
        self._quiet = quiet
        self._has_begun = False
        self._is_asked = False

    def __call__(self, at: Tick) -> None:
        self._has_begun = True
        self._progress(at)
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
    progress: Progress, signals: Sequence[signal.Signals] = SIGNALS, *, quiet: bool = True
) -> Iterator[Progress]:
    """What a run is to tell of its progress, so that `signals` stop it.

    Also one that a script started in the background: a shell makes such commands deaf to SIGINT, and a
    run that nobody can stop would only burn processors.
    """
    stop = Stoppable(progress, quiet=quiet)
    before = {each: signal.signal(each, stop.ask) for each in signals}
    try:
        yield stop
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
