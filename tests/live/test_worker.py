"""The training worker: the same weights as in the simulator, and interruption within one step."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
import weakref
from asyncio import StreamWriter as Writer
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import pytest
import torch
from safetensors.torch import load

from plexus.errors import MissingDataError, MissingModuleError, PlexusError, TaskError
from plexus.learn.attacks import PoisonedEngine, mislabelled
from plexus.learn.engines import LocalTraining
from plexus.learn.tasks import create_task
from plexus.learn.trainer import InlineEngine, Trainer
from plexus.live.models import LiveModel, fits
from plexus.live.operator.log import Log
from plexus.live.worker import client as channel
from plexus.live.worker import process as in_process
from plexus.live.worker.client import (
    Evaluated,
    EvaluateJob,
    Finished,
    Interrupt,
    Ready,
    SetUp,
    Stopped,
    TrainingWorker,
    TrainJob,
)
from plexus.live.worker.process import task_of, with_data
from plexus.spec.attackers import attackers_of
from plexus.spec.experiment import parse_spec

SPEC = """
name = "worker"
seed = 3
nodes = 10
hours = 1
traces = {{ availability = "none" }}
task = {{ name = "digits", local_steps = {steps} }}
"""
FEW, MANY = 5, 4000


@contextmanager
def worker(data: str, steps: int = FEW, spec: str = SPEC, folder: str = "") -> Iterator[socket.socket]:
    """A worker that has been told what to do."""
    mine, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "plexus.live.worker.process", "--fd", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
        )
    try:
        mine.settimeout(60)
        channel.send(mine, SetUp(spec.format(steps=steps), data, folder))
        yield mine
        mine.close()
        assert process.wait(timeout=20) == 0, "a worker ends with its peer"
    finally:
        mine.close()
        process.kill()
        process.wait()


@pytest.mark.slow
def test_a_live_training_gives_the_weights_of_the_simulated_one() -> None:
    task = create_task("digits", nodes=10, seed=3)
    trainer = Trainer(task, torch.device("cpu"))
    torch.set_num_threads(1)
    wanted = trainer.layout.tensors(trainer.train(trainer.initial, node=4, round=7))
    with worker("4") as sock:
        ready, initial = channel.receive(sock)
        examples = len(task.train)
        assert ready == Ready("accuracy", True, task.samples(4), examples, examples)
        channel.send(sock, TrainJob(1, 7), initial)
        finished, trained = channel.receive(sock)
        assert isinstance(finished, Finished)
        assert fits(finished.seal, trained)
        found = load(bytes(trained))
        assert {name: tensor.tolist() for name, tensor in found.items()} == {
            name: tensor.tolist() for name, tensor in wanted.items()
        }
        moved = trainer.layout.flatten(wanted) - trainer.initial
        assert finished.change == pytest.approx(moved.norm().item())
        channel.send(sock, EvaluateJob(2), trained)
        evaluated, _ = channel.receive(sock)
        assert isinstance(evaluated, Evaluated)
        assert 0 <= evaluated.value <= 1


@pytest.mark.slow
def test_a_node_of_a_single_example_measures_on_the_test_set_alone() -> None:
    spec = SPEC.replace("nodes = 10", "nodes = 17").replace('"digits"', '"digits", test_share = 0.99')
    with worker("4", spec=spec + '[evaluation]\non = "both"\n') as sock:
        _, initial = channel.receive(sock)
        channel.send(sock, EvaluateJob(1), initial)
        evaluated, _ = channel.receive(sock)
    assert isinstance(evaluated, Evaluated)
    assert 0 <= evaluated.value <= 1
    assert not [name for name in evaluated.others if name.startswith("own")]


ATTACKED = (
    SPEC
    + """
attackers = [{{ behaviour = "flip", nodes = [4] }}, {{ behaviour = "label-flip", nodes = [5] }},
    {{ behaviour = "alie", nodes = [6, 7, 8], factor = 2 }}]
