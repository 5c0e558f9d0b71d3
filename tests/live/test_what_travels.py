"""Fleets of three: a frozen backbone with heads of their own as int8, and a training loop of one's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file

from plexus.live.state import LOCAL_FILE, newest_model
from plexus.runs.model_files import FINAL_MODEL, metadata_of
from plexus.runs.run import load_run
from tests.learn.test_parts import BODY_BYTES, project
from tests.live.test_commands import plexus

EXAMPLES = Path(__file__).parents[2] / "examples"
pytestmark = pytest.mark.live


@pytest.mark.parametrize(("wire", "most"), [("float32", 1.05), ("int8", 1.05 / 3.85)])
def test_only_what_is_trained_and_shared_is_sent(wire: str, most: float, tmp_path: Path) -> None:
    spec = project(tmp_path, ["head.*"])
    late = ("--set", "protocol.success_fraction=0.5", "--set", "protocol.late_rounds=20")
    options = ("--nodes", 4, "--rounds", 12, "--set", f"protocol.wire={wire}", "--set", "evaluation.on=both")
    plexus("fleet", "run", spec, *options, *late, "--out", "fleet", cwd=tmp_path)
    homes = [tmp_path / "fleet" / f"node-0{number}" for number in range(4)]
    said = [json.loads(line) for home in homes for line in (home / "log.jsonl").read_text().splitlines()]
    assert sum(line.get("late", 0) for line in said if line["event"] == "AggregationCompleted") > 0
    heads = [load_file(home / LOCAL_FILE)["head.bias"].tolist() for home in homes]
    assert heads[0] != heads[1] != heads[2]
    for home in homes:
        held = newest_model(home)
        assert held is not None and len(held.data) <= most * BODY_BYTES
    final = load_file(tmp_path / "fleet" / FINAL_MODEL)
    assert final["backbone.0.weight"].shape == (512, 64) and final["body.weight"].shape == (64, 512)
    assert final["head.bias"].tolist() in heads
    run = load_run(tmp_path / "fleet")
    assert "own_accuracy" in run.metrics and run.metrics["own_accuracy"][-1] > 0.2
    session = (tmp_path / "fleet" / "session" / "session.toml").read_text()
    assert "frozen = " in session and (wire in session) == (wire != "float32")


def test_a_loop_of_ones_own_runs_live(tmp_path: Path) -> None:
    spec = EXAMPLES / "own_loop" / "session.toml"
    plexus("fleet", "run", spec, "--nodes", 3, "--rounds", 8, "--out", "fleet", cwd=tmp_path)
    result = json.loads((tmp_path / "fleet" / "result.json").read_text())
    assert result["metric"]["best"] > 0.8
    plexus("export", "fleet", "-o", "m.safetensors", "--best", cwd=tmp_path)
    assert metadata_of(tmp_path / "m.safetensors")["task"] == "digits"
