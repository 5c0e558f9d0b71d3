"""The engine stacked gives the weights of the engine inline, within rounding."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from plexus.errors import PlexusError
from plexus.learn.engines import LocalTraining, choose, create_engine
from plexus.learn.engines.stacked import (
    MOST_CLIENTS,
    Stack,
    StackedEngine,
    cannot_stack,
    forward_of,
    is_known,
    stack_size,
)
from plexus.learn.layout import named_tensors
from plexus.learn.networks import BiasedFactorisation, MatrixFactorisation, celeba_cnn, femnist_cnn, gn_lenet
from plexus.learn.optimiser import Adam, Sgd
from plexus.learn.task import Task
from plexus.learn.trainer import InlineEngine, Trainer

TOLERANCE = 2e-4
"""Of the largest weight, after one local training: what the documentation promises."""


def assert_close(task: Task, clients: int = 5) -> None:
    assert cannot_stack(task) is None
    inline, stacked = InlineEngine(task), StackedEngine(task)
    assert torch.equal(inline.initial, stacked.initial)
    bases = [inline.initial, *inline.train([LocalTraining(inline.initial, 0, 1)])]
    jobs = [LocalTraining(bases[i % 2], i % task.nodes, 2 + i) for i in range(clients)]
    for expected, got in zip(inline.train(jobs), stacked.train(jobs), strict=True):
        assert not torch.equal(expected, inline.initial)
        assert (expected - got).abs().max() <= TOLERANCE * expected.abs().max()


@pytest.mark.parametrize("sgd", [Sgd(0.3), Sgd(0.1, 0.9), Sgd(0.1, 0.9, 0.01), Sgd(0.1, 0, 0.1)])
def test_digits_for_any_sgd(digits: Task, sgd: Sgd) -> None:
    assert_close(replace(digits, optimiser=sgd))


@pytest.mark.parametrize("clients", [1, 2, 3, 17])
def test_any_number_of_clients(digits: Task, clients: int) -> None:
    assert_close(digits, clients)


def test_more_clients_than_fit_one_stack(digits: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MOST_CLIENTS, "cpu", 4)
    assert_close(digits, clients=11)


def test_a_stack_holds_the_jobs_with_few_idle_places() -> None:
    sizes = [stack_size(jobs) for jobs in range(1, 201)]
    assert all(size >= jobs for jobs, size in enumerate(sizes, start=1))
    assert len(set(sizes)) <= 36
    assert all(size <= 1.5 * jobs for jobs, size in enumerate(sizes, start=1))


def images(digits: Task, shape: tuple[int, int, int], classes: int) -> Task:
    """The digits task with random images of another shape."""
    generator = torch.Generator().manual_seed(1)
    train = replace(
        digits.train,
        inputs=torch.rand(len(digits.train), *shape, generator=generator),
        targets=digits.train.targets % classes,
    )
    test = replace(digits.test, inputs=torch.rand(len(digits.test), *shape, generator=generator))
    return replace(digits, train=train, test=test, optimiser=Sgd(0.01, 0.9), batch=4, local_steps=3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("build", "shape", "classes"),
    [(gn_lenet, (3, 32, 32), 10), (celeba_cnn, (3, 84, 84), 2), (lambda: femnist_cnn(10), (1, 28, 28), 10)],
)
def test_the_papers_networks(digits: Task, build, shape, classes) -> None:  # type: ignore[no-untyped-def]
    task = replace(images(digits, shape, classes), build_model=build)
    assert_close(task, clients=3)


@pytest.mark.parametrize("model", [MatrixFactorisation, BiasedFactorisation])
@pytest.mark.parametrize("sparse", [False, True])
def test_factorisation(digits: Task, model: type[nn.Module], sparse: bool) -> None:
    generator = torch.Generator().manual_seed(1)

    def rated(count: int) -> tuple[Tensor, Tensor]:
        pairs = torch.randint(0, 9, (count, 2), generator=generator)
        return pairs, torch.rand(count, generator=generator) * 5

    (train_x, train_y), (test_x, test_y) = rated(len(digits.train)), rated(len(digits.test))
    task = replace(
        digits,
        train=replace(digits.train, inputs=train_x, targets=train_y),
        test=replace(digits.test, inputs=test_x, targets=test_y),
        build_model=lambda: model(9, 9, 20, 0.05, sparse=sparse),
        loss=functional.mse_loss,
        optimiser=Sgd(0.2),
    )
    assert_close(task)


class Unusual(nn.Module):
    """Unknown to the layers by hand: batch normalisation, a tied and a frozen parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(64, 64)
        self.second = nn.Linear(64, 64)
        self.second.weight = self.first.weight
        self.norm = nn.BatchNorm1d(64)
        self.scale = nn.Parameter(torch.tensor(2.0), requires_grad=False)
        self.last = nn.Linear(64, 10, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.second(torch.relu(self.first(x)))))
        return self.last(x * self.scale)  # type: ignore[no-any-return]


