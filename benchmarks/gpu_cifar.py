"""How fast can a GPU train many clients of GN-LeNet at once? Measures each way of doing it.

    PYTHONPATH=src python benchmarks/gpu_cifar.py --clients 100
    PYTHONPATH=src python benchmarks/gpu_cifar.py --data DIR --rounds 500 --variant 'hand tf32 graph'

The first prints a table of ms per client (one local training: five steps of SGD with momentum on
batches of 20) and the error of the weights' change against float64 on the CPU. The second learns
CIFAR-10 (DIR has the official binary batches) by plain sampled averaging and prints the accuracy.
Needs torch and numpy, and of Plexus only what trains.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from plexus.learn.engines import stacked_layers
from plexus.learn.engines.stacked import RecordedStack, Stack, build_step
from plexus.learn.images import CropFlipCutout, Normalised
from plexus.learn.layout import Layout
from plexus.learn.networks import gn_lenet

STEPS, BATCH, RATE, MOMENTUM = 5, 20, 0.002, 0.9
Train = Callable[[Tensor, Tensor, Tensor], Tensor]


def cifar_task() -> Any:
    """As much of the task as a stack needs."""
    return SimpleNamespace(
        name="cifar10",
        loss=functional.cross_entropy,
        optimiser=SimpleNamespace(learning_rate=RATE, momentum=MOMENTUM, weight_decay=0.0),
        local_steps=STEPS,
        batch=BATCH,
    )


# Ways to compute a convolution of stacked clients, put in place of stacked_layers' own.


class KeptPatches(torch.autograd.Function):
    """Keeps the patches for the backward pass instead of cutting them anew; `dtype` for products."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, dtype: torch.dtype) -> Tensor:
        cut = stacked_layers.patches(x.to(dtype), weight.shape[-1])
        ctx.save_for_backward(cut, weight)
        ctx.dtype = dtype
        return as_images(torch.bmm(weight.flatten(2).to(dtype), cut), x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, None]:
        cut, weight = ctx.saved_tensors
        narrow = gradient.to(ctx.dtype)
        by_weight = torch.bmm(stacked_layers.columns(narrow), cut.transpose(1, 2)).float()
        by_input = None
        if ctx.needs_input_grad[0]:
            flipped = weight.flip(3, 4).transpose(1, 2).to(ctx.dtype)
            again = stacked_layers.patches(narrow, weight.shape[-1])
            by_input = as_images(torch.bmm(flipped.flatten(2), again), gradient)
        return by_input, by_weight.view(weight.shape), None


def as_images(product: Tensor, like: Tensor) -> Tensor:
    clients, _, batch, height, width = like.shape
    return product.view(clients, -1, height, width, batch).permute(0, 1, 4, 2, 3).float()


def kept(dtype: torch.dtype, x: Tensor, weight: Tensor) -> Tensor:
    return KeptPatches.apply(x, weight, dtype)


