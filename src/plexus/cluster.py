"""A Ray cluster, where one machine is not enough: how to join one, and a pool whose jobs are its tasks.

Needs the extra `cluster`. Events and weights are those of this machine: a cluster is merely more of it.
"""

from __future__ import annotations

import logging
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from plexus.errors import PlexusError, described, needing
from plexus.machine import LOOK_EVERY_S, SAY_EVERY_S, Heard, Pool, Work

KNOCK_S = 5.0
"""Within this time a head that is there answers."""


class Cluster:
    """The cluster at an address, or one of `cpus` processors on this machine, joined quietly."""

    def __init__(self, user: str, address: str | None, cpus: int | None = None) -> None:
        with needing(user):
            import ray
        self.ray: Any = ray
        self._began = not ray.is_initialized()
        if not self._began:
            return
        of_its_own: dict[str, Any] = {} if address else {"num_cpus": cpus, "include_dashboard": False}
        asked_to_stop = signal.getsignal(signal.SIGTERM)
        host, _, port = (address or "").removeprefix("ray://").rpartition(":")
        try:
            if port.isdigit():  # Ray itself would knock for minutes
                socket.create_connection((host, int(port)), KNOCK_S).close()
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **of_its_own)
        except (OSError, OverflowError, RuntimeError, ValueError) as error:
            first_line = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise PlexusError(f"no Ray cluster at {address or 'this machine'}: {first_line}") from error
        # What is known of a lost machine would stand on our standard output, among results.
        self.ray._private.worker.print_to_stdstream = lambda *_, **__: None
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, asked_to_stop)  # Ray has put its own in its place

    def count(self, resource: str = "CPU") -> int:
        """How many there are now, of all machines."""
        return int(self.ray.cluster_resources().get(resource, 0))

    def leave(self) -> None:
        if self._began:
            self.ray.shutdown()


class RayPool(Pool):
    """Jobs as tasks of the cluster at `address`: so many at a time, or as many as it has processors or GPUs.

    Ray does a job again, elsewhere, if its process or its machine is lost.
    """

    def __init__(self, work: Work, count: int | None, address: str, on_gpus: bool = False) -> None:
        super().__init__(work, count or 0)
        self._cluster = Cluster("--address", address)
        self._resource = "GPU" if on_gpus else "CPU"
        if not self._cluster.count(self._resource):
            self._cluster.leave()
            raise PlexusError(f"--address {address}: the cluster has no {self._resource}")
        self._ray = ray = self._cluster.ray
        self._task = ray.remote(num_cpus=1, num_gpus=int(on_gpus))(_do)
        # Here, and not on a machine that may be lost.
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        self._desk = ray.remote(num_cpus=0, scheduling_strategy=here)(Desk).remote()
        self._running: dict[Any, Any] = {}
        """By what stands for its answer: the job."""

    def _feed(self, waiting: Iterator[Any]) -> bool:
        most = self._count or self._cluster.count(self._resource)
        while len(self._running) < most and (job := next(waiting, None)) is not None:
            answer = self._task.remote(self._work, job, self._desk)
            self._running[answer] = job
        return bool(self._running)

    def _listen(self, hear: Callable[[Heard], None]) -> None:
        ready, _ = self._ray.wait(list(self._running), timeout=LOOK_EVERY_S)
        said = self._ray.get(self._desk.heard.remote(self._is_stopping))
        for answer in ready:
            job = self._running.pop(answer)
            try:
                kind, value = self._ray.get(answer)
            except self._ray.exceptions.RayError as error:
                kind, value = "failed", described(error)
            hear(Heard(job, kind, value))
        for answer, job in self._running.items():
            if (value := said.get(answer.task_id().hex())) is not None:
                hear(Heard(job, "said", value))

    def _stop(self, hear: Callable[[Heard], None]) -> None:
        self._is_stopping = True
        while self._running:
            self._listen(hear)

    def _close(self) -> None:
        for answer in self._running:
            self._ray.cancel(answer, force=True)
        self._ray.kill(self._desk)
        self._cluster.leave()


class Desk:
    """Where tasks say how far they are, and hear whether they are to stop."""

    def __init__(self) -> None:
        self._said: dict[str, Any] = {}
        self._is_stopping = False

    def say(self, task: str, value: Any) -> bool:
        self._said[task] = value
        return self._is_stopping

    def heard(self, is_stopping: bool) -> dict[str, Any]:
        """The newest of each task since the last time."""
        said, self._said, self._is_stopping = self._said, {}, is_stopping
        return said


def _do(work: Work, job: Any, desk: Any) -> tuple[str, Any]:
    """In a process of the cluster: a job, and what came of it."""
    import ray

    task, due_s = ray.get_runtime_context().get_task_id(), 0.0

    def say(value: Any) -> None:
        nonlocal due_s
        if time.monotonic() >= due_s:
            due_s = time.monotonic() + SAY_EVERY_S
            if ray.get(desk.say.remote(task, value)):
                raise KeyboardInterrupt

    try:
        say(None)  # one that begins late may hear that it is not wanted any more
        return "done", work(job, say)
    except KeyboardInterrupt:
        return "stopped", None
    except Exception as error:
        return "failed", described(error)
