"""Evaluations over many nodes: by node id, seeded, with mean, deviation and best."""

from __future__ import annotations

from statistics import fmean, pstdev

import pytest

from plexus.errors import PlexusError
from plexus.learn.engines.inline import InlineEngine
from plexus.learn.evaluation import evaluate_average, evaluate_nodes, evaluated_nodes
from plexus.learn.graph import Expression, LazyModels
from plexus.learn.task import Task


@pytest.fixture
def models(digits: Task) -> LazyModels:
    return LazyModels(digits, InlineEngine(digits))


@pytest.fixture
def by_node(models: LazyModels) -> dict[int, Expression]:
    return {node: models.train(models.initial(), node, 1) for node in (7, 2, 5, 3)}


def test_results_belong_to_node_ids(models: LazyModels, by_node: dict[int, Expression]) -> None:
    found = evaluate_nodes(models, by_node, evaluated_nodes(by_node, 1.0, seed=1, count=0))
    expected = {node: models.evaluate(model).value for node, model in by_node.items()}
    assert found.by_node == expected
    assert found.mean == fmean(expected[node] for node in (2, 3, 5, 7))
    assert found.deviation == pstdev(expected[node] for node in (2, 3, 5, 7))
    assert found.best == max(expected.values()) == expected[found.best_node]


def test_a_share_is_seeded_and_differs_from_time_to_time() -> None:
    online: dict[int, Expression] = {node: Expression(()) for node in range(100)}
    first = evaluated_nodes(online, 0.1, seed=1, count=0)
    assert len(first) == 10
    assert first == evaluated_nodes(dict(reversed(online.items())), 0.1, seed=1, count=0)
    assert first != evaluated_nodes(online, 0.1, seed=1, count=1)
    assert first != evaluated_nodes(online, 0.1, seed=2, count=0)


def test_the_average_model_is_evaluated(models: LazyModels, by_node: dict[int, Expression]) -> None:
    average = models.mean([by_node[node] for node in (2, 7)], [1, 1])
    assert evaluate_average(models, by_node, [2, 7]) == models.evaluate(average)


def test_its_cost_is_reported(models: LazyModels, by_node: dict[int, Expression]) -> None:
    evaluate_nodes(models, by_node, [2, 3])
    evaluate_nodes(models, by_node, [2, 3, 5])
    assert models.costs.evaluations == 3
    assert models.costs.evaluation_s > 0
    assert models.costs.training_s > 0


def test_impossible_evaluations_are_refused(models: LazyModels) -> None:
    with pytest.raises(PlexusError, match="no node is online"):
        evaluate_nodes(models, {}, [])
    with pytest.raises(PlexusError, match="no node is online"):
        evaluate_average(models, {}, [])
    with pytest.raises(PlexusError, match="share is 0"):
        evaluated_nodes({}, 0, seed=1, count=0)
