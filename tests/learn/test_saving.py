"""A run that was cut ends like a whole one: models that somebody held are saved, and put in place again."""

from __future__ import annotations

from pathlib import Path

import pytest

from plexus.learn import graph
from plexus.learn.expressions import Expression
from plexus.learn.graph import LazyModels
from plexus.learn.task import Task
from plexus.learn.trainer import InlineEngine
from plexus.protocol.api import Change


def fresh(task: Task) -> LazyModels:
    return LazyModels(task, InlineEngine(task))


def rounds(models: LazyModels, model: Expression, first: int, last: int) -> Expression:
    for round in range(first, last + 1):
        trained = [models.train(model, node, round) for node in range(4)]
        late = Change(trained[3], model)
        samples = [models.samples(node) for node in range(4)]
        model = models.mean(trained[:3], samples[:3], *(((late,), samples[3:]) if round % 2 else ()))
        if round % 3 == 0:
            models.evaluate(model)
    return model


@pytest.mark.parametrize("stop", [0, 1, 3, 4, 6, 7])
def test_a_resumed_run_ends_with_the_same_weights_and_counts(digits: Task, tmp_path: Path, stop: int) -> None:
    whole = fresh(digits)
    end = rounds(whole, whole.initial(), 1, 8)
    expected = (whole.weights_hash(end), whole.costs.asked, whole.costs.computed)

    first = fresh(digits)
    model = rounds(first, first.initial(), 1, stop)
    held = first.train(model, 7, 99)  # somebody holds a model that nobody has computed
    first.save(tmp_path)

    second = fresh(digits)
    second.replay(first.evaluated)
    model = rounds(second, second.initial(), 1, stop)
    again = second.train(model, 7, 99)
    assert second.costs.computed == 0
    second.restore(tmp_path, first.costs.computed)
    end = rounds(second, model, stop + 1, 8)
    got = (second.weights_hash(end), second.costs.asked - 1, second.costs.computed)
    assert got == expected
    assert second.weights_hash(again) == first.weights_hash(held)


def test_saving_computes_nothing(digits: Task, tmp_path: Path) -> None:
    models = fresh(digits)
    model = rounds(models, models.initial(), 1, 2)
    models.save(tmp_path)
    assert models.costs.computed == 0
    assert model.value is None


def test_metrics_need_not_be_measured_again(digits: Task) -> None:
    models, other = fresh(digits), fresh(digits)
    model = rounds(models, models.initial(), 1, 3)
    other.replay(models.evaluated)
    again = rounds(other, other.initial(), 1, 3)
    assert again.metrics == models.evaluate(model)
    assert other.costs.computed == 0


def test_many_models_take_many_files(digits: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "FILE_BYTES", 3 * 4 * 4810)
    models, other = fresh(digits), fresh(digits)
    held, again = ([each.train(each.initial(), node, 1) for node in range(8)] for each in (models, other))
    models.evaluate_all(held)
    models.save(tmp_path)
    assert len(list(tmp_path.glob("*.safetensors"))) == 3
    other.restore(tmp_path, computed=8)
    assert all(model.value is not None for model in again)
    assert [other.weights_hash(m) for m in again] == [models.weights_hash(m) for m in held]
    assert other.costs.computed == 8
