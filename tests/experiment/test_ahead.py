"""Learning in a process of its own: the same run, byte for byte, however either process ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Timer
from typing import Any

import pytest
import safetensors.numpy

import plexus
from plexus.errors import StopRun, TaskError
from plexus.experiment import ahead, learning
from plexus.experiment.ahead import ModelsAhead
from plexus.experiment.checkpoint import read_checkpoint
from plexus.experiment.learning import goes_ahead
from plexus.experiment.progress import Tick, stoppable
from plexus.experiment.simulation import Machinery, Simulation, simulate
from plexus.runs.directory import RunDirectory
from plexus.runs.result import Result
from plexus.runs.run import load_run
from plexus.spec.experiment import ExperimentSpec, parse_spec
from plexus.traces.build import build_world

SPEC = """
name = "ahead"
nodes = 24
hours = 0.5
[protocol]
name = "plexus"
sample_size = 5
[task]
name = "digits"
[evaluation]
every_rounds = 3
every_hours = 0.1
"""
TASKS = """
import time
from dataclasses import replace
import torch
from torch import nn
from plexus import create_task

def model():
    return nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))

def personal(nodes, seed):
    return replace(create_task("digits", nodes, seed), build_model=model, local=("2.*",))

def idle(model, examples, context):
    time.sleep(0.05)

def slow(nodes, seed):
    return replace(create_task("digits", nodes, seed), optimiser=None, loop=idle)

def fail(model, examples, context):
    if context.round == 4:
        raise RuntimeError("no more")

def failing(nodes, seed):
    return replace(create_task("digits", nodes, seed), optimiser=None, loop=fail)
