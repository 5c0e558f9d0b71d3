"""Training on a real Ray cluster of two machines: the bits of `inline`, whoever is lost meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import plexus
from plexus.errors import PlexusError
from plexus.experiment.progress import Tick
from plexus.learn.engines import LocalTraining, create_engine
from plexus.learn.engines.ray import RayEngine
from plexus.learn.task import Examples, Task, hold_out, joined
from plexus.learn.trainer import InlineEngine
from tests.machines import MACHINE, lose_a_machine, two_machines


@pytest.fixture
def cluster() -> Iterator[Any]:
    with two_machines() as found:
        yield found


def wave(initial: Tensor, nodes: range, round: int) -> list[LocalTraining]:
    """Of two models in turn."""
    bases = (initial, initial * 1.5)
    return [LocalTraining(bases[node % 2], node, round) for node in nodes]


def same(first: list[Tensor], second: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def holdings(engine: Any) -> list[list[int]]:
    import ray

    return ray.get([worker.actor.holds.remote() for worker in engine._workers])  # type: ignore[no-any-return]


@pytest.mark.slow
def test_workers_hold_their_nodes_and_give_the_bits_of_inline_whoever_is_lost(
    digits: Task, cluster: Any
) -> None:
    import ray

    task = hold_out(digits, 0.2)
    inline = InlineEngine(task)
    engine, chosen = create_engine("ray", task, address=cluster.address)
    assert isinstance(engine, RayEngine) and (chosen.name, chosen.device) == ("ray", "cpu")
    jobs = wave(inline.initial, range(8), 1)
    trained = inline.train(jobs)
    assert same(engine.train(jobs), trained)
    first, second = holdings(engine)
    assert len(first) == len(second) == 4 and sorted(first + second) == list(range(8))
    # All of one: half of them move to the other, and nobody keeps what is not its own any more.
    uneven = [LocalTraining(inline.initial, node, 2) for node in first]
    assert same(engine.train(uneven), inline.train(uneven))
    assert same(engine.train(jobs), trained)
    first, second = holdings(engine)
    assert sorted(first + second) == list(range(8))
    for vector in trained[:2]:
        assert engine.evaluate(vector) == inline.evaluate(vector)
    for node in range(3):
        assert engine.evaluate_own(trained[node], node) == inline.evaluate_own(trained[node], node)

    ray.kill(engine._workers[0].actor)
    assert same(engine.train(jobs), trained)

    threading.Timer(0.3, lose_a_machine, [cluster]).start()
    many = [job for round in range(2, 60) for job in wave(inline.initial, range(8), round)]
    assert same(engine.train(many), inline.train(many))
    assert same(engine.train(jobs), trained), "on one machine"
    assert engine.workers_cpu_s > 0
    engine.close()


class Deadly(nn.Module):
    """Takes its process down, but for that in which it was built first."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        import os

        os._exit(9)


def deadly() -> nn.Module:
    return Deadly()


@pytest.mark.slow
def test_what_cannot_be_done_is_one_line(digits: Task, cluster: Any) -> None:
    engine, _ = create_engine("ray", replace(digits, build_model=deadly), address=cluster.address)
    with pytest.raises(PlexusError, match="3 worker processes died on the same work, training node 0 in "):
        engine.train(wave(engine.initial, range(1), 1))
    engine.close()
    with pytest.raises(PlexusError, match="device cuda was asked for, but the Ray cluster has no GPU"):
        create_engine("ray", digits, address=cluster.address, device="cuda")


@pytest.mark.slow
def test_stacked_on_a_cluster_is_inline_up_to_rounding_and_newcomers_help(digits: Task, cluster: Any) -> None:
    inline = InlineEngine(digits)
    engine, _ = create_engine("ray-stacked", digits, address=cluster.address, workers=3)
    jobs = wave(inline.initial, range(9), 4)
    for _ in range(2):
        for found, expected in zip(engine.train(jobs), inline.train(jobs), strict=True):
            assert torch.allclose(found, expected, atol=1e-4 * expected.abs().max().item())
    there = [worker.is_there for worker in engine._workers]  # type: ignore[attr-defined]
    assert sorted(there) == [False, True, True], "there is no room for the third"
    cluster.add_node(**MACHINE)
    import ray

    ray.get([worker.arrival for worker in engine._workers], timeout=60)  # type: ignore[attr-defined]
    for _ in range(2):
        engine.train(jobs)
    assert all(worker.is_there for worker in engine._workers)  # type: ignore[attr-defined]
    first, second, third = holdings(engine)
    assert sorted(first + second + third) == list(range(9)) and len(third) == 3
    engine.close()


@pytest.mark.parametrize("kind", ["tensors", "trees", "lists"])
def test_sets_of_examples_are_joined_in_order(kind: str) -> None:
    def examples(start: int, stop: int) -> Examples:
        rows = torch.arange(start, stop)
        inputs = {"tensors": rows, "trees": {"a": rows, "b": (rows, 2 * rows)}, "lists": rows.tolist()}[kind]
        targets: Any = rows.tolist() if kind == "lists" else rows
        return Examples(inputs, targets, np.arange(start, stop))

    found, expected = joined([examples(0, 3), examples(3, 4), examples(4, 9)]), examples(0, 9)
    assert str(found) == str(expected)


@pytest.mark.slow
def test_a_session_that_loses_a_machine_has_the_result_of_inline(cluster: Any, tmp_path: Path) -> None:
    changes = {"nodes": 12, "hours": 2, "evaluation.every_rounds": 5}
    lost: list[float] = []

    def look(at: Tick) -> None:
        if at.simulated_s >= 1800 and not lost:
            lost.append(at.simulated_s)
            lose_a_machine(cluster)

    def run(name: str, **machinery: Any) -> plexus.Run:
        return plexus.simulate("quickstart", out=tmp_path / name, changes=changes, **machinery)

    inline = run("inline", engine="inline")
    afar = run("ray", engine="ray", address=cluster.address, on_progress=look)
    assert lost and afar.result is not None and inline.result is not None
    assert afar.result.weights_hash == inline.result.weights_hash
    assert afar.result.digest == inline.result.digest
    assert afar.result.metric == inline.result.metric
