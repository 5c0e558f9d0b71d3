"""Models that are never computed: for simulations in which only time and traffic matter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class SymbolicModels:
    """Every model is None, of a certain size on the network."""

    def __init__(self, model_bytes: int) -> None:
        self.model_bytes = model_bytes

    def train(self, model: Any, node: int, round: int) -> None:
        return None

    def mean(self, models: Sequence[Any], samples: Sequence[int]) -> None:
        return None

    def merge(self, models: Sequence[Any], weights: Sequence[float]) -> None:
        return None

    def samples(self, node: int) -> int:
        return 1
