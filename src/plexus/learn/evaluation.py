"""Evaluations over many nodes, as the paper does for protocols without a global model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import fmean, pstdev

from msgspec import Struct

from plexus.errors import PlexusError
from plexus.learn.graph import Expression, LazyModels
from plexus.learn.task import Metrics
from plexus.rng import stream


class NodesMetrics(Struct, frozen=True):
    """The metric of individual nodes' models."""

    name: str
    mean: float
    deviation: float
    """Standard deviation over the nodes evaluated."""
    best: float
    best_node: int
    by_node: dict[int, float]


def evaluated_nodes(
    online: Mapping[int, Expression], share: float, seed: int, count: int
) -> list[int]:
    """The nodes of the evaluation number `count`: all that are online, or a seeded share of them."""
    if not 0 < share <= 1:
        raise PlexusError(f"evaluation share is {share}: it must be above 0 and at most 1")
    nodes = sorted(online)
    if share == 1:
        return nodes
    chosen = math.ceil(share * len(nodes))
    return sorted(stream(seed, "learn", "evaluate", count).sample(nodes, chosen))


def evaluate_nodes(
    models: LazyModels, by_node: Mapping[int, Expression], nodes: list[int]
) -> NodesMetrics:
    """Evaluate each of these nodes' models; results belong to node ids, whatever their order."""
    if not nodes:
        raise PlexusError("no node is online: there is no model to evaluate")
    found = dict(zip(nodes, models.evaluate_all([by_node[node] for node in nodes]), strict=True))
    values = {node: metrics.value for node, metrics in found.items()}
    higher = models.task.measure.higher_is_better
    best_node = (max if higher else min)(nodes, key=lambda node: values[node])
    return NodesMetrics(
        models.task.measure.name,
        fmean(values.values()),
        pstdev(values.values()),
        values[best_node],
        best_node,
        values,
    )


def evaluate_average(
    models: LazyModels, by_node: Mapping[int, Expression], nodes: list[int]
) -> Metrics:
    """Evaluate the plain average of these nodes' models.

    The paper does so for MovieLens, where one user's node knows next to nothing of most movies.
    """
    if not nodes:
        raise PlexusError("no node is online: there is no model to evaluate")
    return models.evaluate(models.mean([by_node[node] for node in nodes], [1] * len(nodes)))
