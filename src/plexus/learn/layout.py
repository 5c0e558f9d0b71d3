"""How the weights of a model lie in one vector.

Everything outside the forward pass (averaging, hashing, spilling, sending to a worker) handles a
model as a single flat vector; only here is it known which slice is which tensor. First come the tensors that
are shared: averaged, and sent. Then those that stay with a node. Frozen ones are in no vector.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from plexus.errors import PlexusError
from plexus.runs import encoding
from plexus.runs.encoding import EXACT, HALVES, KEPT, QUANTISED, SCALES, WHOLE, Floats, Wire


@dataclass(frozen=True)
class TensorSlice:
    """One tensor of the model: a slice of the vector, seen in its own shape and type."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    start: int
    stop: int
    trainable: bool


Patterns = tuple[str, ...]
"""Of names of tensors, as in a shell: `head.*`."""


@dataclass(frozen=True)
class Layout:
    """All tensors of a model that training changes or that inference needs, in a fixed order."""

    entries: tuple[TensorSlice, ...]
    size: int
    dtype: torch.dtype
    """float32; float64 where a tensor of the model has it, so that nothing loses precision."""
    shared_size: int
    """How much of the vector, from its beginning, is shared."""
    frozen: Patterns
    """The names of the tensors that are in no vector."""

    @staticmethod
    def of(module: nn.Module, shared: Patterns | None = None, local: Patterns = ()) -> Layout:
        """The layout of `module`: parameters (tied ones once), then the buffers it would save.

        Without `shared`, what is trainable and not `local` is, and buffers.
        """
        tensors, parameters = named_tensors(module), dict(module.named_parameters())
        for key, patterns in (("shared", shared or ()), ("local", local)):
            check_patterns(key, patterns, list(tensors))
        kinds: dict[str, list[str]] = {"shared": [], "local": [], "frozen": []}
        for name, tensor in tensors.items():
            if tensor.is_complex():
                raise PlexusError(f"the model's tensor {name} is complex: only real ones can be averaged")
            usual = tensor.requires_grad or name not in parameters
            is_shared = usual if shared is None else _matches(name, shared)
            kind = "local" if _matches(name, local) else "shared" if is_shared else "frozen"
            if kind == "frozen" and tensor.requires_grad:
                raise PlexusError(f"the model's tensor {name} is trained, but neither shared nor local")
            kinds[kind].append(name)
        if not any(tensor.requires_grad for tensor in tensors.values()):
            raise PlexusError(f"the model {type(module).__name__} has no parameters to train")
        if not kinds["shared"]:
            raise PlexusError(f"the model {type(module).__name__} has nothing that is shared")
        entries: list[TensorSlice] = []
        for name in (*kinds["shared"], *kinds["local"]):
            tensor, start = tensors[name], entries[-1].stop if entries else 0
            place = tuple(tensor.shape), tensor.dtype, start, start + tensor.numel()
            entries.append(TensorSlice(name, *place, tensor.requires_grad))
        dtype = torch.float64 if any(entry.dtype == torch.float64 for entry in entries) else torch.float32
        shared_size = entries[len(kinds["shared"]) - 1].stop
        return Layout(tuple(entries), entries[-1].stop, dtype, shared_size, tuple(kinds["frozen"]))

    @property
    def shared(self) -> tuple[str, ...]:
        """The names of the tensors that are averaged and sent."""
        return tuple(entry.name for entry in self.entries if entry.stop <= self.shared_size)

    def flatten(self, tensors: Mapping[str, Tensor]) -> Tensor:
        return torch.cat([tensors[entry.name].detach().reshape(-1).to(self.dtype) for entry in self.entries])

    def tensors(self, vector: Tensor) -> dict[str, Tensor]:
        """The named tensors of `vector`: views of it, except where a tensor has another type.

        A vector of what is shared has those alone.
        """
        return {
            entry.name: cast(vector[entry.start : entry.stop], entry.dtype).view(entry.shape)
            for entry in self.entries
            if entry.stop <= len(vector)
        }


def _matches(name: str, patterns: Patterns) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def check_patterns(key: str, patterns: Patterns, names: Sequence[str]) -> None:
    """A pattern that no name matches is a mistake."""
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            shown = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
            raise PlexusError(f"{key}: no tensor of the model is called {pattern!r}; there are {shown}")


def named_tensors(module: nn.Module) -> dict[str, Tensor]:
    """The tensors of `module` by name, in the order of its layout."""
    saved = module.state_dict(keep_vars=True)
    tensors: dict[str, Tensor] = dict(module.named_parameters())
    tensors.update((name, buffer) for name, buffer in module.named_buffers() if name in saved)
    return tensors


