"""Networks that are gone through for many clients at once without `vmap`: perceptrons here, by hand, and on a
GPU those whose layers `kernels` knows. Convolutions on a CPU are faster through `vmap` than any of ours were.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

Forward = Callable[[Mapping[str, Tensor], Tensor], Tensor]
"""(stacked tensors by name, inputs: clients x batch x …) -> outputs: clients x batch x …"""


def forward_of(module: nn.Module) -> Forward | None:
    """The stacked forward pass of a perceptron, or None if `module` is anything else."""
    dense = (nn.Linear, nn.ReLU, nn.Flatten)
    layers = list(module.named_children())
    in_sequence = type(module).forward is nn.Sequential.forward
    if not in_sequence or not all(type(each) in dense and is_known(each) for _, each in layers):
        return None

    def forward(tensors: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        x = inputs
        for name, layer in layers:
            if isinstance(layer, nn.Linear):
                weight, bias = tensors[f"{name}.weight"], tensors[f"{name}.bias"]
                x = torch.baddbmm(bias.unsqueeze(1), x, weight.transpose(1, 2))
            else:
                x = torch.relu(x) if isinstance(layer, nn.ReLU) else x.flatten(2)
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
