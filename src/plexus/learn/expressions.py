"""Expressions: models as what they are made from, and in which order they are computed (see `graph`).

Weights are kept within a budget of memory; what has not been used for longest (LRU) is spilled to disk. A
`Kept` stands for one vector wherever it is. When its last holder lets go of it, memory and file are free.
"""

from __future__ import annotations

import tempfile
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plexus.runs.result import Metrics


class Expression:
    """A model that may or may not have been computed yet."""

    __slots__ = ("__weakref__", "metrics", "number", "parents", "value")

    number: int
    """Its place in the order in which the models of a run were asked for."""

    def __init__(self, parents: tuple[Expression, ...]) -> None:
        self.parents = parents
        self.value: Kept | None = None
        self.metrics: Metrics | None = None

    def settle(self, vector: Tensor, store: VectorStore) -> None:
        """Take the computed weights and let go of what they were made from."""
        self.value = Kept(vector, store)
        self.parents = ()

    def vector(self) -> Tensor:
        assert self.value is not None, "forced before it is read"
        return self.value.get()


class TrainedModel(Expression):
    """The base model after one local training; `before` is what the node itself has kept of earlier ones."""

    __slots__ = ("kept", "node", "round")

    def __init__(self, base: Expression, node: int, round: int, before: OwnPart | None = None) -> None:
        super().__init__((base,) if before is None else (base, before))
        self.node = node
        self.round = round
        self.kept: weakref.ref[OwnPart] | None = None
        """What the node keeps of it, if anybody still wants to know."""


class OwnPart(Expression):
    """The tensors that stay with a node, after one of its trainings."""

    __slots__ = ("before",)

    def __init__(self, trained: TrainedModel, before: OwnPart | None) -> None:
        super().__init__((trained,))
        trained.kept = weakref.ref(self)
        self.before = before
        """Of the training before: of no use once this training is finished."""


class MeanModel(Expression):
    """Models combined: by the aggregation rule, told the examples behind each, or merged by weights.

    The last `late` pairs of parts are a training that came late and what it began with. Only merged have they
    weights as well.
    """

    __slots__ = ("late", "merged", "weights")

    def __init__(
        self, parts: tuple[Expression, ...], weights: tuple[Any, ...], merged: bool = False, late: int = 0
    ) -> None:
        weighed = len(parts) if merged else len(parts) - 2 * late
        if weighed != len(weights) or not weights:
            raise ValueError(f"{weighed} models and {len(weights)} weights to merge")
        super().__init__(parts)
        self.weights = weights
        self.merged = merged
        self.late = late


@dataclass
class Wave:
    """Trainings that can run at once, and the means that can be taken right after them."""

    trainings: list[TrainedModel]
    means: list[MeanModel]


def in_order(wanted: Sequence[Expression]) -> list[Expression]:
    """All that `wanted` is made from and that has no value yet, parents before children."""
    done: dict[Expression, None] = {}
    # A stack of our own: chains grow by two expressions a round, beyond Python's recursion limit.
    stack = list(reversed(wanted))
    while stack:
        expression = stack[-1]
        if expression.value is not None or expression in done:
            stack.pop()
            continue
        if missing := [p for p in expression.parents if p.value is None and p not in done]:
            stack.extend(reversed(missing))
        else:
            done[stack.pop()] = None
    return list(done)


def waves(wanted: Sequence[Expression]) -> list[Wave]:
    """All that must be computed for `wanted`, each wave needing only the ones before it."""
    level: dict[Expression, int] = {}
    found: list[Wave] = []
    for expression in in_order(wanted):
        after = max((level[p] for p in expression.parents if p in level), default=-1)
        level[expression] = after + 1 if isinstance(expression, TrainedModel) else max(after, 0)
        if len(found) <= level[expression]:
            found.append(Wave([], []))
        wave = found[level[expression]]
        if isinstance(expression, MeanModel):
            wave.means.append(expression)
        elif isinstance(expression, TrainedModel):
            wave.trainings.append(expression)
        else:  # comes with its training
            assert isinstance(expression, OwnPart), f"{expression} is computed by nobody"
    return found


class VectorStore:
    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self.held_bytes = 0
        """In memory now. Above the budget only while a single vector is."""
        self.spilled = 0
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._held: OrderedDict[int, weakref.ref[Kept]] = OrderedDict()

    def close(self) -> None:
        """Remove what is on disk. Vectors in memory remain usable."""
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def hold(self, kept: Kept) -> None:
        """This one is in memory and was used last: past the budget, others go to disk."""
        self.drop(kept)
        self._held[id(kept)] = weakref.ref(kept)
        self.held_bytes += kept.bytes
        while self.held_bytes > self.budget_bytes and len(self._held) > 1:
            oldest = next(iter(self._held.values()))()
            assert oldest is not None, "what is gone has left the store"
            oldest.spill()

    def drop(self, kept: Kept) -> None:
        """This one is in memory no more."""
        if self._held.pop(id(kept), None) is not None:
            self.held_bytes -= kept.bytes

    def write(self, vector: Tensor) -> Path:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="plexus-models-")
        path = Path(self._folder.name) / f"{self.spilled}.npy"
        np.save(path, vector.cpu().numpy(), allow_pickle=False)
        self.spilled += 1
        return path


class Kept:
    """A vector in the store. Nobody may change it any more."""

    __slots__ = ("__weakref__", "bytes", "device", "path", "store", "tensor")

    def __init__(self, vector: Tensor, store: VectorStore) -> None:
        self.store = store
        self.tensor: Tensor | None = vector
        self.path: Path | None = None
        self.device, self.bytes = vector.device, vector.nbytes
        store.hold(self)

    def get(self) -> Tensor:
        """The vector; read it, do not change it."""
        vector = self.tensor
        if vector is None:
            assert self.path is not None, "in memory or on disk"
            vector = self.tensor = torch.from_numpy(np.load(self.path, allow_pickle=False)).to(self.device)
        self.store.hold(self)
        return vector

    def spill(self) -> None:
        """Out of memory; what was on disk before is still there."""
        if self.path is None and self.tensor is not None:
            self.path = self.store.write(self.tensor)
        self.store.drop(self)
        self.tensor = None

    def __del__(self) -> None:
        self.store.drop(self)
        if self.path is not None:
            self.path.unlink(missing_ok=True)
