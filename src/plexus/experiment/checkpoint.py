"""Checkpoints: how a run that was killed goes on, and ends with the digest and weights of a whole one.

When things happen never depends on weights, and simulating without learning takes a fraction of the
time. So a checkpoint holds what was learned, not the simulator: the computed models that somebody holds, and
what evaluations found. To resume, virtual time passes again up to the checkpoint with these in place of the
learning; its digest proves that it is the same run. Nothing of kernel, nodes, views or random streams
needs a file format, and the tables of the run directory come out anew.
"""

from __future__ import annotations

import hashlib
import json
import time
from itertools import count
from pathlib import Path

import msgspec
from msgspec import Struct

from plexus.checked import suggest
from plexus.errors import PlexusError
from plexus.experiment.learning import Models
from plexus.files import named, sync, write_text
from plexus.runs.directory import CHECKPOINT, CHECKPOINT_FOLDER, remove_checkpoints
from plexus.runs.result import Metrics, Result
from plexus.runs.run import VERSIONS, result_of
from plexus.sim.kernel import Kernel


class Checkpoint(Struct, frozen=True, forbid_unknown_fields=True):
    """Where a run was, and what it had learned by then."""

    simulated_s: float
    digest: str
    """Of the events up to then."""
    initial_hash: str
    """Of the initial weights: resuming with other data or another model is refused."""
    evaluated: list[Metrics]
    computed: int
    """Local trainings."""
    folder: str
    files: dict[str, str]
    """By the name of each file of models in the folder, its hash."""


REST = 9
"""For this many times as long as writing one took no other follows: they take a tenth of a run at most."""


class Checkpoints:
    def __init__(self, directory: Path, every_s: float) -> None:
        self._directory = directory
        self._every_s = every_s
        self._due_s = time.monotonic() + every_s

    def offer(self, kernel: Kernel, models: Models, is_last: bool) -> None:
        """A moment from which the run could go on: write it if it is time, or if no other will come.

        It takes the place of the checkpoint before, which is whole until then.
        """
        if not is_last and time.monotonic() < self._due_s:
            return
        models.hear(wait=True)  # learning that is due anyway, and no part of what a checkpoint takes
        began_s = time.monotonic()
        folders = (self._directory / f"{CHECKPOINT_FOLDER}{number}" for number in count(1))
        folder = next(each for each in folders if not each.exists())
        with named(folder):
            folder.mkdir()
            models.save(folder)
            files = {path.name: _hash(path.read_bytes()) for path in folder.iterdir()}
            for path in (*folder.iterdir(), folder, self._directory):
                sync(path)
        learned = (models.initial_hash, models.evaluated, models.costs.computed)
        checkpoint = Checkpoint(kernel.now, kernel.digest(), *learned, folder.name, files)
        # Not by msgspec, which has no words for what is not finite: a perplexity, say, at the beginning.
        write_text(self._directory / CHECKPOINT, json.dumps(msgspec.to_builtins(checkpoint), indent=2) + "\n")
        remove_checkpoints(self._directory, keep=folder.name)
        done_s = time.monotonic()
        self._due_s = done_s + max(self._every_s, REST * (done_s - began_s))


def read_checkpoint(directory: Path) -> Checkpoint | None:
    """The checkpoint in a run directory, if it is whole: whoever resumes writes the tables anew.

    None where there is none, because the run was killed before the first: it goes on from its beginning.
    """
    path = directory / CHECKPOINT
    try:
        checkpoint = msgspec.convert(json.loads(path.read_bytes()), Checkpoint)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise PlexusError(f"{path} cannot be read: {error}") from None
    for name, expected in checkpoint.files.items():
        models = directory / checkpoint.folder / name
        try:
            found = _hash(models.read_bytes())
        except (OSError, ValueError) as error:  # ValueError: no path
            raise PlexusError(f"{models} cannot be read: {error}") from None
        if found != expected:
            raise PlexusError(f"{models} is damaged: its content is not what was written")
    return checkpoint


def restore(checkpoint: Checkpoint, directory: Path, kernel: Kernel, models: Models) -> None:
    """Virtual time has passed up to the checkpoint: put the models in place."""
    path = directory / CHECKPOINT
    if kernel.digest() != checkpoint.digest:
        why = "the same spec came to other events, perhaps with another version of Plexus"
        raise PlexusError(f"{path} is of another run: {why}; start the run again")
    if models.initial_hash != checkpoint.initial_hash:
        raise PlexusError(f"{path} is of a run with other data, seed or model than this one's")
    models.restore(directory / checkpoint.folder, checkpoint.computed)


def _hash(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def outcome_of(path: Path) -> Result | None:
    """The result of a run that came to its end, which has nothing to go on with; None of another."""
    if not (path / VERSIONS).is_file():
        raise PlexusError(f"{path}: is not a run directory{_near(path)}")
    result = result_of(path)
    return None if result is None or result.interrupted else result


def _near(path: Path) -> str:
    """A run directory beside it, or where runs usually are, that is called nearly so."""
    for folder in dict.fromkeys((path.parent, Path("runs"))):
        names = [each.parent.name for each in folder.glob(f"*/{VERSIONS}")]
        if hint := suggest(path.name, names, "" if folder == Path() else f"{folder}/", likeness=0.8):
            return hint
    return ""
