"""All engines give the same weights; who computes and how many there are makes no difference."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from plexus.errors import PlexusError
from plexus.learn.engines import Engine, LocalTraining, choose, create_engine
from plexus.learn.engines.processes import ProcessesEngine
from plexus.learn.graph import LazyModels
from plexus.learn.networks import gn_lenet
from plexus.learn.task import Task
from plexus.learn.tasks import create_task
from plexus.learn.trainer import InlineEngine


def jobs_for(engine: Engine, count: int = 7) -> list[LocalTraining]:
    other = engine.initial * 1.5
    return [LocalTraining(engine.initial if i % 3 else other, i, 10 + i) for i in range(count)]


def same(first: list[Tensor], second: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.fixture
def processes(digits: Task) -> Iterator[Callable[[int], ProcessesEngine]]:
    engines: list[ProcessesEngine] = []

    def start(workers: int) -> ProcessesEngine:
        engines.append(ProcessesEngine(digits, workers))
        return engines[-1]

    yield start
    for engine in engines:
        engine.close()


@pytest.mark.slow
def test_two_workers_and_four_give_the_bits_of_inline(digits: Task, processes) -> None:  # type: ignore[no-untyped-def]
    inline = InlineEngine(digits)
    expected = inline.train(jobs_for(inline))
    for workers in (2, 4):
        engine = processes(workers)
        assert torch.equal(engine.initial, inline.initial)
        for _ in range(2):
            assert same(engine.train(jobs_for(engine)), expected)
        for vector in expected[:3]:
            assert engine.evaluate(vector) == inline.evaluate(vector)


@pytest.mark.slow
def test_a_killed_worker_is_replaced_and_its_work_done_again(digits: Task, processes) -> None:  # type: ignore[no-untyped-def]
    inline, engine = InlineEngine(digits), processes(2)
    assert same(engine.train(jobs_for(engine)), inline.train(jobs_for(inline)))
    victim = engine._workers[0].process.pid
    assert victim is not None
    os.kill(victim, signal.SIGKILL)
    assert same(engine.train(jobs_for(engine, 9)), inline.train(jobs_for(inline, 9)))


def cpu_s(pid: int | None) -> float:
    """Processor time of a process, as the kernel counts it."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the kernel has no /proc")
def test_the_processor_time_of_workers_is_known(processes) -> None:  # type: ignore[no-untyped-def]
    engine = processes(2)
    trained = engine.train(jobs_for(engine, 12))
    for vector in trained[:3]:
        engine.evaluate(vector)
    counted_s = sum(cpu_s(worker.process.pid) for worker in engine._workers)
    # The kernel counts in hundredths, for user and system, and the last answer's sending too.
    assert engine.workers_cpu_s == pytest.approx(counted_s, abs=0.08)
    assert engine.workers_cpu_s > 0


class Deadly(nn.Module):
    """Takes its process down, in worker processes only."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        if os.environ.get("PLEXUS_TEST_PARENT") != str(os.getpid()):
            os._exit(9)
        return self.layer(x)  # type: ignore[no-any-return]


class Failing(Deadly):
    """Raises instead."""

    def forward(self, x: Tensor) -> Tensor:
        raise RuntimeError("does not work here")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Deadly, "3 worker processes died on the same work"),
        (Failing, r"training node .*does not work here \(.*test_engines.py:\d+, in forward\)"),
    ],
)
def test_work_that_cannot_be_done_is_one_error(
    digits: Task, model: type[nn.Module], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLEXUS_TEST_PARENT", str(os.getpid()))
    engine = ProcessesEngine(replace(digits, build_model=model), workers=2)
    try:
        with pytest.raises(PlexusError, match=f"task digits: .*{message}"):
            engine.train(jobs_for(engine))
        with pytest.raises(PlexusError, match=message):  # fresh workers, the same verdict
            engine.train(jobs_for(engine)[:1])
    finally:
        engine.close()


def test_a_task_that_cannot_be_pickled_says_so(digits: Task) -> None:
    task = replace(digits, build_model=lambda: nn.Linear(64, 10))
    with pytest.raises(PlexusError, match="cannot be sent to worker processes, use the engine inline"):
        ProcessesEngine(task, workers=1)


def test_without_ray_the_extra_is_named(digits: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(PlexusError, match=r"pip install 'plexus-learning\[cluster\]'"):
        create_engine("ray", digits)


@pytest.mark.slow
def test_a_whole_session_gives_the_same_model_on_any_engine(averaging) -> None:  # type: ignore[no-untyped-def]
    task = create_task("digits", nodes=20, seed=5)
    hashes, accuracies = set(), set()
    for name in ("inline", "processes"):
        engine, _ = create_engine(name, task, workers=2)
        models = LazyModels(task, engine)
        model = averaging(models, nodes=20, rounds=12, sample=5)
        hashes.add(models.weights_hash(model))
        accuracies.add(models.evaluate(model).value)
        engine.close()
    assert len(hashes) == len(accuracies) == 1


def test_auto_says_why(digits: Task) -> None:
    chosen = choose(digits, device="cpu")
    assert (chosen.name, chosen.device) == ("stacked", "cpu")
    assert "4,810 parameters" in chosen.reason
    dropout = replace(digits, build_model=lambda: nn.Sequential(nn.Linear(64, 10), nn.Dropout(0.5)))
    assert choose(dropout, workers=2, device="cpu").name == "processes"
    wide = create_task("digits", nodes=2, seed=1, hidden=2000)
    assert choose(wide, workers=1, device="cpu").name == "inline"


@pytest.mark.slow
def test_auto_trains_convolutions_in_processes_on_a_cpu(digits: Task) -> None:
    train = replace(digits.train, inputs=torch.rand(len(digits.train), 3, 32, 32))
    task = replace(digits, train=train, build_model=gn_lenet, batch=2)
    chosen = choose(task, workers=2, device="cpu")
    assert (chosen.name, chosen.reason) == (
        "processes",
        "no GPU; a convolution network trains on 2 cores in parallel",
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "inlien"}, "^engine 'inlien' is not one of .*did you mean 'inline'"),
        ({"name": "inline", "device": "gpu"}, "unknown device 'gpu'"),
        ({"name": "processes", "device": "meta"}, "processes computes on the CPU"),
        ({"name": "processes", "workers": -1}, "workers is -1"),
    ],
)
def test_a_wrong_engine_is_named(digits: Task, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(PlexusError, match=message):
        create_engine(task=digits, **arguments)  # type: ignore[arg-type]


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_gpu_that_is_not_there_is_named(digits: Task) -> None:
    with pytest.raises(PlexusError, match="device cuda was asked for, but this machine has no CUDA"):
        create_engine("stacked", digits, device="cuda")
