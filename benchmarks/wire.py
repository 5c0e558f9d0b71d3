"""float16 and int8 on the wire: how fast on one core, and what becomes of plain sampled averaging.

python benchmarks/wire.py speed
python benchmarks/wire.py digits 300 1 2 3      # task, rounds, seeds
python benchmarks/wire.py digits-by-writer 100 1 2 3 learning_rate=0.05
"""

from __future__ import annotations

import sys
import time
from random import Random

import numpy as np
import torch
from torch import nn

from plexus.learn.engines import create_engine
from plexus.learn.graph import LazyModels
from plexus.learn.layout import Layout, Packing
from plexus.learn.tasks import create_task
from plexus.learn.trainer import one_thread
from plexus.rng import array_stream
from plexus.runs.encoding import Wire

NODES = {"digits": 120, "digits-by-writer": 355, "movielens": 610, "movielens-biased": 610, "cifar10": 100}
WIRES: tuple[Wire, ...] = ("float32", "float16", "int8")


def speed(numbers: int = 4_000_000, repeats: int = 10) -> None:
    """Both ends of a transfer, to the bytes that are sent and back, in GB/s of float32."""
    layout = Layout.of(nn.Linear(numbers, 1, bias=False))
    vector = torch.from_numpy(array_stream(1, "values").standard_normal(numbers).astype(np.float32))
    for wire in WIRES[1:]:
        packing, taken_s = Packing(layout, wire), []
        with one_thread():
            for _ in range(repeats):
                began_s = time.process_time()
                packing.decode(packing.encode(vector, array_stream(1, "wire")))
                taken_s.append(time.process_time() - began_s)
        print(f"{wire}: encode and decode {4 * numbers / min(taken_s) / 1e9:.2f} GB/s on one core")


def learned(name: str, rounds: int, seed: int, wire: Wire, **keys: float) -> tuple[float, int]:
    """How good the model becomes, and its bytes."""
    task = create_task(name, NODES[name], seed, **keys)
    engine, _ = create_engine("auto", task)
    models, rng = LazyModels(task, engine, wire=wire), Random(seed)
    model = models.initial()
    for round in range(1, rounds + 1):
        chosen = rng.sample(range(task.nodes), 10)
        trained = [models.train(model, node, round) for node in chosen]
        model = models.mean(trained, [1] * len(trained))
        if round % 50 == 0:
            models.weights_hash(model)  # now and then, or a long chain is kept in memory
    value = models.evaluate(model).value
    models.close()
    return value, models.model_bytes


def accuracy(name: str, rounds: int, seeds: list[int], **keys: float) -> None:
    means, sizes = {}, {}
    for wire in WIRES:
        found = [learned(name, rounds, seed, wire, **keys) for seed in seeds]
        means[wire], sizes[wire] = float(np.mean([value for value, _ in found])), found[0][1]
        values = " ".join(f"{value:.4f}" for value, _ in found)
        fewer, points = sizes["float32"] / sizes[wire], 100 * (means[wire] - means["float32"])
        print(
            f"{name} {wire}: {sizes[wire]} bytes a model ({fewer:.3f} times fewer),"
            f" {means[wire]:.4f} ({values}), {points:+.2f} points",
            flush=True,
        )


if __name__ == "__main__":
    if sys.argv[1] == "speed":
        speed()
    else:
        seeds = [int(word) for word in sys.argv[3:] if "=" not in word]
        changes = dict(word.split("=") for word in sys.argv[3:] if "=" in word)
        keys = {key: float(value) for key, value in changes.items()}
        accuracy(sys.argv[1], int(sys.argv[2]), seeds, **keys)
