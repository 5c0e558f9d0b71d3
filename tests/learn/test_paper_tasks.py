"""The paper's tasks from files in the official formats: small ones, and the real ones if at hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from plexus.errors import PlexusError
from plexus.learn.engines import LocalTraining
from plexus.learn.optimiser import Sgd
from plexus.learn.task import Task
from plexus.learn.tasks import create_task
from plexus.learn.trainer import InlineEngine
from tests.learn.files import write_cifar10, write_femnist, write_leaf, write_qmnist


def write_movielens(folder: Path) -> None:
    rng = np.random.default_rng(5)
    lines = ["userId,movieId,rating,timestamp"]
    for user in range(1, 7):
        for movie in rng.permutation(30)[:20]:
            lines.append(f"{user},{movie + 100},{rng.integers(1, 11) / 2},0")
    (folder / "ratings.csv").write_text("\n".join(lines))


def write_celeba(folder: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    (folder / "img_align_celeba").mkdir()
    rng = np.random.default_rng(6)
    for part, first in (("train", 0), ("test", 12)):
        people: dict[str, tuple[list[Any], list[int]]] = {}
        for person in range(4):
            names = [f"{first + 3 * person + i}.png" for i in range(3)]
            people[str(person)] = (names, [0, 1, 1])
            for name in names:
                pixels = rng.integers(0, 256, (30, 20, 3), dtype=np.uint8)
                image.fromarray(pixels).save(folder / "img_align_celeba" / name)
        write_leaf(folder / part / "data.json", people)


@pytest.fixture
def small(tmp_path: Path, request: pytest.FixtureRequest) -> Task:
    """The named task on small files, for four nodes."""
    name: str = request.param
    writers = {
        "cifar10": lambda: write_cifar10(tmp_path, per_batch=8),
        "femnist": lambda: write_femnist(tmp_path, users=6, each=5),
        "celeba": lambda: write_celeba(tmp_path),
        "digits-by-writer": lambda: write_qmnist(tmp_path, writers=6, each=5),
        "movielens": lambda: write_movielens(tmp_path),
        "movielens-biased": lambda: write_movielens(tmp_path),
    }
    writers[name]()
    return create_task(name, nodes=4, seed=1, data=str(tmp_path))


ALL = ["cifar10", "femnist", "celeba", "digits-by-writer", "movielens", "movielens-biased"]


@pytest.mark.parametrize("small", ALL, indirect=True)
def test_it_trains_and_is_evaluated(small: Task) -> None:
    engine = InlineEngine(small)
    (trained,) = engine.train([LocalTraining(engine.initial, 0, 1)])
    before, after = engine.evaluate(engine.initial), engine.evaluate(trained)
    assert not torch.equal(trained, engine.initial)
    assert before.loss != after.loss
    assert np.isfinite(after.value)


@pytest.mark.parametrize("small", ALL, indirect=True)
def test_nothing_of_the_test_set_is_ever_trained_on(small: Task) -> None:
    drawn = {
        int(small.train.ids[row])
        for node in range(small.nodes)
        for round in range(20)
        for row in small.draw(node, round).examples
    }
    assert not drawn & set(small.test.ids.tolist())
    owners = np.concatenate(small.parts)
    assert len(owners) == len(set(owners.tolist()))


def test_a_node_has_all_of_one_writers_digits(tmp_path: Path) -> None:
    (_, _, writers), _ = write_qmnist(tmp_path, writers=6, each=5)
    task = create_task("digits-by-writer", nodes=4, seed=1, data=str(tmp_path))
    owners = [set(writers[part].tolist()) for part in task.parts]
    assert all(len(own) == 1 for own in owners)
    assert len(set.union(*owners)) == 4
    assert [len(part) for part in task.parts] == [5] * 4


@pytest.mark.parametrize("small", ["movielens"], indirect=True)
def test_movielens_nodes_are_single_users_tested_on_their_own_ratings(small: Task) -> None:
    users = [set(small.train.inputs[part, 0].tolist()) for part in small.parts]
    assert all(len(own) == 1 for own in users)
    assert len(set.union(*users)) == 4
    assert set(small.test.inputs[:, 0].tolist()) == set.union(*users)
    assert len(small.test) == 4 * 6
    assert small.average_only


@pytest.mark.parametrize(
    ("small", "sgd"),
    [
        ("cifar10", Sgd(0.002, 0.9)),
        ("celeba", Sgd(0.001)),
        ("femnist", Sgd(0.004)),
        ("digits-by-writer", Sgd(0.004)),
        ("movielens", Sgd(0.2)),
        ("movielens-biased", Sgd(0.2, 0.0, 1e-4)),
    ],
    indirect=["small"],
)
def test_settings_are_the_papers(small: Task, sgd: Sgd) -> None:
    assert (small.optimiser, small.local_steps, small.batch) == (sgd, 5, 20)


def test_more_nodes_than_users_is_one_error(tmp_path: Path) -> None:
    write_femnist(tmp_path, users=3, each=2)
    with pytest.raises(PlexusError, match="4 nodes, but the data has only 3 users"):
        create_task("femnist", nodes=4, seed=1, data=str(tmp_path))


def test_a_label_outside_the_classes_is_named(tmp_path: Path) -> None:
    for part in ("train", "test"):
        write_leaf(tmp_path / part / "a.json", {"u": ([[0.0] * 784], [62])})
    with pytest.raises(PlexusError, match="label 62 is not one of 0 to 61"):
        create_task("femnist", nodes=1, seed=1, data=str(tmp_path))


def test_writers_in_both_sets_are_refused(tmp_path: Path) -> None:
    train, test = write_qmnist(tmp_path, writers=3, each=2)
    names = ("x_train", "y_train", "writer_train", "x_test", "y_test", "writer_test")
    arrays = dict(zip(names, (*train, *test), strict=True))
    np.savez(tmp_path / "mnist_by_writer.npz", **{**arrays, "writer_test": train[2]})
    with pytest.raises(PlexusError, match="writers of the test set are also in the training set"):
        create_task("digits-by-writer", nodes=2, seed=1, data=str(tmp_path))


def test_real_movielens(real_data: Path) -> None:
    task = create_task("movielens", nodes=610, seed=1)
    assert len(task.train) + len(task.test) == 100_836
    assert sum(p.numel() for p in task.initial_model().parameters()) == 206_680
    stars, mean = task.test.targets, task.train.targets.mean()
    assert ((stars - mean) ** 2).mean().item() == pytest.approx(1.088, abs=0.02)


def test_real_digits_by_writer(real_data: Path) -> None:
    task = create_task("digits-by-writer", nodes=355, seed=1)
    assert (len(task.train), len(task.test), task.nodes) == (60_000, 10_000, 355)
    assert 19 <= min(len(part) for part in task.parts) <= max(len(part) for part in task.parts) <= 131


def test_real_cifar10(real_data: Path) -> None:
    if not (real_data / "cifar-10-batches-bin").is_dir():
        pytest.skip("PLEXUS_DATA has no cifar-10-batches-bin")
    task = create_task("cifar10", nodes=1000, seed=1)
    assert {len(part) for part in task.parts} == {50}
    assert np.bincount(task.test.targets.numpy()).tolist() == [1000] * 10
    assert task.prepare is not None
    pixels = task.prepare(task.train.inputs[:5000])
    assert pixels.mean().item() == pytest.approx(0, abs=0.02)
    assert pixels.std().item() == pytest.approx(1, abs=0.02)


def test_fewer_test_images_are_drawn_by_seed(tmp_path: Path) -> None:
    write_qmnist(tmp_path, writers=6, each=5)

    def tested(seed: int, examples: int | None) -> torch.Tensor:
        data = str(tmp_path)
        task = create_task("digits-by-writer", 4, seed, data=data, test_examples=examples)
        return task.test.inputs

    assert len(tested(1, None)) == len(tested(1, 1000)) == 30
    assert len(tested(1, 7)) == 7
    assert torch.equal(tested(1, 7), tested(1, 7))
    assert not torch.equal(tested(1, 7), tested(2, 7))
