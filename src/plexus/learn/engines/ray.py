"""Workers on a Ray cluster, when one machine is not enough. Needs the extra `cluster`.

Each worker is an actor that holds the task's data for good; only weights travel. As with `processes`,
who computes what depends on who is free, and the weights do not: they are those of `inline`, bit for
bit, where all machines have the same kind of processor. The work of a lost worker is done again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from plexus.errors import PlexusError, TaskError
from plexus.learn.engines import LocalTraining
from plexus.learn.engines.processes import MOST_LOSSES, Request
from plexus.learn.task import Metrics, Task
from plexus.learn.trainer import Trainer, evaluation_batches, metrics_of
from plexus.machine import cpu_s


def import_ray() -> Any:
    """Ray, or a clear word about how to get it."""
    try:
        import ray
    except ImportError:
        raise PlexusError(
            "the engine ray needs the package ray: pip install 'plexus-learning[cluster]'"
        ) from None
    return ray


class Actor:
    """A worker: lives in a process of the cluster."""

    def __init__(self, task: Task) -> None:
        torch.set_num_threads(1)
        self._trainer = Trainer(task, torch.device("cpu"))
        self._told_s = 0.0

    def train(self, base: Any, node: int, round: int) -> Any:
        """The weights after one local training, and the processor time."""
        return self._trainer.train(torch.tensor(base), node, round).numpy(), self._spent_s()

    def evaluate(self, vector: Any, batch: int) -> Any:
        """Sums over one batch of the test set, and the processor time."""
        return self._trainer.evaluate_batch(torch.tensor(vector), batch).tolist(), self._spent_s()

    def _spent_s(self) -> float:
        """Since it was asked last."""
        spent_s = cpu_s() - self._told_s
        self._told_s += spent_s
        return spent_s


class RayEngine:
    """Trains on the cluster at `address`, or on one that it starts on this machine."""

    name = "ray"

    def __init__(self, task: Task, workers: int | None = None, address: str | None = None) -> None:
        self._ray = import_ray()
        self.device = torch.device("cpu")
        self._task = task
        self.workers_cpu_s = 0.0
        trainer = Trainer(task, self.device)
        self.layout = trainer.layout
        self.initial = trainer.initial
        self._started = not self._ray.is_initialized()
        if self._started:
            self._connect(workers, address)
        count = workers or int(self._ray.cluster_resources().get("CPU", 1))
        self._actor = self._ray.remote(num_cpus=1)(Actor)
        self._shipped = self._ray.put(task)
        self._workers = [self._actor.remote(self._shipped) for _ in range(count)]

    def _connect(self, workers: int | None, address: str | None) -> None:
        local = {} if address else {"num_cpus": workers, "include_dashboard": False}
        try:
            self._ray.init(address=address, log_to_driver=False, logging_level="error", **local)
        except (ConnectionError, RuntimeError, ValueError) as error:
            first_line = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise PlexusError(f"no Ray cluster at {address or 'this machine'}: {first_line}") from error

    def train(self, jobs: Sequence[LocalTraining]) -> list[Tensor]:
        requests = [Request(place, "train", job.base, job.node, job.round) for place, job in enumerate(jobs)]
        return [torch.tensor(answer) for answer in self._answers(requests)]

    def evaluate(self, vectors: Sequence[Tensor]) -> list[Metrics]:
        batches = evaluation_batches(self._task)
        requests = [
            Request(place * batches + batch, "evaluate", vector, batch)
            for place, vector in enumerate(vectors)
            for batch in range(batches)
        ]
        sums = self._answers(requests)
        return [
            metrics_of(self._task, sums[start : start + batches]) for start in range(0, len(sums), batches)
        ]

    def close(self) -> None:
        for worker in self._workers:
            self._ray.kill(worker)
        self._workers = []
        if self._started:
            self._ray.shutdown()

    def _answers(self, requests: Sequence[Request]) -> list[Any]:
        answers: list[Any] = [None] * len(requests)
        # Into the cluster's object store once, however many trainings start from the same weights.
        vectors = {id(request.vector): request.vector for request in requests}
        stored = {key: self._ray.put(vector.numpy()) for key, vector in vectors.items()}
        waiting = deque(requests)
        running: dict[Any, tuple[int, Request]] = {}
        free = deque(range(len(self._workers)))
        while waiting or running:
            while waiting and free:
                place, request = free.popleft(), waiting.popleft()
                method = getattr(self._workers[place], request.kind)
                future = method.remote(stored[id(request.vector)], *request.arguments)
                running[future] = (place, request)
            (future, *_), _ = self._ray.wait(list(running), num_returns=1)
            place, request = running.pop(future)
            try:
                answers[request.place], spent_s = self._ray.get(future)
                self.workers_cpu_s += spent_s
            except self._ray.exceptions.RayActorError as error:
                self._replace(place, request, error)
                waiting.appendleft(request)
            except self._ray.exceptions.RayTaskError as error:
                raise TaskError(str(error.cause)) from error
            free.append(place)
        return answers

    def _replace(self, place: int, request: Request, error: Exception) -> None:
        request.losses += 1
        if request.losses >= MOST_LOSSES:
            raise TaskError(
                f"task {self._task.name}: {MOST_LOSSES} Ray workers died on the same work, {request.what}"
            ) from error
        self._workers[place] = self._actor.remote(self._shipped)
