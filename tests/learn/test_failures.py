"""What a simulated run says when the user's own code fails: one line, with the place, and status 1."""

from __future__ import annotations

from pathlib import Path

import pytest

from plexus.cli import main
from tests.faulty import FAULTS, complaint, write_project


def run(spec: Path, engine: str, capsys: pytest.CaptureFixture[str]) -> tuple[object, list[str]]:
    with pytest.raises(SystemExit) as ended:
        main(["run", str(spec), "--engine", engine, "--workers", "2", "--out", "out", "--quiet"])
    return ended.value.code, capsys.readouterr().err.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["inline", "processes", "stacked", "auto"])
@pytest.mark.parametrize("fault", FAULTS)
def test_code_that_raises_is_named_with_its_line(
    fault: str,
    engine: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    status, said = run(write_project(tmp_path, fault), engine, capsys)
    assert status == 1
    [line] = said
    assert line.startswith("plexus: task faulty")
    assert line.endswith(complaint(fault))


@pytest.mark.slow
def test_worker_processes_that_die_are_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    status, said = run(write_project(tmp_path, "death"), "processes", capsys)
    assert status == 1
    [line] = said
    assert line.startswith("plexus: task faulty: 3 worker processes died on the same work, training")
    assert "(exit code 7)" in line