def cast(piece: Tensor, dtype: torch.dtype) -> Tensor:
    """A slice of a vector in the type of its tensor."""
    if piece.dtype == dtype:
        return piece
    # An average of counters need not be whole: round, rather than cut.
    return piece.to(dtype) if dtype.is_floating_point else piece.round().to(dtype)


def encode(tensors: Mapping[str, Tensor], frozen: str = "") -> bytes:
    """The safetensors encoding of a model: its bytes on the wire, as many for all weights of one layout.

    `frozen` is the hash of what everybody has besides. It is in the header, so that nobody takes a model for
    one of its own that is meant for other weights than its own.
    """
    # safetensors refuses tensors that share memory, and ours are slices of one vector.
    return _saved({name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}, frozen)


def _saved(tensors: dict[str, Tensor], frozen: str) -> bytes:
    return bytes(save(tensors, {"frozen": frozen} if frozen else None))


def names_of(layout: Layout, wire: Wire) -> dict[str, str]:
    """For whoever takes a model home that travels without the names of its tensors: what they are."""
    entries = [entry for entry in layout.entries if entry.stop <= layout.shared_size]
    shapes = [(e.name, e.shape, str(e.dtype), part_of(e)) for e in entries]
    return {} if wire == "float32" else {encoding.NAMES: json.dumps(shapes)}


def part_of(entry: TensorSlice) -> str | None:
    """Where a tensor is in fewer bytes, if it is not rounded."""
    if not entry.dtype.is_floating_point:
        return WHOLE
    return None if entry.trainable else EXACT


class Packing:
    """How the shared part of a model travels: as its tensors, or as bytes with scales.

    A model that was sent is what its receiver makes of it. So a model is rounded when it is made, by training
    or averaging, and everybody has the same one.
    """

    def __init__(self, layout: Layout, wire: Wire, frozen: str = "") -> None:
        self._layout = layout
        self._wire = wire
        self._frozen = frozen
        entries = [entry for entry in layout.entries if entry.stop <= layout.shared_size]
        parts = {part: [np.arange(e.start, e.stop) for e in entries if part_of(e) == part] for part in KEPT}
        self._kept = {part: np.concatenate(places) for part, places in parts.items() if any(map(len, places))}
        """Where the numbers are that are not rounded."""

    def rounded(self, vector: Tensor, rng: np.random.Generator) -> Tensor:
        """`vector`, which is shared, as its receivers have it."""
        if self._wire == "float32":
            return vector
        values, kept = self._apart(vector)
        found = encoding.rounded(values, self._wire, rng)
        for part, places in self._kept.items():
            found[places] = kept[part]
        return torch.from_numpy(found).to(vector.device, vector.dtype)

    def encode(self, vector: Tensor, rng: np.random.Generator) -> bytes:
        """The bytes on the wire, as many for all models."""
        if self._wire == "float32":
            return encode(self._layout.tensors(vector), self._frozen)
        # Without names, which everybody knows: of a small model they would be a good part.
        values, kept = self._apart(vector)
        if self._wire == "float16":
            parts = {HALVES: torch.from_numpy(values).half()}
        else:
            found, scales = encoding.quantised(values, rng)
            parts = {QUANTISED: torch.from_numpy(found), SCALES: torch.from_numpy(scales)}
        parts |= {part: torch.from_numpy(numbers) for part, numbers in kept.items()}
        return _saved(parts, self._frozen)

    def _apart(self, vector: Tensor) -> tuple[Floats, dict[str, Floats]]:
        """The numbers that may be rounded, with zeros in the places of the others, and those."""
        values: Floats = vector.cpu().numpy().astype(np.float32, copy=bool(self._kept))
        kept = {part: values[places] for part, places in self._kept.items()}
        for places in self._kept.values():
            values[places] = 0  # or they would make the steps of their neighbours large
        return values, kept

    def decode(self, data: bytes) -> Tensor:
        tensors = load(data)
        if self._wire == "float32":
            shared = [tensors[name] for name in self._layout.shared]
            return torch.cat([each.reshape(-1).to(self._layout.dtype) for each in shared])
        parts = {name: tensor.numpy() for name, tensor in tensors.items()}
        values = torch.from_numpy(encoding.unpacked(parts))
        for part, places in self._kept.items():
            values[places] = tensors[part]
        return values.to(self._layout.dtype)


def weights_hash(tensors: Mapping[str, Tensor]) -> str:
    """Names the weights: blake2b over names, shapes and raw bytes in the order of names; empty for none."""
    if not tensors:
        return ""
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
