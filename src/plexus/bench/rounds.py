"""What rounds of learning cost with all that is set up, beside a bare PyTorch loop that is set up already."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import torch
from msgspec import Struct
from torch import Tensor, nn

from plexus.learn.task import Task
from plexus.learn.tasks import create_task
from plexus.learn.trainer import DeviceData, one_thread

Weights = dict[str, Tensor]


class RoundsBench(Struct, frozen=True):
    """What `plexus bench rounds` found: CPU time of all rounds together, a median over repeats."""

    task: str
    engine: str
    reason: str
    """Why this engine."""
    clients: int
    rounds: int
    cpu_s: float
    bare_loop_cpu_s: float
    ratio_to_bare_loop: float
    """Below 1 is less than the loop; a median of its own."""


def bench_rounds(task: str, engine: str, clients: int, rounds: int, repeats: int, seed: int) -> RoundsBench:
    """Let the loop and the engine do the same trainings and means in turn, each in a process of its own."""
    ours, loop, chosen = list[float](), list[float](), list[str]()
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as processes:
        for _ in range(repeats):
            loop.append(processes.submit(_bare_loop, task, clients, rounds, seed).result())
            cpu_s, *chosen = processes.submit(_by_engine, task, engine, clients, rounds, seed).result()
            ours.append(cpu_s)
    ratio = statistics.median(mine / bare for mine, bare in zip(ours, loop, strict=True))
    return RoundsBench(
        task, chosen[0], chosen[1], clients, rounds, statistics.median(ours), statistics.median(loop), ratio
    )


def _by_engine(name: str, engine_name: str, clients: int, rounds: int, seed: int) -> tuple[float, str, str]:
    task = create_task(name, clients, seed)
    began_s = time.process_time()
    # Imported here: what an engine needs is part of its price.
    from plexus.learn.engines import create_engine
    from plexus.learn.graph import LazyModels

    engine, chosen = create_engine(engine_name, task, expected=clients * rounds)
    models = LazyModels(task, engine)
    model = models.initial()
    for round in range(1, rounds + 1):
        model = models.mean([models.train(model, node, round) for node in range(clients)], [1] * clients)
    models.weights(model)
    models.close()
    return time.process_time() - began_s + engine.workers_cpu_s, chosen.name, chosen.reason


def _bare_loop(name: str, clients: int, rounds: int, seed: int) -> float:
    task = create_task(name, clients, seed)
    module = task.initial_model()
    weights = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    train = bare_training(task, module, torch.device("cpu"))
    train(weights, 0, 1)  # what torch imports at the first step is not held against anybody's loop
    began_s = time.process_time()
    with one_thread():
        for round in range(1, rounds + 1):
            totals = {name: torch.zeros_like(tensor) for name, tensor in weights.items()}
            for node in range(clients):
                train(weights, node, round)
                for name, tensor in module.state_dict().items():
                    totals[name] += tensor
            weights = {name: total / clients for name, total in totals.items()}
    return time.process_time() - began_s


def bare_training(task: Task, module: nn.Module, device: torch.device) -> Callable[[Weights, int, int], None]:
    """What one would write without Plexus: client after client, each with an optimiser object."""
    data, sgd = DeviceData(task, device), task.optimiser
    assert sgd is not None, "a task that comes with Plexus"

    def train(weights: Weights, node: int, round: int) -> None:
        module.load_state_dict(weights)
        optimiser = torch.optim.SGD(
            module.parameters(), sgd.learning_rate, sgd.momentum, weight_decay=sgd.weight_decay
        )
        for inputs, targets in data.batches(task.draw(node, round)):
            optimiser.zero_grad()
            task.loss(module(inputs), targets).backward()  # type: ignore[no-untyped-call]
            optimiser.step()

    return train