"""
)


@pytest.mark.slow
@pytest.mark.parametrize("node", [3, 4, 5, 6])
def test_a_live_attacker_sends_what_the_simulated_one_sends(node: int) -> None:
    attackers = attackers_of(parse_spec(ATTACKED.format(steps=FEW), "worker.toml").attackers, 10, 3)
    task = mislabelled(create_task("digits", nodes=10, seed=3), attackers)
    engine = InlineEngine(task)
    poisoned = PoisonedEngine(engine, attackers, task)
    [wanted] = poisoned.train([LocalTraining(engine.initial, node, 7)])
    with worker(str(node), spec=ATTACKED) as sock:
        _, initial = channel.receive(sock)
        channel.send(sock, TrainJob(1, 7), initial)
        _, trained = channel.receive(sock)
    for name, tensor in load(bytes(trained)).items():
        assert torch.equal(tensor, engine.layout.tensors(wanted)[name])


@pytest.mark.slow
def test_a_training_is_interrupted_between_two_steps() -> None:
    with worker("4", steps=MANY) as sock:
        _, initial = channel.receive(sock)
        channel.send(sock, TrainJob(1, 1), initial)
        channel.send(sock, Interrupt(2))
        assert channel.receive(sock)[0] == Stopped(1, "interrupted")
        channel.send(sock, TrainJob(3, 2), initial)
        channel.send(sock, TrainJob(4, 3), initial)
        assert channel.receive(sock)[0] == Stopped(3, "interrupted")
        finished, _ = channel.receive(sock)
        assert isinstance(finished, Finished)
        assert finished.job == 4


@pytest.mark.slow
def test_a_node_can_learn_from_its_own_file(tmp_path: Path) -> None:
    own = tmp_path / "own.npz"
    np.savez(own, inputs=np.ones((30, 64), np.float64), targets=np.zeros(30, np.int32))
    with worker(str(own)) as sock:
        ready, initial = channel.receive(sock)
        assert ready == Ready("accuracy", True, 30, 30, 30)
        channel.send(sock, TrainJob(1, 1), initial)
        assert isinstance(channel.receive(sock)[0], Finished)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("10", "--data 10: the session's data has parts 0 to 9"),
        ("missing.npz", "not an .npz of inputs and targets"),
        ("shape", r"have shape \(63,\) each, the session's \(64,\)"),
        ("pickle", "not an .npz of inputs and targets"),
        ("fractions", "targets are not all numbers of the session's type, torch.int64"),
    ],
)
def test_data_that_does_not_fit_is_refused_in_words(tmp_path: Path, content: str, complaint: str) -> None:
    path = tmp_path / "own.npz"
    if content == "shape":
        np.savez(path, inputs=np.ones((30, 63)), targets=np.zeros(30))
    elif content == "fractions":
        np.savez(path, inputs=np.ones((30, 64)), targets=np.full(30, 7.5))
    elif content == "pickle":
        np.savez(path, inputs=np.array([{"an": "object"}]), targets=np.zeros(1))
    data = str(path) if content in ("shape", "fractions", "pickle") else content
    with pytest.raises(PlexusError, match=complaint):
        with_data(create_task("digits", nodes=10, seed=3), data)


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("1 / 0", r"^task mine:build failed: ZeroDivisionError: .*mine.py:2"),
        (
            "open('nowhere.csv')",
            r"own.npz needs the session's data here, too; .*mine:build failed: FileNotFound",
        ),
    ],
)
def test_own_examples_are_blamed_for_missing_data_alone(tmp_path: Path, body: str, wanted: str) -> None:
    (tmp_path / "mine.py").write_text(f"def build(nodes, seed):\n    {body}\n")
    np.savez(tmp_path / "own.npz", inputs=np.zeros((9, 3)), targets=np.zeros(9))
    spec = parse_spec(SPEC.format(steps=FEW).replace('"digits", local_steps = 5', '"mine:build"'), "x.toml")
    with pytest.raises(TaskError, match=wanted):
        task_of(spec, tmp_path, str(tmp_path / "own.npz"))


def test_own_examples_where_a_data_set_is_missing_are_not_enough(tmp_path: Path) -> None:
    np.savez(tmp_path / "own.npz", inputs=np.zeros((9, 3)), targets=np.zeros(9))
    table = SPEC.format(steps=FEW).replace('"digits", local_steps = 5', '"cifar10", data = "nowhere"')
    spec = parse_spec(table, "x.toml")
    with pytest.raises(
        MissingDataError, match=r"own.npz needs the session's data here, too; .*: task.data: "
    ):
        task_of(spec, tmp_path, str(tmp_path / "own.npz"))


@pytest.mark.slow
def test_a_worker_says_what_is_wrong_with_its_data() -> None:
    with worker("10") as sock:
        answer, _ = channel.receive(sock)
        reason = "--data 10: the session's data has parts 0 to 9"
        assert answer == Stopped(0, reason, "PlexusError")


@pytest.mark.slow
def test_a_worker_that_does_not_find_the_task_says_so(tmp_path: Path) -> None:
    spec = SPEC.replace('name = "digits", local_steps = {steps}', 'name = "nowhere.task:build"')
    with worker("0", spec=spec, folder=str(tmp_path)) as sock:
        answer, _ = channel.receive(sock)
        assert isinstance(answer, Stopped)
        assert isinstance(answer.error, MissingModuleError)
        assert "module 'nowhere.task' cannot be imported" in answer.reason


async def connected() -> tuple[TrainingWorker, Writer, socket.socket]:
    """A client, and the worker's end of its connection."""
    client = TrainingWorker(SetUp("", "0"), Log(StringIO()), lambda *_: None, lambda *_: None)
    mine, theirs = socket.socketpair()
    reader, client._writer = await asyncio.open_unix_connection(sock=mine)
    client._tasks = [asyncio.create_task(client._supervise(reader))]
    return client, client._writer, theirs


