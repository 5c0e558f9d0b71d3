"""Runs as tasks of a real Ray cluster: the files of local runs, whatever is killed meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from plexus.errors import PlexusError
from plexus.machine import Heard
from plexus.runs.run import result_of
from plexus.studies.plan import Planned, make_plan
from plexus.studies.pool import Standing, finish
from plexus.studies.study import sized_parts
from tests.machines import lose_a_machine, two_machines
from tests.studies.kit import BASE, folder_with

SWEEP = 'title = "T"\ntasks = ["base"]\nseeds = [1, 2, 3, 4]\nspec = {{ hours = {hours} }}\n'
TIMES = ("cpu_s", "wall_s", "out", "started")


def planned(folder: Path, hours: float = 0.5) -> list[Planned]:
    folder_with(folder, base=BASE)
    text = SWEEP.format(hours=hours)
    return make_plan(sized_parts(text, folder / "sweep.toml", "paper"), folder / "out").all_runs


def left(run: Planned) -> dict[str, Any]:
    """All that a run left, but for what its time and its place were."""
    files = {
        str(path.relative_to(run.out)): path.read_bytes() for path in run.out.rglob("*") if path.is_file()
    }
    objects = {
        name: json.loads(files.pop(name), object_hook=without_times)
        for name in ("result.json", "versions.json")
    }
    assert "model-final.safetensors" in files and "rounds.csv" in files
    return files | objects


def without_times(table: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in table.items() if key not in TIMES}


def quietly(standing: Standing) -> None: ...


@pytest.mark.slow
def test_runs_on_a_cluster_leave_the_files_of_local_ones_also_if_a_machine_is_lost(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    here, there = planned(tmp_path / "here", hours=3), planned(tmp_path / "there", hours=3)
    with two_machines() as cluster:
        lost_at: list[int] = []

        def look(standing: Standing) -> None:
            if not lost_at and sum(at is not None for _, at in standing.under_way.values()) == 2:
                lost_at.append(standing.done)
                lose_a_machine(cluster)

        finish(there, None, None, look, {"note": "n"}, cluster.address)
        assert capfd.readouterr().out == "", "what Ray says of it is not among results"
    finish(here, 2, None, quietly, {"note": "n"})
    assert lost_at and lost_at[0] < 4, "while some were still to be done"
    for one, other in zip(here, there, strict=True):
        assert result_of(other.out).out == str(other.out)  # type: ignore[union-attr]
        expected, found = left(one), left(other)
        expected["versions.json"]["spec_dir"] = found["versions.json"]["spec_dir"]
        assert expected == found


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_sweep_on_a_cluster_that_is_stopped_goes_on_and_does_nothing_twice(
    how: signal.Signals, tmp_path: Path
) -> None:
    runs = planned(tmp_path, hours=3)
    (tmp_path / "sweep.toml").write_text(SWEEP.format(hours=3))
    with two_machines() as cluster:
        sweep = [sys.executable, "-m", "plexus", "sweep", "sweep.toml", "--out=out", "--quiet"]
        sweep += [f"--address={cluster.address}"]
        process = subprocess.Popen(sweep, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        deadline_s = time.monotonic() + 120
        while not (done := [run for run in runs if run.is_done]):
            assert process.poll() is None and time.monotonic() < deadline_s
            time.sleep(0.02)
        os.kill(process.pid, how)
        _, said = process.communicate(timeout=60)
        before = {run.out: (run.out / "result.json").stat().st_mtime_ns for run in done}
        if how == signal.SIGTERM:
            assert process.returncode == 130 and said.count("\n") == 1, said
            assert "of 4 runs; the same command goes on from there" in said
            assert any(run.can_resume for run in runs)
        subprocess.run(sweep, cwd=tmp_path, check=True, timeout=120)
    assert before == {path: (path / "result.json").stat().st_mtime_ns for path in before}
    local = planned(tmp_path / "local", hours=3)
    finish(local, 2, None, quietly)
    for one, other in zip(local, runs, strict=True):
        expected, found = result_of(one.out), result_of(other.out)
        assert expected and found and not found.interrupted
        assert (expected.weights_hash, expected.digest) == (found.weights_hash, found.digest)


def fails(job: Any, say: Any) -> None:
    raise PlexusError(f"{job}: is no good")


@pytest.mark.slow
def test_what_goes_wrong_in_a_task_is_one_line(tmp_path: Path) -> None:
    from plexus.cluster import RayPool

    with two_machines() as cluster:
        heard: list[Heard] = []
        RayPool(fails, None, cluster.address).run(["this", "that"], heard.append)
        assert {(news.job, news.kind, news.value.partition(" (")[0]) for news in heard} == {
            ("this", "failed", "PlexusError: this: is no good"),
            ("that", "failed", "PlexusError: that: is no good"),
        }
        with pytest.raises(PlexusError, match=r"^--address .*: the cluster has no GPU$"):
            finish(planned(tmp_path), None, "cuda", quietly, address=cluster.address)


def test_where_no_cluster_is_one_line_says_so(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="the package ray (extra cluster) is not installed")
    with pytest.raises(PlexusError, match=r"^no Ray cluster at 127.0.0.1:1: .*refused$"):
        finish(planned(tmp_path), None, None, quietly, address="127.0.0.1:1")


def test_without_ray_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(PlexusError, match=r"^--address needs .* pip install 'plexus-learning\[cluster\]'$"):
        finish(planned(tmp_path), None, None, quietly, address="auto")
