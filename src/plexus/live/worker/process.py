"""The training worker of a live peer: the process in which torch lives.

A peer answers pings and forwards models whatever its worker does, survives it if it is killed, and needs
no torch itself. A training is interrupted between two steps, by a model that looks up first.

`--fork-server SOCKET` keeps one process with everything imported that forks a worker for each connection, so
that a fleet on one machine starts quickly.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import torch
from torch import Tensor

from plexus.errors import MissingDataError, PlexusError, TaskError, blaming
from plexus.files import write_bytes
from plexus.learn import layout
from plexus.learn.attacks import Poison, mislabelled
from plexus.learn.engines import LocalTraining
from plexus.learn.saved import about, read_model
from plexus.learn.task import Examples, Task, hold_out
from plexus.learn.tasks import build_task
from plexus.learn.trainer import Trainer, metrics_of
from plexus.live.models import seal
from plexus.live.state import LOCAL_FILE, REST_FILE
from plexus.live.worker import client as channel
from plexus.live.worker.client import Evaluated, EvaluateJob, Finished, Interrupt, Ready, Stopped, TrainJob
from plexus.machine import end_with_input
from plexus.rng import array_stream
from plexus.runs.encoding import Wire
from plexus.runs.model_files import joined
from plexus.spec.attackers import poisoners
from plexus.spec.experiment import ExperimentSpec, parse_spec


class InterruptedTraining(BaseException):
    """Somebody wants the worker to stop."""


class Worker:
    """One task, one node's data, one job at a time."""

    def __init__(self, sock: socket.socket, setup: channel.SetUp) -> None:
        self._sock = sock
        self._job = 0
        self._stop_before = 0
        self._models: dict[int, memoryview] = {}
        """By job to come: a task that stands still is not to hold up one for each round."""
        spec = parse_spec(setup.spec, "session.toml")
        # Attackers have parts of the session's data, as in a simulation.
        attackers = poisoners(spec.attackers, spec.nodes, spec.seed) if setup.data.isdigit() else {}
        task, self._node = task_of(spec, Path(setup.folder), setup.data)
        if spec.evaluation.on != "test":
            task = hold_out(task, spec.evaluation.own_share)
        task = mislabelled(task, attackers)
        measure, shared_out = task.measure, len(np.unique(np.concatenate(task.parts)))
        samples, examples = task.samples(self._node), len(task.train)
        facts = measure.name, measure.higher_is_better, samples, shared_out, examples
        self._trainer = Trainer(task, torch.device("cpu"))
        frozen, shared = self._trainer.frozen, self._trainer.layout.shared_size
        self.ready = Ready(*facts, list(task.notes), layout.weights_hash(frozen) if frozen else "")
        self._trainer.module.register_forward_pre_hook(lambda *_: self._look_up())
        self._carry_out = self._trainer.train_all
        if attackers:
            self._carry_out = Poison(attackers, spec.nodes, spec.seed, self._carry_out, shared).train
        if setup.try_out:
            self._trainer.try_out(self._node)
        wire: Wire = getattr(spec.protocol.parameters, "wire", "float32")
        self._packing = layout.Packing(self._trainer.layout, wire, self.ready.frozen)
        self._home = Path(setup.home) if setup.home else None
        self._local = self._initial_local = self._trainer.initial[shared:]
        """What stays with this node, as its last finished training left it."""
        if self._home is not None:
            rest = self._own(self._trainer.initial)
            facts_of = {**about(task), **layout.names_of(self._trainer.layout, wire)}
            write_bytes(self._home / REST_FILE, joined(facts_of, layout.encode({**rest, **frozen})))
            self._read_local(self._home / LOCAL_FILE)

    @property
    def initial(self) -> bytes:
        return self._encode(self._trainer.initial, -1)

    def _own(self, vector: Tensor) -> dict[str, Tensor]:
        """The tensors of a model that stay with this node."""
        shared, tensors = self._trainer.layout.shared, self._trainer.layout.tensors(vector)
        return {name: each for name, each in tensors.items() if name not in shared}

    def _read_local(self, path: Path) -> None:
        """Go on with what this node kept to itself before it stopped."""
        if len(self._local) and path.exists():
            found, own = read_model(path)[0], self._own(self._trainer.initial)
            if {n: t.shape for n, t in found.items()} != {n: t.shape for n, t in own.items()}:
                raise PlexusError(f"{path}: of another model than this session's")
            everything = {**self._trainer.layout.tensors(self._trainer.initial), **found}
            self._local = self._trainer.layout.flatten(everything)[self._trainer.layout.shared_size :]

    def _keep_local(self, trained: Tensor) -> None:
        if len(self._local):
            self._local = trained[self._trainer.layout.shared_size :].clone()
            if self._home is not None:
                write_bytes(self._home / LOCAL_FILE, layout.encode(self._own(trained)))

    def serve(self) -> None:
        jobs: SimpleQueue[channel.Header] = SimpleQueue()
        threading.Thread(target=self._listen, args=(jobs,), daemon=True).start()
        while True:
            job = jobs.get()
            if isinstance(job, TrainJob | EvaluateJob):
                self._do(job, self._models.pop(job.job, memoryview(b"")))

    def _do(self, job: TrainJob | EvaluateJob, model: memoryview) -> None:
        self._job = job.job
        try:
            self._look_up()
            if isinstance(job, TrainJob):
                self._train(job, model)
            else:
                channel.send(self._sock, self._evaluate(job, model))
        except InterruptedTraining:
            channel.send(self._sock, Stopped(job.job, "interrupted"))
        except PlexusError as error:
            channel.send(self._sock, Stopped(job.job, str(error), type(error).__name__))

    def _evaluate(self, job: EvaluateJob, model: memoryview) -> Evaluated:
        found = self._trainer.evaluate(self._decode(model, self._initial_local))
        others = dict(found.others)
        task = self._trainer.task
        if task.held and len(task.held[self._node]):
            sums = self._trainer.evaluate_own(self._decode(model, self._local), self._node).tolist()
            own = metrics_of(task, [sums], self._node)
            others |= {f"own_{own.name}": own.value, "own_loss": own.loss}
        return Evaluated(job.job, found.value, found.loss, others)

    def _train(self, job: TrainJob, model: memoryview) -> None:
        base = self._decode(model, self._local)
        [trained] = self._carry_out([LocalTraining(base, self._node, job.round)])
        if not torch.isfinite(trained.sum()):
            raise TaskError(f"task {self._trainer.task.name}: the trained weights are not finite")
        self._keep_local(trained)
        body = self._encode(trained, self._node, job.round)
        sent = self._packing.decode(body)
        change = torch.linalg.vector_norm(sent - base[: len(sent)], dtype=torch.float64).item()
        channel.send(self._sock, Finished(job.job, seal(body), change), body)

    def _listen(self, jobs: SimpleQueue[channel.Header]) -> None:
        try:
            while True:
                job, model = channel.receive(self._sock)
                if isinstance(job, TrainJob | Interrupt):
                    self._stop_before = job.job if isinstance(job, TrainJob) else job.before
                    self._models.clear()  # their jobs end before they begin
                if isinstance(job, TrainJob | EvaluateJob):
                    self._models[job.job] = model
                jobs.put(job)
                del job, model
        except (EOFError, OSError):
            os._exit(0)  # the peer is gone, so nobody wants the job under way

    def _look_up(self) -> None:
        # Numbers only grow, so there is nothing to reset and no moment at which a wish can be lost.
        if self._job < self._stop_before:
            raise InterruptedTraining

    def _decode(self, model: memoryview, local: Tensor) -> Tensor:
        """The vector of a model that came, with what does not travel."""
        return torch.cat([self._packing.decode(bytes(model)), local])

    def _encode(self, vector: Tensor, *of: int) -> bytes:
        """What of a model travels; whose it is and of which round decides how it is rounded."""
        rng = array_stream(self._trainer.task.seed, "wire", *of)
        return self._packing.encode(vector[: self._trainer.layout.shared_size], rng)


