"""Models written and read again: a run goes on as if nothing had happened."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plexus.errors import PlexusError
from plexus.experiment import checkpoint
from plexus.experiment.checkpoint import read_frontier, write_frontier
from plexus.learn.engines.inline import InlineEngine
from plexus.learn.graph import Expression, LazyModels
from plexus.learn.task import Task
from plexus.learn.tasks import create_task


def fresh(task: Task) -> LazyModels:
    return LazyModels(task, InlineEngine(task))


def rounds(models: LazyModels, model: Expression, first: int, last: int) -> Expression:
    for round in range(first, last + 1):
        trained = [models.train(model, node, round) for node in range(4)]
        model = models.mean(trained[:3], [models.samples(node) for node in range(3)])
        if round % 3 == 0:
            models.evaluate(model)
    return model


@pytest.mark.parametrize("stop", [0, 1, 3, 4, 6, 7])
def test_a_resumed_run_ends_with_the_same_weights_and_counts(digits: Task, tmp_path: Path, stop: int) -> None:
    whole = fresh(digits)
    end = rounds(whole, whole.initial(), 1, 8)
    expected = (whole.weights_hash(end), whole.asked, whole.computed)

    first = fresh(digits)
    model = rounds(first, first.initial(), 1, stop)
    held = first.train(model, 7, 99)  # somebody holds a model that nobody has computed
    write_frontier(first, [model, held, model], tmp_path)

    second = fresh(digits)
    model, again, same = read_frontier(second, tmp_path)
    assert model is same
    end = rounds(second, model, stop + 1, 8)
    got = (second.weights_hash(end), second.asked - 1, second.computed)
    assert got == expected
    assert second.weights_hash(again) == first.weights_hash(held)


def test_writing_computes_nothing(digits: Task, tmp_path: Path) -> None:
    models = fresh(digits)
    model = rounds(models, models.initial(), 1, 2)
    write_frontier(models, [model], tmp_path)
    assert models.computed == 0


def test_metrics_need_not_be_measured_again(digits: Task, tmp_path: Path) -> None:
    models = fresh(digits)
    model = rounds(models, models.initial(), 1, 3)
    write_frontier(models, [model], tmp_path)
    (again,) = read_frontier(fresh(digits), tmp_path)
    assert again.metrics == models.evaluate(model)


def test_many_models_take_many_files(digits: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "FILE_BYTES", 3 * 4 * 4810)
    models = fresh(digits)
    held = [models.train(models.initial(), node, 1) for node in range(8)]
    models.evaluate_all(held)
    write_frontier(models, held, tmp_path)
    assert len(list(tmp_path.glob("*.safetensors"))) == 3
    other = fresh(digits)
    again = read_frontier(other, tmp_path)
    assert [other.weights_hash(m) for m in again] == [models.weights_hash(m) for m in held]


@pytest.fixture
def written(digits: Task, tmp_path: Path) -> Path:
    models = fresh(digits)
    write_frontier(models, [rounds(models, models.initial(), 1, 4)], tmp_path)
    return tmp_path


def test_a_damaged_file_of_tensors_is_named(digits: Task, written: Path) -> None:
    (path,) = written.glob("*.safetensors")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(PlexusError, match=rf"{path.name} is damaged"):
        read_frontier(fresh(digits), written)
    path.unlink()
    with pytest.raises(PlexusError, match=rf"{path.name} cannot be read"):
        read_frontier(fresh(digits), written)


@pytest.mark.parametrize("content", [b"", b"{", b'{"task": 1}'])
def test_a_damaged_graph_is_named(digits: Task, written: Path, content: bytes) -> None:
    (written / "models.json").write_bytes(content)
    with pytest.raises(PlexusError, match=r"models\.json cannot be read"):
        read_frontier(fresh(digits), written)


def test_a_graph_that_refers_to_nothing_is_named(digits: Task, written: Path) -> None:
    graph = json.loads((written / "models.json").read_text())
    graph["wanted"] = [999]
    (written / "models.json").write_text(json.dumps(graph))
    with pytest.raises(PlexusError, match=r"models\.json is damaged"):
        read_frontier(fresh(digits), written)


def test_another_session_is_refused(written: Path) -> None:
    other = create_task("digits", nodes=12, seed=8)
    with pytest.raises(PlexusError, match="with other data, seed or model"):
        read_frontier(fresh(other), written)
