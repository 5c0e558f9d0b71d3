"""CelebA (is this face smiling?) and FEMNIST (62 characters) as LEAF prepares them: one person a node.

LEAF writes JSON into train/ and test/: {"users": […], "user_data": {user: {"x": […], "y": […]}}}. FEMNIST
has an image as 784 numbers from 0 to 1; CelebA has the file name of a photograph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray
from torch import nn

from plexus.errors import PlexusError, needing
from plexus.learn import partition
from plexus.learn.images import image_sets, scaled
from plexus.learn.networks import celeba_cnn, femnist_cnn
from plexus.learn.task import CLASSES, Task, task_of
from plexus.learn.tasks import data_folder
from plexus.learn.tasks.specs import CelebaSpec, FemnistSpec, TaskSpec
from plexus.rng import array_stream

FEMNIST_CLASSES = 62
CELEBA_SIDE = 84


def build(spec: CelebaSpec | FemnistSpec, nodes: int, seed: int) -> Task:
    """The task for `nodes` celebrities or writers; all of LEAF's test images are the test set."""
    classes, images, network = KINDS[type(spec)]
    folder = data_folder(spec.data, spec.name, what="LEAF's train/ and test/")
    train, test = read_leaf(folder / "train"), read_leaf(folder / "test")
    for examples in (train, test):
        wrong = examples.labels[(examples.labels < 0) | (examples.labels >= classes)]
        if np.any(wrong):
            raise PlexusError(f"{folder}: label {wrong[0]} is not one of 0 to {classes - 1}")
    rng = array_stream(seed, "learn", "partition")
    parts = partition.dealt(partition.by_user(train.users, nodes, rng, spec.reuse), nodes)
    seen, tested = image_sets(*((images(examples, folder), examples.labels) for examples in (train, test)))
    return task_of(spec, seed, seen, parts, tested, network, *CLASSES, prepare=scaled)


class UserData(Struct):
    x: list[Any]
    y: list[int]


class LeafFile(Struct):
    """One JSON file. LEAF's own count (`num_samples`) and other keys are not needed."""

    users: list[str]
    user_data: dict[str, UserData]


@dataclass(frozen=True)
class LeafExamples:
    """The examples of one folder, user after user in the order of their names."""

    x: list[Any]
    labels: NDArray[np.int64]
    users: NDArray[np.str_]


def read_leaf(folder: Path) -> LeafExamples:
    """All JSON files of `folder` (LEAF's data/train or data/test)."""
    if not (paths := sorted(folder.glob("*.json"))):
        raise PlexusError(f"{folder} has no JSON file: LEAF's preprocessing writes train/ and test/")
    people: dict[str, UserData] = {}
    for path in paths:
        for name, data in _read_file(path).items():
            if name in people:
                raise PlexusError(f"{path}: user {name} is also in another file of the folder")
            people[name] = data
    if not (names := sorted(name for name, data in people.items() if data.y)):
        raise PlexusError(f"{folder}: no user has any example")
    x = [example for name in names for example in people[name].x]
    labels = np.concatenate([np.array(people[name].y, np.int64) for name in names])
    return LeafExamples(x, labels, np.repeat(np.array(names), [len(people[name].y) for name in names]))


def _read_file(path: Path) -> dict[str, UserData]:
    try:
        content = msgspec.json.decode(path.read_bytes(), type=LeafFile)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PlexusError(f"{path} is not a LEAF file: {error}") from None
    for name in content.users:
        if (data := content.user_data.get(name)) is None:
            raise PlexusError(f"{path}: user {name} has no data")
        if len(data.x) != len(data.y):
            raise PlexusError(f"{path}: user {name} has {len(data.x)} x but {len(data.y)} y")
    return {name: content.user_data[name] for name in content.users}


def femnist_images(examples: LeafExamples, folder: Path) -> NDArray[np.uint8]:
    """The 28 x 28 images as bytes: LEAF's numbers are bytes divided by 255, so nothing is lost."""
    if any(not isinstance(x, list) or len(x) != 784 for x in examples.x):
        raise PlexusError(f"{folder}: an example of FEMNIST is not a list of 784 numbers")
    try:
        pixels = np.array(examples.x, np.float32) * 255
    except (TypeError, ValueError):
        raise PlexusError(f"{folder}: an example of FEMNIST has a pixel that is no number") from None
    if pixels.min() < 0 or pixels.max() > 255:
        raise PlexusError(f"{folder}: an example of FEMNIST has a pixel outside 0 to 1")
    return np.rint(pixels).astype(np.uint8).reshape(-1, 1, 28, 28)


def celeba_images(examples: LeafExamples, folder: Path) -> NDArray[np.uint8]:
    """The photographs as 3 x 84 x 84 bytes."""
    with needing("CelebA"):
        from PIL import Image
    images = np.empty((len(examples.x), 3, CELEBA_SIDE, CELEBA_SIDE), np.uint8)
    for row, name in enumerate(examples.x):
        path = folder / "img_align_celeba" / str(name)
        try:
            with Image.open(path) as photograph:
                small = photograph.convert("RGB").resize((CELEBA_SIDE, CELEBA_SIDE))
        except OSError as error:
            raise PlexusError(f"photograph {path} cannot be read: {error}") from None
        images[row] = np.asarray(small).transpose(2, 0, 1)
    return images


Images = Callable[[LeafExamples, Path], NDArray[np.uint8]]
KINDS: dict[type[TaskSpec], tuple[int, Images, Callable[[], nn.Module]]] = {
    CelebaSpec: (2, celeba_images, celeba_cnn),
    FemnistSpec: (FEMNIST_CLASSES, femnist_images, partial(femnist_cnn, FEMNIST_CLASSES)),
}
"""How many classes, what makes images of the examples, and the network."""
