"""The runs of a plan side by side, each in its own process, until all are done or somebody stops them.

The processes are of this machine, or tasks of a Ray cluster. There a run is made in a folder of its own and
its files travel: machines need to share none, and one that is cut off spoils nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from msgspec import Struct, structs

from plexus.cluster import RayPool
from plexus.errors import PlexusError
from plexus.experiment.progress import Tick
from plexus.files import write_json
from plexus.machine import Heard, Pool, Say, usable_cores
from plexus.runs.directory import clear, packed, unpack
from plexus.runs.result import Result
from plexus.runs.run import RESULT
from plexus.studies.plan import Planned


class Order(Struct, frozen=True):
    run: Planned
    resume: bool
    device: str | None
    about: dict[str, Any] = {}
    """Tags and a note."""
    begun: bytes = b""
    """For another machine: what there is of a run that goes on."""


@dataclass
class Standing:
    runs: Sequence[Planned]
    done_before: int = 0
    """Of other runs, which need not be done again."""
    under_way: dict[Path, tuple[Planned, Tick | None]] = field(default_factory=dict)
    """By run directory."""
    done: int = 0
    failures: dict[Path, str] = field(default_factory=dict)
    """By run directory: what went wrong."""
    _finished: float = 0.0

    def hear(self, news: Heard) -> None:
        """Take note of it; what was stopped goes on another time."""
        run, _ = self.under_way[news.job.run.out]
        if news.kind == "said":
            self.under_way[run.out] = run, news.value
            return
        del self.under_way[run.out]
        was_stopped = news.kind == "stopped"
        if news.kind == "done":
            was_stopped, files = news.value
            if files is not None:
                clear(run.out)
                unpack(files, run.out)
        if news.kind == "failed":
            self.failures[run.out] = news.value
        if not was_stopped:
            self.done += 1
            self._finished += run.cost

    @property
    def share(self) -> float:
        """How much is done, by a guess at what runs cost."""
        all_runs, begun = sum(run.cost for run in self.runs), self.under_way.values()
        partly = sum(run.cost * at.simulated_s / 3600 / run.spec.hours for run, at in begun if at)
        return (self._finished + partly) / all_runs if all_runs else 1.0


def finish(
    runs: Sequence[Planned],
    jobs: int | None = None,
    device: str | None = None,
    progress: Callable[[Standing], None] = lambda standing: None,
    about: dict[str, Any] | None = None,
    address: str | None = None,
) -> None:
    """Do all runs that have no result yet, so many at a time as `jobs` says or there are cores: here, or on
    the Ray cluster at `address`. `about` is added to their versions.

    `progress` is told several times a second how far all are. Ctrl-C stops those under way, keeps what they
    have, and is raised again.
    """
    if not (todo := [run for run in runs if not run.is_done]):
        return
    standing = Standing(todo, done_before=len(runs) - len(todo))
    if address:
        device = device or "cpu"  # a GPU is given to those who ask for one
        pool: Pool = RayPool(_work_afar, jobs, address, on_gpus=device != "cpu")
    else:
        pool = Pool(_work, jobs or usable_cores())
    orders = _orders(standing, device, about or {}, is_afar=address is not None)
    try:
        pool.run(orders, standing.hear, lambda: progress(standing))
    except KeyboardInterrupt:
        done = f"{sum(run.is_done for run in runs)} of {len(runs)} runs"
        raise KeyboardInterrupt(f"interrupted after {done}; the same command goes on from there") from None
    if standing.failures:
        path, why = next(iter(standing.failures.items()))
        raise PlexusError(f"{len(standing.failures)} of {len(todo)} runs failed; the first, {path}: {why}")


def _orders(standing: Standing, device: str | None, about: dict[str, Any], is_afar: bool) -> Iterator[Order]:
    """Of all runs, the longest first."""
    for run in sorted(standing.runs, key=lambda run: -run.cost):
        if not (resume := run.can_resume):
            clear(run.out)  # what is there has no result and nothing to go on from
        standing.under_way[run.out] = run, None
        begun = packed(run.out) if resume and is_afar else b""
        # A worker may have another working directory.
        yield Order(replace(run, base_dir=run.base_dir.resolve()), resume, device, about, begun)


def _work(order: Order, say: Say) -> tuple[bool, None]:
    """In a worker: one run. Whether it was stopped before its end; all that it left is where it should be."""
    return simulated(order, say, order.run.out).interrupted, None


def _work_afar(order: Order, say: Say) -> tuple[bool, bytes]:
    """The same on another machine, with the files that it left."""
    with TemporaryDirectory(prefix="plexus-run-") as folder:
        out = Path(folder) / "run"
        if order.begun:
            unpack(order.begun, out)
        result = simulated(order, say, out)
        write_json(out / RESULT, structs.replace(result, out=str(order.run.out)))
        return result.interrupted, packed(out)


def simulated(order: Order, say: Say, out: Path) -> Result:
    from plexus.experiment.simulation import Machinery, simulate

    run, machinery = order.run, Machinery(workers=1, device=order.device, ahead=False)
    return simulate(run.spec, run.base_dir, out, say, machinery, resume=order.resume, about=order.about)
