"""How fast an engine trains, beside a bare PyTorch loop over the same clients on the same device; and what
rounds of learning cost with all that is set up, beside a loop that is set up already."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from msgspec import Struct
from torch import Tensor, nn

from plexus.errors import PlexusError
from plexus.learn.engines import Engine, LocalTraining, Precision, create_engine
from plexus.learn.task import Task
from plexus.learn.tasks import create_task
from plexus.learn.tasks.cifar10 import RECORD_BYTES, TEST_FILE, TRAIN_FILES
from plexus.learn.trainer import DeviceData, one_thread

Weights = dict[str, Tensor]


class TrainingBench(Struct, frozen=True):
    task: str
    engine: str
    device: str
    reason: str
    clients: int
    parameters: int
    ms_per_client: float
    """One local training, all clients of a wave together divided by their number."""
    bare_loop_ms_per_client: float
    ratio_to_bare_loop: float
    """Below 1 is faster than the loop. Median over repeats of loop and engine in turn."""


def bench_training(
    task_name: str,
    engine_name: str,
    clients: int,
    *,
    repeats: int = 5,
    seed: int = 1,
    workers: int | None = None,
    device: str | None = None,
    precision: Precision = "tf32",
    random_data: bool = False,
) -> TrainingBench:
    """Let `clients` clients train once, `repeats` times, by the loop and by the engine in turn."""
    task = bench_task(task_name, clients, seed, random_data)
    engine, chosen = create_engine(engine_name, task, workers=workers, device=device, precision=precision)
    with closing(engine):
        loop_s, engine_s = _in_turn(task, engine, clients, repeats)
    ratios = [ours / bare for bare, ours in zip(loop_s, engine_s, strict=True)]
    return TrainingBench(
        task=task_name,
        engine=chosen.name,
        device=chosen.device,
        reason=chosen.reason,
        clients=clients,
        parameters=sum(p.numel() for p in task.initial_model().parameters()),
        ms_per_client=1000 * statistics.median(engine_s) / clients,
        bare_loop_ms_per_client=1000 * statistics.median(loop_s) / clients,
        ratio_to_bare_loop=statistics.median(ratios),
    )


def _in_turn(task: Task, engine: Engine, clients: int, repeats: int) -> tuple[list[float], list[float]]:
    """How long the loop and the engine took each time, in seconds."""
    module = task.initial_model().to(engine.device)
    initial = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    train_one = bare_training(task, module, engine.device)

    def loop(jobs: list[LocalTraining]) -> None:
        for job in jobs:
            train_one(initial, job.node, job.round)

    taken_s: tuple[list[float], list[float]] = ([], [])
    for round in range(repeats + 1):
        jobs = [LocalTraining(engine.initial, node, round) for node in range(clients)]
        for times, train in zip(taken_s, (loop, engine.train), strict=True):
            _synchronise(engine.device)
            began_s = time.perf_counter()
            with one_thread():  # as in a session
                train(jobs)
            _synchronise(engine.device)
            if round > 0:  # the first is to warm up
                times.append(time.perf_counter() - began_s)
    return taken_s


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def bench_task(name: str, clients: int, seed: int, random_data: bool) -> Task:
    if not random_data:
        return create_task(name, clients, seed)
    if name != "cifar10":
        raise PlexusError(f"random data is there for cifar10 only, not for {name}")
    # Images in CIFAR-10's format: the speed of training does not depend on what they show.
    rng = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as folder:
        for file in (*TRAIN_FILES, TEST_FILE):
            records = rng.integers(0, 256, (max(1000, 10 * clients), RECORD_BYTES), dtype=np.uint8)
            records[:, 0] %= 10
            records.tofile(Path(folder) / file)
        return create_task(name, clients, seed, data=folder)


class RoundsBench(Struct, frozen=True):
    """What `plexus bench rounds` found: CPU time of all rounds together, a median over repeats."""

    task: str
    engine: str
    reason: str
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
    from plexus.learn.graph import LazyModels  # here, as what an engine needs is part of its price

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
