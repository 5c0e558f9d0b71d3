"""Images as examples: from bytes to what a network takes, the usual random changes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from plexus.learn.task import Examples


def scaled(images: Tensor) -> Tensor:
    """Bytes as numbers from 0 to 1."""
    return images.float().div(255)


@dataclass(frozen=True)
class Normalised:
    """Bytes as numbers of mean 0 and deviation 1 per channel."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    def __call__(self, images: Tensor) -> Tensor:
        mean = images.new_tensor(self.mean, dtype=torch.float32).view(-1, 1, 1)
        deviation = images.new_tensor(self.deviation, dtype=torch.float32).view(-1, 1, 1)
        return images.float().div(255).sub(mean).div(deviation)


@dataclass(frozen=True)
class CropFlipCutout:
    """Shift by up to `padding` pixels, mirror every second image, blank a square somewhere."""

    side: int = 32
    padding: int = 4
    cutout: int = 16

    def draw(self, rng: np.random.Generator, count: int) -> NDArray[np.int64]:
        """Rows of [shift down, shift right, mirrored, centre of the square: row, column]."""
        choices = [2 * self.padding + 1, 2 * self.padding + 1, 2, self.side, self.side]
        # Four times as fast as drawing integers with a bound per column.
        return (rng.random((count, 5)) * choices).astype(np.int64)

    def apply(self, inputs: Tensor, drawn: Tensor) -> Tensor:
        """The images changed as drawn; what comes from outside, and the square, is 0."""
        pixel = torch.arange(self.side, device=inputs.device)
        shift_down, shift_right, mirrored, centre_row, centre_column = drawn.unsqueeze(2).unbind(1)
        rows = pixel + shift_down
        columns = torch.where(mirrored > 0, self.side - 1 - pixel, pixel) + shift_right
        padded = functional.pad(inputs, (self.padding,) * 4)
        image = torch.arange(len(inputs), device=inputs.device)[:, None, None, None]
        channel = torch.arange(inputs.shape[1], device=inputs.device)[None, :, None, None]
        moved = padded[image, channel, rows[:, None, :, None], columns[:, None, None, :]]
        blank = self._covers(pixel, centre_row)[:, :, None] & self._covers(pixel, centre_column)[:, None]
        return moved.masked_fill(blank.unsqueeze(1), 0.0)

    def _covers(self, pixel: Tensor, centre: Tensor) -> Tensor:
        half = self.cutout // 2
        return (pixel >= centre - half) & (pixel < centre + half)


Labelled = tuple[NDArray[np.uint8], NDArray[np.int64]]
"""Images (n x channels x height x width) and their classes."""


def image_sets(train: Labelled, test: Labelled) -> tuple[Examples, Examples]:
    """Training and test images as examples; they come from different files, so no id occurs twice."""
    return _examples(train, first_id=0), _examples(test, first_id=len(train[1]))


def _examples(labelled: Labelled, first_id: int) -> Examples:
    images, labels = labelled
    ids = np.arange(first_id, first_id + len(labels))
    return Examples(torch.from_numpy(np.ascontiguousarray(images)), torch.from_numpy(labels), ids)
