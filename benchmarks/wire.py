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

from plexus.learn.engines import create_engine
from plexus.learn.graph import LazyModels
from plexus.learn.tasks import create_task
from plexus.rng import array_stream
from plexus.runs.encoding import Wire, quantised, restored

NODES = {"digits": 120, "digits-by-writer": 355, "movielens": 610, "movielens-biased": 610, "cifar10": 100}
WIRES: tuple[Wire, ...] = ("float32", "float16", "int8")


def speed(numbers: int = 4_000_000, repeats: int = 10) -> None:
    values = array_stream(1, "values").standard_normal(numbers).astype(np.float32)
    taken_s = []
    for _ in range(repeats):
        began_s = time.process_time()
        restored(*quantised(values, array_stream(1, "wire")))
        taken_s.append(time.process_time() - began_s)
    print(f"int8: encode and decode {values.nbytes / min(taken_s) / 1e9:.2f} GB/s on one core")


def accuracy(name: str, rounds: int, seeds: list[int], **keys: float) -> None:
    for wire in WIRES:
        found = []
        for seed in seeds:
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
            found.append(models.evaluate(model).value)
            size = models.model_bytes
            models.close()
        values = " ".join(f"{value:.4f}" for value in found)
        print(f"{name} {wire}: {size} bytes a model, {np.mean(found):.4f} ({values})", flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "speed":
        speed()
    else:
        seeds = [int(word) for word in sys.argv[3:] if "=" not in word]
        changes = dict(word.split("=") for word in sys.argv[3:] if "=" in word)
        keys = {key: float(value) for key, value in changes.items()}
        accuracy(sys.argv[1], int(sys.argv[2]), seeds, **keys)