def test_any_module_through_vmap(digits: Task) -> None:
    assert forward_of(Unusual()) is None
    assert_close(replace(digits, build_model=Unusual))


def test_any_loss(digits: Task) -> None:
    assert_close(
        replace(digits, loss=lambda outputs, targets: outputs[range(20), targets].neg().exp().mean())
    )


def test_targets_that_do_not_count_are_of_one_client_alone(digits: Task) -> None:
    """Half of what node 1 has: its mean is over the rest, and the others' are as they were."""
    targets = digits.train.targets.clone()
    targets[digits.parts[1][::2]] = -100
    assert_close(replace(digits, train=replace(digits.train, targets=targets)))


def one_relu_twice() -> nn.Module:
    relu = nn.ReLU()
    return nn.Sequential(nn.Linear(64, 16), relu, nn.Linear(16, 16), relu, nn.Linear(16, 10))


def tied() -> nn.Module:
    module = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 10))
    module[1].weight = module[0].weight
    return module


def one_layer_twice() -> nn.Module:
    layer = nn.Linear(64, 64)
    return nn.Sequential(layer, nn.ReLU(), layer, nn.Linear(64, 10))


def normed() -> nn.Module:
    with warnings.catch_warnings(action="ignore"):
        return nn.Sequential(nn.utils.weight_norm(nn.Linear(64, 16)), nn.Linear(16, 10))


def hooked() -> nn.Module:
    module = nn.Sequential(nn.Linear(64, 16), nn.Linear(16, 10))
    module[0].register_forward_hook(lambda _, __, outputs: outputs.tanh())
    return module


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("build", [one_relu_twice, one_layer_twice, tied, normed, hooked])
def test_sequences_of_all_sorts(digits: Task, build: Callable[[], nn.Module]) -> None:
    assert (forward_of(build()) is not None) == (build is one_relu_twice)
    assert_close(replace(digits, build_model=build))


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last, self.scale = nn.Linear(64, 10), nn.Parameter(torch.tensor(2.0))

    def forward(self, x: Tensor) -> Tensor:
        return self.last(x) * self.scale  # type: ignore[no-any-return]


def test_a_parameter_may_be_one_number_and_be_clipped(digits: Task) -> None:
    assert_close(replace(digits, build_model=Scaled, optimiser=Sgd(0.1, clip_norm=0.1)))


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(3, 4, 3),
        nn.Conv2d(3, 4, 3, padding=1, stride=2),
        nn.Conv2d(3, 3, 3, padding=1, groups=3),
        nn.Conv2d(3, 4, 4, padding=2),
        nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"),
        nn.Conv2d(3, 4, 3, padding=1, bias=False),
        nn.GroupNorm(2, 4, affine=False),
        nn.Flatten(2),
        nn.LeakyReLU(),
    ],
)
def test_what_the_layers_by_hand_do_not_know_goes_through_vmap(layer: nn.Module) -> None:
    assert not is_known(layer)
    assert forward_of(nn.Sequential(layer, nn.Flatten(), nn.Linear(4, 2))) is None


class InPlace(nn.Sequential):
    """Changes the shape of what it has, which no recorded step can do again."""

    def forward(self, images: Tensor) -> Tensor:
        outputs: Tensor = super().forward(images.flatten(1) + 0)
        return outputs.unsqueeze_(1).squeeze(1)


@pytest.mark.parametrize(
    "changed",
    [
        {"optimiser": Sgd(0.1, 0.9, 0.01, nesterov=True)},
        {"optimiser": Adam(0.01, clip_norm=1.0), "proximal": 0.1},
        {"build_model": Unusual},
        {"build_model": lambda: InPlace(nn.Linear(64, 10))},
    ],
)
def test_a_recorded_step_gives_the_bits_of_the_step(
    digits: Task, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any]
) -> None:
    task = replace(digits, local_epochs=2, batch=7, **changed)

    def trained() -> list[Tensor]:
        engine = StackedEngine(task)
        first = engine.train([LocalTraining(engine.initial, node, 1) for node in range(6)])
        return first + engine.train([LocalTraining(first[node], node, 2) for node in range(6)])

    recorded = trained()
    monkeypatch.setattr("plexus.learn.engines.stacked.LARGEST_TAPE", 0)
    assert all(map(torch.equal, recorded, trained()))


def test_a_model_that_draws_random_numbers_is_refused(digits: Task) -> None:
    task = replace(digits, build_model=lambda: nn.Sequential(nn.Linear(64, 10), nn.Dropout(0.5)))
    stacked = StackedEngine(task)
    with pytest.raises(PlexusError, match=r"stacked cannot run this model.*draws random numbers"):
        stacked.train([LocalTraining(stacked.initial, 0, 1), LocalTraining(stacked.initial, 1, 1)])


