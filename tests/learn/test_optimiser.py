"""Ten rounds of any optimiser are those of a plain PyTorch loop over the same batches, in every engine."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from plexus.errors import PlexusError
from plexus.learn.engines import LocalTraining, choose, create_engine
from plexus.learn.optimiser import Adam, AdamW, Group, Optimiser, Sgd, optimiser_of
from plexus.learn.task import Context, Examples, Task
from plexus.learn.tasks import create_task, parse_task
from plexus.learn.tasks.specs import ScheduleSpec
from plexus.learn.trainer import Trainer

pytestmark = pytest.mark.slow
ROUNDS, NODES = 10, 6
ENGINES = ["inline", "processes", "stacked"]
COSINE = ScheduleSpec(rounds=20, warmup=3, floor=0.1)
HEAD = (Group("2.*", learning_rate=0.01), Group("*.bias", weight_decay=0.0))

CASES: dict[str, dict[str, Any]] = {
    "sgd": {"optimiser": Sgd(0.3)},
    "momentum": {"optimiser": Sgd(0.1, 0.9, 1e-3)},
    "nesterov": {"optimiser": Sgd(0.1, 0.9, 1e-3, nesterov=True)},
    "adam": {"optimiser": Adam(0.003, weight_decay=1e-3)},
    "adamw": {"optimiser": AdamW(0.003)},
    "clipped": {"optimiser": Sgd(0.3, clip_norm=0.2)},
    "scheduled": {"optimiser": AdamW(0.003, schedule=COSINE)},
    "groups": {"optimiser": AdamW(0.003, groups=HEAD)},
    "epochs": {"optimiser": Sgd(0.1), "local_epochs": 2},
    "fedprox": {"optimiser": Sgd(0.3), "proximal": 0.5},
    "everything": {
        "optimiser": Adam(0.003, weight_decay=1e-3, clip_norm=0.5, schedule=COSINE, groups=HEAD),
        "local_epochs": 1,
        "proximal": 0.1,
    },
}


Weights = dict[str, torch.Tensor]


def digits(**changes: Any) -> Task:
    task = create_task("digits", nodes=NODES, seed=3, partition="dirichlet")
    return replace(task, **changes)


def of_torch(optimiser: Optimiser, module: nn.Module, factor: float) -> torch.optim.Optimizer:
    """What somebody would write with torch alone."""
    groups = []
    for name, parameter in module.named_parameters():
        rate, decay = optimiser.learning_rate, optimiser.weight_decay
        for group in optimiser.groups[::-1] if optimiser.groups else ():
            if name.startswith("2.") and group.pattern == "2.*":
                rate, decay = group.learning_rate or rate, optimiser.weight_decay
            elif name.endswith(".bias") and group.pattern == "*.bias":
                rate, decay = optimiser.learning_rate, group.weight_decay or 0.0
        groups.append({"params": [parameter], "lr": rate * factor, "weight_decay": decay})
    if isinstance(optimiser, AdamW):
        return torch.optim.AdamW(groups)
    if isinstance(optimiser, Adam):
        return torch.optim.Adam(groups)
    assert isinstance(optimiser, Sgd)
    return torch.optim.SGD(groups, momentum=optimiser.momentum, nesterov=optimiser.nesterov)


def plain_training(
    task: Task, base: dict[str, torch.Tensor], node: int, round: int
) -> dict[str, torch.Tensor]:
    module = task.build_model()
    module.load_state_dict(base)
    assert task.optimiser is not None
    schedule = task.optimiser.schedule
    optimiser = of_torch(task.optimiser, module, 1.0 if schedule is None else schedule(round))
    rows = torch.from_numpy(task.draw(node, round).examples)
    for batch in rows.split(task.batch):
        optimiser.zero_grad()
        loss = task.loss(module(task.train.inputs[batch]), task.train.targets[batch])
        if task.proximal:
            pulls = [(p - base[name]).square().sum() for name, p in module.named_parameters()]
            loss = loss + task.proximal / 2 * sum(pulls)
        loss.backward()
        if task.optimiser.clip_norm is not None:
            nn.utils.clip_grad_norm_(module.parameters(), task.optimiser.clip_norm)
        optimiser.step()
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def plain_rounds(task: Task) -> dict[str, torch.Tensor]:
    model = {name: tensor.clone() for name, tensor in task.initial_model().state_dict().items()}
    for round in range(1, ROUNDS + 1):
        trained = [plain_training(task, model, node, round) for node in range(NODES)]
        model = {name: torch.stack([each[name] for each in trained]).mean(dim=0) for name in model}
    return model


def rounds(task: Task, engine_name: str) -> dict[str, torch.Tensor]:
    engine, _ = create_engine(engine_name, task, workers=2, device="cpu")
    model = engine.initial
    for round in range(1, ROUNDS + 1):
        jobs = [LocalTraining(model, node, round) for node in range(NODES)]
        model = torch.stack(engine.train(jobs)).mean(dim=0)
    engine.close()
    return engine.layout.tensors(model)


@pytest.mark.parametrize("case", CASES)
def test_ten_rounds_are_those_of_plain_torch(case: str) -> None:
    task = digits(**CASES[case])
    expected = plain_rounds(task)
    assert (
        max(
            (tensor - start).abs().max()
            for tensor, start in zip(
                expected.values(), task.initial_model().state_dict().values(), strict=True
            )
        )
        > 0.01
    )
    assert_engines_give(expected, task)


def assert_engines_give(expected: Weights, task: Task) -> None:
    for engine in ENGINES:
        found = rounds(task, engine)
        apart = max(float((found[name] - tensor).abs().max()) for name, tensor in expected.items())
        assert apart < 1e-5, (engine, apart)


class Summed(nn.Module):
    """Of two parameters autograd makes one gradient, and that of the third is one number, seen ten times."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = (nn.Parameter(torch.randn(10, 64) / 8) for _ in range(2))
        self.shift = nn.Parameter(torch.zeros(10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, self.one + self.other) + self.shift.sum() * torch.linspace(0, 1, 10)


@pytest.mark.parametrize("case", ["nesterov", "adam", "fedprox"])
def test_parameters_may_have_one_and_the_same_gradient(case: str) -> None:
    task = digits(**CASES[case], build_model=Summed)
    assert_engines_give(plain_rounds(task), task)


def test_trainings_of_one_wave_may_be_of_different_rounds() -> None:
    """Each has the learning rate of its own round, also when they are stacked."""
    task = digits(**CASES["scheduled"])
    results = []
    for name in ("inline", "stacked"):
        engine, _ = create_engine(name, task, device="cpu")
        results.append(engine.train([LocalTraining(engine.initial, n, 1 + 4 * n) for n in range(4)]))
    for one, other in zip(*results, strict=True):
        assert torch.allclose(one, other, atol=1e-6)
    start = Trainer(task, torch.device("cpu")).initial
    steps = [float((each - start).norm()) for each in results[0]]
    assert steps[1] > 2 * steps[0] and steps[1] > steps[2] > steps[3]


def test_epochs_see_every_example(monkeypatch: pytest.MonkeyPatch) -> None:
    task = digits(optimiser=Sgd(0.1), local_epochs=2, batch=16)
    for node in range(NODES):
        drawn = task.draw(node, 4).examples
        assert len(drawn) == task.steps(node) * 16 < 2 * task.samples(node) + 16
        counts = np.unique(drawn, return_counts=True)[1]
        assert len(counts) == task.samples(node) and counts.min() >= 2 >= counts.max() - 1


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: Sgd(0.0), "learning_rate is 0.0"),
        (lambda: Sgd(0.1, nesterov=True), "nesterov needs a momentum"),
        (lambda: AdamW(0.1, clip_norm=0.0), "clip_norm is 0.0"),
        (lambda: digits(proximal=-1.0), "proximal is -1.0"),
        (lambda: digits(local_epochs=0), "local_epochs is 0"),
        (
            lambda: Trainer(digits(optimiser=Sgd(0.1, groups=(Group("hed.*", 1.0),))), torch.device("cpu")),
            r"groups: no tensor of the model is called 'hed.\*'; there are 0.weight, 0.bias",
        ),
        (lambda: digits(optimiser=None), "either an optimiser or a loop"),
        (lambda: digits(loop=own_loop), "either an optimiser or a loop"),
        (
            lambda: create_task("digits", 2, 1, optimiser="adam", nesterov=True),
            "task.nesterov is one of SGD's",
        ),
        (
            lambda: create_task("digits", 2, 1, optimiser="adam", momentum=0.5),
            "task.momentum is one of SGD's",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(make: Callable[[], object], complaint: str) -> None:
    with pytest.raises(PlexusError, match=complaint):
        make()


def test_a_session_file_names_them() -> None:
    keys = {"optimiser": "adamw", "clip_norm": 1.0, "schedule": {"rounds": 9}, "weight_decay": 0.1}
    task = create_task("digits", 4, 1, local_epochs=3, proximal=0.2, learning_rate=0.01, **keys)
    wanted = AdamW(0.01, weight_decay=0.1, clip_norm=1.0, schedule=ScheduleSpec(9))
    assert (task.optimiser, task.local_epochs, task.proximal) == (wanted, 3, 0.2)
    assert optimiser_of(parse_task({"name": "cifar10", "optimiser": "adam"})) == Adam(0.002)  # type: ignore[arg-type]
    line = ScheduleSpec(rounds=10, kind="linear", warmup=2, floor=0.5)
    assert [round(line(at), 3) for at in (1, 2, 3, 6, 10, 99)] == [0.333, 0.667, 0.938, 0.75, 0.5, 0.5]


def own_loop(model: nn.Module, examples: Examples, context: Context) -> None:
    """Any loop of any library: here RMSprop, which no engine knows, on noisy inputs and with dropout."""
    optimiser = torch.optim.RMSprop(model.parameters(), lr=0.003 / context.round**0.5)
    for inputs, targets in context.batches(examples, epochs=2):
        noisy = inputs + 0.01 * torch.randn(inputs.shape, generator=context.generator)
        noisy *= 1 + 0.01 * context.rng.random()
        optimiser.zero_grad()
        loss = context.loss(model(nn.functional.dropout(noisy, 0.1)), targets)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()


def test_a_loop_of_ones_own_gives_the_same_weights_everywhere() -> None:
    task = digits(optimiser=None, loop=own_loop)
    inline = rounds(task, "inline")
    for engine in ("inline", "processes"):
        again = rounds(task, engine)
        assert all(torch.equal(again[name], inline[name]) for name in inline)
    with torch.no_grad():
        right = (
            nn.functional.linear(
                torch.relu(nn.functional.linear(task.test.inputs, inline["0.weight"], inline["0.bias"])),
                inline["2.weight"],
                inline["2.bias"],
            ).argmax(1)
            == task.test.targets
        )
    assert right.float().mean() > 0.8
    with pytest.raises(PlexusError, match="a training loop of its own"):
        create_engine("stacked", task)
    assert choose(task, workers=2, device="cpu").name == "processes"
    assert choose(task, workers=1, device="cpu").name == "inline"


def test_what_a_loop_raises_is_one_line() -> None:
    def bad(model: nn.Module, examples: Examples, context: Context) -> None:
        raise KeyError("lost")

    engine, _ = create_engine("inline", digits(optimiser=None, loop=bad))
    with pytest.raises(
        PlexusError, match=r"task digits: training node 2 in round 7: KeyError: 'lost' \(.*test_opt"
    ):
        engine.train([LocalTraining(engine.initial, 2, 7)])


def test_a_loop_that_returns_a_model_is_told_that_nobody_takes_it() -> None:
    def trains_a_copy(model: nn.Module, examples: Examples, context: Context) -> Any:
        return copy.deepcopy(model)

    engine, _ = create_engine("inline", digits(optimiser=None, loop=trains_a_copy))
    with pytest.raises(PlexusError, match="returns nothing: not a Sequential"):
        engine.train([LocalTraining(engine.initial, 2, 7)])


def test_a_ray_cluster_trains_with_any_of_them() -> None:
    pytest.importorskip("ray")
    for task in (digits(**CASES["everything"]), digits(optimiser=None, loop=partial(own_loop))):
        inline, ray = rounds(task, "inline"), rounds(task, "ray")
        assert all(torch.allclose(inline[name], ray[name], atol=1e-6) for name in inline)
