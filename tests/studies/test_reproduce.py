"""Reproducing with real processes and real trainings, in small."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from plexus.api import reproduce
from plexus.errors import PlexusError
from plexus.experiment.learning import Machinery
from plexus.experiment.progress import Tick
from plexus.experiment.simulation import simulate
from plexus.runs.run import load_run
from plexus.studies.plan import Planned, make_plan
from plexus.studies.study import load_study
from tests.studies.kit import BASE, STUDY, folder_with

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return folder_with(tmp_path / "experiments", study=STUDY, base=BASE)


def planned(folder: Path, out: Path, size: str = "tiny") -> list[Planned]:
    return make_plan(load_study(str(folder / "study.toml"), size, folder), out).all_runs


def once(folder: Path, out: Path, jobs: int = 1, **options: Any) -> Path:
    study = str(folder / "study.toml")
    return reproduce(study, size="tiny", out=out, jobs=jobs, experiments=folder, **options)


def test_runs_side_by_side_once_and_the_page_is_written(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    page = once(folder, out, jobs=2)
    assert page == out / "report.html"
    assert "0 of 4 runs" in capsys.readouterr().err
    runs = planned(folder, out)
    assert all(run.is_done for run in runs) and len(runs) == 4
    text = page.read_text()
    assert "<h1>One study, size tiny</h1>" in text, "it is somebody's own, not the paper's"
    assert "Gossip Learning" in text and 'id="study-base-1"' in text
    assert (out / "report-files" / "study-base-1.png").stat().st_size > 1000
    before = {run.out: (run.out / "result.json").stat().st_mtime_ns for run in runs}
    once(folder, out)
    assert before == {run.out: (run.out / "result.json").stat().st_mtime_ns for run in runs}


def stop_at_600_s(at: Tick) -> None:
    """Somebody presses Ctrl-C."""
    if at.simulated_s >= 600:
        raise KeyboardInterrupt


def test_an_interrupted_run_goes_on_and_ends_like_a_whole_one(folder: Path, tmp_path: Path) -> None:
    whole = planned(folder, tmp_path / "whole")[0]
    cut = planned(folder, tmp_path / "cut")[0]
    assert whole.spec == cut.spec
    simulate(whole.spec, whole.base_dir, whole.out)
    options = Machinery(checkpoint_every_s=0, engine="inline")
    assert simulate(cut.spec, cut.base_dir, cut.out, stop_at_600_s, options).interrupted
    assert cut.can_resume and not cut.is_done
    once(folder, tmp_path / "cut", quiet=True)
    assert cut.is_done
    one, other = load_run(whole.out).result, load_run(cut.out).result
    assert one is not None and other is not None and one.digest == other.digest


def test_ctrl_c_stops_and_the_same_command_goes_on(tmp_path: Path) -> None:
    long = BASE.replace("hours = 0.5", "hours = 100")
    folder = folder_with(tmp_path / "experiments", study=STUDY, base=long)
    out = tmp_path / "out"
    arguments = ["reproduce", str(folder / "study.toml"), "--size", "paper", "--out", str(out)]
    command = [sys.executable, "-c", "from plexus.cli import main; main()", *arguments]
    process = subprocess.Popen([*command, "--jobs", "2"], stderr=subprocess.PIPE, text=True)
    deadline_s = time.monotonic() + 120
    while len(list(out.glob("runs/*/rounds.csv"))) < 1:
        assert process.poll() is None and time.monotonic() < deadline_s
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, complaints = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "interrupted after 0 of 4 runs; the same command goes on from there" in complaints
    assert "Traceback" not in complaints
    begun = [run for run in planned(folder, out, "paper") if (run.out / "result.json").exists()]
    assert begun and not any(run.is_done for run in begun)
    results = [load_run(run.out).result for run in begun]
    assert all(result is not None and result.interrupted for result in results)


def test_a_run_that_fails_is_named(tmp_path: Path) -> None:
    diverging = BASE.replace('name = "digits"', 'name = "digits"\nlearning_rate = 1e30')
    folder = folder_with(tmp_path / "experiments", study=STUDY, base=diverging)
    with pytest.raises(PlexusError, match=r"4 of 4 runs failed; the first, .*digits.*not finite"):
        once(folder, tmp_path / "out", quiet=True)


def test_a_task_without_data_is_skipped_and_said(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PLEXUS_DATA", str(tmp_path / "nothing"))
    study = STUDY.replace('tasks = ["base"]', 'tasks = ["pictures", "base"]')
    pictures = BASE.replace('name = "digits"', 'name = "cifar10"')
    folder_with(folder, study=study, pictures=pictures)
    page = once(folder, tmp_path / "out")
    said = capsys.readouterr().err
    assert "skipping the task pictures: task.data is not set" in said
    assert "`plexus data list`" in said
    assert "Not shown here: pictures" in page.read_text()
    folder_with(folder, study=STUDY.replace('["base"]', '["pictures"]'))
    with pytest.raises(PlexusError, match="the data of every task is missing"):
        once(folder, tmp_path / "out", quiet=True)
