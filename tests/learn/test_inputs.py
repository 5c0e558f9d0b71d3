"""Inputs of several tensors or different lengths, several measures, nodes that measure on their own data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

import plexus
from plexus.errors import PlexusError
from plexus.learn.engines import LocalTraining, create_engine
from plexus.learn.graph import LazyModels
from plexus.learn.optimiser import Adam, Sgd
from plexus.learn.task import TOP1, Examples, Measure, Task, hold_out
from plexus.learn.tasks import create_task
from plexus.rng import array_stream

pytestmark = pytest.mark.slow
WORDS, NODES = 20, 4


class Masked(nn.Module):
    """The mean of the embeddings of those words that a mask leaves."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 8)
        self.head = nn.Linear(8, 2)

    def forward(self, words: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        kept = self.embedding(words) * mask.unsqueeze(-1)
        return self.head(kept.sum(-2) / mask.sum(-1, keepdim=True).clamp(min=1))  # type: ignore[no-any-return]


def loss_sums(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(outputs, targets, reduction="none")


SURE = Measure("surprise", loss_sums, higher_is_better=False, derived={"perplexity": np.exp})


def collate(pairs: list[tuple[Any, Any]]) -> tuple[Any, Any]:
    words = pad_sequence([words for words, _ in pairs], batch_first=True)
    lengths = torch.tensor([len(words) for words, _ in pairs])
    mask = (torch.arange(words.shape[1]) < lengths[:, None]).float()
    return {"words": words, "mask": mask}, torch.stack([target for _, target in pairs])


def sentences(kind: str) -> Task:
    """Whether there are more words below ten than above, in sentences of three to nine words."""
    rng = array_stream(5, "sentences")
    lists = [torch.from_numpy(rng.integers(0, WORDS, rng.integers(3, 10))) for _ in range(400)]
    targets = [torch.tensor(int((words < 10).float().mean() > 0.5)) for words in lists]
    inputs: Any = lists
    if kind != "list":
        together = collate(list(zip(lists, targets, strict=True)))[0]
        inputs = together if kind == "dict" else (together["words"], together["mask"])
    goals: Any = targets if kind == "list" else torch.stack(targets)
    everything = Examples(inputs, goals, np.arange(400))
    return Task(
        name="sentences",
        seed=1,
        train=everything.rows(np.arange(300)),
        parts=tuple(np.array_split(np.arange(300), NODES)),
        test=everything.rows(np.arange(300, 400)),
        build_model=Masked,
        loss=functional.cross_entropy,
        measure=TOP1,
        measures=(SURE,),
        optimiser=Adam(0.02),
        collate=collate if kind == "list" else None,
    )


def test_a_tuple_a_dictionary_and_sentences_of_different_lengths_are_the_same() -> None:
    weights = {}
    for kind in ("tuple", "dict", "list"):
        task = sentences(kind)
        for name in ("inline", "processes") if kind == "list" else ("inline", "processes", "stacked"):
            engine, _ = create_engine(name, task, workers=2, device="cpu")
            model = engine.initial
            for round in range(1, 9):
                jobs = [LocalTraining(model, node, round) for node in range(NODES)]
                model = torch.stack(engine.train(jobs)).mean(dim=0)
            weights[kind, name] = model
            metrics = engine.evaluate(model)
            engine.close()
            assert metrics.value > 0.8
            assert metrics.others["surprise"] == pytest.approx(metrics.loss, rel=1e-5)
            assert metrics.others["perplexity"] == pytest.approx(np.exp(metrics.loss), rel=1e-5)
    for model in weights.values():
        assert torch.allclose(model, weights["tuple", "inline"], atol=1e-5)
    with pytest.raises(PlexusError, match="collated from examples of different lengths"):
        create_engine("stacked", sentences("list"))


def test_a_list_needs_a_collate_function_and_the_other_way_round() -> None:
    for task in (sentences("list"), sentences("dict")):
        with pytest.raises(PlexusError, match="examples in lists and a collate function need each other"):
            replace(task, collate=None if task.collate else collate)
    with pytest.raises(PlexusError, match="a data set has 3 inputs, 4 targets and 4 ids"):
        Examples({"a": torch.zeros(4), "b": torch.zeros(3)}, torch.zeros(4), np.arange(4))


def test_what_nodes_hold_back_is_never_trained_on() -> None:
    task = create_task("digits", NODES, 1)
    held = hold_out(task, 0.25)
    for node in range(NODES):
        assert len(held.held[node]) == round(0.25 * task.samples(node))
        assert sorted([*held.held[node], *held.parts[node]]) == sorted(task.parts[node])
        assert not np.isin(held.draw(node, 3).examples, held.held[node]).any()
    again = hold_out(task, 0.25)
    assert all(np.array_equal(a, b) for a, b in zip(held.held, again.held, strict=True))


def test_what_several_nodes_have_is_held_back_by_all_of_them() -> None:
    task = create_task("digits", 100, 1, reuse=True)
    held = hold_out(task, 0.25)
    assert not np.isin(np.concatenate(held.held), np.concatenate(held.parts)).any()
    alone = hold_out(replace(task, parts=task.parts[:60]), 0.25)
    assert all(map(np.array_equal, held.held, alone.held)), "the first of them as it would by itself"


def test_nodes_measure_with_the_head_that_is_their_own() -> None:
    """Each node has turned the classes by its own number: no common head fits, its own does."""
    task = create_task("digits", NODES, 1)
    targets = task.train.targets.clone()
    for node, part in enumerate(task.parts):
        rows = torch.from_numpy(part)
        targets[rows] = (targets[rows] + 3 * node) % 10
    train = Examples(task.train.inputs, targets, task.train.ids)
    task = hold_out(replace(task, train=train, optimiser=Sgd(0.3)), 0.2)
    found = {}
    for local in ((), ("2.*",)):
        personal = replace(task, local=local)
        engine, _ = create_engine("inline", personal)
        models = LazyModels(personal, engine)
        model = models.initial()
        for round in range(1, 25):
            model = models.mean([models.train(model, node, round) for node in range(NODES)], [1] * NODES)
        found[local] = models.evaluate_own([(model, node) for node in range(NODES)])
    assert found[("2.*",)].value > found[()].value + 0.3
    others = found[()].others
    assert others["own_accuracy_p10"] <= found[()].value <= others["own_accuracy_p90"]


@pytest.mark.parametrize("protocol", ["plexus", "gossip"])
def test_a_run_says_what_nodes_found(protocol: str, tmp_path: Path) -> None:
    changes = {"hours": 0.2, "nodes": 10, "protocol": {"name": protocol}, "evaluation.every_hours": 0.1}
    runs = {}
    for on in ("test", "both", "own"):
        runs[on] = plexus.simulate("quickstart", changes={**changes, "evaluation.on": on}, out=tmp_path / on)
    columns = {"own_accuracy", "own_accuracy_p10", "own_accuracy_p90", "own_loss"}
    assert columns <= set(runs["both"].metrics) and "accuracy" in runs["both"].metrics
    assert columns <= set(runs["own"].metrics) and "accuracy" not in runs["own"].metrics
    assert not columns & set(runs["test"].metrics) and "on" not in runs["test"].spec["evaluation"]
    assert runs["own"].result is not None and runs["own"].result.metric.name == "own_accuracy"
    from plexus.report.learning_curve import accuracy_over_time

    for on in ("both", "own"):
        accuracy_over_time(runs[on], tmp_path / f"{on}.png")
