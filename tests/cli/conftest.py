"""The command line in a directory of its own, with a session that simulates nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from plexus import cli
from tests.cli.standin import SPEC, Outcome, Plexus, Session


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Session:
    """The stand-in, in a directory that holds experiments/small.toml."""
    session = Session("plexus.experiment.simulation")
    monkeypatch.setitem(sys.modules, "plexus.experiment.simulation", session)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "small.toml").write_text(SPEC)
    return session


@pytest.fixture
def plexus(session: Session, capsys: pytest.CaptureFixture[str]) -> Plexus:
    """Run a command line as the shell would."""

    def run(*arguments: str) -> Outcome:
        with pytest.raises(SystemExit) as stop:
            cli.main(arguments)
        assert isinstance(stop.value.code, int)
        captured = capsys.readouterr()
        return Outcome(stop.value.code, captured.out, captured.err)

    return run