def task_of(spec: ExperimentSpec, folder: Path, data: str) -> tuple[Task, int]:
    """The task with this node's data, and the node's number in it.

    `data` is the number of a part of the session's data, an .npz file of `inputs` and `targets` as models
    take them, or what the task itself takes: a table, a folder. With the last, nothing else of the data need
    be on this machine.
    """
    is_npz = data.endswith(".npz")
    own = None if data.isdigit() or is_npz else Path(data)
    if not (data.isdigit() or Path(data).exists()):
        raise PlexusError(f"--data {data}: no such file or folder")
    try:
        task = build_task(spec.task.parameters, spec.nodes, spec.seed, folder, data=own)
    except PlexusError as error:
        is_missing = isinstance(error, MissingDataError) or isinstance(error.__context__, FileNotFoundError)
        if not (is_npz and is_missing):
            raise
        instead = "the session's data here, too; without that, bring what the task reads, for a table a .csv"
        raise type(error)(f"--data {data} needs {instead}: {error}") from None
    return with_data(task, data) if own is None else (task, 0)


def with_data(task: Task, data: str) -> tuple[Task, int]:
    """The task with a part of its data, or with the examples of an .npz file; and the node's number."""
    if data.isdigit():
        if int(data) >= task.nodes:
            raise PlexusError(f"--data {data}: the session's data has parts 0 to {task.nodes - 1}")
        return task, int(data)
    try:
        with np.load(data, allow_pickle=False) as arrays:
            inputs, targets = arrays["inputs"], arrays["targets"]
    except (OSError, ValueError, KeyError, MemoryError) as error:
        raise PlexusError(f"--data {data}: not an .npz of inputs and targets: {error}") from None
    own = Examples(
        _like(inputs, task.train.inputs, f"{data}: inputs"),
        _like(targets, task.train.targets, f"{data}: targets"),
        -1 - np.arange(len(inputs)),
    )
    return replace(task, train=own, parts=(np.arange(len(inputs)),)), 0


