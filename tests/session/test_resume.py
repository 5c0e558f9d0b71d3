"""A run that is killed and resumed ends like one that was left alone."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from plexus.metrics.store import load_run
from plexus.metrics.tables import TABLES

SPEC = """
name = "resumed"
nodes = 30
hours = 0.5
[protocol]
name = "plexus"
sample_size = 5
[task]
name = "digits"
[evaluation]
every_rounds = 3
"""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", "from plexus.cli import main; main()", "run", *arguments]


def finished(*arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        command(*arguments, "--json", "-q"), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def start_and_kill(after_s: float, out: Path, *arguments: str) -> None:
    """kill -9, but not before there is something to resume from."""
    process = subprocess.Popen(command(*arguments, "-q"))
    deadline_s = time.monotonic() + 120
    while not (out / "checkpoint.json").exists():
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    time.sleep(after_s)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def without_time(value: Any) -> Any:
    """A part of a result, less what depends on the machine."""
    return {k: v for k, v in value.items() if k != "wall_s"} if isinstance(value, dict) else value


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("spec") / "resumed.toml"
    path.write_text(SPEC)
    return path


@pytest.mark.slow
def test_killed_at_five_random_moments_a_run_ends_with_the_same_digest_and_weights(
    spec: Path, tmp_path: Path
) -> None:
    whole = finished(str(spec), "--out", str(tmp_path / "whole"))
    moments = random.Random(5)
    out = tmp_path / "killed"
    start_and_kill(moments.random(), out, str(spec), "--out", str(out), "--checkpoint-every", "0")
    for _ in range(4):
        start_and_kill(moments.random(), out, "--resume", str(out), "--checkpoint-every", "0")
    resumed = finished("--resume", str(out))
    for key in (
        "digest",
        "weights_hash",
        "rounds",
        "metric",
        "messages",
        "training_s",
        "trainings",
    ):
        assert without_time(resumed[key]) == without_time(whole[key]), key
    killed, expected = (load_run(tmp_path / name) for name in ("killed", "whole"))
    for table in TABLES:
        found, columns = killed.detail(table), expected.detail(table)
        assert list(found) == list(columns), table
        for name, column in columns.items():
            np.testing.assert_array_equal(found[name], column, f"{table} {name}")


@pytest.mark.slow
def test_a_damaged_checkpoint_is_one_clear_line(spec: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    start_and_kill(0.0, out, str(spec), "--out", str(out), "--checkpoint-every", "0.01")
    graph = out / json.loads((out / "checkpoint.json").read_text())["folder"] / "models.json"
    graph.write_bytes(graph.read_bytes()[:-9])
    done = subprocess.run(
        command("--resume", str(out)), capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.strip().splitlines()[-1].startswith(f"plexus: {graph} cannot be read")


def test_without_a_checkpoint_there_is_nothing_to_resume(tmp_path: Path) -> None:
    done = subprocess.run(
        command("--resume", str(tmp_path)), capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert str(tmp_path) in done.stderr
