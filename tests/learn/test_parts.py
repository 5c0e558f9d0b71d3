"""What of a model travels, what stays with a node, and what everybody has: simulated and in a live worker."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load
from torch import nn

import plexus
from plexus.errors import PlexusError
from plexus.learn.engines import LocalTraining, create_engine
from plexus.learn.graph import LazyModels
from plexus.learn.layout import Layout, encode, weights_hash
from plexus.learn.saved import read_model
from plexus.learn.task import Task
from plexus.learn.tasks import create_task
from plexus.live.models import ModelLayout
from plexus.live.state import LOCAL_FILE, REST_FILE, taken_home
from plexus.live.worker import client as channel
from plexus.runs.model_files import FINAL_MODEL, metadata_of

PROJECT = '''
from dataclasses import replace
from torch import nn
from plexus import create_task

class Net(nn.Module):
    """A backbone that is nine tenths of the weights, a body and a head, as in docs/own-task.md."""

    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU())
        self.backbone.requires_grad_(False)
        self.body, self.head = nn.Linear(512, 64), nn.Linear(64, 10)

    def forward(self, inputs):
        return self.head(self.body(self.backbone(inputs)).relu())


def build(nodes, seed, local=()):
    return replace(create_task("digits", nodes, seed), build_model=Net, local=tuple(local))
'''

SPEC = """
name = "parts"
nodes = 8
hours = 0.2
task = { name = "parts_task:build", local = %s }
traces = { availability = "none" }
protocol = { sample_size = 4, start_delay_s = 1.0 }
evaluation = { every_rounds = 5 }
"""


BODY_BYTES, HEAD_BYTES = 4 * (512 * 64 + 64), 4 * (64 * 10 + 10)


def project(folder: Path, local: list[str]) -> Path:
    (folder / "parts_task.py").write_text(PROJECT)
    (folder / "parts.toml").write_text(SPEC % json.dumps(local))
    return folder / "parts.toml"


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(64, 16)
        self.first.requires_grad_(False)
        self.norm = nn.BatchNorm1d(16)
        self.middle = nn.Linear(16, 8)
        self.head = nn.Linear(8, 10)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.middle(torch.relu(self.first(inputs)))))  # type: ignore[no-any-return]


def sequence() -> nn.Module:
    """What the engine `stacked` has layers of its own for."""
    net = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    net[0].requires_grad_(False)
    return net


def small(**changes: Any) -> Task:
    return replace(create_task("digits", 6, 2), build_model=Small, **changes)


def test_which_tensors_are_what() -> None:
    usual = Layout.of(Small())
    assert usual.frozen == ("first.weight", "first.bias")
    assert usual.shared == tuple(entry.name for entry in usual.entries)
    assert "norm.running_mean" in usual.shared and usual.size == usual.shared_size
    with_head = Layout.of(Small(), local=("head.*",))
    assert [entry.name for entry in with_head.entries][-2:] == ["head.weight", "head.bias"]
    assert with_head.size - with_head.shared_size == 90
    chosen = Layout.of(Small(), shared=("middle.*", "first.*", "norm.*"), local=("head.*",))
    assert chosen.frozen == () and "first.weight" in chosen.shared
    for patterns, complaint in (
        ({"shared": ("middle.*",)}, "norm.weight is trained, but neither shared nor local"),
        (
            {"local": ("tail.*",)},
            r"local: no tensor of the model is called 'tail.\*'; there are first.weight",
        ),
        ({"local": ("*",)}, "has nothing that is shared"),
    ):
        with pytest.raises(PlexusError, match=complaint):
            Layout.of(Small(), **patterns)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("build", [Small, sequence])
def test_all_engines_train_the_same_parts(build: Any) -> None:
    local = ("2.*",) if build is sequence else ("head.*",)
    shared = ("0.*",) if build is sequence else None
    task = replace(create_task("digits", 6, 2), build_model=build, local=local, shared=shared)
    found = []
    for name in ("inline", "processes", "stacked"):
        engine, _ = create_engine(name, task, workers=2, device="cpu")
        found.append(engine.train([LocalTraining(engine.initial, node, 3) for node in range(6)]))
        assert set(engine.frozen) == (set() if build is sequence else {"first.weight", "first.bias"})
        engine.close()
    for inline, processes, stacked in zip(*found, strict=True):
        assert torch.equal(inline, processes)
        assert torch.allclose(inline, stacked, atol=1e-5)
        assert len(inline) == engine.layout.size


def test_what_stays_with_a_node_goes_from_training_to_training() -> None:
    task = small(local=("head.*",))
    engine, _ = create_engine("inline", task)
    lazy, shared = LazyModels(task, engine), engine.layout.shared_size
    assert lazy.model_bytes < len(encode(engine.layout.tensors(engine.initial)))

    def trained(base: torch.Tensor, own: torch.Tensor, node: int, round: int) -> torch.Tensor:
        return engine.train([LocalTraining(torch.cat([base, own]), node, round)])[0]

    start, own_start = engine.initial[:shared], engine.initial[shared:]
    first = [trained(start, own_start, node, 1) for node in (0, 1)]
    mean = (first[0][:shared] + first[1][:shared]) / 2
    second = trained(mean, first[0][shared:], 0, 2)
    others = trained(mean, own_start, 2, 2)

    base = lazy.mean([lazy.train(lazy.initial(), node, 1) for node in (0, 1)], [1, 1])
    lazy.train(base, 0, 7)
    lazy.interrupted(0)  # as if it had never begun
    again, new = lazy.train(base, 0, 2), lazy.train(base, 2, 2)
    lazy._force([again, new])
    assert torch.equal(again.vector(), second[:shared])
    assert torch.equal(lazy._own[0].vector(), second[shared:])
    assert torch.equal(new.vector(), others[:shared])
    tensors = lazy.weights(again)
    assert torch.equal(tensors["first.weight"], engine.frozen["first.weight"])
    assert torch.equal(tensors["head.bias"], engine.layout.tensors(engine.initial)["head.bias"])
    # Nothing of the past is kept: the newest of three nodes, and what it was made from is gone.
    assert lazy._own[0].parents == () and lazy._own[0].before is not None
    lazy.train(again, 0, 3)
    assert lazy._own[0].before is not None and lazy._own[0].before.before is None


@pytest.mark.slow
def test_a_run_that_is_resumed_has_the_same_parts(tmp_path: Path) -> None:
    spec = project(tmp_path, ["head.*"])
    whole = plexus.simulate(spec, out=tmp_path / "whole")

    def stop(tick: Any) -> None:
        if tick.simulated_s >= 360:
            raise plexus.StopRun

    half = plexus.simulate(spec, out=tmp_path / "half", on_progress=stop)
    assert half.result is not None and half.result.interrupted
    from plexus.experiment.simulation import simulate
    from plexus.spec.experiment import load_spec

    resumed = simulate(load_spec(spec), tmp_path, tmp_path / "half", resume=True)
    assert whole.result is not None
    assert (resumed.digest, resumed.weights_hash) == (whole.result.digest, whole.result.weights_hash)


@pytest.mark.slow
def test_only_what_is_trained_is_sent_in_a_simulation(tmp_path: Path) -> None:
    run = plexus.simulate(project(tmp_path, []), out=tmp_path / "run")
    assert run.result is not None
    task = load_net(tmp_path)
    frozen = weights_hash({n: t.detach() for n, t in task.named_parameters() if not t.requires_grad})
    own = {name: each for name, each in task.named_parameters() if each.requires_grad}
    model_bytes = len(encode(own, frozen))
    trainable = BODY_BYTES + HEAD_BYTES
    heaviest = max(traffic.bytes / traffic.count for traffic in run.result.messages.values())
    # What is more than the numbers: names, the hash of the backbone, and the view of eight nodes.
    assert trainable < model_bytes < heaviest <= 1.05 * trainable
    tensors, about = read_model(run.path / FINAL_MODEL)
    assert tensors["backbone.0.weight"].shape == (512, 64)
    model = run.model()
    task = create_task("digits", 8, 1)
    with torch.no_grad():
        found = (model(task.test.inputs).argmax(1) == task.test.targets).float().mean()
    assert float(found) == pytest.approx(float(about["value"]), abs=1e-6)


class Job:
    """A worker process, and what it says."""

    def __init__(self, folder: Path, home: Path, local: list[str]) -> None:
        self._mine, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", channel.WORKER_MODULE, "--fd", str(theirs.fileno())]
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
        home.mkdir(exist_ok=True)
        text = project(folder, local).read_text()
        channel.send(self._mine, channel.SetUp(text, "3", str(folder), home=str(home)))
        self.ready, self.initial = channel.receive(self._mine)

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        self._mine.close()
        self._process.wait(timeout=30)

    def train(self, model: memoryview, round: int) -> memoryview:
        channel.send(self._mine, channel.TrainJob(round, round), model)
        answer, trained = channel.receive(self._mine)
        assert isinstance(answer, channel.Finished)
        return trained


@pytest.mark.slow
def test_a_live_worker_sends_what_is_shared_and_keeps_the_rest(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with Job(tmp_path, home, ["head.*"]) as worker:
        first, second = check_worker(worker, home)
    check_home(tmp_path, home, first, second)


def check_worker(worker: Job, home: Path) -> tuple[memoryview, bytes]:
    assert isinstance(worker.ready, channel.Ready) and len(worker.ready.frozen) == 32
    assert set(load(bytes(worker.initial))) == {"body.weight", "body.bias"}
    assert len(worker.initial) <= 1.05 * BODY_BYTES
    first = worker.train(worker.initial, 1)
    kept = read_model(home / LOCAL_FILE)[0]
    (home / "before").write_bytes((home / LOCAL_FILE).read_bytes())
    second = bytes(worker.train(first, 2))
    assert not torch.equal(read_model(home / LOCAL_FILE)[0]["head.bias"], kept["head.bias"])
    return first, second


def check_home(tmp_path: Path, home: Path, first: memoryview, second: bytes) -> None:
    # A node that is started again goes on with its own head.
    again = home.with_name("again")
    again.mkdir()
    (again / LOCAL_FILE).write_bytes((home / "before").read_bytes())
    for other, is_same in ((again, True), (tmp_path / "new", False)):
        with Job(tmp_path, other, ["head.*"]) as restarted:
            assert (bytes(restarted.train(first, 2)) == second) is is_same
    whole = b"".join(taken_home(home, memoryview(second), {"round": "2"}))
    (tmp_path / "m.safetensors").write_bytes(whole)
    tensors = read_model(tmp_path / "m.safetensors")[0]
    assert set(tensors) == set(nn.Module.state_dict(load_net(tmp_path)))
    assert torch.equal(tensors["head.bias"], read_model(home / LOCAL_FILE)[0]["head.bias"])
    assert metadata_of(home / REST_FILE)["task"] == "digits"
    foreign = encode(load(second), "another hash of frozen weights!!")
    assert ModelLayout(second).flaw(memoryview(foreign)) == "it has other tensors than this session's model"


def load_net(folder: Path) -> nn.Module:
    from plexus.loading import load_own

    return load_own("parts_task:Net", folder, "test")()  # type: ignore[no-any-return]
