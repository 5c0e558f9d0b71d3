"""CelebA of LEAF: is this face smiling? One celebrity a node."""

from __future__ import annotations

from plexus.learn import partition
from plexus.learn.image_tasks import classification
from plexus.learn.images import scaled
from plexus.learn.networks import celeba_cnn
from plexus.learn.task import Task
from plexus.learn.tasks.femnist import check_labels
from plexus.learn.tasks.folder import data_folder
from plexus.learn.tasks.leaf_file import celeba_images, read_leaf
from plexus.learn.tasks.specs import CelebaSpec
from plexus.rng import array_stream


def build(spec: CelebaSpec, nodes: int, seed: int) -> Task:
    """The task for `nodes` celebrities; all of LEAF's test photographs are the test set."""
    folder = data_folder(spec.data, "celeba", what="LEAF's train/ and test/ of CelebA")
    train, test = read_leaf(folder / "train"), read_leaf(folder / "test")
    for examples in (train, test):
        check_labels(examples, 2, str(folder))
    photographs = folder / "img_align_celeba"
    return classification(
        spec,
        seed,
        partition.by_user(train.users, nodes, array_stream(seed, "learn", "partition")),
        (celeba_images(train, photographs), train.labels),
        (celeba_images(test, photographs), test.labels),
        celeba_cnn,
        scaled,
    )
