"""Small files in the official formats, written from random numbers."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

CODES = {"u1": 0x08, "i1": 0x09, "i2": 0x0B, "i4": 0x0C, "f4": 0x0D, "f8": 0x0E}
Written = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]


def write_cifar10(folder: Path, per_batch: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Six binary batches; returns all images and labels in the order of the files, test last."""
    rng = np.random.default_rng(2)
    names = [*(f"data_batch_{n}.bin" for n in range(1, 6)), "test_batch.bin"]
    records = rng.integers(0, 256, (len(names) * per_batch, 3073), dtype=np.uint8)
    records[:, 0] %= 10
    for name, batch in zip(names, np.split(records, len(names)), strict=True):
        (folder / name).write_bytes(batch.tobytes())
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0]


def write_idx(path: Path, array: NDArray[Any]) -> None:
    code = CODES[array.dtype.str[1:]]
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    content = bytes([0, 0, code, array.ndim]) + sizes + array.astype(array.dtype.newbyteorder(">")).tobytes()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def write_leaf(path: Path, people: dict[str, tuple[list[Any], list[int]]]) -> None:
    content = {
        "users": list(people),
        "num_samples": [len(y) for _, y in people.values()],
        "user_data": {name: {"x": x, "y": y} for name, (x, y) in people.items()},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def write_femnist(folder: Path, users: int, each: int) -> NDArray[np.uint8]:
    """LEAF's train/ and test/; returns the training pixels as bytes."""
    rng = np.random.default_rng(3)
    pixels = {part: rng.integers(0, 256, (users, each, 784), dtype=np.uint8) for part in ("train", "test")}
    for part, own in pixels.items():
        people = {
            f"w{user}": ((own[user] / 255).tolist(), rng.integers(0, 62, each).tolist())
            for user in range(users)
        }
        write_leaf(folder / part / "all_data_0.json", people)
    return pixels["train"].reshape(-1, 1, 28, 28)


def write_qmnist(folder: Path, writers: int, each: int) -> tuple[Written, Written]:
    """QMNIST's four IDX files, other writers in the test set; returns images, labels, writers."""
    rng = np.random.default_rng(4)
    sets = []
    for part, first in (("train", 0), ("test", writers)):
        count = writers * each
        images = rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        columns = np.zeros((count, 8), np.int32)
        columns[:, 0] = rng.integers(0, 10, count)
        columns[:, 2] = first + np.arange(count) % writers
        write_idx(folder / f"qmnist-{part}-images-idx3-ubyte", images)
        write_idx(folder / f"qmnist-{part}-labels-idx2-int", columns)
        sets.append((images, columns[:, 0], columns[:, 2]))
    return sets[0], sets[1]
