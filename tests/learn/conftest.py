"""Shared by the tests of learning: a small task, and plain sampled averaging without a network."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from plexus.learn.expressions import Expression
from plexus.learn.graph import LazyModels
from plexus.learn.task import Task
from plexus.learn.tasks import create_task
from plexus.rng import stream


@pytest.fixture(scope="session")
def digits() -> Task:
    return create_task("digits", nodes=12, seed=7)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data sets."""
    folder = os.environ.get("PLEXUS_DATA")
    if not folder:
        pytest.skip("PLEXUS_DATA does not name the folder of the real data sets")
    return Path(folder)


Averaging = Callable[..., Expression]


@pytest.fixture(scope="session")
def averaging() -> Averaging:
    """Rounds of plain sampled averaging, from the initial model or from `start`."""

    def run(models: LazyModels, nodes: int, rounds: int, sample: int = 10, seed: int = 1) -> Expression:
        model = models.initial()
        for round in range(1, rounds + 1):
            chosen = stream(seed, "sample", round).sample(range(nodes), sample)
            trained = [models.train(model, node, round) for node in chosen]
            model = models.mean(trained, [models.samples(node) for node in chosen])
            if round % 25 == 0:
                models.evaluate(model)  # as a session does: keeps the graph short
        return model

    return run
