"""The files of Plexus that one round goes through: `python tools/round_files.py` counts, simulated and live.

A round lasts from one `AggregationCompleted` to the next, at all nodes together, in a session that has
settled. A file takes part if one of its functions runs (`sys.setprofile`), in any thread and process: the
simulation, or four peers and their training workers. What is beside the round does not count, nor what it
calls: tables of the run, a peer's log and status, its look at revocations every few seconds, checkpoints,
measuring on the test set. The status is 1 if there are more files than allowed.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from inspect import CO_OPTIMIZED
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType
from typing import Any

LIMITS = {"simulated": 34, "live": 43}
BESIDE = ("runs/", "live/operator/", "live/identity/", "experiment/recording.py", "experiment/checkpoint.py")
"""They and all that they call are no part of a round."""
ASKING = "experiment/evaluation.py"
"""Simulated models are computed when somebody asks for them: that is the round's, asking is not."""
SETTLED, ROUNDS = 4, 12
"""Rounds before this one do not count; a fleet is ended after that one."""
GRAIN_S = 0.005
"""A process says that a file runs at most this often."""
SPEC: dict[str, Any] = {
    "name": "round",
    "nodes": 4,
    "hours": 0.1,
    "protocol": {"sample_size": 3, "start_delay_s": 3.0},
    "task": "digits",
    "traces": {"availability": "none"},
}


class Profile:
    """Notes the file of every function of Plexus that runs, but for what is beside the round."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        package = find_spec("plexus")
        assert package is not None and package.origin is not None
        self._source = f"{Path(package.origin).parent}{os.sep}"
        self._files: dict[CodeType, str] = {}
        self._here = threading.local()

    def start(self) -> None:
        """In this thread, and in those that are started from now on."""
        threading.setprofile(self)
        sys.setprofile(self)

    def stop(self) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        file = self._file(frame.f_code)
        depth = getattr(self._here, "depth", 0)  # how many functions beside the round are under way
        is_beside = file.startswith(BESIDE) or _measures(file, frame.f_code.co_name)
        if event == "return":
            self._here.depth = max(0, depth - is_beside)
        elif event == "call":
            self._here.depth = depth + is_beside
        if depth or is_beside:
            return
        # Who calls runs too, though it may have been called long before the round.
        caller = self._file(frame.f_back.f_code) if frame.f_back else ""
        for each in (file, caller):
            if each and each != ASKING:
                self._note(each)

    def _file(self, code: CodeType) -> str:
        """Its path in the package; empty if it is not ours, or a module or class that is being imported."""
        if code not in self._files:
            is_ours = code.co_filename.startswith(self._source) and code.co_flags & CO_OPTIMIZED
            self._files[code] = code.co_filename.removeprefix(self._source) if is_ours else ""
        return self._files[code]


def _measures(file: str, function: str) -> bool:
    """Whether it measures a model on the test set; the graph's function of that name computes it first."""
    return function == "evaluate" and file.startswith("learn/") and file != "learn/graph.py"


def simulated() -> list[set[str]]:
    """The files of each round of a simulated session, with the plainest engine."""
    import plexus

    rounds: list[set[str]] = [set()]
    profile = Profile(lambda file: rounds[-1].add(file))
    with TemporaryDirectory() as folder:
        spec = {**SPEC, "evaluation": {"every_rounds": 1}}
        profile.start()
        try:
            plexus.simulate(
                spec, out=Path(folder) / "run", on_round=lambda row: rounds.append(set()), engine="inline"
            )
        finally:
            profile.stop()
    return rounds[SETTLED:-1]


def live() -> list[set[str]]:
    """The files of each round of a fleet on this machine."""
    from plexus.api import as_spec
    from plexus.live.fleet.fleet import FleetConfig, run_fleet
    from plexus.runs.run import load_run

    with TemporaryDirectory() as folder:
        out, heard = Path(folder) / "fleet", Path(folder) / "heard"
        spec = as_spec({**SPEC, "evaluation": {"every_rounds": 1000}})
        with telling(heard):
            result = asyncio.run(run_fleet(spec, Path(), FleetConfig(rounds=ROUNDS, out=out)))
        if result.failed or result.rounds < ROUNDS:
            sys.exit(f"the fleet came to round {result.rounds} of {ROUNDS}")
        run = load_run(out)
        ends_s = sorted(run.rounds["simulated_s"] + run.versions["started_s"])[SETTLED:]
        lines = [line.split() for line in heard.read_text().splitlines()]
    calls = [(float(at_s), file) for at_s, file in lines]
    return [
        {file for at_s, file in calls if began_s <= at_s < ended_s} for began_s, ended_s in pairwise(ends_s)
    ]


@contextmanager
def telling(heard: Path) -> Iterator[None]:
    """Every Python process that is started meanwhile appends what it runs to `heard`."""
    before = os.environ.get("PYTHONPATH", "")
    (heard.parent / "sitecustomize.py").write_text(
        f"import runpy\nrunpy.run_path({__file__!r})['tell']({str(heard)!r})\n"
    )
    os.environ["PYTHONPATH"] = f"{heard.parent}{os.pathsep}{before}".rstrip(os.pathsep)
    try:
        yield
    finally:
        os.environ["PYTHONPATH"] = before


def tell(heard: str) -> None:
    """From now on append to the file `heard` when this process, or one that it forks, runs which file."""
    descriptor = os.open(heard, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    told_s: dict[str, float] = {}

    def note(file: str) -> None:
        now_s = time.time()
        if now_s - told_s.get(file, 0.0) >= GRAIN_S:
            told_s[file] = now_s
            os.write(descriptor, f"{now_s:.4f} {file}\n".encode())

    Profile(note).start()


def typical(rounds: list[set[str]]) -> set[str]:
    """The files of a round that has no more of them than half of the rounds."""
    return sorted(rounds, key=len)[len(rounds) // 2]


def main() -> int:
    is_kept = True
    for kind, rounds in (("simulated", simulated()), ("live", live())):
        files, counts = typical(rounds), [len(each) for each in rounds]
        print(f"{kind}: {len(files)} files, at most {LIMITS[kind]} ({min(counts)} to {max(counts)} a round)")
        print("\n".join(f"  {file}" for file in sorted(files)))
        is_kept &= len(files) <= LIMITS[kind]
    return 0 if is_kept else 1


if __name__ == "__main__":
    sys.exit(main())
