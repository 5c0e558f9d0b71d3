"""What a run directory says about baselines: models of nodes, their spread, the tuned duration."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import plexus.experiment.learning
from plexus.errors import PlexusError
from plexus.experiment.progress import Tick
from plexus.experiment.simulation import Machinery, simulate
from plexus.learn.task import Measure, Task
from plexus.runs.result import Result
from plexus.runs.run import Run, load_run
from plexus.sim.protocols import PROTOCOLS
from plexus.spec.experiment import parse_spec

pytestmark = pytest.mark.slow

SPEC = """\
name = "small"
nodes = 8
hours = 0.3
[task]
name = "digits"
[traces]
availability = "none"
[evaluation]
every_hours = 0.1
"""
CHURN = ("traces.availability=fedscale", "nodes=24", "seed=2")


def run(out: Path, protocol: str, *overrides: str) -> Run:
    spec = parse_spec(SPEC, "small.toml", (f"protocol.name={protocol}", *overrides))
    result = simulate(spec, Path(), out)
    found = load_run(out)
    assert found.result == result
    return found


def outcome(run: Run) -> Result:
    assert run.result is not None
    return run.result


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("overrides", [(), CHURN])
def test_every_protocol_runs_from_a_spec_and_repeats_itself(
    tmp_path: Path, protocol: str, overrides: tuple[str, ...]
) -> None:
    runs = [outcome(run(tmp_path / name, protocol, *overrides)) for name in ("a", "b")]
    assert runs[0].rounds > 3
    assert runs[0].metric.final is not None
    assert runs[0].digest == runs[1].digest
    assert runs[0].weights_hash == runs[1].weights_hash


def test_models_of_nodes_are_measured_each_and_told_by_mean_spread_and_best(tmp_path: Path) -> None:
    found = run(tmp_path / "a", "gossip")
    rows, each = found.tables["evaluations"], found.tables["node_evaluations"]
    assert rows["simulated_s"].tolist() == [360.0, 720.0, 1080.0]
    assert rows["nodes"].tolist() == [8, 8, 8]
    for at, time_s in enumerate(rows["simulated_s"]):
        now = each["simulated_s"] == time_s
        values = each["accuracy"][now].tolist()
        assert each["node"][now].tolist() == list(range(8))
        assert rows["accuracy"][at] == fmean(values)
        assert rows["accuracy_std"][at] == pstdev(values)
        assert rows["accuracy_best"][at] == max(values)
        assert rows["loss"][at] == fmean(each["loss"][now].tolist())
        assert rows["round"][at] >= max(each["round"][now])
    metric = outcome(found).metric
    assert (metric.best, metric.final) == (each["accuracy"].max(), rows["accuracy"][-1])
    assert metric.of_nodes
    assert len(set(each["accuracy"].tolist())) > 8, "nodes have models of their own"


def test_a_share_of_the_nodes_is_drawn_by_seed(tmp_path: Path) -> None:
    one, two, other = (
        run(tmp_path / name, "dpsgd", "evaluation.node_share=0.5", f"seed={seed}").tables
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    assert one["evaluations"]["nodes"].tolist() == [4, 4, 4]
    drawn = one["node_evaluations"]["node"].reshape(3, 4)
    assert (np.diff(drawn) > 0).all()
    assert len({tuple(row) for row in drawn.tolist()}) > 1, "others each time"
    assert np.array_equal(one["node_evaluations"]["node"], two["node_evaluations"]["node"])
    assert not np.array_equal(drawn, other["node_evaluations"]["node"].reshape(3, 4))


def test_only_nodes_online_are_measured(tmp_path: Path) -> None:
    found = run(tmp_path / "a", "dpsgd", *CHURN)
    online = dict(
        zip(*(found.tables["online"][name].tolist() for name in ("simulated_s", "online")), strict=True)
    )
    for time_s, nodes in zip(
        *(found.tables["evaluations"][name].tolist() for name in ("simulated_s", "nodes")), strict=True
    ):
        if time_s in online:
            assert nodes == online[time_s] < 24
    assert outcome(found).metric.final is not None


@pytest.mark.parametrize("on", ["own", "both"])
def test_who_has_a_single_example_measures_nothing_by_it(tmp_path: Path, on: str) -> None:
    few = "task.test_share=0.99", "nodes=17", "evaluation.node_share=0.06", "evaluation.every_hours=0.005"
    rows = run(tmp_path / "a", "gossip", *few, f"evaluation.on={on}").tables["evaluations"]
    # Of 18 examples one node has two: what it holds back is told where it is drawn, by itself, and no more.
    found = rows["own_accuracy"].tolist()
    assert (set(found) <= {0.0, 1.0}) if on == "own" else any(value != value for value in found)
    with pytest.raises(PlexusError, match="no node has two examples"):
        run(tmp_path / "b", "gossip", *few, f"evaluation.on={on}", "nodes=18")


def test_what_is_no_number_is_not_the_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build, found = plexus.experiment.learning.build_task, chain((math.nan,), repeat(0.5))

    def judged(outputs: Tensor, targets: Tensor) -> Tensor:
        return torch.full(targets.shape, next(found))

    def without(*arguments: Any) -> Task:
        task = build(*arguments)
        few = task.test.rows(np.arange(9))
        return replace(task, test=few, measure=Measure("sense", judged, higher_is_better=True))

    monkeypatch.setattr(plexus.experiment.learning, "build_task", without)
    metric = outcome(run(tmp_path / "a", "plexus", "evaluation.every_rounds=2")).metric
    assert (metric.best, metric.final) == (0.5, 0.5)


def test_tasks_may_ask_for_the_average_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    each = run(tmp_path / "each", "dpsgd")
    build = plexus.experiment.learning.build_task

    def averaged(*arguments: Any) -> Task:
        return replace(build(*arguments), average_only=True)

    monkeypatch.setattr(plexus.experiment.learning, "build_task", averaged)
    found = run(tmp_path / "mean", "dpsgd")
    assert found.tables["node_evaluations"] == {}
    rows = found.tables["evaluations"]
    assert rows["nodes"].tolist() == [8, 8, 8]
    assert rows["accuracy"].tolist() == rows["accuracy_best"].tolist()
    assert rows["accuracy_std"].tolist() == [0.0, 0.0, 0.0]
    assert rows["accuracy"].tolist() != each.tables["evaluations"]["accuracy"].tolist()
    assert outcome(found).digest == outcome(each).digest
    assert outcome(found).weights_hash == outcome(each).weights_hash


def test_a_tuned_duration_is_part_of_the_result(tmp_path: Path) -> None:
    tuning = outcome(run(tmp_path / "a", "dpsgd", *CHURN)).tuning
    assert tuning is not None
    assert tuning.transfers == 24 * 5
    assert tuning.slowest_s is not None
    assert 0 < tuning.round_duration_s <= tuning.slowest_s + 0.1
    assert outcome(run(tmp_path / "b", "dpsgd")).tuning is None


def test_a_server_is_no_device(tmp_path: Path) -> None:
    found = run(tmp_path / "a", "fedavg", "evaluation.every_rounds=5")
    assert set(found.tables["online"]["online"].tolist()) == {8}
    assert set(found.tables["rounds"]["aggregator"].tolist()) == {8}
    crossed = found.tables["evaluations"]["round"][:-1] % 5
    assert crossed.tolist() == [0] * len(crossed)
    assert found.tables["node_evaluations"] == {}


@pytest.mark.parametrize("overrides", [(), CHURN])
def test_where_few_are_active_those_that_were_so_last_are_judged(
    tmp_path: Path, overrides: tuple[str, ...]
) -> None:
    found = run(tmp_path / "a", "teleportation", "protocol.active=3", *overrides)
    tables = found.tables
    assert tables["evaluations"]["nodes"].tolist() == [3, 3, 3]
    newest = dict(zip(tables["evaluations"]["simulated_s"], tables["evaluations"]["round"], strict=True))
    judged = zip(tables["node_evaluations"]["simulated_s"], tables["node_evaluations"]["round"], strict=True)
    assert all(newest[at_s] - k <= 2 for at_s, k in judged), "nobody is judged by a turn of long ago"


def test_the_end_is_measured_even_between_evaluations(tmp_path: Path) -> None:
    rows = run(tmp_path / "a", "gossip", "evaluation.every_hours=0.2").tables["evaluations"]
    assert rows["simulated_s"].tolist() == [720.0, 1080.0]


def test_on_one_grid_every_protocol_is_measured_at_the_same_moments(tmp_path: Path) -> None:
    on_grid = "evaluation.every_rounds=0", "evaluation.every_hours=0.125"
    runs = {name: run(tmp_path / name, name, *on_grid) for name in PROTOCOLS}
    times_s = {name: each.tables["evaluations"]["simulated_s"].tolist() for name, each in runs.items()}
    assert times_s == {name: [450.0, 900.0, 1080.0] for name in PROTOCOLS}
    # How often models are looked at changes nothing of what happens.
    for name in ("plexus", "fedavg"):
        assert outcome(runs[name]).digest == outcome(run(tmp_path / f"{name}-by-rounds", name)).digest


def test_on_a_grid_a_moment_counts_though_no_round_was_completed(tmp_path: Path) -> None:
    slow = "protocol.sample_size=8", "protocol.success_fraction=1.0"
    grid = "evaluation.every_rounds=0", "evaluation.every_hours=0.001"
    rows = run(tmp_path / "a", "plexus", *slow, *grid).tables["evaluations"]
    assert len(rows["round"]) == 300
    again = np.flatnonzero(np.diff(rows["round"]) == 0)
    assert len(again) > 100
    assert (np.diff(rows["accuracy"])[again] == 0).all()
    assert (np.diff(rows["sent_bytes"])[again] >= 0).all() and np.diff(rows["sent_bytes"])[again].any()


def stop_at_800_s(at: Tick) -> None:
    """Somebody presses Ctrl-C at a moment of simulated time."""
    if at.simulated_s >= 800.0:
        raise KeyboardInterrupt


@pytest.mark.parametrize("protocol", ["gossip", "dpsgd", "teleportation"])
def test_a_run_that_was_interrupted_goes_on_as_if_it_had_not_been(tmp_path: Path, protocol: str) -> None:
    spec = parse_spec(SPEC, "small.toml", (f"protocol.name={protocol}",))
    whole = simulate(spec, Path(), tmp_path / "whole")
    machinery = Machinery(checkpoint_every_s=0)
    cut = simulate(spec, Path(), tmp_path / "cut", stop_at_800_s, machinery)
    assert cut.interrupted
    resumed = simulate(spec, Path(), tmp_path / "cut", machinery=machinery, resume=True)
    assert (resumed.digest, resumed.weights_hash) == (whole.digest, whole.weights_hash)
    for table in ("evaluations", "node_evaluations"):
        texts = [(tmp_path / name / f"{table}.csv").read_text() for name in ("whole", "cut")]
        assert texts[0] == texts[1]
