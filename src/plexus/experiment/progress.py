"""How far a run has come, told between two steps; that is also where Ctrl-C and a polite `kill` stop it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NamedTuple

from plexus import quantities
from plexus.machine import stopped_by

PATIENCE = "plexus: stopping after this simulated minute; once more stops at once\n"


class Tick(NamedTuple):
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


@contextmanager
def stoppable(progress: Progress, *, quiet: bool = True) -> Iterator[Progress]:
    """What a run is to tell of its progress, so that signals stop it at the next tick: `KeyboardInterrupt`.

    Before the first tick there is nothing to go on from, and to ask twice is to insist: both stop at once.
    Also a run that a script started in the background: a shell makes such commands deaf to SIGINT, and one
    that nobody can stop would only burn processors.
    """
    has_begun = is_asked = False

    def tell(at: Tick) -> None:
        nonlocal has_begun
        has_begun = True
        progress(at)
        if is_asked:
            raise KeyboardInterrupt

    def ask(number: int, frame: FrameType | None) -> None:
        nonlocal is_asked
        if is_asked or not has_begun:
            raise KeyboardInterrupt
        is_asked = True
        if not quiet:
            os.write(2, PATIENCE.encode())  # a signal may come while a stream is being written to

    with stopped_by(ask):
        yield tell
