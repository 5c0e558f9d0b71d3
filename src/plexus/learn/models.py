"""Weights as bytes: how large a model is on the wire, and what names it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch
from safetensors.torch import save
from torch import Tensor

from plexus.learn.layout import Layout


def encode(tensors: Mapping[str, Tensor]) -> bytes:
    """The safetensors encoding of a model."""
    # safetensors refuses tensors that share memory, and ours are slices of one vector.
    return bytes(save({name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}))


def model_bytes(layout: Layout, vector: Tensor) -> int:
    """The size of the model on the wire; the same for all weights of one layout."""
    return len(encode(layout.tensors(vector)))


def weights_hash(tensors: Mapping[str, Tensor]) -> str:
    """blake2b over names, shapes and raw bytes in the order of the names."""
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
