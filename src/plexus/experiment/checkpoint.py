"""Checkpoints: how a run that was killed goes on, and ends with the digest and weights of a whole one.

When things happen never depends on weights, and simulating without learning takes a fraction of the
time. So a checkpoint holds what was learned, not the simulator: the models somebody holds, and what
evaluations found. To resume, virtual time passes again up to the checkpoint with these in place of the
learning; its digest proves that it is the same run. Nothing of kernel, nodes, views or random streams
needs a file format, and the tables of the run directory come out anew.
"""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
from msgspec import Struct

from plexus.errors import PlexusError
from plexus.experiment.frontier import check_files, read_frontier, write_frontier
from plexus.files import named, sync, write_json
from plexus.learn.graph import LazyModels
from plexus.learn.task import Metrics
from plexus.runs.directory import CHECKPOINT, CHECKPOINT_FOLDER, remove_checkpoints
from plexus.sim.kernel import Kernel


class Checkpoint(Struct, frozen=True, forbid_unknown_fields=True):
    """Where a run was, and what it had learned by then."""

    simulated_s: float
    digest: str
    """Of the events up to then."""
    evaluated: list[Metrics]
    numbers: list[int]
    """The models in the folder, by their number."""
    folder: str


class Checkpoints:
    """Writes a checkpoint into a run directory every so often."""

    def __init__(self, directory: Path, every_s: float) -> None:
        self._directory = directory
        self._every_s = every_s
        self._due_s = time.monotonic() + every_s
        self._written = 0

    def offer(self, kernel: Kernel, models: LazyModels, is_last: bool) -> None:
        """A moment from which the run could go on: write it if it is time, or if no other will come."""
        if is_last or time.monotonic() >= self._due_s:
            self.write(kernel, models)
            self._due_s = time.monotonic() + self._every_s

    def write(self, kernel: Kernel, models: LazyModels) -> None:
        """Put a new checkpoint in the place of the last one, which is whole until then."""
        folder = self._new_folder()
        held = sorted(
            (model for model in models.alive.values() if model.value is not None),
            key=lambda model: model.number,
        )
        with named(folder):
            folder.mkdir()
            write_frontier(models, held, folder)
            for path in (*folder.iterdir(), folder, self._directory):
                sync(path)
        checkpoint = Checkpoint(
            simulated_s=kernel.now,
            digest=kernel.digest(),
            evaluated=models.evaluated,
            numbers=[model.number for model in held],
            folder=folder.name,
        )
        write_json(self._directory / CHECKPOINT, checkpoint)
        remove_checkpoints(self._directory, keep=folder.name)

    def _new_folder(self) -> Path:
        while True:
            self._written += 1
            folder = self._directory / f"{CHECKPOINT_FOLDER}{self._written}"
            if not folder.exists():
                return folder


def read_checkpoint(directory: Path) -> Checkpoint | None:
    """The checkpoint in a run directory, if it is whole: whoever resumes writes the tables anew.

    None where there is none, because the run was killed before the first: it goes on from its beginning.
    """
    path = directory / CHECKPOINT
    try:
        checkpoint = msgspec.json.decode(path.read_bytes(), type=Checkpoint)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PlexusError(f"{path} cannot be read: {error}") from None
    if check_files(directory / checkpoint.folder) != len(checkpoint.numbers):
        raise PlexusError(f"{path} is damaged: it speaks of other models than its folder holds")
    return checkpoint


def restore(checkpoint: Checkpoint, directory: Path, kernel: Kernel, models: LazyModels) -> None:
    """Virtual time has passed up to the checkpoint: put the models in place."""
    if kernel.digest() != checkpoint.digest:
        raise PlexusError(
            f"{directory / CHECKPOINT} is of another run: the same spec came to other events,"
            " perhaps with another version of Plexus; start the run again"
        )
    found = read_frontier(models, directory / checkpoint.folder)
    for number, model in zip(checkpoint.numbers, found, strict=True):
        if number in models.alive and model.value is not None:
            models.alive[number].settle(model.value)
