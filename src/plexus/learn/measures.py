"""The metrics of the paper: top-1 accuracy and squared error."""

from __future__ import annotations

import math

from torch import Tensor

from plexus.learn.task import Measure


def is_top1(outputs: Tensor, targets: Tensor) -> Tensor:
    """1 where the highest output is the target class, else 0."""
    return (outputs.argmax(dim=-1) == targets).float()


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """The squared distance of each prediction to its target."""
    return (outputs - targets).square()


TOP1 = Measure("accuracy", is_top1, higher_is_better=True)
MSE = Measure("mse", squared_error, higher_is_better=False, derived={"rmse": math.sqrt})
