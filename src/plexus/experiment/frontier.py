"""Writes the models of a run to files and reads them again: the learning part of a checkpoint.

Computed models are written as tensors, in safetensors; what is not computed yet is written as what
it is made from, in JSON. Nothing is computed for the sake of a checkpoint, so a resumed run computes
the same waves and ends with the same weights.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from plexus.errors import PlexusError
from plexus.learn.expressions import Expression, Mean, Trained, in_order
from plexus.learn.graph import LazyModels
from plexus.learn.task import Metrics

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
        raise PlexusError(
            f"{folder / GRAPH} is damaged: it refers to what it does not have"
        ) from None
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


def _saved(
    expression: Expression, place: dict[Expression, int], row: dict[Expression, int]
) -> Saved:
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