class Layers(nn.Module):
    """Two layers, as they are meant to be used."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(64, 16), nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        hidden = functional.linear(x, self.weight(), self.first.bias).relu()
        return self.last(hidden)  # type: ignore[no-any-return]

    def weight(self) -> Tensor:
        return self.first.weight


class InAList(Layers):
    def __init__(self) -> None:
        super().__init__()
        self.all = list(self.parameters())

    def weight(self) -> Tensor:
        return self.all[0]


class InAClosure(Layers):
    def __init__(self) -> None:
        super().__init__()
        first, last = self.first.weight, self.last.weight
        self.forward = lambda x: functional.linear(functional.linear(x, first).relu(), last)  # type: ignore[method-assign]


class InAView(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.flat = nn.Parameter(torch.randn(640) / 8)
        self.weight = self.flat.view(10, 64)

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight)


class AsData(Layers):
    def weight(self) -> Tensor:
        return self.first.weight.data


class AsDataKept(Layers):
    def __init__(self) -> None:
        super().__init__()
        self.kept = self.first.weight.data

    def weight(self) -> Tensor:
        return self.kept


@pytest.mark.parametrize("model", [InAList, InAClosure, InAView, AsData, AsDataKept])
def test_parameters_that_are_reached_otherwise_are_not_stacked(digits: Task, model: type[nn.Module]) -> None:
    task = replace(digits, build_model=model)
    with pytest.raises(PlexusError, match=r"stacked cannot run this model.*(attributes|`data`)"):
        create_engine("stacked", task, device="cpu")
    chosen = choose(task, workers=1, device="cpu")
    assert chosen.name == "inline"
    assert "a model that cannot be stacked (" in chosen.reason


@pytest.mark.parametrize("model", [Layers, InAList, InAClosure, InAView, AsData, AsDataKept])
def test_inline_learns_what_torch_does(digits: Task, model: type[nn.Module]) -> None:
    task = replace(digits, build_model=model)
    trainer, module = Trainer(task, torch.device("cpu")), task.initial_model()
    sgd = torch.optim.SGD(module.parameters(), task.optimiser.learning_rate)
    for inputs, targets in trainer.data.batches(task.draw(3, 5)):
        sgd.zero_grad()
        task.loss(module(inputs), targets).backward()
        sgd.step()
    trained = trainer.train(trainer.initial, 3, 5)
    assert not torch.equal(trained, trainer.initial)
    torch.testing.assert_close(trained, trainer.layout.flatten(named_tensors(module)))


class Doubled(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def test_layers_that_are_not_quite_the_known_ones_go_through_vmap(digits: Task) -> None:
    assert_close(replace(digits, build_model=lambda: nn.Sequential(Doubled(64, 10))))


def test_evaluation_is_that_of_inline(digits: Task) -> None:
    inline, stacked = InlineEngine(digits), StackedEngine(digits)
    for vector in (inline.initial, *inline.train([LocalTraining(inline.initial, 0, 1)])):
        assert inline.evaluate(vector) == stacked.evaluate(vector)


def test_a_stack_that_does_not_fit_into_memory_is_halved(
    digits: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []
    whole = Stack.train

    def small_memory(stack: Stack, bases: Tensor, *others: Any) -> Tensor:
        sizes.append(len(bases))
        if len(bases) > 3:
            raise torch.OutOfMemoryError
        return whole(stack, bases, *others)

    monkeypatch.setattr(Stack, "train", small_memory)
    monkeypatch.setitem(MOST_CLIENTS, "cpu", 8)
    assert_close(digits, clients=7)
    assert sizes == [2, 8, 4, 2, 2, 2, 1], "the first is a trial"
    monkeypatch.setattr(Stack, "train", lambda *_: (_ for _ in ()).throw(torch.OutOfMemoryError))
    stacked = StackedEngine(digits)
    with pytest.raises(PlexusError, match="not even one client fits"):
        stacked.train([LocalTraining(stacked.initial, 0, 1)])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA GPU")
@pytest.mark.parametrize("build", [gn_lenet, Unusual])
def test_a_gpu_gives_the_weights_of_the_cpu(digits: Task, build: type[nn.Module]) -> None:
    task = replace(digits, build_model=build)
    if build is gn_lenet:
        task = replace(images(digits, (3, 32, 32), 10), build_model=build)
    inline, stacked = InlineEngine(task), StackedEngine(task, "cuda")
    for round in (1, 2):  # the second time the CUDA graph is replayed on other data
        jobs = [LocalTraining(inline.initial, node, round) for node in range(5)]
        on_gpu = [LocalTraining(stacked.initial, node, round) for node in range(5)]
        for expected, got in zip(inline.train(jobs), stacked.train(on_gpu), strict=True):
            assert (expected - got.cpu()).abs().max() <= 10 * TOLERANCE * expected.abs().max()


def test_images_may_be_flattened_first() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    forward = forward_of(module)
    assert forward is not None
    weight, bias, images = torch.randn(3, 2, 4), torch.randn(3, 2), torch.randn(3, 5, 1, 2, 2)
    found = forward({"1.weight": weight, "1.bias": bias}, images)
    for client in range(3):
        wanted = functional.linear(images[client].flatten(1), weight[client], bias[client])
        torch.testing.assert_close(found[client], wanted)
