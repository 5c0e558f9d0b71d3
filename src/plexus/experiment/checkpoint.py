"""Checkpoints: how a run that was killed goes on, and ends with the digest and weights of a whole one.

When things happen never depends on weights, and simulating without learning takes a fraction of the
time. So a checkpoint holds what was learned, not the simulator: the models somebody holds, and what
evaluations found. To resume, virtual time passes again up to the checkpoint with these in place of the
learning; its digest proves that it is the same run. Nothing of kernel, nodes, views or random streams
needs a file format, and the tables of the run directory come out anew.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from plexus.checked import suggest
from plexus.errors import PlexusError
from plexus.files import named, sync, write_json
from plexus.learn.graph import Expression, LazyModels, Mean, Trained, in_order
from plexus.learn.task import Metrics
from plexus.runs.directory import CHECKPOINT, CHECKPOINT_FOLDER, remove_checkpoints
from plexus.runs.result import Result
from plexus.runs.run import VERSIONS, result_of
from plexus.sim.kernel import Kernel

# Whether a directory holds a run that can go on.


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
        hint = suggest(path.name, names, "" if folder == Path() else f"{folder}/", likeness=0.8)
        if hint:
            return hint
    return ""


# Writes the models of a run to files and reads them again: the learning part of a checkpoint.
#
# Computed models are written as tensors, in safetensors; what is not computed yet is written as what
# it is made from, in JSON. Nothing is computed for the sake of a checkpoint, so a resumed run computes
# the same waves and ends with the same weights.

GRAPH = "models.json"
FILE_BYTES = 256 << 20
"""Tensors per file: so much is in memory at once, beside the budget."""


class Saved(Struct, frozen=True, omit_defaults=True):
    """One expression: a place among the tensors, or how it is made from earlier ones of the list."""

    tensor: int | None = None
    parents: tuple[int, ...] = ()
    trained_by: tuple[int, int] | None = None
    """Node and round."""
    weights: tuple[int | float, ...] | None = None
    """Of a mean."""
    merged: bool = False
    metrics: Metrics | None = None


class SavedGraph(Struct, frozen=True, forbid_unknown_fields=True):
    """The content of models.json."""

    task: str
    initial_hash: str
    """Of the initial weights: resuming with another task, seed or model is refused."""
    asked: int
    computed: int
    expressions: list[Saved]
    wanted: list[int]
    """The places of the models that were asked to be written, in their order."""
    files: dict[str, str]
    """Files of tensors, and the hash of each."""


def write_frontier(models: LazyModels, wanted: Sequence[Expression], folder: Path) -> None:
    """Write `wanted` and all they depend on into `folder`, which the caller puts in place atomically."""
    needed = _with_values(wanted)
    place = {expression: number for number, expression in enumerate(needed)}
    settled = [expression for expression in needed if expression.value is not None]
    row = {expression: number for number, expression in enumerate(settled)}
    graph = SavedGraph(
        task=models.task.name,
        initial_hash=models.weights_hash(models.initial()),
        asked=models.asked,
        computed=models.computed,
        expressions=[_saved(expression, place, row) for expression in needed],
        wanted=[place[expression] for expression in wanted],
        files=dict(_write_tensors(settled, folder)),
    )
    (folder / GRAPH).write_bytes(msgspec.json.encode(graph))


def read_frontier(models: LazyModels, folder: Path) -> list[Expression]:
    """The models that were written, in their order; `models` must be freshly made for the same task."""
    graph = _read_graph(folder)
    if graph.initial_hash != models.weights_hash(models.initial()):
        raise PlexusError(
            f"{folder / GRAPH} is of task {graph.task} with other data, seed or model than this"
            f" session's task {models.task.name}"
        )
    expressions: list[Expression] = []
    vectors = _read_tensors(graph, folder, models)
    try:
        for saved in graph.expressions:
            expressions.append(_restored(models, saved, expressions, vectors))
        wanted = [expressions[number] for number in graph.wanted]
    except (IndexError, StopIteration):
        raise PlexusError(f"{folder / GRAPH} is damaged: it refers to what it does not have") from None
    models.costs.asked, models.costs.computed = graph.asked, graph.computed
    return wanted


def check_files(folder: Path) -> int:
    """See that everything written is there as it was written; how many models were wanted."""
    graph = _read_graph(folder)
    for name in graph.files:
        _read_file(graph, folder / name)
    return len(graph.wanted)


def _with_values(wanted: Sequence[Expression]) -> list[Expression]:
    """Everything to be written, parents before children."""
    unsettled = in_order(wanted)
    parents = [parent for expression in unsettled for parent in expression.parents]
    settled = [e for e in (*parents, *wanted) if e.value is not None]
    return [*dict.fromkeys(settled), *unsettled]


def _saved(expression: Expression, place: dict[Expression, int], row: dict[Expression, int]) -> Saved:
    if expression in row:
        return Saved(tensor=row[expression], metrics=expression.metrics)
    parents = tuple(place[parent] for parent in expression.parents)
    if isinstance(expression, Trained):
        return Saved(parents=parents, trained_by=(expression.node, expression.round))
    assert isinstance(expression, Mean), f"{expression} has no value and no parents"
    return Saved(parents=parents, weights=expression.weights, merged=expression.merged)


def _restored(
    models: LazyModels, saved: Saved, earlier: list[Expression], vectors: Iterator[Tensor]
) -> Expression:
    parents = tuple(earlier[number] for number in saved.parents)
    if saved.trained_by is not None:
        return Trained(parents[0], *saved.trained_by)
    if saved.weights is not None:
        return Mean(parents, saved.weights, saved.merged)
    expression = Expression(())
    expression.settle(models.store.keep(next(vectors)))
    expression.metrics = saved.metrics
    return expression


def _write_tensors(settled: Sequence[Expression], folder: Path) -> Iterator[tuple[str, str]]:
    batch: dict[str, Tensor] = {}
    for row, expression in enumerate(settled):
        batch[f"{row:08}"] = expression.vector().cpu().clone()
        size = sum(vector.nbytes for vector in batch.values())
        if size >= FILE_BYTES or row == len(settled) - 1:
            name = f"models-{row:08}.safetensors"
            content = save(batch)
            (folder / name).write_bytes(content)
            yield name, _hash(content)
            batch = {}


def _read_tensors(graph: SavedGraph, folder: Path, models: LazyModels) -> Iterator[Tensor]:
    for name in sorted(graph.files):
        path = folder / name
        try:
            tensors = load(_read_file(graph, path))
        except SafetensorError as error:
            raise PlexusError(f"{path} cannot be read: {error}") from None
        for row in sorted(tensors):
            if tensors[row].shape != (models.engine.layout.size,):
                raise PlexusError(f"{path} has models of another size than this session's")
            yield tensors[row].to(models.engine.device)


def _read_file(graph: SavedGraph, path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except (OSError, ValueError) as error:
        raise PlexusError(f"{path} cannot be read: {error}") from None
    if _hash(content) != graph.files[path.name]:
        raise PlexusError(f"{path} is damaged: its content is not what was written")
    return content


def _read_graph(folder: Path) -> SavedGraph:
    try:
        return msgspec.json.decode((folder / GRAPH).read_bytes(), type=SavedGraph)
    except (OSError, msgspec.DecodeError, ValueError) as error:  # ValueError: no text, or no path
        raise PlexusError(f"{folder / GRAPH} cannot be read: {error}") from None


def _hash(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


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
