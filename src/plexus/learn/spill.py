"""Keeps weights within a budget of memory; what has not been used for longest (LRU) is spilled to disk.

A `Kept` stands for one vector wherever it is. When the last holder lets go of it, its memory or its
file is free at once.
"""

from __future__ import annotations

import tempfile
import weakref
from collections import OrderedDict
from pathlib import Path

import numpy as np
import torch
from torch import Tensor


class VectorStore:
    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self.held_bytes = 0
        """In memory now. Above the budget only while a single vector is."""
        self.spilled = 0
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._held: OrderedDict[int, weakref.ref[Kept]] = OrderedDict()

    def keep(self, vector: Tensor) -> Kept:
        """Take `vector` into the store. Nobody may change it any more."""
        return Kept(self, vector)

    def close(self) -> None:
        """Remove what is on disk. Vectors in memory remain usable."""
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def hold(self, kept: Kept) -> None:
        """This one is in memory and was used last: past the budget, others go to disk."""
        self.drop(kept)
        self._held[id(kept)] = weakref.ref(kept)
        self.held_bytes += kept.bytes
        while self.held_bytes > self.budget_bytes and len(self._held) > 1:
            oldest = next(iter(self._held.values()))()
            assert oldest is not None, "what is gone has left the store"
            oldest.spill()

    def drop(self, kept: Kept) -> None:
        """This one is in memory no more."""
        if self._held.pop(id(kept), None) is not None:
            self.held_bytes -= kept.bytes

    def write(self, vector: Tensor) -> Path:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="plexus-models-")
        path = Path(self._folder.name) / f"{self.spilled}.npy"
        np.save(path, vector.cpu().numpy(), allow_pickle=False)
        self.spilled += 1
        return path


class Kept:
    __slots__ = ("__weakref__", "bytes", "device", "path", "store", "tensor")

    def __init__(self, store: VectorStore, vector: Tensor) -> None:
        self.store = store
        self.tensor: Tensor | None = vector
        self.path: Path | None = None
        self.device, self.bytes = vector.device, vector.nbytes
        store.hold(self)

    def get(self) -> Tensor:
        """The vector; read it, do not change it."""
        vector = self.tensor
        if vector is None:
            assert self.path is not None, "in memory or on disk"
            vector = self.tensor = torch.from_numpy(np.load(self.path, allow_pickle=False)).to(self.device)
        self.store.hold(self)
        return vector

    def spill(self) -> None:
        """Out of memory; what was on disk before is still there."""
        if self.path is None and self.tensor is not None:
            self.path = self.store.write(self.tensor)
        self.store.drop(self)
        self.tensor = None

    def __del__(self) -> None:
        self.store.drop(self)
        if self.path is not None:
            self.path.unlink(missing_ok=True)
