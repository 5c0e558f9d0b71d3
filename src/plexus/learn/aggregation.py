"""Ways to combine models into one. Each is a function over flat weight vectors.

Means are here; what needs all models at once is in `rules`, by way of `robust`. Sums run in the order of the
models, one addition after the other, so that the result is the same on every device and with any number of
threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

import torch
from torch import Tensor

from plexus.learn import rules
from plexus.learn.layout import Layout
from plexus.learn.rules import MeanRule, Rule, WeightedMeanRule

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
    rule: Rule, samples: Sequence[int], change_samples: Sequence[int]
) -> tuple[list[int], list[int]]:
    """What each model and each change counts in one `weighted_mean`, by a rule and the examples behind them.

    The rule's mean of the models and Σ sⱼ·changeⱼ / (Σ sᵢ + Σ sⱼ), brought to one denominator: all weights
    are whole, and those of the models sum to it.
    """
    if isinstance(rule, MeanRule):
        samples, change_samples = [1] * len(samples), [1] * len(change_samples)
    models, both = sum(samples), sum(samples) + sum(change_samples)
    return [each * both for each in samples], [each * models for each in change_samples]


MEANS: dict[type[Rule], Aggregation] = {MeanRule: mean, WeightedMeanRule: weighted_mean}
"""Rules that are sums, which need no more than one model at a time."""


def robust(rule: Rule, layout: Layout, models: Sequence[Tensor], changes: Sequence[Tensor] = ()) -> Tensor:
    """What `rule` makes of models, or of what is shared of them, and of the changes of trainings that came
    late. On the processor, so that it is the same on every device."""
    out = torch.empty_like(models[0], device="cpu")
    entries = [entry for entry in layout.entries if entry.stop <= len(out)]
    spans = [
        (is_float, slice((some := list(group))[0].start, some[-1].stop))
        for is_float, group in groupby(entries, key=lambda entry: entry.dtype.is_floating_point)
    ]
    arrays = [vector.cpu().numpy() for vector in (*models, *changes, out)]
    runs = [[each[span] for _, span in spans] for each in arrays]
    rules.aggregate(rule, runs[: len(models)], runs[-1], runs[len(models) : -1], [each for each, _ in spans])
    return out.to(models[0].device)
