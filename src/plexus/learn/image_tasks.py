"""What the image tasks share: arrays of bytes and labels as a classification task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from plexus.learn.measures import TOP1
from plexus.learn.task import Augmentation, Examples, Sgd, Task
from plexus.learn.tasks.specs import TaskSpec

Labelled = tuple[NDArray[np.uint8], NDArray[np.int64]]
"""Images (n x channels x height x width) and their classes."""


def classification(
    spec: TaskSpec,
    seed: int,
    parts: tuple[NDArray[np.int64], ...],
    train: Labelled,
    test: Labelled,
    build_model: Callable[[], nn.Module],
    prepare: Callable[[Tensor], Tensor],
    augment: Augmentation | None = None,
) -> Task:
    """A task of telling classes apart. Training and test images come from different files."""
    return Task(
        name=spec.name,
        seed=seed,
        train=_examples(train, first_id=0),
        parts=parts,
        test=_examples(test, first_id=len(train[1])),
        build_model=build_model,
        loss=functional.cross_entropy,
        measure=TOP1,
        sgd=Sgd.of(spec),
        local_steps=spec.local_steps,
        batch=spec.batch,
        prepare=prepare,
        augment=augment,
    )


def _examples(labelled: tuple[NDArray[Any], NDArray[np.int64]], first_id: int) -> Examples:
    images, labels = labelled
    ids = np.arange(first_id, first_id + len(labels))
    return Examples(torch.from_numpy(np.ascontiguousarray(images)), torch.from_numpy(labels), ids)
