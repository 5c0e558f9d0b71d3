"""Layers over stacked clients on a GPU, where every client has weights of its own: kernels in Triton.

Activations have the shape clients x batch x height x width x channels, filters clients x (row, column, input)
x output. A convolution is then a matrix product whose patches are never written down: forward, by its input
and by its filters. Pooling and normalisation take a ReLU along that follows them. Nothing is added in an
order that differs from run to run.

Only what the networks of the paper have; `torch.func.vmap` does the rest, and is what this is tested against.
"""

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"
# ruff: noqa: N803, N806 (what is known when a kernel is compiled is written in capitals)

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from plexus.learn.engines import Precision
from plexus.learn.engines.stacked import Forward, layers_in

PIXELS, BY_WEIGHT_PIXELS, BY_WEIGHT_ROWS = 128, 64, 64
"""What one program of a convolution computes, or adds up at a time."""
FEWEST_CHANNELS = 16
"""Of a matrix product's inner side; with fewer channels several taps are taken together."""
LARGEST_GROUP = 1 << 14
"""Numbers that one program normalises."""
ELEMENTS = 1024


@triton.jit
def _conv(
    x, w, b, y,
    B: tl.constexpr, H: tl.constexpr, W: tl.constexpr, CI: tl.constexpr, CO: tl.constexpr, S: tl.constexpr,
    BM: tl.constexpr, BIAS: tl.constexpr, FLIP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """y = x * w (+ b) for BM pixels of one client; flipped, the gradient by the input."""
    g = tl.program_id(1).to(tl.int64)
    M: tl.constexpr = B * H * W
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n, r = m // (H * W), m % (H * W)
    h, c = r // W, r % W
    ci, co = tl.arange(0, CI), tl.arange(0, CO)
    x += g * M * CI
    y += g * M * CO
    w += g * S * S * CI * CO
    acc = tl.zeros((BM, CO), tl.float32)
    for t in range(S * S):
        hh, cc = h + t // S - S // 2, c + t % S - S // 2
        there = (m < M) & (hh >= 0) & (hh < H) & (cc >= 0) & (cc < W)
        a = tl.load(x + ((n * H + hh) * W + cc)[:, None] * CI + ci[None, :], mask=there[:, None], other=0.0)
        if FLIP:
            f = tl.load(w + (S * S - 1 - t) * CI * CO + co[None, :] * CI + ci[:, None])
        else:
            f = tl.load(w + t * CI * CO + ci[:, None] * CO + co[None, :])
        acc = tl.dot(a, f.to(a.dtype), acc, input_precision=PRECISION)
    if BIAS:
        acc += tl.load(b + g * CO + co)[None, :]
    tl.store(y + m[:, None] * CO + co[None, :], acc.to(y.dtype.element_ty), mask=(m < M)[:, None])


@triton.jit
def _conv_few(
    x, w, b, y,
    B: tl.constexpr, H: tl.constexpr, W: tl.constexpr, CI: tl.constexpr, CO: tl.constexpr, S: tl.constexpr,
    BM: tl.constexpr, BIAS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """As `_conv`, of a few channels: taps and channels are one axis."""
    g = tl.program_id(1).to(tl.int64)
    M: tl.constexpr = B * H * W
    K: tl.constexpr = S * S * CI
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n, r = m // (H * W), m % (H * W)
    h, c = r // W, r % W
    co = tl.arange(0, CO)
    x += g * M * CI
    y += g * M * CO
    w += g * K * CO
    acc = tl.zeros((BM, CO), tl.float32)
    for first in range(0, K, 16):
        k = first + tl.arange(0, 16)
        t, channel = k // CI, k % CI
        hh, cc = h[:, None] + (t // S - S // 2)[None, :], c[:, None] + (t % S - S // 2)[None, :]
        there = (m < M)[:, None] & (k < K)[None, :] & (hh >= 0) & (hh < H) & (cc >= 0) & (cc < W)
        a = tl.load(x + ((n[:, None] * H + hh) * W + cc) * CI + channel[None, :], mask=there, other=0.0)
        f = tl.load(w + k[:, None] * CO + co[None, :], mask=(k < K)[:, None], other=0.0)
        acc = tl.dot(a, f.to(a.dtype), acc, input_precision=PRECISION)
    if BIAS:
        acc += tl.load(b + g * CO + co)[None, :]
    tl.store(y + m[:, None] * CO + co[None, :], acc.to(y.dtype.element_ty), mask=(m < M)[:, None])


@triton.jit
def _conv_by_weight(
    x, dy, dw,
    B: tl.constexpr, H: tl.constexpr, W: tl.constexpr, CI: tl.constexpr, CO: tl.constexpr, S: tl.constexpr,
    ROWS: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dw[split, client, (tap, input), output] of a share of the pixels."""
    g, split = tl.program_id(1).to(tl.int64), tl.program_id(2)
    M: tl.constexpr = B * H * W
    K: tl.constexpr = S * S * CI
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    t = row // CI
    dh, dc = t // S - S // 2, t % S - S // 2
    shift = (dh * W + dc) * CI + row % CI
    co = tl.arange(0, CO)
    x += g * M * CI
    dy += g * M * CO
    dw += (split * tl.num_programs(1) + g) * K * CO
    acc = tl.zeros((ROWS, CO), tl.float32)
    SHARE: tl.constexpr = (M + BK * SPLIT - 1) // (BK * SPLIT)
    for i in range(SHARE):
        m = (split * SHARE + i) * BK + tl.arange(0, BK)
        r = m % (H * W)
        hh, cc = (r // W)[:, None] + dh[None, :], (r % W)[:, None] + dc[None, :]
        there = (m < M)[:, None] & (row < K)[None, :] & (hh >= 0) & (hh < H) & (cc >= 0) & (cc < W)
        a = tl.load(x + m[:, None] * CI + shift[None, :], mask=there, other=0.0)
        d = tl.load(dy + m[:, None] * CO + co[None, :], mask=(m < M)[:, None], other=0.0)
        acc = tl.dot(tl.trans(a), d, acc, input_precision=PRECISION)
    tl.store(dw + row[:, None] * CO + co[None, :], acc, mask=(row < K)[:, None])


@triton.jit
def _pool(
    x, y, best, total,
    H: tl.constexpr, W: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr, C: tl.constexpr,
    SIDE: tl.constexpr, STRIDE: tl.constexpr, RELU: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The largest of each window and where it was, or that it was cut off by the ReLU."""
    o = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    c, p = o % C, o // C
    col, row, image = p % OW, p // OW % OH, p // (OW * OH)
    start = ((image * H + row * STRIDE) * W + col * STRIDE) * C + c
    largest = tl.full((BLOCK,), float("-inf"), tl.float32)
    at = tl.zeros((BLOCK,), tl.int32)
    for t in tl.static_range(SIDE * SIDE):
        v = tl.load(x + start + (t // SIDE * W + t % SIDE) * C, mask=o < total, other=0.0).to(tl.float32)
        newer = v > largest
        largest = tl.where(newer, v, largest)
        at = tl.where(newer, t, at)
    if RELU:
        at = tl.where(largest > 0, at, SIDE * SIDE)
        largest = tl.maximum(largest, 0.0)
    tl.store(y + o, largest.to(y.dtype.element_ty), mask=o < total)
    tl.store(best + o, at.to(tl.uint8), mask=o < total)


@triton.jit
def _pool_by_input(
    dy, best, dx, total,
    H: tl.constexpr, W: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr, C: tl.constexpr,
    SIDE: tl.constexpr, STRIDE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Each pixel collects from the windows in which it was the largest."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    c, p = i % C, i // C
    col, row, image = p % W, p // W % H, p // (W * H)
    acc = tl.zeros((BLOCK,), tl.float32)
    for t in tl.static_range(SIDE * SIDE):
        top, left = row - t // SIDE, col - t % SIDE
        orow, ocol = top // STRIDE, left // STRIDE
        there = (i < total) & (top >= 0) & (left >= 0) & (top % STRIDE == 0) & (left % STRIDE == 0)
        there = there & (orow < OH) & (ocol < OW)
        o = ((image * OH + orow) * OW + ocol) * C + c
        chosen = tl.load(best + o, mask=there, other=255) == t
        acc += tl.load(dy + o, mask=there & chosen, other=0.0).to(tl.float32)
    tl.store(dx + i, acc.to(dx.dtype.element_ty), mask=i < total)


@triton.jit
def _norm(
    x, w, b, y, mean, rstd, eps,
    B: tl.constexpr, P: tl.constexpr, C: tl.constexpr, GROUPS: tl.constexpr,
    BP: tl.constexpr, BC: tl.constexpr, RELU: tl.constexpr,
):  # fmt: skip
    """One group of one example: P pixels of C // GROUPS channels."""
    each = tl.program_id(0).to(tl.int64)
    example, group = each // GROUPS, each % GROUPS
    SIZE: tl.constexpr = C // GROUPS
    p, c = tl.arange(0, BP), tl.arange(0, BC)
    there = (p < P)[:, None] & (c < SIZE)[None, :]
    place = (example * P + p)[:, None] * C + (group * SIZE + c)[None, :]
    v = tl.load(x + place, mask=there, other=0.0).to(tl.float32)
    m = tl.sum(v) / (P * SIZE)
    away = tl.where(there, v - m, 0.0)
    r = 1 / tl.sqrt(tl.sum(away * away) / (P * SIZE) + eps)
    own = example // B * C + group * SIZE + c
    scale = tl.load(w + own, mask=c < SIZE, other=0.0)
    shift = tl.load(b + own, mask=c < SIZE, other=0.0)
    out = away * r * scale[None, :] + shift[None, :]
    if RELU:
        out = tl.maximum(out, 0.0)
    tl.store(y + place, out.to(y.dtype.element_ty), mask=there)
    tl.store(mean + each, m)
    tl.store(rstd + each, r)


@triton.jit
def _norm_by_input(
    x, w, b, dy, mean, rstd, dx, dw, db,
    B: tl.constexpr, P: tl.constexpr, C: tl.constexpr, GROUPS: tl.constexpr,
    BP: tl.constexpr, BC: tl.constexpr, RELU: tl.constexpr,
):  # fmt: skip
    """As `_norm`; `dw` and `db` are of each example."""
    each = tl.program_id(0).to(tl.int64)
    example, group = each // GROUPS, each % GROUPS
    SIZE: tl.constexpr = C // GROUPS
    p, c = tl.arange(0, BP), tl.arange(0, BC)
    there = (p < P)[:, None] & (c < SIZE)[None, :]
    place = (example * P + p)[:, None] * C + (group * SIZE + c)[None, :]
    own = example // B * C + group * SIZE + c
    scale = tl.load(w + own, mask=c < SIZE, other=0.0)
    r = tl.load(rstd + each)
    normal = (tl.load(x + place, mask=there, other=0.0).to(tl.float32) - tl.load(mean + each)) * r
    normal = tl.where(there, normal, 0.0)
    d = tl.load(dy + place, mask=there, other=0.0).to(tl.float32)
    if RELU:
        shift = tl.load(b + own, mask=c < SIZE, other=0.0)
        d = tl.where(normal * scale[None, :] + shift[None, :] > 0, d, 0.0)
    tl.store(dw + example * C + group * SIZE + c, tl.sum(d * normal, axis=0), mask=c < SIZE)
    tl.store(db + example * C + group * SIZE + c, tl.sum(d, axis=0), mask=c < SIZE)
    d *= scale[None, :]
    out = (d - tl.sum(d) / (P * SIZE) - normal * (tl.sum(d * normal) / (P * SIZE))) * r
    tl.store(dx + place, out.to(dx.dtype.element_ty), mask=there)


class Convolution(torch.autograd.Function):
    """Odd square filters that keep the size."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, side: int, precision: str) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.side, ctx.precision = side, precision
        clients, batch, height, width, inputs = x.shape
        y = x.new_empty(clients, batch, height, width, weight.shape[-1])
        shape = (batch, height, width, inputs, weight.shape[-1], side, PIXELS, True)
        grid = (triton.cdiv(batch * height * width, PIXELS), clients)
        if inputs < FEWEST_CHANNELS:
            _conv_few[grid](x, weight, bias, y, *shape, precision)
        else:
            _conv[grid](x, weight, bias, y, *shape, False, precision)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        dy = gradients[0].contiguous()
        clients, batch, height, width, inputs = x.shape
        pixels, outputs, side = batch * height * width, weight.shape[-1], ctx.side
        dx = None
        if ctx.needs_input_grad[0]:
            dx = torch.empty_like(x)
            shape = (batch, height, width, outputs, inputs, side, PIXELS, False, True, ctx.precision)
            _conv[triton.cdiv(pixels, PIXELS), clients](dy, weight, weight, dx, *shape)
        rows = side * side * inputs
        split = by_weight_split(pixels, rows, clients)
        dw = weight.new_empty(split, clients, rows, outputs)
        blocks = (BY_WEIGHT_ROWS, BY_WEIGHT_PIXELS, split, ctx.precision)
        grid = (triton.cdiv(rows, BY_WEIGHT_ROWS), clients, split)
        _conv_by_weight[grid](x, dy, dw, batch, height, width, inputs, outputs, side, *blocks)
        return dx, dw.sum(0), dy.sum((1, 2, 3), dtype=torch.float32), None, None


def by_weight_split(pixels: int, rows: int, clients: int) -> int:
    """Into how many parts the pixels are split: enough programs for the GPU, each with some work."""
    programs = clients * -(-rows // BY_WEIGHT_ROWS)
    return max(1, min(1056 // programs, pixels // (4 * BY_WEIGHT_PIXELS), 32))


class MaxPool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, side: int, stride: int, relu: bool) -> Tensor:
        clients, batch, height, width, channels = x.shape
        rows, columns = ((size - side) // stride + 1 for size in (height, width))
        y = x.new_empty(clients, batch, rows, columns, channels)
        best = torch.empty(y.shape, dtype=torch.uint8, device=x.device)
        ctx.save_for_backward(best)
        ctx.size, ctx.shape = x.shape, (height, width, rows, columns, channels, side, stride)
        _pool[(triton.cdiv(y.numel(), ELEMENTS),)](x, y, best, y.numel(), *ctx.shape, relu, ELEMENTS)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (best,) = ctx.saved_tensors
        dy = gradients[0].contiguous()
        dx = dy.new_empty(ctx.size)
        grid = (triton.cdiv(dx.numel(), ELEMENTS),)
        _pool_by_input[grid](dy, best, dx, dx.numel(), *ctx.shape, ELEMENTS)
        return dx, None, None, None


class GroupNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, groups: int, eps: float, relu: bool
    ) -> Tensor:
        clients, batch, height, width, channels = x.shape
        pixels = height * width
        y = torch.empty_like(x)
        mean, rstd = torch.empty(2, clients * batch * groups, device=x.device)
        blocks = triton.next_power_of_2(pixels), triton.next_power_of_2(channels // groups)
        ctx.shape = (batch, pixels, channels, groups, *blocks, relu)
        ctx.save_for_backward(x, weight, bias, mean, rstd)
        _norm[(len(mean),)](x, weight, bias, y, mean, rstd, eps, *ctx.shape, num_warps=8)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, mean, rstd = ctx.saved_tensors
        dx = torch.empty_like(x)
        dw, db = torch.empty(2, *x.shape[:2], x.shape[-1], device=x.device)
        arguments = (x, weight, bias, gradients[0].contiguous(), mean, rstd, dx, dw, db)
        _norm_by_input[(len(mean),)](*arguments, *ctx.shape, num_warps=8)
        return dx, dw.sum(1), db.sum(1), None, None, None


class Fused(NamedTuple):
    """A layer, and whether a ReLU that follows is done with it."""

    name: str
    module: nn.Module
    has_relu: bool


def layers_of(module: nn.Module, image: tuple[int, ...]) -> list[Fused] | None:
    """The layers of a network, or None if there is anything in it that is not known here."""
    if type(module) is not nn.Sequential or len(image) != 3:
        return None
    layers: list[Fused] = []
    height, width = image[1:]
    for name, layer in layers_in(module):
        before = layers[-1] if layers else None
        if isinstance(layer, nn.ReLU) and before and isinstance(before.module, nn.MaxPool2d | nn.GroupNorm):
            layers[-1] = before._replace(has_relu=True)
            continue
        if isinstance(layer, nn.Conv2d):
            few, out = layer.in_channels, layer.out_channels
            powers = [n for n in (few, out) if n >= FEWEST_CHANNELS or n == out]
            if any(n < FEWEST_CHANNELS or n > 128 or n & (n - 1) for n in powers):
                return None
            if few < FEWEST_CHANNELS and before is not None:
                return None  # nobody asks for its gradient by the input
        elif isinstance(layer, nn.MaxPool2d):
            whole = (layer.padding, layer.dilation, layer.ceil_mode) == (0, 1, False)
            if not (whole and isinstance(layer.kernel_size, int) and isinstance(layer.stride, int)):
                return None
            height, width = ((size - layer.kernel_size) // layer.stride + 1 for size in (height, width))
        elif isinstance(layer, nn.GroupNorm):
            group = height * width * layer.num_channels // layer.num_groups
            if group > LARGEST_GROUP:
                return None
        layers.append(Fused(name, layer, False))
    return layers if any(isinstance(layer.module, nn.Conv2d) for layer in layers) else None


def forward_of(layers: list[Fused], precision: Precision) -> Forward:
    """The stacked forward pass; filters as `arranged`."""
    product = "ieee" if precision == "float32" else "tf32"
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32

    def forward(tensors: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        x = inputs.permute(0, 1, 3, 4, 2).to(dtype).contiguous()
        for name, layer, has_relu in layers:
            weight, bias = (tensors.get(f"{name}.{kind}", x) for kind in ("weight", "bias"))
            if isinstance(layer, nn.Conv2d):
                x = Convolution.apply(x, weight, bias, layer.kernel_size[0], product)
            elif isinstance(layer, nn.MaxPool2d):
                x = MaxPool.apply(x, layer.kernel_size, layer.stride, has_relu)
            elif isinstance(layer, nn.GroupNorm):
                x = GroupNorm.apply(x, weight, bias, layer.num_groups, layer.eps, has_relu)
            elif isinstance(layer, nn.Flatten):
                x = x.permute(0, 1, 4, 2, 3).flatten(2).float()
            elif isinstance(layer, nn.Linear):
                x = torch.baddbmm(bias.unsqueeze(1), x, weight.transpose(1, 2))
            else:
                x = torch.relu(x)
        return x

    return forward


def arranged(layers: list[Fused], tensors: dict[str, Tensor], back: bool = False) -> dict[str, Tensor]:
    """The tensors with filters as kernels want them, or as the module has them."""
    made = dict(tensors)
    for name, layer, _ in layers:
        if isinstance(layer, nn.Conv2d) and f"{name}.weight" in made:
            filters = made[f"{name}.weight"]
            if back:
                side, inputs = layer.kernel_size[0], layer.in_channels
                filters = filters.view(len(filters), side, side, inputs, -1).permute(0, 4, 3, 1, 2)
            else:
                filters = filters.permute(0, 3, 4, 2, 1).flatten(1, 3)
            made[f"{name}.weight"] = filters.contiguous()
    return made
