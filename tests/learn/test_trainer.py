"""One local training: the bits of a loop with torch.optim.SGD, from (seed, node, round) alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from plexus.errors import PlexusError
from plexus.learn.engines import LocalTraining
from plexus.learn.layout import named_tensors
from plexus.learn.optimiser import Sgd
from plexus.learn.task import TOP1, Inputs, Task
from plexus.learn.trainer import InlineEngine, one_thread


def bare_loop(task: Task, node: int, round: int) -> nn.Module:
    """What a user would write: an optimiser object and a loop."""
    module = task.initial_model()
    sgd = torch.optim.SGD(
        module.parameters(),
        lr=task.optimiser.learning_rate,
        momentum=task.optimiser.momentum,
        weight_decay=task.optimiser.weight_decay,
    )
    draw = task.draw(node, round)
    torch.manual_seed(draw.torch_seed)
    module.train()
    for rows in torch.from_numpy(draw.examples).view(task.local_steps, task.batch):
        sgd.zero_grad()
        task.loss(module(task.train.inputs[rows]), task.train.targets[rows]).backward()
        sgd.step()
    return module


def trained(task: Task, node: int = 3, round: int = 5) -> Tensor:
    engine = InlineEngine(task)
    return engine.train([LocalTraining(engine.initial, node, round)])[0]


@pytest.mark.parametrize(
    "sgd", [Sgd(0.3), Sgd(0.1, momentum=0.9), Sgd(0.1, 0.9, 0.01), Sgd(0.1, weight_decay=0.1)]
)
def test_same_bits_as_torch_optim_sgd(digits: Task, sgd: Sgd) -> None:
    task = replace(digits, optimiser=sgd)
    with one_thread():
        expected = bare_loop(task, node=3, round=5)
    assert torch.equal(trained(task), InlineEngine(task).layout.flatten(named_tensors(expected)))


def test_a_training_depends_on_seed_node_and_round_only(digits: Task) -> None:
    engine = InlineEngine(digits)
    first = engine.train([LocalTraining(engine.initial, 3, 5)])[0]
    engine.train([LocalTraining(engine.initial, 4, 5), LocalTraining(first, 3, 6)])
    torch.manual_seed(99)
    assert torch.equal(first, engine.train([LocalTraining(engine.initial, 3, 5)])[0])
    assert not torch.equal(first, engine.train([LocalTraining(engine.initial, 3, 6)])[0])
    assert not torch.equal(first, engine.train([LocalTraining(engine.initial, 4, 5)])[0])
    assert not torch.equal(first, trained(replace(digits, seed=8)))


class Centred(nn.Module):
    """Takes the mean of its inputs off them, as far as it has seen them."""

    def __init__(self, persistent: bool = True) -> None:
        super().__init__()
        self.last = nn.Linear(64, 10)
        self.register_buffer("mean", torch.zeros(64), persistent)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.see(x.mean(dim=0))
        return self.last(x - self.mean)  # type: ignore[no-any-return]

    def see(self, mean: Tensor) -> None:
        self.mean = 0.9 * self.mean + 0.1 * mean


class CentredInPlace(Centred):
    def see(self, mean: Tensor) -> None:
        self.mean.mul_(0.9).add_(mean, alpha=0.1)


@pytest.mark.parametrize(
    ("build", "shared"),
    [
        (Centred, None),
        (lambda: Centred(persistent=False), None),
        (lambda: CentredInPlace(persistent=False), None),
        (CentredInPlace, ("last.*",)),
    ],
)
def test_what_a_training_leaves_in_buffers_is_of_no_other(
    digits: Task, build: Callable[[], nn.Module], shared: tuple[str, ...] | None
) -> None:
    engine = InlineEngine(replace(digits, build_model=build, shared=shared))
    frozen = {name: tensor.clone() for name, tensor in engine.frozen.items()}
    before = engine.evaluate(engine.initial)
    first = engine.train([LocalTraining(engine.initial, 3, 5)])[0]
    engine.train([LocalTraining(engine.initial, 4, 5)])
    assert all(torch.equal(engine.frozen[name], tensor) for name, tensor in frozen.items())
    assert engine.evaluate(engine.initial) == before
    assert torch.equal(engine.train([LocalTraining(engine.initial, 3, 5)])[0], first)


def test_a_buffer_that_is_put_anew_is_trained_as_one_that_is_changed(digits: Task) -> None:
    anew, changed = (trained(replace(digits, build_model=each)) for each in (Centred, CentredInPlace))
    assert torch.allclose(anew, changed, atol=1e-6) and anew[-64:].abs().max() > 0.01


class Unusual(nn.Module):
    """Dropout, batch normalisation with its integer counter, a tied and a frozen parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(64, 64)
        self.second = nn.Linear(64, 64)
        self.second.weight = self.first.weight
        self.norm = nn.BatchNorm1d(64)
        self.scale = nn.Parameter(torch.tensor(2.0), requires_grad=False)
        self.last = nn.Linear(64, 10)
        self.unused = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.second(torch.relu(self.first(x)))))
        x = nn.functional.dropout(x * self.scale, 0.3, self.training)
        return self.last(x)  # type: ignore[no-any-return]


