"""Weights stay within a budget of memory; nothing is lost on the way to disk and back."""

from __future__ import annotations

import gc
import tempfile
from pathlib import Path

import pytest
import torch

from plexus.learn.expressions import Kept, VectorStore
from plexus.learn.graph import LazyModels
from plexus.learn.task import Task
from plexus.learn.trainer import InlineEngine


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_the_least_recently_used_goes_to_disk_and_comes_back(tmp_path: Path) -> None:
    store = VectorStore(budget_bytes=3 * 400)
    vectors = [torch.full((100,), float(i)) for i in range(5)]
    kept = [Kept(vector.clone(), store) for vector in vectors]
    assert store.held_bytes == 1200
    assert (store.spilled, len(list(tmp_path.glob("*/*.npy")))) == (2, 2)
    for vector, keeper in zip(vectors, kept, strict=True):
        assert torch.equal(keeper.get(), vector)
        assert store.held_bytes <= store.budget_bytes
    store.close()
    assert list(tmp_path.iterdir()) == []


def test_what_nobody_holds_is_free_at_once(tmp_path: Path) -> None:
    store = VectorStore(budget_bytes=800)
    kept = [Kept(torch.zeros(100), store) for _ in range(6)]
    del kept[:]
    gc.collect()
    assert store.held_bytes == 0
    assert list(tmp_path.glob("*/*.npy")) == []
    store.close()


def test_within_the_budget_nothing_touches_the_disk(tmp_path: Path) -> None:
    store = VectorStore(budget_bytes=10_000)
    kept = [Kept(torch.zeros(100), store) for _ in range(10)]
    assert (store.spilled, len(kept), list(tmp_path.iterdir())) == (0, 10, [])


def test_a_session_on_a_tight_budget_ends_with_the_same_weights(digits: Task) -> None:
    hashes = set()
    for budget in (1 << 30, 3 * 4 * 4810):
        models = LazyModels(digits, InlineEngine(digits), budget_bytes=budget)
        newest = [models.initial()] * 8
        for round in range(1, 4):
            trained = [models.train(model, node, round) for node, model in enumerate(newest)]
            newest = [models.mean([trained[i], trained[i - 1]], [1, 1]) for i in range(8)]
            models.evaluate_all(newest)
        hashes.add(tuple(models.weights_hash(model) for model in newest))
        spilled = models.store.spilled
        models.close()
    assert spilled > 8
    assert len(hashes) == 1