def test_a_client_closes_while_it_is_hanging_up_on_a_worker_that_died() -> None:
    """Its supervisor, who waits for the same connection to end, is cancelled; who closes is not."""

    async def close() -> None:
        client, writer, theirs = await connected()
        theirs.close()
        while not writer.is_closing():
            await asyncio.sleep(0)
        await client.close()
        assert client._tasks[0].cancelled()

    asyncio.run(close())


LARGE = bytes(2**22)


async def stands_still(client: TrainingWorker, writer: Writer) -> None:
    """Give the worker a model that it does not read to the end."""
    client.train(1, LiveModel(memoryview(LARGE), b""))
    while not writer.transport.get_write_buffer_size():
        await asyncio.sleep(0)


def test_a_client_closes_though_its_worker_stands_still() -> None:
    """As with SIGSTOP, or on a file system that does not answer: nobody waits for it to read."""

    async def close() -> None:
        client, writer, theirs = await connected()
        await stands_still(client, writer)
        with theirs:
            await asyncio.wait_for(client.close(), 10)

    asyncio.run(close())


def test_of_the_models_for_a_worker_that_stands_still_only_the_newest_is_kept() -> None:
    """One for each round would fill memory, descriptors and disk. Once it reads, it gets the newest."""

    def read(sock: socket.socket) -> list[TrainJob | EvaluateJob | Interrupt]:
        with sock:
            found = [channel.receive(sock) for _ in range(3)]
        assert [len(body) for _, body in found] == [len(LARGE), 0, 4]
        return [header for header, _ in found if isinstance(header, TrainJob | EvaluateJob | Interrupt)]

    async def story() -> None:
        client, writer, theirs = await connected()
        theirs.setblocking(True)
        await stands_still(client, writer)
        assert client.unread_since is not None, "which is a problem if it lasts"
        kept = []
        for round in range(2, 50):
            data = np.zeros(1, np.float32)
            kept.append(weakref.ref(data))
            client.train(round, LiveModel(memoryview(data).cast("B"), b""))
            del data
        assert [each() is not None for each in kept] == [*[False] * 47, True]
        client.interrupt()
        client.train(50, LiveModel(memoryview(b"last"), b""))
        jobs = await asyncio.to_thread(read, theirs)
        assert jobs == [TrainJob(1, 1), Interrupt(50), TrainJob(50, 50)]
        assert client.unread_since is None
        await client.close()

    asyncio.run(story())


