"""Layers over stacked clients, by hand where that beats `vmap`: networks that are a sequence.

Activations have the shape clients x channels x batch x height x width. In this order a convolution is
one batched matrix product (weights x patches) whose result needs no rearranging, and pooling runs on
it as it stands. `vmap` would give a grouped convolution, several times slower on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

Forward = Callable[[Mapping[str, Tensor], Tensor], Tensor]
"""(stacked tensors by name, inputs: clients x batch x …) -> outputs: clients x batch x …"""


def forward_of(module: nn.Module) -> Forward | None:
    """The stacked forward pass of `module`, or None if it has anything unknown here."""
    if type(module) is not nn.Sequential or not all(is_known(layer) for layer in module):
        return None
    layers = [(name, layer) for name, layer in module.named_children()]

    def forward(tensors: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        x = inputs.transpose(1, 2) if inputs.dim() == 5 else inputs  # images: channels before the batch
        for name, layer in layers:
            x = _apply(layer, x, tensors.get(f"{name}.weight"), tensors.get(f"{name}.bias"))
        return x

    return forward


def is_known(layer: nn.Module) -> bool:
    """Whether it can be done by hand, here or in `kernels`."""
    if type(layer) is nn.Conv2d:
        side, padding = layer.kernel_size[0], layer.padding
        plain = (layer.stride, layer.dilation, layer.groups) == ((1, 1), (1, 1), 1)
        keeps_size = layer.kernel_size == (side, side) and padding == (side // 2,) * 2 and side % 2
        return bool(plain and keeps_size and layer.padding_mode == "zeros" and layer.bias is not None)
    if type(layer) is nn.GroupNorm:
        return layer.affine
    if type(layer) is nn.Flatten:
        return (layer.start_dim, layer.end_dim) == (1, -1)
    if type(layer) is nn.MaxPool2d:
        return not layer.return_indices
    if type(layer) is nn.Linear:
        return layer.bias is not None
    return type(layer) is nn.ReLU


def _apply(layer: nn.Module, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    if isinstance(layer, nn.ReLU):
        return torch.relu(x)
    if isinstance(layer, nn.MaxPool2d):
        pooled = functional.max_pool2d(
            x.flatten(0, 1), layer.kernel_size, layer.stride, layer.padding, layer.dilation, layer.ceil_mode
        )
        return pooled.view(*x.shape[:2], *pooled.shape[1:])
    if isinstance(layer, nn.Flatten):
        return x.transpose(1, 2).flatten(2) if x.dim() == 5 else x.flatten(2)
    assert weight is not None and bias is not None, f"{layer} has both"
    if isinstance(layer, nn.Linear):
        return torch.baddbmm(bias.unsqueeze(1), x, weight.transpose(1, 2))
    if isinstance(layer, nn.GroupNorm):
        return group_norm(x, layer.num_groups, weight, bias, layer.eps)
    return convolution(x, weight) + bias[:, :, None, None, None]


def group_norm(x: Tensor, groups: int, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """Normalise each example over the channels of a group and the pixels."""
    grouped = x.reshape(x.shape[0], groups, -1, *x.shape[2:])
    variance, mean = torch.var_mean(grouped, dim=(2, 4, 5), correction=0, keepdim=True)
    normal = ((grouped - mean) * torch.rsqrt(variance + eps)).flatten(1, 2)
    return normal * weight[:, :, None, None, None] + bias[:, :, None, None, None]


def convolution(x: Tensor, weight: Tensor) -> Tensor:
    """Each client's images with its own filters; odd square filters, the size is kept."""
    result: Tensor = _Convolution.apply(x, weight)  # type: ignore[no-untyped-call]
    return result


class _Convolution(torch.autograd.Function):
    """Forward and both gradients are products with patches: nothing is ever scattered."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _filtered(x, weight)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor]:
        x, weight = ctx.saved_tensors
        cut = patches(x, weight.shape[-1])
        by_weight = torch.bmm(columns(gradient), cut.transpose(1, 2))
        by_input = None
        if ctx.needs_input_grad[0]:
            by_input = _filtered(gradient, weight.flip(3, 4).transpose(1, 2))
        return by_input, by_weight.view(weight.shape)


def _filtered(x: Tensor, weight: Tensor) -> Tensor:
    clients, _, batch, height, width = x.shape
    product = torch.bmm(weight.flatten(2), patches(x, weight.shape[-1]))
    return product.view(clients, -1, height, width, batch).permute(0, 1, 4, 2, 3)


def columns(x: Tensor) -> Tensor:
    """clients x channel x (row, column, example): the order of columns in `patches`."""
    return x.permute(0, 1, 3, 4, 2).flatten(2)


def patches(x: Tensor, side: int) -> Tensor:
    """The neighbourhood of every pixel: clients x (channel, row, column) x (row, column, example).

    With examples last, a row of patches is copied from memory in long runs: the copy is most of the
    time of a convolution.
    """
    clients, channels, batch, height, width = x.shape
    padded = functional.pad(x.permute(0, 1, 3, 4, 2), (0, 0, *(side // 2,) * 4)).contiguous()
    client, channel, row, column, example = padded.stride()
    shape = (clients, channels, side, side, height, width, batch)
    view = padded.as_strided(shape, (client, channel, row, column, row, column, example))
    return view.reshape(clients, channels * side * side, height * width * batch)
