"""Ctrl-C and a polite `kill`: asked once, a run stops between two steps, from where it can go on."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from plexus.cli.progress import Observer, Tick
from plexus.runs.directory import VERSIONS

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