def _like(values: np.ndarray, example: Tensor, name: str) -> Tensor:
    if values.shape[1:] != tuple(example.shape[1:]):
        raise PlexusError(
            f"--data {name} have shape {values.shape[1:]} each, the session's {tuple(example.shape[1:])}"
        )
    found = torch.from_numpy(values).to(example.dtype)
    if not example.is_floating_point() and not np.array_equal(found.numpy(), values):
        raise PlexusError(f"--data {name} are not all numbers of the session's type, {example.dtype}")
    return found


def serve(sock: socket.socket) -> None:
    torch.set_num_threads(1)
    setup, _ = channel.receive(sock)
    if not isinstance(setup, channel.SetUp):
        raise PlexusError("the peer must set its worker up first")
    try:
        with blaming("the training worker cannot be set up"):
            worker = Worker(sock, setup)
    except PlexusError as error:
        channel.send(sock, Stopped(0, str(error), type(error).__name__))
        return
    channel.send(sock, worker.ready, worker.initial)
    worker.serve()


def fork_server(path: Path) -> None:
    """Fork a worker for every connection, until standard input ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children are not waited for
    listener = socket.socket(socket.AF_UNIX)
    unready = path.with_suffix(".new")  # whoever sees the socket may connect
    unready.unlink(missing_ok=True)
    listener.bind(str(unready))
    unready.chmod(0o600)
    listener.listen(64)
    unready.rename(path)
    end_with_input()
    while True:
        sock, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            serve(sock)
            os._exit(0)
        sock.close()


def main(arguments: list[str]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the peer decides when to end, or the fleet
    match arguments:
        case ["--fd", number]:
            serve(socket.socket(fileno=int(number)))
        case ["--fork-server", path]:
            fork_server(Path(path))
        case _:
            sys.exit("usage: python -m plexus.live.worker.process --fd NUMBER | --fork-server SOCKET")


if __name__ == "__main__":
    main(sys.argv[1:])
