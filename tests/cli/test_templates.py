"""`plexus new --template`: each project works as it is, and takes the data that a peer brings."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import plexus
from plexus.cli.new import new, write_project
from plexus.learn.engines import choose
from plexus.live.worker.process import task_of
from plexus.runs.model_files import BEST_MODEL, metadata_of
from plexus.spec.experiment import load_spec

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("template", "own", "best"),
    [("images", "data/ben", 0.6), ("text", "data/cleo.txt", 0.6), ("own-loop", "data/readings.csv", 0.9)],
)
def test_a_project_learns_and_a_peer_brings_its_own(
    template: str, own: str, best: float, tmp_path: Path
) -> None:
    name = f"mine_{template.replace('-', '_')}"
    write_project(name, tmp_path, template=template)
    session = tmp_path / name / "session.toml"
    run = plexus.simulate(session, changes={"hours": 0.15}, out=tmp_path / "run")
    assert run.result is not None and run.result.metric.best is not None and run.result.metric.best > best
    assert metadata_of(run.path / BEST_MODEL)["task"] == name
    assert sum(each.numel() for each in run.best_model().parameters()) > 100
    spec = load_spec(session)
    task, node = task_of(spec, tmp_path / name, str(tmp_path / name / own))
    assert (task.nodes, node) == (1, 0) and len(task.test) > 0
    if template == "own-loop":
        assert task.loop is not None and choose(task, workers=1, device="cpu").name == "inline"


def test_a_table_is_no_picture(tmp_path: Path) -> None:
    result = CliRunner().invoke(new, ["x", "--template", "images", "--csv", "t.csv", "--into", str(tmp_path)])
    assert "--csv is a table" in result.output and list(tmp_path.iterdir()) == []
