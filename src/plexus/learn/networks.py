"""The models of the paper, as in its Table I and the authors' code; parameter counts are tested."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def gn_lenet() -> nn.Module:
    """LeNet with group normalisation, for 3 x 32 x 32 images in ten classes: 85,354 parameters."""
    blocks = [nn.Conv2d(3, 32, 5, padding=2), nn.MaxPool2d(3, 2), nn.GroupNorm(2, 32), nn.ReLU()]
    for filters in (32, 64):
        norm = nn.GroupNorm(2, filters)
        blocks += [nn.Conv2d(32, filters, 5, padding=2), norm, nn.MaxPool2d(3, 2), nn.ReLU()]
    return nn.Sequential(*blocks, nn.Flatten(), nn.Linear(576, 10))


def celeba_cnn() -> nn.Module:
    """Four small convolutions for 3 x 84 x 84 faces, smiling or not: 30,242 parameters."""
    blocks: list[nn.Module] = []
    for channels in (3, 32, 32, 32):
        blocks += [nn.Conv2d(channels, 32, 3, padding=1), nn.MaxPool2d(2), nn.ReLU()]
    return nn.Sequential(*blocks, nn.Flatten(), nn.Linear(800, 2))


def femnist_cnn(classes: int) -> nn.Module:
    """Two convolutions and two dense layers for 1 x 28 x 28: 1,690,046 parameters at 62 classes."""
    blocks: list[nn.Module] = []
    for channels, filters in ((1, 32), (32, 64)):
        blocks += [nn.Conv2d(channels, filters, 5, padding=2), nn.MaxPool2d(2), nn.ReLU()]
    return nn.Sequential(*blocks, nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, classes))


class MatrixFactorisation(nn.Module):
    """A rating is the product of a user's and a movie's factors. Inputs are rows [user, movie].

    206,680 parameters for ml-latest-small at dimension 20. With `sparse`, a step touches only the
    rows of its batch: faster, and possible without momentum and weight decay.
    """

    def __init__(self, users: int, movies: int, dimension: int, spread: float, sparse: bool = False) -> None:
        super().__init__()
        self.users = nn.Embedding(users, dimension, sparse=sparse)
        self.movies = nn.Embedding(movies, dimension, sparse=sparse)
        for table in (self.users, self.movies):
            nn.init.uniform_(table.weight, -spread, spread)

    def forward(self, pairs: Tensor) -> Tensor:
        rating: Tensor = (self.users(pairs[:, 0]) * self.movies(pairs[:, 1])).sum(dim=1)
        return rating


class BiasedFactorisation(nn.Module):
    """Adds a global mean and a bias per user and per movie to the factors."""

    def __init__(self, users: int, movies: int, dimension: int, spread: float, sparse: bool = False) -> None:
        super().__init__()
        self.factors = MatrixFactorisation(users, movies, dimension, spread, sparse)
        self.user_bias = nn.Embedding(users, 1, sparse=sparse)
        self.movie_bias = nn.Embedding(movies, 1, sparse=sparse)
        # The middle of the scale of stars, near any data set's mean; learned from there.
        self.mean = nn.Parameter(torch.tensor(3.5))
        for table in (self.user_bias, self.movie_bias):
            nn.init.zeros_(table.weight)

    def forward(self, pairs: Tensor) -> Tensor:
        biases = self.user_bias(pairs[:, 0]) + self.movie_bias(pairs[:, 1])
        rating: Tensor = self.mean + biases.squeeze(1) + self.factors(pairs)
        return rating