"""
ALONE, AHEAD = (Machinery(engine="inline", ahead=is_ahead) for is_ahead in (False, True))
OF_MACHINE = {"out", "wall_s", "cpu_s"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Path:
    (tmp_path / "ahead_tasks.py").write_text(TASKS)
    return tmp_path


def spec_of(*overrides: str) -> ExperimentSpec:
    return parse_spec(SPEC, "ahead.toml", overrides)


def what_is_left(out: Path) -> dict[str, Any]:
    """All that a run leaves but times of the machine: tables and models by their bytes."""
    result = json.loads((out / "result.json").read_bytes())
    left = {key: value for key, value in result.items() if key not in OF_MACHINE}
    for part in ("trainings", "evaluations"):
        del left[part]["wall_s"]
    files = [*out.glob("*.csv"), *out.glob("*.safetensors")]
    assert len(files) > 8
    return {**left, **{file.name: file.read_bytes() for file in files}}


def same(found: Path, expected: Path) -> None:
    one, other = what_is_left(found), what_is_left(expected)
    assert [key for key in one.keys() | other.keys() if one.get(key) != other.get(key)] == []


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("protocol.late_rounds=2", "protocol.success_fraction=0.5"),
        ('protocol.wire="int8"',),
        ('task="ahead_tasks:personal"', 'evaluation.on="both"'),
        ('evaluation.on="own"',),
        ("evaluation.every_rounds=0", "evaluation.every_hours=0.01"),
        ('protocol={name="gossip"}',),
        ('protocol={name="gossip"}', 'evaluation.on="own"', 'task="ahead_tasks:personal"'),
        ('protocol={name="dpsgd"}', "evaluation.node_share=0.5"),
        ('protocol={name="fedavg"}',),
    ],
    ids=" ".join,
)
def test_everything_that_a_run_leaves_is_the_same(overrides: tuple[str, ...], folder: Path) -> None:
    for name, machinery in (("alone", ALONE), ("ahead", AHEAD)):
        result = simulate(spec_of(*overrides), folder, folder / name, machinery=machinery)
        assert result.metric.final is not None and result.trainings.computed > 20
    same(folder / "ahead", folder / "alone")


def processes_of(pid: int) -> list[int]:
    """The learning processes that a process started."""
    listed = subprocess.run(
        ["ps", "-ww", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True
    )
    rows = [line.split(None, 2) for line in listed.stdout.splitlines()]
    return [int(own) for own, parent, what in rows if int(parent) == pid and "experiment.ahead" in what]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def until(is_so: Callable[[], bool], within_s: float = 60.0) -> None:
    deadline_s = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def started(folder: Path, out: Path, *arguments: str, **more: Any) -> subprocess.Popen[str]:
    (folder / "ahead.toml").write_text(SPEC)
    command = [sys.executable, "-m", "plexus", "run", *arguments, "--engine", "inline", "--ahead", "-q"]
    return subprocess.Popen(command, text=True, stderr=subprocess.PIPE, **more)


@pytest.mark.slow
@pytest.mark.parametrize("whom", ["simulator", "learner"])
def test_whichever_process_is_killed_the_other_ends_and_the_run_goes_on(whom: str, folder: Path) -> None:
    long = ("hours=3", "nodes=40")
    out, spec = folder / "killed", folder / "ahead.toml"
    sets = [word for each in long for word in ("--set", each)]
    places = {**os.environ, "TMPDIR": str(folder / "tmp")}
    (folder / "tmp").mkdir()
    options = ("--out", str(out), "--checkpoint-every", "0", "--model-memory", "0.0001")
    run = started(folder, out, str(spec), *sets, *options, env=places)
    until((out / "checkpoint.json").exists)
    (learner,) = processes_of(run.pid)
    os.kill(run.pid if whom == "simulator" else learner, signal.SIGKILL)
    _, said = run.communicate(timeout=60)
    until(lambda: not is_alive(learner), 5.0)
    if whom == "simulator":
        assert run.returncode == -signal.SIGKILL
        assert list((folder / "tmp").iterdir()) == [], "models that were on disk"
    else:
        why = "the learning process ended with -9: was it killed, is there enough memory?"
        assert (run.returncode, said) == (1, f"plexus: {why}\n")
    simulate(spec_of(*long), folder, out, machinery=AHEAD, resume=True)
    simulate(spec_of(*long), folder, folder / "whole", machinery=ALONE)
    same(out, folder / "whole")


def stop_at(simulated_s: float) -> Callable[[Tick], None]:
    def look(at: Tick) -> None:
        if at.simulated_s >= simulated_s:
            raise StopRun

    return look


@pytest.mark.parametrize("protocol", ["plexus", "gossip"])
def test_stopped_a_run_keeps_the_same_and_goes_on(protocol: str, folder: Path) -> None:
    spec = spec_of(f'protocol={{name="{protocol}"}}')
    for name, machinery in (("alone", ALONE), ("ahead", AHEAD)):
        cut = simulate(spec, folder, folder / name, stop_at(900.0), machinery)
        assert cut.interrupted and cut.simulated_s == 900.0
    same(folder / "ahead", folder / "alone")
    kept = [(folder / name, read_checkpoint(folder / name)) for name in ("ahead", "alone")]
    files = [out / found.folder / name for out, found in kept if found is not None for name in found.files]
    ahead, alone = (safetensors.numpy.load_file(file).keys() for file in files)
    # Those that somebody holds, and no others; of a few only Python's garbage collector knows.
    assert len(alone) > 0 and len(ahead ^ alone) < 5 and cut.trainings.computed > 50
    simulate(spec, folder, folder / "ahead", machinery=AHEAD, resume=True)
    simulate(spec, folder, folder / "whole", machinery=ALONE)
    same(folder / "ahead", folder / "whole")


def test_asked_twice_a_run_stops_though_learning_has_much_to_do(folder: Path) -> None:
    """The first evaluation takes half a minute."""
    spec = spec_of('task="ahead_tasks:slow"', "evaluation.every_rounds=100", "hours=10", "nodes=60")
    asked = []

    def insist() -> None:
        asked.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    def look(at: Tick) -> None:
        if at.simulated_s == 3600:
            for after_s in (0.5, 1.0):
                Timer(after_s, insist).start()

    with stoppable(look) as progress:
        result = simulate(spec, folder, folder / "run", progress, AHEAD)
    assert time.monotonic() - asked[-1] < 5.0
    assert result.interrupted and len(asked) == 2
    assert result.evaluations.count == 0 and result.weights_hash
    assert processes_of(os.getpid()) == []


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        (("task.learning_rate=1e30",), "after round 1 has weights that are not finite: training diverged"),
        (('task="ahead_tasks:failing"',), "in round 4: RuntimeError: no more (ahead_tasks.py:22, in fail)"),
        (('task="ahead_tasks:nothing"',), "nothing"),
        (('task="nowhere:nothing"',), "module 'nowhere' cannot be imported"),
    ],
)
def test_what_goes_wrong_is_the_same_line(
    overrides: tuple[str, ...], complaint: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    seen = []
    for machinery in (ALONE, AHEAD):
        with pytest.raises(plexus.PlexusError) as raised:
            simulate(spec_of(*overrides), folder, folder / f"run-{machinery.ahead}", machinery=machinery)
        seen.append((type(raised.value), raised.value.exit_code, str(raised.value)))
    assert seen[0] == seen[1]
    assert complaint in seen[0][2] and "\n" not in seen[0][2]
    assert processes_of(os.getpid()) == []


def test_what_fails_after_learning_was_set_up_leaves_no_process(folder: Path) -> None:
    wrong = 'attackers=[{behaviour="far-round", nodes=[2]}]', 'protocol={name="fedavg"}'
    with pytest.raises(plexus.PlexusError, match="needs the protocol plexus"):
        simulate(spec_of(*wrong), folder, folder / "run", machinery=AHEAD)
    assert processes_of(os.getpid()) == []


def simulation(spec: ExperimentSpec, folder: Path) -> tuple[RunDirectory, Simulation, ModelsAhead]:
    directory = RunDirectory(folder / "run", spec.to_toml(), spec.digest())
    made = Simulation(spec, folder, directory, AHEAD)
    assert isinstance(made._models, ModelsAhead)
    return directory, made, made._models


@pytest.mark.parametrize(
    ("overrides", "most_noted"), [((), 20_000), (("evaluation.every_rounds=100000",), 300)]
)
def test_the_simulator_waits_where_it_is_too_far_ahead(
    overrides: tuple[str, ...], most_noted: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A learning process that stands still stops time, until it goes on."""
    monkeypatch.setattr(ahead, "MOST_NOTED", most_noted)
    monkeypatch.setattr(ahead, "BATCH", 16)
    spec = spec_of("hours=3", *overrides)
    directory, made, models = simulation(spec, folder)
    learner, ticks, behind = models._process.pid, list[float](), list[tuple[int, int]]()
    os.kill(learner, signal.SIGSTOP)

    def look(at: Tick) -> None:
        ticks.append(at.simulated_s)
        behind.append((len(models._then), models._count - models._seen))

    def awake() -> None:
        ticks.append(-1.0)
        os.kill(learner, signal.SIGCONT)

    Timer(2.0, awake).start()
    with directory:
        result = made.run(look)
    before = ticks[: ticks.index(-1.0)]
    assert 0 < before[-1] < 3 * 3600 - 600, "it stood still"
    assert max(outstanding for outstanding, _ in behind) == (0 if overrides else ahead.MOST_EVALUATIONS)
    assert max(noted for _, noted in behind) <= most_noted + ahead.BATCH
    assert result.digest == simulate(spec, folder, folder / "alone", machinery=ALONE).digest


