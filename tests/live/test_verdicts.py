"""What a relay and a large model must cost at most is judged, by what was measured in real processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import large_model, relay
from tests.live.netns import why_not

GOOD = {
    "ended_well": True,
    "rounds": 6,
    "aggregator_peak_mb": 1820,
    "throughput_ratio_to_plain_tcp": 0.54,
    "ping_p99_under_load_ms": 63.0,
}


def judged(name: str, *words: str) -> Any:
    """What a benchmark measured; it ends as its lines say."""
    command = [sys.executable, "-m", f"benchmarks.{name}", *words]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=200)
    lines = [line for line in done.stderr.splitlines() if line.startswith(("PASS  ", "FAIL  "))]
    assert lines and done.returncode == any(line.startswith("FAIL") for line in lines), done.stderr
    return json.loads(done.stdout)


def test_shares_of_a_relay_are_judged_one_by_one() -> None:
    checks = list(relay.verdict({"pair": 0.7, "star": 0.699}))
    assert [(what.partition(":")[0], holds) for what, _, holds in checks] == [("pair", True), ("star", False)]


@pytest.mark.parametrize(
    ("worse", "failed"),
    [
        ({}, ""),
        ({"ended_well": False}, "end well"),
        ({"rounds": 5}, "end well"),
        ({"aggregator_peak_mb": 2001}, "memory"),
        ({"throughput_ratio_to_plain_tcp": 0.49}, "throughput"),
        ({"throughput_ratio_to_plain_tcp": None}, "throughput"),
        ({"ping_p99_under_load_ms": 151.0}, "pings"),
        ({"ping_p99_under_load_ms": None}, "pings"),
    ],
)
def test_a_large_model_is_judged(worse: dict[str, Any], failed: str) -> None:
    wrong = [what for what, _, holds in large_model.verdict({**GOOD, **worse}, 6) if not holds]
    assert len(wrong) == bool(failed) and all(failed in what for what in wrong)


@pytest.mark.slow
def test_peers_with_a_model_of_20_mb() -> None:
    small = ("--megabytes", "20", "--peers", "3", "--rounds", "3", "--memory", "40")
    found = judged("large_model", *small)
    assert found["ended_well"] and found["rounds"] == 2


@pytest.mark.slow
@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_a_pair_by_way_of_a_relay() -> None:
    small = ("--megabytes", "1", "--models", "1", "--way", "pair")
    assert judged("relay", *small)["share"].keys() == {"pair"}