def test_any_module_trains_as_in_a_bare_loop(digits: Task) -> None:
    task = replace(digits, build_model=Unusual)
    with one_thread():
        expected = bare_loop(task, node=3, round=5)
    engine = InlineEngine(task)
    tensors = engine.layout.tensors(engine.train([LocalTraining(engine.initial, 3, 5)])[0])
    assert "second.weight" not in tensors
    assert tensors["norm.num_batches_tracked"].item() == task.local_steps
    assert tensors["norm.num_batches_tracked"].dtype == torch.int64
    for name, tensor in tensors.items():
        assert torch.equal(tensor, expected.state_dict()[name]), name


def test_every_batch_is_full_and_an_epoch_shows_everything_once(digits: Task) -> None:
    part = digits.parts[0]
    examples = replace(digits, local_steps=20, batch=20).draw(0, 1).examples
    assert len(examples) == 400
    assert sorted(examples[: len(part)].tolist()) == part.tolist()


def test_a_node_with_fewer_examples_than_a_batch_trains(digits: Task) -> None:
    task = replace(digits, parts=(digits.parts[0][:3],))
    assert len(set(task.draw(0, 1).examples.tolist())) == 3
    assert torch.isfinite(trained(task, node=0)).all()


def test_evaluation_is_the_mean_over_the_test_set(digits: Task) -> None:
    engine = InlineEngine(digits)
    metrics = engine.evaluate(engine.initial)
    module = digits.initial_model()
    right = (module(digits.test.inputs).argmax(1) == digits.test.targets).float().mean().item()
    assert metrics.name == "accuracy"
    assert metrics.value == pytest.approx(right)
    assert metrics.loss == pytest.approx(2.3, abs=0.2)


def share_right(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.argmax(dim=-1) == targets).float().mean()


def all_with_all(outputs: Tensor, targets: Tensor) -> Tensor:
    """A squared error, as it is where outputs have one dimension more than targets."""
    return (outputs[:, :1] - targets).square()


@pytest.mark.parametrize(
    ("wrong", "given"),
    [
        (share_right, r"tensor of shape \(\)"),
        (all_with_all, r"shape \(359, 359\)"),
        (lambda *_: 0.5, "float"),
    ],
)
def test_a_measure_gives_a_number_for_each_example(digits: Task, wrong: Any, given: str) -> None:
    """Another would be summed all the same, and the mean of what that gives mean nothing."""
    engine = InlineEngine(replace(digits, measures=(replace(TOP1, name="own", per_example=wrong),)))
    message = f"^task digits: the measure own must give a number for each of 359 examples, not a .*{given}"
    with pytest.raises(PlexusError, match=message):
        engine.evaluate(engine.initial)


class Viewed(nn.Module):
    """As many a tutorial has it: `view` works on images that lie as they came, and on no others."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.last = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8 * 64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.convolution(x).view(len(x), -1))  # type: ignore[no-any-return]


def with_images(task: Task, module: Callable[[], nn.Module]) -> Task:
    """The digits in three colours."""

    def coloured(inputs: Inputs) -> Tensor:
        assert isinstance(inputs, Tensor)
        return inputs.view(-1, 1, 8, 8) * torch.tensor([1.0, 0.5, 0.2]).view(3, 1, 1)

    return replace(task, prepare=coloured, build_model=module)


def test_images_lie_channels_last_where_only_layers_of_torch_see_them(digits: Task) -> None:
    def network() -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10))

    task, seen = with_images(digits, network), []
    engine = InlineEngine(task)
    first = next(engine.trainer.module.children())
    first.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].stride()))
    new = engine.train([LocalTraining(engine.initial, 3, 5)])[0]
    assert set(seen) == {(192, 1, 24, 3)}

    class Named(nn.Sequential):
        """Of one's own: images stay as they are."""

    plain = trained(with_images(digits, lambda: Named(*network())))
    assert torch.allclose(new, plain, atol=1e-5)


def test_a_model_that_views_its_images_can(digits: Task) -> None:
    task = with_images(digits, Viewed)
    assert not torch.equal(trained(task), InlineEngine(task).initial)