def grouped(dtype: torch.dtype, channels_last: bool, x: Tensor, weight: Tensor) -> Tensor:
    """cuDNN's grouped convolution, one group a client."""
    clients, channels, batch, height, width = x.shape
    merged = x.permute(2, 0, 1, 3, 4).reshape(batch, clients * channels, height, width).to(dtype)
    if channels_last:
        merged = merged.contiguous(memory_format=torch.channels_last)
    filters = weight.flatten(0, 1).to(dtype)
    out = functional.conv2d(merged, filters, padding=weight.shape[-1] // 2, groups=clients).float()
    return out.view(batch, clients, -1, height, width).permute(1, 2, 0, 3, 4)


@contextlib.contextmanager
def convolution_as(replacement: Callable[[Tensor, Tensor], Tensor] | None) -> Iterator[None]:
    own = stacked_layers.convolution
    if replacement is not None:
        stacked_layers.convolution = replacement
    try:
        yield
    finally:
        stacked_layers.convolution = own


class Variant:
    """One way to train: which forward pass, which precision, and how it is launched."""

    def __init__(
        self,
        name: str,
        launch: str,
        *,
        by_hand: bool = True,
        tf32: bool = False,
        convolution: Callable[[Tensor, Tensor], Tensor] | None = None,
        compiled: str | None = None,
        clients: int | None = None,
    ) -> None:
        self.name, self.launch, self.by_hand, self.tf32 = name, launch, by_hand, tf32
        self.convolution, self.compiled, self.clients = convolution, compiled, clients

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        torch.backends.cuda.matmul.allow_tf32 = self.tf32
        torch.backends.cudnn.allow_tf32 = self.tf32
        torch.backends.cudnn.benchmark = True
        with convolution_as(self.convolution):
            yield

    def build(self, device: torch.device) -> Train:
        module = gn_lenet().to(device).train()
        layout = Layout.of(module)
        stack = Stack(cifar_task(), layout, module, self.by_hand)
        if self.compiled is not None:
            step = build_step(cifar_task(), module, self.by_hand)
            stack._step = compiled_step(step, self.compiled)
        elif self.launch == "eager":
            stack._step = build_step(cifar_task(), module, self.by_hand)
        if self.launch == "graph" and device.type == "cuda":
            return RecordedStack(stack).train
        return stack.train


def compiled_step(step: Any, mode: str) -> Any:
    """The step through make_fx, then inductor: compiles forward and backward as one."""
    from torch.fx.experimental.proxy_tensor import make_fx

    state: dict[str, Any] = {}

    def run(*arguments: Any) -> Any:
        if "compiled" not in state:
            recorded = make_fx(step)(*arguments)
            options = {"mode": mode} if mode != "default" else {}
            state["compiled"] = torch.compile(recorded, fullgraph=True, dynamic=False, **options)
        return state["compiled"](*arguments)

    return run


BF16, F32 = torch.bfloat16, torch.float32
KEPT32, KEPT16 = partial(kept, F32), partial(kept, BF16)
AUTOTUNED = "max-autotune-no-cudagraphs"
VARIANTS = [  # the most promising first, the slowest to compile last
    Variant("hand f32 graph", "graph"),
    Variant("hand tf32 graph", "graph", tf32=True),
    Variant("hand f32 graph kept", "graph", convolution=KEPT32),
    Variant("hand tf32 graph kept", "graph", tf32=True, convolution=KEPT32),
    Variant("hand bf16 graph kept", "graph", tf32=True, convolution=KEPT16),
    Variant("vmap f32 eager", "eager", by_hand=False),
    Variant("vmap f32 graph", "graph", by_hand=False),
    Variant("vmap tf32 graph", "graph", by_hand=False, tf32=True),
    Variant("hand f32 eager", "eager"),
    Variant("hand tf32 eager", "eager", tf32=True),
    Variant("grouped tf32 graph", "graph", tf32=True, convolution=partial(grouped, F32, False)),
    Variant("grouped bf16 graph", "graph", tf32=True, convolution=partial(grouped, BF16, False)),
    Variant("grouped bf16 last graph", "graph", tf32=True, convolution=partial(grouped, BF16, True)),
    Variant("hand f32 compiled", "graph", compiled="default"),
    Variant("hand tf32 compiled", "graph", tf32=True, compiled="default"),
    Variant("hand tf32 compiled kept", "graph", tf32=True, compiled="default", convolution=KEPT32),
    Variant("hand bf16 compiled kept", "graph", tf32=True, compiled="default", convolution=KEPT16),
    Variant("hand tf32 autotuned", "graph", tf32=True, compiled=AUTOTUNED),
    Variant("hand tf32 autotuned kept", "graph", tf32=True, compiled=AUTOTUNED, convolution=KEPT32),
    Variant("hand bf16 autotuned kept", "graph", tf32=True, compiled=AUTOTUNED, convolution=KEPT16),
]


def random_problem(clients: int, device: torch.device, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Different weights for every client, random images and labels."""
    torch.manual_seed(seed)
    layout = Layout.of(gn_lenet())
    bases = torch.stack([layout.vector_of(gn_lenet()) for _ in range(clients)])
    inputs = torch.randn(STEPS, clients, BATCH, 3, 32, 32)
    targets = torch.randint(0, 10, (STEPS, clients, BATCH))
    return bases.to(device), inputs.to(device), targets.to(device)


def bare_loop(bases: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
    """What a user would write: client after client, an optimiser each."""
    module = gn_lenet().to(bases.device, bases.dtype)
    layout = Layout.of(module)
    rows = []
    for client, base in enumerate(bases):
        module.load_state_dict(layout.tensors(base))
        sgd = torch.optim.SGD(module.parameters(), lr=RATE, momentum=MOMENTUM)
        for step in range(STEPS):
            sgd.zero_grad()
            functional.cross_entropy(module(inputs[step, client]), targets[step, client]).backward()
            sgd.step()
        rows.append(layout.vector_of(module))
    return torch.stack(rows)


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def timed(run: Callable[[], object], device: torch.device, repeats: int) -> list[float]:
    """Seconds of each repeat, after two to warm up."""
    seconds = []
    for repeat in range(repeats + 2):
        synchronise(device)
        start = time.perf_counter()
        run()
        synchronise(device)
        if repeat >= 2:
            seconds.append(time.perf_counter() - start)
    return seconds


def relative_error(train: Train, clients: int, device: torch.device) -> float:
    """How far the weights' change is from float64 on the CPU, for the first two clients."""
    bases, inputs, targets = random_problem(clients, device, seed=12)
    got = (train(bases, inputs, targets) - bases)[:2].double().cpu()
    exact_bases = bases[:2].double().cpu()
    exact = bare_loop(exact_bases, inputs[:, :2].double().cpu(), targets[:, :2].cpu()) - exact_bases
    return float((got - exact).norm() / exact.norm())


def measure(variant: Variant, clients: int, device: torch.device, repeats: int) -> dict[str, Any]:
    """One row of the table."""
    row: dict[str, Any] = {"variant": variant.name, "clients": clients}
    try:
        with variant.active():
            start = time.perf_counter()
            train = variant.build(device)
            problem = random_problem(clients, device, seed=1)
            train(*problem)
            synchronise(device)
            row["setup_s"] = round(time.perf_counter() - start, 2)
            seconds = timed(lambda: train(*problem), device, repeats)
            row["ms_per_client"] = round(1000 * statistics.median(seconds) / clients, 4)
            row["spread"] = round((max(seconds) - min(seconds)) / statistics.median(seconds), 3)
            row["relative_error"] = relative_error(train, clients, device)
    except Exception as error:  # one variant that fails must not hide the others
        row["failed"] = f"{type(error).__name__}: {str(error).splitlines()[0][:150]}"
    if device.type == "cuda":
        row["peak_gb"] = round(torch.cuda.max_memory_allocated() / 1e9, 2)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    return row


def bench(arguments: argparse.Namespace, device: torch.device) -> None:
    problem = random_problem(8, device, seed=1)
    loop = statistics.median(timed(lambda: bare_loop(*problem), device, 3)) / 8 * 1000
    print(f"bare loop: {loop:.3f} ms per client", flush=True)
    rows = []
    started = time.perf_counter()
    for variant in VARIANTS:
        if arguments.variant and arguments.variant not in variant.name:
            continue
        if time.perf_counter() - started > arguments.most_s:
            print(f"no time left for {variant.name}", flush=True)
            continue
        for clients in arguments.clients:
            torch._dynamo.reset()
            rows.append(measure(variant, clients, device, arguments.repeats))
            print(json.dumps(rows[-1]), flush=True)
    print(f"\n{'variant':28}{'clients':>8}{'ms/client':>11}{'error':>10}{'set-up s':>10}")
    for row in sorted(rows, key=lambda row: row.get("ms_per_client", 1e9)):
        if "failed" in row:
            print(f"{row['variant']:28}{row['clients']:>8}  failed: {row['failed']}")
        else:
            print(
                f"{row['variant']:28}{row['clients']:>8}{row['ms_per_client']:>11.4f}"
                f"{row['relative_error']:>10.1e}{row['setup_s']:>10.1f}"
            )


def read_batches(folder: Path, names: list[str]) -> tuple[Tensor, Tensor]:
    records = np.concatenate([np.fromfile(folder / name, np.uint8).reshape(-1, 3073) for name in names])
    images = torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32).copy())
    return images, torch.from_numpy(records[:, 0].astype(np.int64))


