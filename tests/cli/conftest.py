"""The command line in a directory of its own, with a session that simulates nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from standin import SPEC, NoTraces, Outcome, ParitySpec, Plexus, Session

from plexus import cli, spec


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Session:
    """The stand-in, in a directory that holds experiments/small.toml."""
    session = Session("plexus.session")
    for module in ("plexus.session", "plexus.bench"):
        monkeypatch.setitem(sys.modules, module, session)
    monkeypatch.setattr(spec, "tasks", lambda: {"parity": ParitySpec})
    monkeypatch.setattr(spec, "traces", lambda: NoTraces)
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
