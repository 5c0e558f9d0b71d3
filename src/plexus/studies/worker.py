"""A process that carries out one run after the other, and tells its parent how far it came."""

from __future__ import annotations

import signal
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from msgspec import Struct

from plexus.cli.progress import Tick
from plexus.errors import PlexusError


class Job(Struct, frozen=True):
    """What a worker is asked to do: everything as text, so that it means the same in any process."""

    spec_toml: str
    base_dir: str
    out: str
    resume: bool
    device: str | None


class Word(Struct, frozen=True):
    """What a worker says: how far it is, or how a job ended."""

    kind: str
    """`at`, `done`, `stopped` or `failed`."""
    simulated_s: float = 0.0
    metric: str = ""
    text: str = ""


class Reporter:
    """Passes on how far a run is."""

    def __init__(self, parent: Connection) -> None:
        self._parent = parent
        self._told_s = -1.0

    def tick(self, at: Tick) -> None:
        """Tell the parent, ten times per simulated hour at most."""
        if at.simulated_s >= self._told_s + 360:
            self._told_s = at.simulated_s
            self._parent.send(Word("at", at.simulated_s, at.metric))


def main(parent: Connection) -> None:
    """Work until the parent has no more, or is gone."""
    # Ctrl-C reaches all processes of a terminal at once; the parent alone decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # between two runs
    try:
        while True:
            job: Job | None = parent.recv()
            if job is None:
                return
            parent.send(_carry_out(job, parent))
    except (EOFError, OSError, KeyboardInterrupt):
        return


def _carry_out(job: Job, parent: Connection) -> Word:
    from plexus.cli.run import stoppable
    from plexus.experiment.simulation import Machinery, simulate
    from plexus.spec.experiment import parse_spec

    options: dict[str, Any] = {"workers": 1, "device": job.device}
    try:
        with stoppable(Reporter(parent), [signal.SIGTERM]) as watched:
            result = simulate(
                parse_spec(job.spec_toml, job.out),
                Path(job.base_dir),
                Path(job.out),
                watched,
                Machinery(**options),
                resume=job.resume,
            )
    except (PlexusError, MemoryError, RuntimeError) as error:
        return Word("failed", text=f"{type(error).__name__}: {error}")
    return Word("stopped" if result.interrupted else "done", result.simulated_s)
