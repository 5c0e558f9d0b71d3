"""Ways to combine models into one. Each is a named function over flat weight vectors.

Sums run in the order of the models, one addition after the other, so that the result is the same
on every device and with any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from plexus.checked import not_one_of
from plexus.errors import PlexusError

Aggregation = Callable[[Sequence[Tensor], Sequence[float]], Tensor]
"""(vectors, examples behind each) -> vector; never changes its arguments."""


def mean(vectors: Sequence[Tensor], samples: Sequence[float]) -> Tensor:
    """Every model counts the same: the paper's rule."""
    total = vectors[0].clone()
    for vector in vectors[1:]:
        total += vector
    return total.div_(len(vectors))


def weighted_mean(vectors: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """Model i counts `weights[i]`; with equal whole weights the same bits as `mean`.

    Where weights are the examples that each was trained on, this is the rule of federated averaging.
    """
    total = vectors[0] * weights[0]
    for vector, weight in zip(vectors[1:], weights[1:], strict=True):
        total.add_(vector, alpha=weight)
    return total.div_(sum(weights))


def with_changes(
    rule: Aggregation, samples: Sequence[int], change_samples: Sequence[int]
) -> tuple[list[int], list[int]]:
    """What each model and each change counts in one `weighted_mean`, by a rule and the examples behind them.

    The rule's mean of the models and Σ sⱼ·changeⱼ / (Σ sᵢ + Σ sⱼ), brought to one denominator: all weights
    are whole, and those of the models sum to it.
    """
    if rule is mean:
        samples, change_samples = [1] * len(samples), [1] * len(change_samples)
    models, both = sum(samples), sum(samples) + sum(change_samples)
    return [each * both for each in samples], [each * models for each in change_samples]


AGGREGATIONS: dict[str, Aggregation] = {"mean": mean, "sample-weighted-mean": weighted_mean}


def aggregation_named(name: str) -> Aggregation:
    """The aggregation rule called `name`."""
    if name not in AGGREGATIONS:
        raise PlexusError(f"aggregation {not_one_of(name, AGGREGATIONS)}")
    return AGGREGATIONS[name]