def test_a_killed_learner_is_noticed_though_nothing_is_waited_for(folder: Path) -> None:
    spec = spec_of("evaluation.every_rounds=100000", "hours=100")
    directory, made, models = simulation(spec, folder)

    def look(at: Tick) -> None:
        if at.simulated_s == 600.0:
            os.kill(models._process.pid, signal.SIGKILL)
            models._process.wait()
        assert at.simulated_s < 50 * 3600

    with directory, pytest.raises(TaskError, match="ended with -9"):
        made.run(look)


@pytest.mark.parametrize("signed", ["false", "true"])
def test_where_the_end_depends_on_what_is_measured_the_two_take_turns(folder: Path, signed: str) -> None:
    """Where members may lie it is measured again, by others."""
    spec = spec_of('session.until="accuracy >= 0.5"', f"protocol.signed_views={signed}")
    results: list[Result] = []
    for name, machinery in (("alone", ALONE), ("ahead", AHEAD)):
        results.append(simulate(spec, folder, folder / name, machinery=machinery))
    assert results[0].digest == results[1].digest
    assert results[0].simulated_s < 1800
    world = build_world(spec.traces, spec.nodes, spec.seed, folder)
    assert not goes_ahead(spec, AHEAD, world.devices)


@pytest.mark.parametrize(
    ("overrides", "machinery", "cores", "expected"),
    [
        (("hours=100",), Machinery(), 2, True),
        (("hours=100",), Machinery(), 1, False),
        (("hours=100",), Machinery(engine="ray"), 2, False),
        (("hours=100",), Machinery(ahead=False), 2, False),
        (("hours=100", 'task="__main__:f"'), Machinery(ahead=True), 2, False),
        (("hours=100", 'task="ahead_tasks:personal"'), Machinery(), 2, True),
        ((), Machinery(), 2, False),
        ((), Machinery(ahead=True), 1, True),
    ],
)
def test_whether_it_pays_is_known_before_anything_is_learned(
    overrides: tuple[str, ...],
    machinery: Machinery,
    cores: int,
    expected: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(learning, "usable_cores", lambda: cores)
    spec = spec_of(*overrides)
    world = build_world(spec.traces, spec.nodes, spec.seed, Path())
    assert goes_ahead(spec, machinery, world.devices) is expected


SCRIPT = """
import sys
import plexus

print("once")
run = plexus.simulate("ahead.toml", out="run", ahead=True, engine="inline")
print(run.result.trainings.computed > 20, "torch" in sys.modules)
"""


def test_a_script_is_run_once_and_needs_no_torch_itself(folder: Path) -> None:
    (folder / "ahead.toml").write_text(SPEC)
    (folder / "script.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, "script.py"], cwd=folder, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("once\nTrue False\n", "")


def test_a_callback_that_may_stop_the_run_is_told_in_turns(folder: Path) -> None:
    told: list[Any] = []

    def stop(row: Any) -> None:
        told.append(row)
        raise StopRun

    spec, inline = spec_of("hours=100", "nodes=60"), "inline"
    plexus.simulate(spec, out=folder / "a", on_evaluation=stop, engine=inline)
    plexus.simulate(spec, out=folder / "b", on_evaluation=stop, engine=inline, ahead=True)
    in_turns, later = (load_run(folder / name).result for name in ("a", "b"))
    assert in_turns is not None and later is not None
    assert in_turns.simulated_s == told[0]["simulated_s"] <= later.simulated_s
    assert in_turns.weights_hash == later.weights_hash, "of the model that was measured"


def test_the_processor_time_has_that_of_the_learning_process(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "process_time", lambda: 0.0)  # in this process, not in the other
    spent_s = simulate(spec_of(), folder, folder / "run", machinery=AHEAD).cpu_s
    assert spent_s is not None and spent_s > 0
