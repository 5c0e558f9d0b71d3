"""FEMNIST of LEAF: characters in 62 classes, one writer a node."""

from __future__ import annotations

from functools import partial

import numpy as np

from plexus.errors import PlexusError
from plexus.learn import partition
from plexus.learn.image_tasks import classification
from plexus.learn.images import scaled
from plexus.learn.networks import femnist_cnn
from plexus.learn.task import Task
from plexus.learn.tasks.folder import data_folder
from plexus.learn.tasks.leaf_file import LeafExamples, femnist_images, read_leaf
from plexus.learn.tasks.specs import FemnistSpec
from plexus.rng import array_stream

CLASSES = 62


def build(spec: FemnistSpec, nodes: int, seed: int) -> Task:
    """The task for `nodes` of LEAF's writers; all of LEAF's test images are the test set."""
    folder = data_folder(spec.data, "femnist", what="LEAF's train/ and test/ of FEMNIST")
    train, test = read_leaf(folder / "train"), read_leaf(folder / "test")
    for examples in (train, test):
        check_labels(examples, CLASSES, str(folder))
    return classification(
        spec,
        seed,
        partition.by_user(train.users, nodes, array_stream(seed, "learn", "partition")),
        (femnist_images(train, folder), train.labels),
        (femnist_images(test, folder), test.labels),
        partial(femnist_cnn, CLASSES),
        scaled,
    )


def check_labels(examples: LeafExamples, classes: int, where: str) -> None:
    """Labels are the classes' numbers from 0."""
    wrong = examples.labels[(examples.labels < 0) | (examples.labels >= classes)]
    if np.any(wrong):
        raise PlexusError(f"{where}: label {wrong[0]} is not one of 0 to {classes - 1}")
