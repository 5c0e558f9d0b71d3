"""Fleets of three: a frozen backbone with heads of their own as int8, and a training loop of one's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file

from plexus.live.state import LOCAL_FILE, newest_model
from plexus.runs.models import FINAL_MODEL, metadata_of
from plexus.runs.run import load_run
from tests.learn.test_parts import project
from tests.live.test_commands import plexus

EXAMPLES = Path(__file__).parents[2] / "examples"
pytestmark = pytest.mark.live
TRAINABLE_BYTES = 4 * (512 * 2 + 2 + 2 * 10 + 10)


@pytest.mark.parametrize(("wire", "most"), [("float32", 1.2), ("int8", 0.33)])
def test_only_what_is_trained_and_shared_is_sent(wire: str, most: float, tmp_path: Path) -> None:
    spec = project(tmp_path, ["head.*"])
    options = ("--nodes", 3, "--rounds", 6, "--set", f"protocol.wire={wire}", "--set", "evaluation.on=both")
    plexus("fleet", "run", spec, *options, "--out", "fleet", cwd=tmp_path)
    homes = [tmp_path / "fleet" / f"node-0{number}" for number in range(3)]
    heads = [load_file(home / LOCAL_FILE)["head.bias"].tolist() for home in homes]
    assert heads[0] != heads[1] != heads[2]
    for home in homes:
        held = newest_model(home)
        assert held is not None and len(held[1]) <= most * TRAINABLE_BYTES
    final = load_file(tmp_path / "fleet" / FINAL_MODEL)
    assert final["backbone.0.weight"].shape == (512, 64) and final["middle.weight"].shape == (2, 512)
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
