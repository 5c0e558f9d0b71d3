"""A session rehearsed in virtual time and deployed for real: two runs of one kind, side by side."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import plexus
from plexus.report.arms import load_runs

ALL_TAKE_PART = [
    *("--set", "hours=1", "--set", "session.rounds=20", "--set", "evaluation.every_rounds=1"),
    *("--set", "protocol.success_fraction=1.0", "--set", "protocol.aggregation_timeout_s=60"),
    *("--set", "protocol.ack_timeout_s=90", "--set", "protocol.watchdog_s=120"),
]
"""However slow the simulated devices are, so that the models of both are made from the same trainings."""
EXAMPLE = Path(__file__).parents[2] / "examples" / "digits-session.toml"


def command(folder: Path, *words: str) -> str:
    wide = {**os.environ, "COLUMNS": "150"}  # so that no name goes over two lines
    words = sys.executable, "-m", "plexus", *words
    done = subprocess.run(words, capture_output=True, text=True, timeout=200, cwd=folder, env=wide)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_rehearsal_and_its_deployment_on_one_page(tmp_path: Path) -> None:
    command(tmp_path, "fleet", "run", str(EXAMPLE), "--nodes", "4", *ALL_TAKE_PART, "--out", "f")
    command(tmp_path, "run", str(EXAMPLE), "--set", "nodes=4", *ALL_TAKE_PART, "--out", "s")
    live, simulated = plexus.load(tmp_path / "f"), plexus.load(tmp_path / "s")
    assert (live.is_live, simulated.is_live) == (True, False)
    assert live.spec == simulated.spec
    assert live.result is not None and simulated.result is not None
    assert live.result.rounds == simulated.result.rounds == 20 and live.result.metric.name == "accuracy"
    assert live.result.messages.keys() >= simulated.result.messages.keys()
    # The same tables with the same columns, but for what only live peers have: names, and types of messages.
    for table in ("rounds", "evaluations", "trainings", "transfers", "phases", "presence", "states", "views"):
        assert list(live.detail(table)) == list(simulated.detail(table)), table
    for table in ("nodes", "traffic"):
        assert set(live.detail(table)) > set(simulated.detail(table))
    for table in ("rounds", "evaluations", "online", "traffic", "transfers"):
        times = live.detail(table)["simulated_s"]
        assert (times[1:] >= times[:-1]).all() and times[-1] <= live.result.simulated_s
    sent = live.detail("traffic")
    assert sent["model_bytes"][-1] == live.result.messages["model"].bytes > 0
    # A model is as large in both, and every round of both is an aggregation of some.
    sizes = [
        run.result.messages["model"].bytes / run.result.messages["model"].count for run in (live, simulated)
    ]
    assert sizes[0] == pytest.approx(sizes[1], rel=0.1)
    compared = json.loads(command(tmp_path, "compare", "f", "s", "--json"))
    assert [arm["label"] for arm in compared[0]["comparison"]["arms"]] == [
        "Plexus, live",
        "Plexus, simulated",
    ]
    [agreement] = compared[0]["rehearsal"]
    assert len(agreement["rows"]) >= 10
    assert all(difference["value"] <= 0.02 for *_, difference in agreement["rows"]), agreement["rows"]
    table = command(tmp_path, "compare", "f", "s")
    assert "Both came to round 20" in table
    assert "Plexus, live" in table and "Plexus, simulated" in table
    command(tmp_path, "report", "f", "s", "-o", "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "Plexus, live" in page and "Plexus, simulated" in page and ">time [h]<" in page
    assert "The session and its rehearsal" in page
    # One peer by itself, and a folder that holds it all: the peers of a fleet are no runs beside it.
    command(tmp_path, "report", "f/node-00", "-o", "peer.html")
    assert {run.path.name for run in load_runs([tmp_path])} == {"f", "s"}