def test_a_worker_whose_task_stands_still_keeps_the_newest_model_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who listens goes on: jobs that are overtaken end without their models."""
    monkeypatch.setattr(os, "_exit", lambda _: None)
    mine, theirs = socket.socketpair()
    kind = in_process.Worker
    listening, jobs = kind.__new__(kind), SimpleQueue[channel.Header]()
    listening._sock, listening._stop_before, listening._models = theirs, 0, {}
    thread = threading.Thread(target=listening._listen, args=(jobs,))
    thread.start()
    with theirs:
        with mine:
            for job in (TrainJob(1, 1), EvaluateJob(2), TrainJob(3, 2), EvaluateJob(4)):
                channel.send(mine, job, b"%d" % job.job)
                assert jobs.get(timeout=60) == job
            assert (listening._models, listening._stop_before) == ({3: b"3", 4: b"4"}, 3)
            channel.send(mine, Interrupt(5))
            assert jobs.get(timeout=60) == Interrupt(5)
            assert (listening._models, listening._stop_before) == ({}, 5)
        thread.join()


def test_a_worker_that_cannot_be_replaced_was_lost_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Those that do not start are another matter, and nothing is heard of the old one any more."""
    log, pauses = StringIO(), 3
    monkeypatch.setattr(channel, "RESTART_S", 0.01)

    async def story() -> None:
        client, _, theirs = await connected()
        client._log, client._fork_server = Log(log), tmp_path / "nobody.sock"
        theirs.close()
        while log.getvalue().count("worker_not_started") < pauses:
            await asyncio.sleep(0.01)
        await client.close()

    asyncio.run(story())
    assert log.getvalue().count("worker_lost") == 1


def test_what_waits_to_be_measured_is_measured_though_there_is_no_room_for_what_was_trained() -> None:
    async def story() -> tuple[channel.Header, memoryview]:
        client, _, theirs = await connected()
        theirs.settimeout(10)
        client.train(1, LiveModel(memoryview(b"old"), b""))
        client.evaluate(1, LiveModel(memoryview(b"new"), b""))
        client._on_answer(Finished(1, b"", 0.0), PlexusError("no room"))
        with theirs:
            found = await asyncio.to_thread(channel.receive, theirs)
        await client.close()
        return found

    assert asyncio.run(story()) == (EvaluateJob(2), b"new")


def test_the_socket_of_a_fork_server_is_there_when_somebody_listens(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A fleet waits for it to be there, and connects."""
    path, found = tmp_path / "forkserver.sock", list[tuple[socket.socket, bool]]()

    class Listener(socket.socket):
        def listen(self, backlog: int = 0, /) -> None:
            found.append((self, path.exists()))
            super().listen(backlog)

    def end_with_input() -> None:
        assert path.exists()
        raise EOFError

    monkeypatch.setattr(in_process, "end_with_input", end_with_input)
    monkeypatch.setattr(in_process.signal, "signal", lambda *_: None)
    monkeypatch.setattr(in_process.socket, "socket", Listener)
    with pytest.raises(EOFError):
        in_process.fork_server(path)
    [(listener, was_there)] = found
    listener.close()
    assert not was_there


def test_where_measuring_comes_first_a_training_waits_for_it_and_is_sent_once() -> None:
    async def story() -> list[channel.Header]:
        client, _, theirs = await connected()
        theirs.settimeout(10)
        client._measures_first = True
        model = LiveModel(memoryview(b"a model"), b"")
        client.evaluate(1, model)
        with theirs:
            found = [(await asyncio.to_thread(channel.receive, theirs))[0]]
            client.train(1, model)
            client.train(2, model)
            assert client._outbox.empty()
            channel.send(theirs, Evaluated(1, 0.5, 0.5))
            found += [(await asyncio.to_thread(channel.receive, theirs))[0]]
            assert client._outbox.empty()
        await client.close()
        return found

    assert asyncio.run(story()) == [EvaluateJob(1), TrainJob(3, 2)]
