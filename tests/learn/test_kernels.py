"""Kernels for a GPU against `vmap` of the module: on a GPU, or interpreted where Triton is installed."""

from __future__ import annotations

import os

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn import functional

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("triton", reason="kernels are for a GPU; without one Triton interprets them")

from plexus.learn.engines import Precision
from plexus.learn.engines.kernels import arranged, forward_of, layers_of
from plexus.learn.networks import celeba_cnn, femnist_cnn, gn_lenet

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def gn_lenet_small() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 5, padding=2),
        nn.MaxPool2d(3, 2),
        nn.GroupNorm(2, 16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 5, padding=2),
        nn.GroupNorm(2, 32),
        nn.MaxPool2d(3, 2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32, 10),
    )


def two_convolutions() -> nn.Module:
    blocks: list[nn.Module] = []
    for channels, filters in ((1, 32), (32, 16)):
        blocks += [nn.Conv2d(channels, filters, 3, padding=1), nn.MaxPool2d(2), nn.ReLU()]
    return nn.Sequential(*blocks, nn.Flatten(), nn.Linear(64, 20), nn.ReLU(), nn.Linear(20, 5))


NETWORKS = {"LeNet": (gn_lenet_small, (3, 9, 9), 10), "two convolutions": (two_convolutions, (1, 9, 8), 5)}


def gradients(network: str, precision: Precision | None) -> tuple[Tensor, dict[str, Tensor]]:
    """Outputs and gradients of three clients; without a precision those of vmap, in float64."""
    make, image, classes = NETWORKS[network]
    torch.manual_seed(3)
    module, dtype = make().to(DEVICE), torch.float64 if precision is None else torch.float32
    given = {
        name: torch.randn(3, *each.shape, device=DEVICE) * 0.3 for name, each in module.named_parameters()
    }
    inputs, targets = torch.randn(3, 4, *image, device=DEVICE), torch.randint(classes, (3, 4), device=DEVICE)
    layers = layers_of(module, image)
    assert layers is not None
    tensors = {name: each.to(dtype) for name, each in given.items()}
    leaves = {name: each.requires_grad_() for name, each in tensors.items()}
    if precision is None:
        module = module.double()
        outputs = vmap(lambda own, x: functional_call(module, own, (x,)))(leaves, inputs.to(dtype))
    else:
        outputs = forward_of(layers, precision)(arranged(layers, leaves), inputs)
    loss = functional.cross_entropy(outputs.flatten(0, 1), targets.flatten())
    found = torch.autograd.grad(loss, list(leaves.values()))
    return outputs.detach(), dict(zip(leaves, found, strict=True))


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize(("precision", "error"), [("float32", 1e-5), ("tf32", 5e-3), ("bf16", 0.2)])
def test_outputs_and_gradients_are_those_of_vmap(network: str, precision: Precision, error: float) -> None:
    if precision == "bf16" and DEVICE == "cpu":
        pytest.skip("Triton's interpreter has no bf16")
    wanted, found = gradients(network, None), gradients(network, precision)
    assert (found[0] - wanted[0]).norm() <= error * wanted[0].norm()
    for name, gradient in wanted[1].items():
        assert (found[1][name] - gradient).norm() <= error * gradient.norm(), name


@pytest.mark.parametrize(
    ("module", "image"),
    [(gn_lenet(), (3, 32, 32)), (celeba_cnn(), (3, 84, 84)), (femnist_cnn(62), (1, 28, 28))],
)
def test_kernels_know_the_networks_of_the_paper(module: nn.Module, image: tuple[int, ...]) -> None:
    assert layers_of(module, image) is not None


def test_filters_come_back_as_they_were() -> None:
    module = gn_lenet_small()
    layers = layers_of(module, (3, 9, 9))
    assert layers is not None
    tensors = {name: torch.randn(2, *each.shape) for name, each in module.named_parameters()}
    there = arranged(layers, tensors)
    assert there["0.weight"].shape == (2, 75, 16)
    assert all(torch.equal(tensors[name], each) for name, each in arranged(layers, there, back=True).items())


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(3, 24, 3, padding=1),
        nn.Conv2d(3, 16, 3, padding=1, stride=2),
        nn.Conv2d(3, 16, 3),
        nn.MaxPool2d(2, padding=1),
        nn.Dropout(),
    ],
)
def test_what_no_kernel_does_is_left_to_vmap(layer: nn.Module) -> None:
    assert layers_of(nn.Sequential(layer, nn.Conv2d(16, 16, 3, padding=1)), (3, 8, 8)) is None
    assert layers_of(nn.Sequential(nn.Flatten(), nn.Linear(192, 10)), (3, 8, 8)) is None
