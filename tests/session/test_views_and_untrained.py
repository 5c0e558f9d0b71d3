"""What a run records of views, and runs in which nothing is learned."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from plexus.cli.progress import Progress
from plexus.errors import PlexusError
from plexus.experiment.simulation import simulate
from plexus.learn.tasks import build_task
from plexus.runs.run import Run, load_run
from plexus.spec.experiment import parse_spec
from plexus.traces.build import build_world

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
    simulate(spec, Path(), out, Progress("test", 3600 * spec.hours))
    return load_run(out)


def test_views_follow_who_is_online(tmp_path: Path) -> None:
    found = run(tmp_path / "a")
    views = found.tables["views"]
    assert views["simulated_s"].tolist() == [300.0 * step for step in range(36)]
    assert views["online"].tolist() == found.tables["online"]["online"].tolist()
    assert (views["min_view"] <= views["mean_view"]).all()
    assert (views["mean_view"] <= views["max_view"]).all()
    spec = parse_spec(SPEC, "untrained.toml")
    world = build_world(spec.traces, spec.nodes, spec.seed, Path())
    assert views["online"][0] == np.count_nonzero(world.availability.online_at(0.0))
    assert len(set(views["online"].tolist())) > 3, "there is churn"
    wrong = np.abs(views["mean_view"] - views["online"]) / views["online"]
    assert wrong.mean() < 0.2


@pytest.mark.parametrize(("protocol", "has_views"), [("gossip", True), ("dpsgd", False)])
def test_protocols_without_views_have_no_table_of_them(
    protocol: str, has_views: bool, tmp_path: Path
) -> None:
    found = run(tmp_path / "a", f'protocol={{name="{protocol}"}}', "hours=0.5")
    assert bool(found.tables["views"]) is has_views


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
