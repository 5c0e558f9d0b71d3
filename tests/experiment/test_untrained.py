"""Runs in which nothing is learned: only time and traffic are simulated."""

from __future__ import annotations

from pathlib import Path

import pytest

from plexus.errors import PlexusError, StopRun
from plexus.experiment.progress import Tick
from plexus.experiment.simulation import simulate
from plexus.learn.tasks import build_task
from plexus.runs.run import Run, load_run
from plexus.spec.experiment import parse_spec

SPEC = """
name = "untrained"
nodes = 120
hours = 3
[protocol]
name = "plexus"
sample_size = 6
[task]
name = "untrained"
model_bytes = 50000
"""


def run(out: Path, *overrides: str) -> Run:
    spec = parse_spec(SPEC, "untrained.toml", overrides)
    simulate(spec, Path(), out)
    return load_run(out)


def test_nothing_is_learned_but_everything_is_counted(tmp_path: Path) -> None:
    result = run(tmp_path / "a").result
    assert result is not None
    assert (result.metric.name, result.metric.best) == ("none", None)
    assert result.rounds > 30
    assert result.trainings.asked > 6 * 30 > result.trainings.computed == 0
    model = result.messages["model"]
    assert 40_000 < model.bytes / model.count <= 50_200
    again = run(tmp_path / "b").result
    assert again is not None and again.digest == result.digest


def test_only_a_simulation_can_do_without_learning() -> None:
    spec = parse_spec(SPEC, "untrained.toml")
    with pytest.raises(PlexusError, match="untrained has nothing to learn"):
        build_task(spec.task.parameters, 3, 1)


def stop_after_an_hour(at: Tick) -> None:
    if at.simulated_s >= 3600:
        raise StopRun


def test_a_run_that_was_cut_goes_on_though_it_learns_nothing(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole").result
    spec = parse_spec(SPEC, "untrained.toml")
    cut = simulate(spec, Path(), tmp_path / "cut", stop_after_an_hour)
    assert cut.interrupted and cut.simulated_s == 3600
    resumed = simulate(spec, Path(), tmp_path / "cut", resume=True)
    assert whole is not None
    assert (resumed.digest, resumed.rounds, resumed.trainings.asked) == (
        whole.digest,
        whole.rounds,
        whole.trainings.asked,
    )


NOBODY = ("nobody was online: take more nodes, more hours or another traces.availability",)
ONE = ("at most one node at a time was online: take more nodes, more hours or another traces.availability",)


@pytest.mark.parametrize(
    ("nodes", "protocol", "sessions", "notes"),
    [
        (2, "plexus", [(0, 5000, 6000), (1, 5000, 6000)], NOBODY),
        (2, "fedavg", [(0, 5000, 6000), (1, 5000, 6000)], NOBODY),
        (2, "plexus", [(0, 0, 100), (0, 200, 300), (1, 101, 199)], ONE),
        (2, "plexus", [(0, 0, 100), (1, 99, 200)], ()),
        (2, "fedavg", [(0, 0, 100), (1, 101, 199)], ()),
        (1, "plexus", [(0, 0, 100)], ()),
    ],
)
def test_a_run_in_which_nobody_met_anybody_says_so(
    nodes: int, protocol: str, sessions: list[tuple[int, int, int]], notes: tuple[str, ...], tmp_path: Path
) -> None:
    rows = [",".join(map(str, row)) for row in sessions]
    (tmp_path / "who.csv").write_text("\n".join(["device,start_s,end_s", *rows, ""]))
    changes = f"nodes={nodes}", "hours=1", f"protocol.name={protocol}", "traces.offsets=none"
    spec = parse_spec(SPEC, "untrained.toml", (*changes, f'traces.availability="{tmp_path}/who.csv"'))
    assert simulate(spec, tmp_path, tmp_path / "run").notes == notes
