"""Rules that combine models."""

import torch

from plexus.learn.aggregation import mean, weighted_mean

A, B, C = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 6.0]), torch.tensor([5.0, 1.0])


def test_mean_counts_every_model_the_same() -> None:
    assert mean([A, B, C], [1, 100, 7]).tolist() == [3.0, 3.0]


def test_sample_weighted_mean_counts_by_examples() -> None:
    assert weighted_mean([A, B], [3, 1]).tolist() == [1.5, 3.0]


def test_arguments_are_left_alone() -> None:
    mean([A, B], [1, 1])
    weighted_mean([A, B], [2, 1])
    assert (A.tolist(), B.tolist()) == ([1.0, 2.0], [3.0, 6.0])


def test_equal_weights_give_the_same_bits_as_the_mean() -> None:
    vectors = [torch.rand(1000) for _ in range(7)]
    assert torch.equal(weighted_mean(vectors, [1] * 7), mean(vectors, [3] * 7))
    assert weighted_mean([torch.tensor([1.0]), torch.tensor([5.0])], [3, 1]).tolist() == [2.0]
