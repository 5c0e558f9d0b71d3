"""Models that tell where they come from: what checkers look at instead of weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class Label(NamedTuple):
    """A model: made by `node` in `round`, with a number of its own."""

    kind: str
    node: int
    round: int
    number: int

    def __str__(self) -> str:
        if self.kind == "initial":
            return "m0"
        return f"{self.kind} #{self.number}"


INITIAL = Label("initial", -1, 0, 0)


class Labels:
    """Every model is a label, and no two trainings give the same one."""

    def __init__(self, model_bytes: int) -> None:
        self.model_bytes = model_bytes
        self._made = 0

    def train(self, model: Any, node: int, round: int) -> Label:
        return self._new("trained", node, round)

    def mean(self, models: Sequence[Label], samples: Sequence[int]) -> Label:
        return self._new("mean", -1, max(model.round for model in models) + 1)

    def merge(self, models: Sequence[Label], weights: Sequence[float]) -> Label:
        return self._new("merged", -1, max(model.round for model in models))

    def samples(self, node: int) -> int:
        return 10 + node

    def _new(self, kind: str, node: int, round: int) -> Label:
        self._made += 1
        return Label(kind, node, round, self._made)
