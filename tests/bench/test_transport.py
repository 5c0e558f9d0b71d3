"""`plexus bench transport` measures what it says; how fast, depends on the machine and is not tested."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.mark.slow
def test_the_benchmark_measures_everything_in_one_run() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "plexus", "bench", "transport", "--json"],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    print(f"\n{done.stdout}")
    assert result["throughput_ratio_to_plain_tcp"] > 0
    assert 0 < result["ping_p50_us"] < 1000 * result["ping_p99_under_load_ms"]
    assert result["model_mb"] >= 100
    # 13 models of 100 MB are in the memory of a few.
    assert result["aggregator_peak_mb"] < 600
