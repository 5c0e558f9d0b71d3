"""Tasks by name and parameters; digits."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from plexus.errors import PlexusError
from plexus.learn.engines import create_engine
from plexus.learn.graph import LazyModels
from plexus.learn.task import Task
from plexus.learn.tasks import create_task, parse_task


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"name": "digit"}, r"^task.name: 'digit' is not one of .*\(did you mean 'digits'\?\)"),
        ({"name": "zzz"}, "^task.name: 'zzz' is not one of 'digits', .*'untrained'$"),
        ({}, "^task.name: missing; one of 'digits', "),
        ({"name": "digits", "alhpa": 1}, "^task.alhpa: unknown key .did you mean 'task.alpha'"),
        ({"name": "digits", "zzz": 1}, "^task.zzz: unknown key; known are .*alpha"),
        ({"name": "digits", "batch": 0}, "^task.batch: expected an integer >= 1, got 0$"),
        ({"name": "digits", "batch": "x"}, "^task.batch: expected an integer, got 'x'$"),
        ({"name": "digits", "partition": "x"}, "^task.partition: 'x' is not one of .*'iid'"),
        ({"name": "digits", "learning_rate": 0}, "^task.learning_rate: expected a number > 0"),
    ],
)
def test_what_is_wrong_is_named(parameters: dict[str, object], message: str) -> None:
    with pytest.raises(PlexusError, match=message):
        parse_task(parameters)


def test_nodes_must_be_positive_and_not_more_than_examples() -> None:
    with pytest.raises(PlexusError, match="nodes is 0"):
        create_task("digits", nodes=0, seed=1)
    with pytest.raises(PlexusError, match="1438 training examples cannot be shared among 2000 nodes"):
        create_task("digits", nodes=2000, seed=1)


@pytest.mark.parametrize("kind", ["iid", "dirichlet", "shards"])
def test_digits_keeps_training_and_test_apart(kind: str) -> None:
    task = create_task("digits", nodes=120, seed=3, partition=kind)
    assert len(task.train) + len(task.test) == 1797
    assert not set(task.train.ids) & set(task.test.ids)
    assert sorted(np.concatenate(task.parts).tolist()) == list(range(len(task.train)))
    drawn = {int(task.train.ids[row]) for node in range(9) for row in task.draw(node, 1).examples}
    assert not drawn & set(task.test.ids.tolist())


def test_the_split_is_one_and_seeded(digits: Task) -> None:
    again, other = (create_task("digits", nodes=5, seed=seed) for seed in (7, 8))
    assert digits.test.ids.tolist() == again.test.ids.tolist() != other.test.ids.tolist()


def test_a_task_refuses_test_examples_in_training(digits: Task) -> None:
    with pytest.raises(PlexusError, match="test set are also in the training set"):
        replace(digits, test=digits.train)


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (
            {"optimiser": torch.optim.SGD},
            r"^task digits: optimiser is <class .*SGD'>: plexus.Sgd.*is needed$",
        ),
        ({"measure": "accuracy"}, "^task digits: a measure is 'accuracy': a plexus.Measure is needed$"),
        ({"build_model": lambda: 3}, "^task digits: build_model makes a int, not a torch module$"),
        ({"build_model": partial(nn.LazyLinear, 10)}, "^task digits: the model has lazy layers"),
    ],
)
def test_what_is_no_part_of_a_task_is_named(digits: Task, mistake: dict[str, Any], message: str) -> None:
    with pytest.raises(PlexusError, match=message):
        replace(digits, **mistake).initial_model()


def test_examples_are_tensors(digits: Task) -> None:
    with pytest.raises(PlexusError, match=r"^a data set has a numpy.ndarray: tensors are needed \(torch.as_"):
        replace(digits.train, inputs=digits.train.inputs.numpy())
    with pytest.raises(PlexusError, match=r"has a builtins.list"):
        replace(digits.train, targets=digits.train.targets.tolist())


def test_a_task_refuses_an_empty_partition(digits: Task) -> None:
    with pytest.raises(PlexusError, match="digits: the partition of node 1 is empty"):
        replace(digits, parts=(digits.parts[0], digits.parts[1][:0]))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["iid", "dirichlet"])
def test_digits_reaches_95_percent(kind: str, averaging) -> None:  # type: ignore[no-untyped-def]
    task = create_task("digits", nodes=120, seed=1, partition=kind)
    engine, chosen = create_engine("auto", task, device="cpu")
    assert chosen.name == "stacked"
    models = LazyModels(task, engine)
    assert models.evaluate(averaging(models, nodes=120, rounds=300)).value >= 0.95
