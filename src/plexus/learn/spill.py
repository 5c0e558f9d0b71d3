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

DEFAULT_BUDGET_BYTES = 2 << 30


class VectorStore:
    """The vectors of one run."""

    def __init__(self, budget_bytes: int = DEFAULT_BUDGET_BYTES, spill_to: Path | None = None) -> None:
        self.budget_bytes = budget_bytes
        self.held_bytes = 0
        """In memory now. Above the budget only while a single vector is."""
        self.spilled = 0
        """How often a vector was moved to disk."""
        self._parent = spill_to
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._held: OrderedDict[int, weakref.ref[Kept]] = OrderedDict()

    def keep(self, vector: Tensor) -> Kept:
        """Take `vector` into the store. Nobody may change it any more."""
        kept = Kept(self, vector)
        self._hold(kept)
        return kept

    def close(self) -> None:
        """Remove what is on disk. Vectors in memory remain usable."""
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _hold(self, kept: Kept) -> None:
        self._held[id(kept)] = weakref.ref(kept)
        self.held_bytes += kept.bytes
        while self.held_bytes > self.budget_bytes and len(self._held) > 1:
            oldest = next(iter(self._held.values()))()
            assert oldest is not None, "what is gone has left the store"
            self._spill(oldest)

    def _spill(self, kept: Kept) -> None:
        if kept.path is None:
            if self._folder is None:
                self._folder = tempfile.TemporaryDirectory(prefix="plexus-models-", dir=self._parent)
            kept.path = Path(self._folder.name) / f"{self.spilled}.npy"
            assert kept.tensor is not None
            np.save(kept.path, kept.tensor.cpu().numpy(), allow_pickle=False)
            self.spilled += 1
        self._drop(kept)
        kept.tensor = None

    def _drop(self, kept: Kept) -> None:
        if self._held.pop(id(kept), None) is not None:
            self.held_bytes -= kept.bytes

    def _used(self, kept: Kept) -> Tensor:
        if kept.tensor is None:
            assert kept.path is not None
            array = np.load(kept.path, allow_pickle=False)
            kept.tensor = torch.from_numpy(array).to(kept.device)
            self._hold(kept)
        else:
            self._held.move_to_end(id(kept))
        assert kept.tensor is not None
        return kept.tensor

    def _gone(self, kept: Kept) -> None:
        self._drop(kept)
        if kept.path is not None:
            kept.path.unlink(missing_ok=True)


class Kept:
    """A vector in the store, in memory or on disk."""

    __slots__ = ("__weakref__", "bytes", "device", "path", "store", "tensor")

    def __init__(self, store: VectorStore, vector: Tensor) -> None:
        self.store = store
        self.tensor: Tensor | None = vector
        self.path: Path | None = None
        self.device = vector.device
        self.bytes = vector.nbytes

    def get(self) -> Tensor:
        """The vector; read it, do not change it."""
        return self.store._used(self)

    def __del__(self) -> None:
        self.store._gone(self)
