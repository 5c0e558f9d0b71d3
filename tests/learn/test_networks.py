"""The models of the paper's Table I: parameter counts, sizes on the wire, shapes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from plexus.learn.layout import Layout, encode, named_tensors
from plexus.learn.networks import BiasedFactorisation, MatrixFactorisation, celeba_cnn, femnist_cnn, gn_lenet

IMAGES = {"cifar10": (3, 32, 32), "celeba": (3, 84, 84), "femnist": (1, 28, 28)}


def movielens() -> nn.Module:
    return MatrixFactorisation(610, 9724, 20, 0.05)


@pytest.mark.parametrize(
    ("build", "parameters", "papers_bytes"),
    [
        (gn_lenet, 85_354, 346e3),
        (celeba_cnn, 30_242, 124e3),
        (lambda: femnist_cnn(62), 1_690_046, 6.7e6),
        (movielens, 206_680, 827e3),
    ],
)
def test_parameters_and_size_are_the_papers(
    build: Callable[[], nn.Module], parameters: int, papers_bytes: float
) -> None:
    module = build()
    layout = Layout.of(module)
    assert sum(p.numel() for p in module.parameters()) == parameters == layout.size
    size = len(encode(layout.tensors(layout.flatten(named_tensors(module)))))
    assert 4 * parameters < size < 4 * parameters + 2000
    assert size == pytest.approx(papers_bytes, rel=0.03)


@pytest.mark.parametrize(
    ("build", "task", "classes"),
    [(gn_lenet, "cifar10", 10), (celeba_cnn, "celeba", 2), (lambda: femnist_cnn(62), "femnist", 62)],
)
def test_images_in_classes_out(build: Callable[[], nn.Module], task: str, classes: int) -> None:
    assert build()(torch.rand(2, *IMAGES[task])).shape == (2, classes)


def test_gn_lenet_normalises_after_the_first_pooling_and_before_the_later_ones() -> None:
    kinds = [type(layer).__name__ for layer in gn_lenet()]  # type: ignore[attr-defined]
    assert kinds[:4] == ["Conv2d", "MaxPool2d", "GroupNorm", "ReLU"]
    assert kinds[4:8] == kinds[8:12] == ["Conv2d", "GroupNorm", "MaxPool2d", "ReLU"]


def test_a_rating_is_the_product_of_factors() -> None:
    model = MatrixFactorisation(3, 4, 2, 1.0)
    expected = model.users.weight[2] @ model.movies.weight[1]
    assert model(torch.tensor([[2, 1]])).item() == pytest.approx(expected.item())


def test_biases_add_up() -> None:
    model = BiasedFactorisation(3, 4, 2, 1.0)
    assert sum(p.numel() for p in model.parameters()) == 3 * 2 + 4 * 2 + 3 + 4 + 1
    with torch.no_grad():
        model.user_bias.weight[2] = 0.5
        model.movie_bias.weight[1] = 0.25
    factors = model.factors(torch.tensor([[2, 1]])).item()
    assert model(torch.tensor([[2, 1]])).item() == pytest.approx(3.5 + 0.75 + factors)
