"""Runs, made once, and a server for them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.dashboard.kit import CUT, write_run


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Finished runs, one of them in a folder, one under way, and one that is damaged."""
    root = tmp_path_factory.mktemp("runs")
    write_run(root / "first")
    write_run(root / "folder" / "second", seed=2, sample_size=8, faults=CUT)
    write_run(root / "again", seed=2, name="first")
    write_run(root / "longer", hours=2, about={"tags": ["kept"], "note": "for later"})
    write_run(root / "growing", until_s=1800, finish=False)
    write_run(root / "damaged", until_s=60, finish=False)
    (root / "damaged" / "result.json").write_text("{")
    return root


@pytest.fixture(scope="session")
def server(runs: Path) -> Iterator[str]:
    """The address of `plexus dashboard`."""
    with serving(runs) as address:
        yield address


@contextmanager
def serving(runs: Path) -> Iterator[str]:
    """The address of `plexus dashboard`, as long as it is needed."""
    command = [sys.executable, "-m", "plexus", "dashboard", str(runs), "--port", "0"]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONWARNINGS": "error"}
    ) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            found = re.search(r"http://\S+/", line)
            assert found is not None, line
            yield found.group()
        finally:
            process.terminate()
