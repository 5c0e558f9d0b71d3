"""Lazy models: computed only when looked at, in waves, in bounded memory."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from plexus.errors import PlexusError
from plexus.learn.engines import LocalTraining, create_engine
from plexus.learn.expressions import Expression, waves
from plexus.learn.graph import LazyModels
from plexus.learn.layout import encode
from plexus.learn.optimiser import Sgd
from plexus.learn.rules import RULES, MeanRule, MedianRule, Rule, WeightedMeanRule
from plexus.learn.task import Task
from plexus.learn.trainer import InlineEngine
from plexus.protocol.api import Change
from plexus.runs.result import Metrics


class Spy:
    """Adds 1 to a two-weight model per training, and remembers how it was called."""

    device = torch.device("cpu")
    workers_cpu_s = 0.0

    def __init__(self, inner: InlineEngine) -> None:
        self.layout, self.frozen = inner.layout, inner.frozen
        self.initial = torch.zeros(inner.layout.size)
        self.waves: list[list[tuple[int, int]]] = []
        self.evaluated = 0
        self.alive: weakref.WeakSet[Tensor] = weakref.WeakSet()
        self.most_alive = 0

    def train(self, jobs: Sequence[LocalTraining]) -> list[Tensor]:
        self.waves.append([(job.node, job.round) for job in jobs])
        vectors = [job.base + 1 for job in jobs]
        self.alive.update(vectors)
        self.most_alive = max(self.most_alive, len(self.alive))
        return vectors

    def evaluate(self, vector: Tensor) -> Metrics:
        self.evaluated += 1
        return Metrics("first", float(vector[0]), True, 0.0)

    def close(self) -> None:
        pass


@pytest.fixture
def spy(digits: Task) -> Spy:
    return Spy(InlineEngine(digits))


@pytest.fixture
def lazy(digits: Task, spy: Spy) -> LazyModels:
    return LazyModels(digits, spy)


def a_round(lazy: LazyModels, model: Expression, round: int, used: int, asked: int) -> Expression:
    trained = [lazy.train(model, node, round) for node in range(asked)]
    return lazy.mean(trained[:used], [1] * used)


def test_nothing_is_computed_before_somebody_looks(lazy: LazyModels, spy: Spy) -> None:
    model = a_round(lazy, lazy.initial(), 1, used=8, asked=10)
    assert (lazy.costs.asked, lazy.costs.computed, spy.waves) == (10, 0, [])
    assert lazy.evaluate(model).value == 1.0
    assert (lazy.costs.asked, lazy.costs.computed) == (10, 8)


def test_at_a_success_fraction_of_80_percent_a_fifth_is_spared(lazy: LazyModels) -> None:
    model = lazy.initial()
    for round in range(1, 31):
        model = a_round(lazy, model, round, used=8, asked=10)
        if round % 10 == 0:
            lazy.evaluate(model)
    assert (lazy.costs.asked, lazy.costs.computed) == (300, 240)


def test_independent_trainings_reach_the_engine_together(lazy: LazyModels, spy: Spy) -> None:
    first = a_round(lazy, lazy.initial(), 1, used=2, asked=2)
    second = a_round(lazy, first, 2, used=3, asked=3)
    lazy.evaluate(second)
    assert spy.waves == [[(0, 1), (1, 1)], [(0, 2), (1, 2), (2, 2)]]


def test_models_evaluated_together_share_waves(lazy: LazyModels, spy: Spy) -> None:
    chains = []
    for node in range(5):
        model = lazy.initial()
        for round in (1, 2, 3):
            model = lazy.train(model, node, round)
        chains.append(model)
    assert [m.value for m in lazy.evaluate_all(chains)] == [3.0] * 5
    assert [len(wave) for wave in spy.waves] == [5, 5, 5]


def test_a_model_is_trained_and_evaluated_once(lazy: LazyModels, spy: Spy) -> None:
    model = a_round(lazy, lazy.initial(), 1, used=2, asked=2)
    lazy.evaluate(model)
    lazy.evaluate(model)
    assert lazy.evaluate_all([model, model]) == [lazy.evaluate(model)] * 2
    lazy.weights(model)
    assert (spy.evaluated, lazy.costs.computed) == (1, 2)


def test_means_of_means_need_no_wave_of_their_own(lazy: LazyModels) -> None:
    start = lazy.initial()
    inner = lazy.mean([start, start], [1, 1])
    outer = lazy.mean([inner, lazy.train(inner, 0, 1)], [1, 1])
    assert [(len(w.trainings), len(w.means)) for w in waves([outer])] == [(0, 1), (1, 1)]
    assert lazy.evaluate(outer).value == 0.5


def test_a_chain_of_thousands_of_rounds_is_forced_and_freed(lazy: LazyModels, spy: Spy) -> None:
    model = lazy.initial()
    for round in range(20_000):
        model = lazy.mean([lazy.train(model, 0, round)], [1])
    assert lazy.evaluate(model).value == 20_000
    assert spy.most_alive <= 3


def test_a_long_chain_nobody_needed_is_freed_without_overflow(lazy: LazyModels) -> None:
    model = lazy.initial()
    for round in range(200_000):
        model = lazy.train(model, 0, round)
    del model
    assert lazy.costs.computed == 0


def test_a_computed_model_lets_go_of_its_ancestors(lazy: LazyModels, spy: Spy) -> None:
    model = lazy.initial()
    for round in range(50):
        model = a_round(lazy, model, round, used=4, asked=4)
        lazy.evaluate(model)
    gc.collect()
    assert len(spy.alive) == 0  # the means are held, the trained models are gone
    assert model.parents == ()
    assert spy.most_alive <= 8


def test_the_aggregation_rule_is_the_one_given(digits: Task, spy: Spy) -> None:
    for rule, expected in ((MeanRule(), 0.5), (WeightedMeanRule(), 0.25), (MedianRule(), 0.5)):
        lazy = LazyModels(digits, spy, rule)
        model = lazy.mean([lazy.initial(), lazy.train(lazy.initial(), 0, 1)], [3, 1])
        assert lazy.evaluate(model).value == expected


def test_everything_is_computed_on_one_thread(digits: Task, spy: Spy) -> None:
    threads = []

    class Spying(Rule, frozen=True):
        def combine(self, rows: NDArray[Any]) -> NDArray[Any]:
            threads.append(torch.get_num_threads())
            return super().combine(rows)

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        lazy = LazyModels(digits, spy, Spying())
        lazy.evaluate(a_round(lazy, lazy.initial(), 1, used=2, asked=2))
        assert (threads, torch.get_num_threads()) == ([1], 2)
    finally:
        torch.set_num_threads(before)


def test_model_bytes_is_the_encoded_size(digits: Task) -> None:
    lazy = LazyModels(digits, InlineEngine(digits))
    assert lazy.model_bytes == len(encode(lazy.weights(lazy.initial())))
    assert lazy.model_bytes > 4 * (64 * 64 + 64 + 640 + 10)


def test_weights_are_the_callers_own(digits: Task) -> None:
    lazy = LazyModels(digits, InlineEngine(digits))
    before = lazy.weights_hash(lazy.initial())
    for tensor in lazy.weights(lazy.initial()).values():
        tensor.zero_()
    assert lazy.weights_hash(lazy.initial()) == before


def test_weights_hash_tells_weights_apart(digits: Task) -> None:
    one, two = (LazyModels(digits, InlineEngine(digits)) for _ in range(2))
    assert one.weights_hash(one.initial()) == two.weights_hash(two.initial())
    trained = [lazy.weights_hash(lazy.train(lazy.initial(), 0, 1)) for lazy in (one, two)]
    assert trained[0] == trained[1] != one.weights_hash(one.initial())


def test_weights_that_are_not_finite_name_node_and_round(digits: Task) -> None:
    task = replace(digits, optimiser=Sgd(1e30))
    lazy = LazyModels(task, InlineEngine(task))
    model = lazy.train(lazy.train(lazy.initial(), 4, 17), 4, 18)
    with pytest.raises(PlexusError, match=r"digits: the model of node 4 after round 1[78] has weights"):
        lazy.evaluate(model)


@pytest.mark.parametrize("rule", RULES)
def test_merging_lazily_ignores_the_rule_of_aggregation(digits: Task, rule: str) -> None:
    models = LazyModels(digits, InlineEngine(digits), RULES[rule]())
    parts = [models.train(models.initial(), node, 1) for node in range(2)]
    merged = models.merge(parts, [3, 1])
    assert models.costs.computed == 0
    assert models.merge(parts, [3, 1]) is merged, "whoever asks for the same gets the same"
    assert models.merge(parts[::-1], [3, 1]) is not merged
    key = next(iter(models.weights(merged)))
    expected = (3 * models.weights(parts[0])[key] + models.weights(parts[1])[key]) / 4
    torch.testing.assert_close(models.weights(merged)[key], expected)
    with pytest.raises(ValueError, match="2 models and 1 weights to merge"):
        models.merge(parts, [1])


def test_an_aggregate_of_nothing_is_refused(lazy: LazyModels) -> None:
    with pytest.raises(ValueError, match="0 models"):
        lazy.mean([], [])


def with_late_models(models: LazyModels) -> tuple[Expression, list[Expression], list[Change]]:
    """A second round, two models of which belong to the first; one began with a model of its own."""
    start = models.initial()
    strayed = models.train(start, 7, 1)
    first = models.mean([models.train(start, node, 1) for node in range(3)], [1, 1, 1])
    trained = [models.train(first, node, 2) for node in range(3)]
    changes = [Change(models.train(base, node, 1), base) for node, base in ((4, start), (5, strayed))]
    return models.mean(trained, [30, 10, 20], changes, [25, 15]), trained, changes


WEIGHTS_WITH_CHANGES = {"mean": ([1, 1, 1], [1, 1]), "sample-weighted-mean": ([30, 10, 20], [25, 15])}


@pytest.mark.parametrize("rule", WEIGHTS_WITH_CHANGES)
def test_changes_are_added_to_the_mean_of_the_models(digits: Task, rule: str) -> None:
    models = LazyModels(digits, InlineEngine(digits), RULES[rule]())
    made, trained, changes = with_late_models(models)
    found = models.weights(made)
    behind, late = WEIGHTS_WITH_CHANGES[rule]
    for name, weights in found.items():
        expected = sum(w * models.weights(m)[name].double() for w, m in zip(behind, trained, strict=True))
        expected = expected / sum(behind)
        for weight, change in zip(late, changes, strict=True):
            difference = models.weights(change.trained)[name].double() - models.weights(change.base)[name]
            expected = expected + weight * difference / (sum(behind) + sum(late))
        torch.testing.assert_close(weights.double(), expected, rtol=1e-5, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_changes_give_the_same_weights_on_any_engine(digits: Task, rule: str) -> None:
    found = {}
    for name in ("inline", "processes", "stacked"):
        engine, _ = create_engine(name, digits, workers=2, device="cpu")
        models = LazyModels(digits, engine, RULES[rule]())
        found[name] = models.weights(with_late_models(models)[0])
        models.close()
    for key, weights in found["inline"].items():
        assert torch.equal(found["processes"][key], weights)
        torch.testing.assert_close(found["stacked"][key], weights, rtol=1e-4, atol=1e-6)


def test_a_change_keeps_its_models_only_until_it_is_added(lazy: LazyModels, spy: Spy) -> None:
    base = lazy.train(lazy.initial(), 0, 1)
    change = Change(lazy.train(base, 0, 2), base)
    made = lazy.mean([lazy.train(lazy.initial(), 1, 2)], [1], [change], [1])
    del base, change
    assert len(lazy.alive) == 4
    assert lazy.evaluate(made).value == 1 + (2 - 1) / 2
    assert (len(lazy.alive), len(spy.alive), spy.waves) == (1, 0, [[(1, 2), (0, 1)], [(0, 2)]])


def test_what_was_not_aggregated_with_its_change_is_not_trained(lazy: LazyModels) -> None:
    late = Change(lazy.train(lazy.initial(), 0, 1), lazy.initial())
    lazy.evaluate(lazy.mean([lazy.train(lazy.initial(), 1, 1)], [1]))
    assert (lazy.costs.asked, lazy.costs.computed, late.trained.value) == (2, 1, None)


def test_changes_alone_are_no_model(lazy: LazyModels) -> None:
    change = Change(lazy.train(lazy.initial(), 0, 1), lazy.initial())
    with pytest.raises(ValueError, match="0 models"):
        lazy.mean([], [], [change], [1])
    with pytest.raises(ValueError, match="3 models and 1 weights"):
        lazy.mean([lazy.initial()], [1], [change], [])