def learn(arguments: argparse.Namespace, device: torch.device) -> None:
    """Plain sampled averaging, 1000 nodes of 50 images, 10 a round."""
    folder, sample = Path(arguments.data), 10
    train_x, train_y = (
        t.to(device) for t in read_batches(folder, [f"data_batch_{i}.bin" for i in range(1, 6)])
    )
    test_x, test_y = (t.to(device) for t in read_batches(folder, ["test_batch.bin"]))
    prepare, augment = (Normalised((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)), CropFlipCutout())
    rng = np.random.default_rng(1)
    parts = rng.permutation(50_000).reshape(1000, 50)
    variant = next(v for v in VARIANTS if v.name == (arguments.variant or "hand tf32 graph"))
    module = gn_lenet().to(device)
    layout = Layout.of(module)
    model = layout.vector_of(module)
    with variant.active():
        train = variant.build(device)
        start = time.perf_counter()
        for round in range(1, arguments.rounds + 1):
            rows = [
                np.concatenate([rng.permutation(own), rng.permutation(own)]).reshape(STEPS, BATCH)
                for own in parts[rng.choice(1000, sample, replace=False)]
            ]
            index = torch.from_numpy(np.stack(rows, axis=1).reshape(-1)).to(device)
            drawn = torch.from_numpy(augment.draw(rng, len(index))).to(device)
            x = augment.apply(prepare(train_x[index]), drawn).view(STEPS, sample, BATCH, 3, 32, 32)
            y = train_y[index].view(STEPS, sample, BATCH)
            model = train(model.expand(sample, -1), x, y).mean(dim=0)
            if round % arguments.every == 0 or round == arguments.rounds:
                module.load_state_dict(layout.tensors(model))
                with torch.no_grad():
                    right = sum(
                        int((module(prepare(x)).argmax(1) == y).sum())
                        for x, y in zip(test_x.split(1000), test_y.split(1000), strict=True)
                    )
                seconds = time.perf_counter() - start
                print(f"round {round}: {right / len(test_y):.4f} after {seconds:.1f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, nargs="+", default=[100])
    parser.add_argument("--variant", help="only variants whose name has this in it")
    parser.add_argument("--most-s", type=float, default=420, help="start no variant after this")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--data", help="folder of CIFAR-10's binary batches: learn instead of measuring")
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--every", type=int, default=100)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    if device.type == "cuda":
        print(torch.cuda.get_device_name(), torch.__version__, sys.version.split()[0], flush=True)
    else:
        torch.set_num_threads(1)
    (learn if arguments.data else bench)(arguments, device)


if __name__ == "__main__":
    main()
