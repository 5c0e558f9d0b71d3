"""Sends a task to another process: large arrays as files that all processes map, the rest pickled.

Arrays are neither copied per worker nor put into shared memory, which is small in containers. Only
our own worker processes read this, from a folder that only we can write.
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from plexus.errors import PlexusError
from plexus.learn.task import Task

LARGE_BYTES = 1 << 16
PICKLE = "task.pickle"


def pack(task: Task, folder: Path) -> None:
    """Write `task` into the empty `folder`."""
    buffer = io.BytesIO()
    try:
        _Packer(buffer, folder).dump(task)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise PlexusError(
            f"task {task.name} cannot be sent to worker processes, use the engine inline, or define"
            f" its functions at the top of a module: {error}"
        ) from error
    (folder / PICKLE).write_bytes(buffer.getvalue())


def unpack(folder: Path) -> Task:
    """Read the task that `pack` wrote."""
    task: Task = _Unpacker(io.BytesIO((folder / PICKLE).read_bytes()), folder).load()
    return task


class _Packer(pickle.Pickler):
    def __init__(self, file: io.BytesIO, folder: Path) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._folder = folder
        self._names: dict[int, str] = {}
        self._kept: list[object] = []

    def persistent_id(self, thing: Any) -> tuple[str, str] | None:
        if isinstance(thing, Tensor) and thing.nbytes >= LARGE_BYTES:
            return "tensor", self._save(thing, thing.detach().cpu().numpy())
        if isinstance(thing, np.ndarray) and thing.nbytes >= LARGE_BYTES:
            return "array", self._save(thing, thing)
        return None

    def _save(self, thing: object, array: np.ndarray[Any, Any]) -> str:
        if id(thing) not in self._names:
            self._names[id(thing)] = f"{len(self._names)}.npy"
            self._kept.append(thing)
            np.save(self._folder / self._names[id(thing)], array, allow_pickle=False)
        return self._names[id(thing)]


class _Unpacker(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, folder: Path) -> None:
        super().__init__(file)
        self._folder = folder

    def persistent_load(self, saved: Any) -> Any:
        kind, name = saved
        # Copy on write: pages are shared until somebody writes, which nobody does.
        array = np.load(self._folder / name, mmap_mode="c", allow_pickle=False)
        return torch.from_numpy(array) if kind == "tensor" else array
