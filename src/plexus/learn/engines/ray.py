"""Workers on a Ray cluster, when one machine is not enough. Needs the extra `cluster`.

Each worker is an actor that holds the task's data for good; only weights travel.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from plexus.errors import PlexusError, TaskError, needing
from plexus.learn.engines.processes import PoolEngine, RemoteTrainer, Request, WorkerLostError
from plexus.learn.task import Task


class RayEngine(PoolEngine):
    """Trains on the cluster at `address`, or on one that it starts on this machine."""

    def __init__(self, task: Task, workers: int | None = None, address: str | None = None) -> None:
        with needing("the engine ray"):
            import ray
        self._ray = ray
        self._began = not ray.is_initialized()
        if self._began:
            local = {} if address else {"num_cpus": workers, "include_dashboard": False}
            try:
                ray.init(address=address, log_to_driver=False, logging_level="error", **local)
            except (ConnectionError, RuntimeError, ValueError) as error:
                first_line = str(error).splitlines()[0] if str(error) else type(error).__name__
                raise PlexusError(f"no Ray cluster at {address or 'this machine'}: {first_line}") from error
        self._actor = ray.remote(num_cpus=1)(RemoteTrainer)
        self._shipped = ray.put(task)
        self._stored: dict[int, Any] = {}
        """By identity, where the vectors of the requests under way are in the cluster."""
        super().__init__(task, workers or int(ray.cluster_resources().get("CPU", 1)))

    def close(self) -> None:
        super().close()
        if self._began:
            self._ray.shutdown()

    def _answers(self, requests: Sequence[Request]) -> list[NDArray[Any]]:
        # Into the cluster's object store once, however many trainings start from the same weights.
        vectors = {id(request.vector): request.vector for request in requests}
        self._stored |= {key: self._ray.put(vector.numpy()) for key, vector in vectors.items()}
        try:
            return super()._answers(requests)
        finally:
            self._stored.clear()

    def _new_worker(self) -> RayWorker:
        return RayWorker(self._ray, self._actor.remote(self._shipped), self._stored)

    def _first(self, answers: Sequence[Any]) -> Any:
        (first, *_), _ = self._ray.wait(answers, num_returns=1)
        return first


class RayWorker:
    """An actor of the cluster, and its answer to come."""

    def __init__(self, ray: Any, actor: Any, stored: Mapping[int, Any]) -> None:
        self._ray, self.actor, self._stored = ray, actor, stored
        self._answer: Any = None

    def give(self, request: Request) -> Hashable:
        vector = self._stored[id(request.vector)]
        self._answer = self.actor.answer.remote(request.method, vector, *request.arguments)
        return self._answer  # type: ignore[no-any-return]

    def take(self) -> tuple[NDArray[Any], float]:
        try:
            result, spent_s = self._ray.get(self._answer)
        except self._ray.exceptions.RayActorError as error:
            raise WorkerLostError(type(error).__name__) from error
        except self._ray.exceptions.RayTaskError as error:
            raise TaskError(str(error.cause)) from error
        return result, spent_s

    def stop(self) -> None:
        self._ray.kill(self.actor)
