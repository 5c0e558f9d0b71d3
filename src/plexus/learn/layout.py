"""How the weights of a model lie in one vector.

Everything outside the forward pass (averaging, hashing, spilling, sending to a worker) handles a
model as a single flat vector; only here is it known which slice is which tensor.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from safetensors.torch import save
from torch import Tensor, nn

from plexus.errors import PlexusError


@dataclass(frozen=True)
class TensorSlice:
    """One tensor of the model: a slice of the vector, seen in its own shape and type."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    start: int
    stop: int
    trainable: bool


@dataclass(frozen=True)
class Layout:
    """All tensors of a model that training changes or that inference needs, in a fixed order."""

    entries: tuple[TensorSlice, ...]
    size: int
    dtype: torch.dtype
    """float32; float64 where a tensor of the model has it, so that nothing loses precision."""

    @staticmethod
    def of(module: nn.Module) -> Layout:
        """The layout of `module`: parameters (tied ones once), then the buffers it would save."""
        entries: list[TensorSlice] = []
        start = 0
        for name, tensor in named_tensors(module).items():
            if tensor.is_complex():
                raise PlexusError(f"the model's tensor {name} is complex: only real ones can be averaged")
            stop = start + tensor.numel()
            shape = tuple(tensor.shape)
            entries.append(TensorSlice(name, shape, tensor.dtype, start, stop, tensor.requires_grad))
            start = stop
        if not any(entry.trainable for entry in entries):
            raise PlexusError(f"the model {type(module).__name__} has no parameters to train")
        double = any(entry.dtype == torch.float64 for entry in entries)
        return Layout(tuple(entries), start, torch.float64 if double else torch.float32)

    def flatten(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """The vector of these named tensors."""
        parts = [tensors[entry.name].detach().reshape(-1).to(self.dtype) for entry in self.entries]
        return torch.cat(parts)

    def vector_of(self, module: nn.Module) -> Tensor:
        """The vector of the weights `module` holds now."""
        return self.flatten(named_tensors(module))

    def tensors(self, vector: Tensor) -> dict[str, Tensor]:
        """The named tensors of `vector`: views of it, except where a tensor has another type."""
        return {
            entry.name: cast(vector[entry.start : entry.stop], entry.dtype).view(entry.shape)
            for entry in self.entries
        }


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


def encode(tensors: Mapping[str, Tensor]) -> bytes:
    """The safetensors encoding of a model: its bytes on the wire, as many for all weights of one layout."""
    # safetensors refuses tensors that share memory, and ours are slices of one vector.
    return bytes(save({name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}))


def weights_hash(tensors: Mapping[str, Tensor]) -> str:
    """Names the weights: blake2b over names, shapes and raw bytes in the order of the names."""
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
