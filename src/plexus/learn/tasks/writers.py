"""Digits by writer: MNIST's images, one writer a node, tested on writers nobody trained on.

Stands in for FEMNIST where LEAF's files are not at hand: the same network with ten outputs. Plain
sampled averaging of 10 of 355 nodes, measured: 95.0 % after 1000 rounds, 97.9 % after 3000.
"""

from __future__ import annotations

import math
import zipfile
import zlib
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from plexus.errors import PlexusError
from plexus.learn import partition
from plexus.learn.images import image_sets, scaled
from plexus.learn.networks import femnist_cnn
from plexus.learn.task import CLASSES, Task, task_of
from plexus.learn.tasks import data_folder, needed_file
from plexus.learn.tasks.specs import WritersSpec
from plexus.rng import array_stream

NPZ = "mnist_by_writer.npz"
DAMAGED_ZIP = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)
"""What `zipfile` raises; the last two for flags that say how a member is packed or locked."""
TEST_IMAGES = 10_000
"""The first of QMNIST's, which are MNIST's."""

TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
GZIP = 16 + zlib.MAX_WBITS
HEAD_BYTES = 4 + 4 * 255
MOST_BYTES = 2**30


def build(spec: WritersSpec, nodes: int, seed: int) -> Task:
    """The task for `nodes` writers, drawn by seed where the data has more."""
    folder = data_folder(spec.data, "digits-by-writer", what="handwritten digits by writer")
    train, test = read_written_digits(folder)
    if np.isin(train.writers, test.writers).any():
        raise PlexusError(f"{folder}: writers of the test set are also in the training set")
    if spec.test_examples is not None and spec.test_examples < len(test.labels):
        rng = array_stream(seed, "learn", "test")
        test = test.rows(np.sort(rng.choice(len(test.labels), spec.test_examples, replace=False)))
    rng = array_stream(seed, "learn", "partition")
    parts = partition.dealt(partition.by_user(train.writers, nodes, rng, spec.reuse), nodes)
    images, tested = image_sets(*((digits.images[:, None], digits.labels) for digits in (train, test)))
    network = partial(femnist_cnn, 10) if spec.hidden is None else partial(perceptron, spec.hidden)
    return task_of(spec, seed, images, parts, tested, network, *CLASSES, prepare=scaled)


def perceptron(hidden: int) -> nn.Module:
    """28 x 28 pixels, one hidden layer, ten classes."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, hidden), nn.ReLU(), nn.Linear(hidden, 10))


@dataclass(frozen=True)
class Written:
    """Images of n x 28 x 28 bytes, the digit and the writer of each."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    writers: NDArray[np.int64]

    def __post_init__(self) -> None:
        if self.images.shape[1:] != (28, 28):
            raise PlexusError(f"images of shape {self.images.shape} where n x 28 x 28 was expected")
        images, labels, writers = len(self.images), len(self.labels), len(self.writers)
        if not images == labels == writers:
            found = f"{images} images, {labels} labels and {writers} writers"
            raise PlexusError(f"{found}: one of each per digit is needed")

    def rows(self, chosen: slice | NDArray[np.int64]) -> Written:
        return Written(self.images[chosen], self.labels[chosen], self.writers[chosen])


def read_written_digits(folder: Path) -> tuple[Written, Written]:
    """(training, test), from one .npz or from QMNIST's IDX files of the same content."""
    if (folder / NPZ).is_file():
        return _read_npz(folder / NPZ, "train"), _read_npz(folder / NPZ, "test")
    test = _read_qmnist(folder, "test")
    return _read_qmnist(folder, "train"), test.rows(slice(TEST_IMAGES))


def _read_npz(path: Path, part: str) -> Written:
    try:
        # Opened here: of a damaged file, numpy would leave it open.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            images, labels, writers = (arrays[f"{name}_{part}"] for name in ("x", "y", "writer"))
            return Written(images, labels.astype(np.int64), writers.astype(np.int64))
    except (OSError, ValueError, TypeError, KeyError, MemoryError, *DAMAGED_ZIP) as error:
        raise PlexusError(f"{path} is not a file of digits by writer: {error}") from None


def _read_qmnist(folder: Path, part: str) -> Written:
    """QMNIST's labels have eight columns: the class first, the writer third."""
    what = f"a folder of written digits has {NPZ} or QMNIST's IDX files"
    stem = f"qmnist-{part}"
    images = needed_file(folder, f"{stem}-images-idx3-ubyte", f"{stem}-images-idx3-ubyte.gz", what=what)
    labels = needed_file(folder, f"{stem}-labels-idx2-int", f"{stem}-labels-idx2-int.gz", what=what)
    columns = read_idx(labels)
    if columns.ndim != 2 or columns.shape[1] < 3:
        raise PlexusError(f"{labels} does not have QMNIST's columns: the third is the writer")
    return Written(read_idx(images), columns[:, 0].astype(np.int64), columns[:, 2].astype(np.int64))


def read_idx(path: Path) -> NDArray[Any]:
    """The array in a file of IDX, the format of MNIST and its kin, plain or gzipped.

    It is a type and the dimensions, then the numbers, big-endian.
    """
    gunzip = zlib.decompressobj(GZIP)
    is_packed = path.suffix == ".gz"
    try:
        content = path.read_bytes()
        head = gunzip.decompress(content, HEAD_BYTES) if is_packed else content[:HEAD_BYTES]
        dtype, shape, expected = _parse(path, head)
        if is_packed:
            # No more than is expected: a few bytes can hold gigabytes.
            content = head + gunzip.decompress(gunzip.unconsumed_tail, expected)
    except (OSError, zlib.error) as error:
        raise PlexusError(f"{path} cannot be read: {error}") from None
    if len(content) != expected:
        raise PlexusError(f"{path} is damaged: {len(content)} bytes where {expected} were expected")
    header = 4 + 4 * len(shape)
    return np.frombuffer(content, dtype, offset=header).reshape(shape).astype(dtype.newbyteorder("="))


def _parse(path: Path, head: bytes) -> tuple[np.dtype[Any], list[int], int]:
    """Type, dimensions, and how many bytes there should be."""
    if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in TYPES:
        raise PlexusError(f"{path} is not an IDX file: it does not begin with IDX's four bytes")
    dtype, header = np.dtype(TYPES[head[2]]), 4 + 4 * head[3]
    shape = [int.from_bytes(head[at : at + 4], "big") for at in range(4, header, 4)]
    expected = header + math.prod(shape) * dtype.itemsize
    if expected > MOST_BYTES:
        raise PlexusError(f"{path} claims to be of {expected} bytes; at most {MOST_BYTES} are read")
    return dtype, shape, expected
