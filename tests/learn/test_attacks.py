"""What attackers send: by definition, the same on every engine and in every run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from plexus.learn.attacks import Poison, PoisonedEngine, little_enough, mislabelled
from plexus.learn.engines import LocalTraining, create_engine
from plexus.learn.graph import LazyModels
from plexus.learn.rules import NnmTrimmedRule
from plexus.learn.task import Task

BASE = torch.tensor([1.0, 2.0, 3.0])


class Attack(NamedTuple):
    behaviour: str
    factor: float | None = None


def honest(jobs: Sequence[LocalTraining]) -> list[Tensor]:
    """Every node moves all weights by one more than its number."""
    return [job.base + job.node + 1 for job in jobs]


def sent(attackers: dict[int, Attack], node: int, round: int = 1) -> list[float]:
    poison = Poison(attackers, nodes=10, seed=3, train=honest)
    before, [model] = BASE.clone(), poison.train([LocalTraining(BASE, node, round)])
    assert torch.equal(BASE, before)
    return (model - BASE).tolist()


def test_flip_and_scale_multiply_the_change_and_the_others_are_honest() -> None:
    attackers = {1: Attack("flip"), 2: Attack("flip", 0.5), 3: Attack("scale"), 4: Attack("label-flip")}
    assert [sent(attackers, node)[0] for node in range(5)] == [1.0, -8.0, -1.5, 40.0, 5.0]


@pytest.mark.parametrize("behaviour", ["flip", "scale", "noise", "alie"])
def test_what_an_attacker_keeps_to_itself_is_as_it_was_trained(behaviour: str) -> None:
    attackers = {node: Attack(behaviour, 2.0) for node in (1, 2)}
    whole = Poison(attackers, 10, 3, honest).train([LocalTraining(BASE[:2], 1, 1)])[0]
    [model] = Poison(attackers, 10, 3, honest, shared=2).train([LocalTraining(BASE, 1, 1)])
    assert torch.equal(model[:2], whole) and not torch.equal(whole, BASE[:2] + 2)
    assert model[2] == BASE[2] + 2


def test_noise_is_as_large_as_it_is_told_to_be_and_drawn_for_node_and_round() -> None:
    attackers = {1: Attack("noise", 100.0), 2: Attack("noise", 100.0)}
    drawn = {(node, round): sent(attackers, node, round) for node in (1, 2) for round in (1, 2)}
    assert len({tuple(change) for change in drawn.values()}) == 4
    assert drawn[1, 2] == sent(attackers, 1, 2)
    large = Poison({1: Attack("noise", 7.0)}, 10, 3, honest).train([LocalTraining(torch.zeros(10_000), 1, 1)])
    noise = large[0] - 2.0
    assert abs(float(noise.norm()) / (7 * 2.0 * 100) - 1) < 0.05


def test_a_little_is_so_many_deviations_below_the_mean_of_what_the_attackers_train() -> None:
    attackers = {node: Attack("alie", 1.5) for node in (1, 3, 8)}
    changes = np.array([2.0, 4.0, 9.0])
    wanted = changes.mean() - 1.5 * changes.std()
    for node in attackers:
        np.testing.assert_allclose(sent(attackers, node), wanted, rtol=1e-6)
    alone = sent({5: Attack("alie", 1.5)}, 5)
    np.testing.assert_allclose(alone, 6.0, rtol=1e-6, err_msg="nothing is known of deviations")


def test_how_little_is_enough_is_what_its_authors_say() -> None:
    assert round(little_enough(50, 24), 2) == 1.43  # their example: 24 of 26 honest ones
    assert abs(little_enough(539, 108) - 0.3166) < 1e-3
    assert little_enough(10, 2) == 0.0


def test_accomplices_train_once_for_all_attackers_of_a_round() -> None:
    asked: list[int] = []

    def counting(jobs: Sequence[LocalTraining]) -> list[Tensor]:
        asked.extend(job.node for job in jobs)
        return honest(jobs)

    attackers = {node: Attack("alie") for node in range(30)}
    Poison(attackers, 100, 3, counting).train([LocalTraining(BASE, node, 1) for node in (1, 2, 50)])
    assert asked[:3] == [1, 2, 50]
    assert len(set(asked[3:])) == len(asked) - 3 == 10


def test_labels_are_turned_round_for_attackers_alone(digits: Task) -> None:
    turned = mislabelled(digits, {1: Attack("label-flip"), 2: Attack("flip")})
    for node in range(4):
        before, after = (task.train.targets[digits.parts[node]] for task in (digits, turned))
        assert torch.equal(after, 9 - before if node == 1 else before)
    assert mislabelled(digits, {2: Attack("flip")}) is digits


@pytest.mark.slow
def test_attacks_give_the_same_weights_on_any_engine(digits: Task) -> None:
    kinds = ("flip", "noise", "alie", "alie")
    attackers = {node: Attack(kind) for node, kind in enumerate(kinds)}
    found = {}
    for name in ("inline", "processes", "stacked"):
        engine, _ = create_engine(name, digits, workers=2, device="cpu")
        models = LazyModels(digits, PoisonedEngine(engine, attackers, digits), NnmTrimmedRule())
        model = models.initial()
        for round in (1, 2):
            model = models.mean([models.train(model, node, round) for node in range(8)], [1] * 8)
        found[name] = models.weights(model)
        models.close()
    for key, weights in found["inline"].items():
        assert torch.equal(found["processes"][key], weights)
        torch.testing.assert_close(found["stacked"][key], weights, rtol=1e-4, atol=1e-5)
