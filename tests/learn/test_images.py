"""From bytes to what a network takes, and crop, flip and cutout."""

import numpy as np
import pytest
import torch

from plexus.learn.images import CropFlipCutout, Normalised, scaled

IMAGE = torch.arange(1.0, 3 * 32 * 32 + 1).view(1, 3, 32, 32)
FAR = [100, 100]
"""A centre of the cutout that covers nothing."""


def changed(drawn: list[int]) -> torch.Tensor:
    return CropFlipCutout().apply(IMAGE, torch.tensor([drawn]))


def test_bytes_become_numbers() -> None:
    images = torch.tensor([[[[0, 255]]]], dtype=torch.uint8)
    assert scaled(images).tolist() == [[[[0.0, 1.0]]]]
    assert Normalised((0.5,), (0.25,))(images).tolist() == [[[[-2.0, 2.0]]]]


def test_the_middle_shift_changes_nothing() -> None:
    assert torch.equal(changed([4, 4, 0, *FAR]), IMAGE)


def test_a_mirrored_image() -> None:
    assert torch.equal(changed([4, 4, 1, *FAR]), IMAGE.flip(3))


def test_a_shift_brings_in_zeros() -> None:
    moved = changed([4 + 3, 4 - 2, 0, *FAR])
    assert torch.equal(moved[:, :, :29, 2:], IMAGE[:, :, 3:, :30])
    assert moved[:, :, 29:].abs().sum() == moved[:, :, :, :2].abs().sum() == 0


def test_a_cutout_of_16_pixels_stops_at_the_edge() -> None:
    inner, corner = changed([4, 4, 0, 16, 16]), changed([4, 4, 0, 0, 31])
    assert (inner == 0).sum() == 3 * 16 * 16
    assert (inner[:, :, 8:24, 8:24] == 0).all()
    assert (corner == 0).sum() == 3 * 8 * 9


def test_draws_are_within_range_and_seeded() -> None:
    augment = CropFlipCutout()
    drawn = augment.draw(np.random.default_rng(1), 5000)
    assert drawn.min(axis=0).tolist() == [0, 0, 0, 0, 0]
    assert drawn.max(axis=0).tolist() == [8, 8, 1, 31, 31]
    assert np.array_equal(drawn, augment.draw(np.random.default_rng(1), 5000))


def test_each_image_is_changed_as_drawn_for_it() -> None:
    augment = CropFlipCutout()
    images = torch.rand(6, 3, 32, 32)
    drawn = torch.from_numpy(augment.draw(np.random.default_rng(2), 6))
    together = augment.apply(images, drawn)
    apart = [augment.apply(images[i : i + 1], drawn[i : i + 1]) for i in range(6)]
    assert torch.equal(together, torch.cat(apart))


@pytest.mark.parametrize("count", [0, 1])
def test_few_images(count: int) -> None:
    drawn = torch.from_numpy(CropFlipCutout().draw(np.random.default_rng(1), count))
    assert CropFlipCutout().apply(torch.rand(count, 3, 32, 32), drawn).shape == (count, 3, 32, 32)
