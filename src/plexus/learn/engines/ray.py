"""Workers on a Ray cluster, when one machine is not enough. Needs the extra `cluster`.

Each worker is an actor with a processor of its own, or a GPU where the cluster has some. It holds the
examples of the nodes that it was given and takes its share of a wave at once, so that only weights travel. A
node stays with its worker unless others would be idle. One that is lost is replaced when there is room.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from plexus.cluster import Cluster
from plexus.errors import PlexusError, TaskError
from plexus.learn.engines import LocalTraining
from plexus.learn.engines.processes import MOST_LOSSES, PoolEngine, Request, WorkerLostError
from plexus.learn.engines.stacked import StackedEngine, cannot_stack, is_joint
from plexus.learn.task import Examples, Task, joined
from plexus.learn.trainer import InlineEngine
from plexus.machine import cpu_s

FIRST_S, OTHERS_S = 120.0, 10.0
"""How long one waits for a worker if there is none, and then for the others that were asked for."""
INSIDE_BYTES = 90_000
"""What is smaller travels inside a request or an answer; larger vectors go once to each machine."""

Message = tuple[str, list[tuple[int, tuple[int, ...]]], dict[int, Examples], list[int]]
"""A method of `Trainer`, calls of it, the examples of new nodes, and nodes that somebody else has now. A call
is the number of its vector and arguments, of which the first is a node if it is about one."""


class RayWorker:
    def __init__(self, ray: Any, actor: Any, stored: Mapping[int, Any]) -> None:
        self._ray, self.actor, self._stored = ray, actor, stored
        self.arrival = actor.arrived.remote()
        self.is_there = False
        self.new: dict[int, Examples] = {}
        """By node, what it is to have from now on."""
        self.gone: list[int] = []
        """Nodes that others have now."""
        self._answers: list[Any] = []

    def give(self, share: Sequence[Request]) -> Hashable:
        places: dict[int, int] = {}
        calls = [(places.setdefault(id(each.vector), len(places)), each.arguments) for each in share]
        vectors = [self._stored[key] for key in places]
        rows = INSIDE_BYTES // share[0].vector.nbytes or len(share)
        pieces = -(-len(share) // rows)
        message = share[0].method, calls, self.new, self.gone
        answer = self.actor.answer.options(num_returns=pieces).remote(message, rows, *vectors)
        self._answers = answer if pieces > 1 else [answer]
        self.new, self.gone = {}, []
        return self._answers[0]  # type: ignore[no-any-return]

    def take(self) -> tuple[list[NDArray[Any]], float]:
        try:
            pieces, spent_s = zip(*self._ray.get(self._answers), strict=True)
        except self._ray.exceptions.RayTaskError as error:
            raise TaskError(str(error.cause)) from error
        except self._ray.exceptions.RayError as error:
            raise WorkerLostError(type(error).__name__) from error
        return [row for piece in pieces for row in piece], sum(spent_s)

    def stop(self) -> None:
        self._ray.kill(self.actor)


class RayEngine(PoolEngine[RayWorker]):
    """Trains on the cluster at `address`, or on one that it starts on this machine."""

    def __init__(
        self, task: Task, workers: int | None, address: str | None, device: str | None, stacked: bool
    ) -> None:
        self._cluster = Cluster("the engine ray", address, workers)
        self._ray = ray = self._cluster.ray
        gpus = 0 if device == "cpu" else self._cluster.count("GPU")
        if device not in ("cpu", None) and not gpus:
            self._cluster.leave()
            raise PlexusError(f"device {device} was asked for, but the Ray cluster has no GPU")
        self.trains_on = "cuda" if gpus else "cpu"
        # A GPU has not the bits of a processor in any case: there the faster way is taken.
        stacked = stacked or (gpus > 0 and cannot_stack(task) is None)
        self._actor = ray.remote(num_cpus=1, num_gpus=min(gpus, 1), scheduling_strategy="SPREAD")(Actor)
        # A worker does not see all targets: whether some count in no mean, it is told by its loss.
        loss = partial(task.loss) if stacked and not is_joint(task) else task.loss
        bare = replace(task, train=task.train.rows(task.parts[0][:1]), loss=loss)
        self._shipped = ray.put((bare, len(task.train), stacked, self.trains_on))
        self._holders: dict[int | None, RayWorker] = {}
        self._stored: dict[int, Any] = {}
        """By identity, the vectors of the requests under way, as they travel."""
        self._stillborn = 0
        super().__init__(task, workers or gpus or self._cluster.count())

    def close(self) -> None:
        super().close()
        self._cluster.leave()

    def _answers(self, requests: Sequence[Request]) -> list[NDArray[Any]]:
        for key, vector in {id(each.vector): each.vector.numpy() for each in requests}.items():
            self._stored[key] = vector if vector.nbytes < INSIDE_BYTES else self._ray.put(vector)
        try:
            return super()._answers(requests)
        finally:
            self._stored.clear()

    def _new_worker(self) -> RayWorker:
        return RayWorker(self._ray, self._actor.remote(self._shipped), self._stored)

    def _able(self, nobody_works: bool) -> Sequence[RayWorker]:
        wait, coming = self._ray.wait, {each.arrival: each for each in self._workers if not each.is_there}
        if not coming:
            return self._workers
        if nobody_works and len(coming) == len(self._workers):
            if not wait(list(coming), timeout=FIRST_S)[0]:
                raise PlexusError(f"the Ray cluster had no room for a worker in {FIRST_S:.0f} s")
            wait(list(coming), num_returns=len(coming), timeout=OTHERS_S)
        for arrival in wait(list(coming), num_returns=len(coming), timeout=0)[0]:
            self._welcome(coming[arrival])
        return [each for each in self._workers if each.is_there] or self._able(nobody_works)

    def _welcome(self, worker: RayWorker) -> None:
        try:
            self._ray.get(worker.arrival)
            worker.is_there = True
        except self._ray.exceptions.RayError as error:
            self._stillborn += 1
            if self._stillborn >= MOST_LOSSES:
                why = str(error).strip().splitlines()[-1]
                raise TaskError(f"workers of the Ray cluster die as they start: {why}") from error
            self._workers[self._workers.index(worker)] = self._new_worker()

    def _share(self, worker: RayWorker, waiting: deque[Request], most: int) -> list[Request]:
        """First what it has the data for, then what nobody has, then what would wait for others."""

        def distance(request: Request) -> int:
            holder = self._holders.get(request.node)
            return 0 if holder is worker else 1 if holder is None else 2

        if waiting[0].losses:  # by itself: so one finds out which it is that workers die of
            share = [waiting.popleft()]
        else:
            nearest = sorted(waiting, key=distance)
            share = nearest[:most]
            waiting.clear()
            waiting.extend(nearest[most:])
        for node in {each.node: None for each in share if each.node is not None}:
            self._hand_over(node, worker)
        return share

    def _hand_over(self, node: int, worker: RayWorker) -> None:
        holder = self._holders.get(node)
        if holder is worker:
            return
        if holder is not None:
            holder.gone.append(node)
        self._holders[node] = worker
        worker.new[node] = self._task.train.rows(rows_of(self._task, node))

    def _first(self, answers: Sequence[Any]) -> Any:
        (first, *_), _ = self._ray.wait(answers, num_returns=1)
        return first


def rows_of(task: Task, node: int) -> NDArray[np.int64]:
    """All that a node has: what it trains on, and what it holds back."""
    return np.concatenate([task.parts[node], *task.held[node : node + 1]])


@dataclass(frozen=True)
class Gathered(Examples):
    """The examples of some nodes, found by the rows that they have in the whole set."""

    places: NDArray[np.int64]
    """By row of the whole set: where it is in `wave`."""
    wave: list[Examples]
    """One set: of all nodes that are about to train."""

    def to(self, device: torch.device) -> Gathered:
        return self

    def rows(self, rows: NDArray[np.int64]) -> Examples:
        return self.wave[0].rows(self.places[rows])


class Actor:
    """What a worker does, on its machine: keeps the examples of its nodes, and answers for them."""

    def __init__(self, shipped: tuple[Task, int, bool, str]) -> None:
        task, rows, stacked, device = shipped
        torch.set_num_threads(1)
        self._held: dict[int, Examples] = {}
        self._examples = Gathered(**vars(task.train), places=np.zeros(rows, np.int64), wave=[])
        self._task = replace(task, train=self._examples)
        self._engine = (StackedEngine if stacked else InlineEngine)(self._task, device)
        self._told_s = 0.0

    def arrived(self) -> None:
        """It is there, and has all that it needs."""

    def holds(self) -> list[int]:
        """The nodes whose examples are here."""
        return sorted(self._held)

    def answer(self, message: Message, rows: int, *vectors: NDArray[Any]) -> Any:
        """A row for each call, so many in each piece, and the processor time since the answer before."""
        method, calls, new, gone = message
        for node in gone:
            del self._held[node]
        self._held |= new
        given = [torch.tensor(vector, device=self._engine.device) for vector in vectors]
        if method != "evaluate_batch":
            self._gather(sorted({node for _, (node, *_) in calls}))
        if method == "train":
            found = self._engine.train([LocalTraining(given[at], *rest) for at, rest in calls])
        else:
            found = [getattr(self._engine.trainer, method)(given[at], *rest) for at, rest in calls]
        spent_s = cpu_s() - self._told_s
        self._told_s += spent_s
        whole = torch.stack(found).cpu().numpy()
        pieces = [(whole[at : at + rows], 0.0 if at else spent_s) for at in range(0, len(whole), rows)]
        return pieces if len(pieces) > 1 else pieces[0]

    def _gather(self, nodes: Sequence[int]) -> None:
        rows = np.concatenate([rows_of(self._task, node) for node in nodes])
        self._examples.places[rows] = np.arange(len(rows))
        self._examples.wave[:] = [joined([self._held[node] for node in nodes]).to(self._engine.device)]
