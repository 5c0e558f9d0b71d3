"""What a head of its own is worth to a writer: digits by writer, measured on what each writer holds back.

A common model is learned first. Then it goes on for as many rounds with a common head, or with a head that
stays with each writer and starts from the common one.

    python benchmarks/personal_head.py 60 150 60 1       # writers, rounds together, rounds after, seed
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from random import Random

from plexus.learn.engines import create_engine
from plexus.learn.expressions import Expression
from plexus.learn.graph import LazyModels
from plexus.learn.optimiser import Sgd
from plexus.learn.saved import save_model
from plexus.learn.task import Task, hold_out
from plexus.learn.tasks import create_task

HEAD = "9.*"
"""The last layer of the network for FEMNIST."""


def learned(task: Task, rounds: int, first: int) -> tuple[LazyModels, Expression]:
    engine, _ = create_engine("auto", task)
    models, rng = LazyModels(task, engine), Random(task.seed + first)
    model = models.initial()
    for round in range(first, first + rounds):
        trained = [models.train(model, node, round) for node in rng.sample(range(task.nodes), 10)]
        model = models.mean(trained, [1] * len(trained))
        if round % 10 == 0:
            models.weights_hash(model)
    return models, model


def main(writers: int, together: int, after: int, seed: int) -> None:
    task = hold_out(create_task("digits-by-writer", writers, seed, test_examples=1000), 0.25)
    task = replace(task, optimiser=Sgd(0.05))
    nodes = range(writers)
    with tempfile.TemporaryDirectory() as folder:
        models, model = learned(task, together, 1)
        common = Path(folder) / "common.safetensors"
        save_model(common, models.weights(model), {})
        start = models.evaluate_own([(model, node) for node in nodes])
        print(f"together, {together} rounds: {start.value:.4f} on own data", flush=True)
        models.close()
        for name, local in (("a common head", ()), ("a head of its own", (HEAD,))):
            models, model = learned(replace(task, initial=common, local=local), after, together + 1)
            found = models.evaluate_own([(model, node) for node in nodes])
            spread = ", ".join(f"{key} {value:.4f}" for key, value in found.others.items())
            print(f"{name}, {after} rounds more: {found.value:.4f} on own data ({spread})", flush=True)
            models.close()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
