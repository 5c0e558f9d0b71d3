"""A real fleet on the dashboard, while it runs and afterwards."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from plexus.dashboard.library import Library

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits-session.toml"


@pytest.mark.slow
def test_a_fleet_shows_while_it_runs_and_afterwards(tmp_path: Path) -> None:
    out = tmp_path / "fleet"
    command = ["fleet", "run", str(EXAMPLE), "--nodes", "4", "--seconds", "60", "--rounds", "100"]
    with subprocess.Popen([sys.executable, "-m", "plexus", *command, "--out", str(out)]) as process:
        deadline_s, overview = time.monotonic() + 90, {}
        while process.poll() is None and time.monotonic() < deadline_s:
            found = Library(tmp_path).sources()
            overview = found["fleet"].overview() if "fleet" in found else {}
            if overview.get("phases"):
                break
            time.sleep(0.2)
        assert (overview["status"], overview["kind"]) == ("running", "live")
        assert overview["online"]["online"][-1] == 4 and overview["traffic"]["membership_bytes"][-1] > 0
        assert all(status["phase"] == "online" for status in overview["statuses"] if status)
        node = found["fleet"].node(2)
        assert node is not None and node["status"]["timers"]
        assert process.wait(90) == 0
    after = Library(tmp_path).sources()["fleet"]
    summary = after.summary()
    assert summary["status"] == "finished"
    assert summary["rounds"] >= 100 and summary["metric"]["name"] == "accuracy"
    assert after.overview()["phase_means_s"]["training_s"] > 0
    moment = after.window(0, summary["reached_s"])
    assert len(moment["trainings"]["node"]) >= 100 and set(moment["transfers"]["kind"]) == {
        "train",
        "aggregate",
    }
