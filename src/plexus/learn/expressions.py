"""Expressions: models as what they are made from, and in which order they are computed (see `graph`)."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from plexus.learn.spill import Kept
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

    def settle(self, value: Kept) -> None:
        """Take the computed weights and let go of what they were made from."""
        self.value = value
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
