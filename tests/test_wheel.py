"""The wheel holds all of Plexus, and runs where the repository is not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

import plexus
from plexus.runs.run import load_run

ROOT = Path(__file__).parents[1]
PARTS = ("pyproject.toml", "README.md", "LICENSE", "src", "experiments")


def run(*command: object, cwd: Path) -> str:
    """What a command prints, away from the repository and its tests."""
    apart = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=apart, capture_output=True, text=True, timeout=250
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built by way of the source distribution, in a copy: building leaves things lying about."""
    copy = tmp_path_factory.mktemp("source")
    for part in PARTS:
        if (ROOT / part).is_dir():
            leave = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.copytree(ROOT / part, copy / part, symlinks=True, ignore=leave)
        else:
            shutil.copy(ROOT / part, copy)
    run(sys.executable, "-m", "build", "--no-isolation", cwd=copy)  # isolated, it needs a network
    (built,) = (copy / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the commands of a fresh environment that holds the wheel alone.

    It sees what Plexus depends on where the tests do, but no link from there to the repository.
    """
    home = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", home, cwd=home)
    python = home / "bin" / "python"
    # fmt: off
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-index", "--no-deps", wheel,
        cwd=home)
    # fmt: on
    (site,) = home.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return python.parent


def test_the_version_is_written_down_once() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in project["project"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "plexus.__version__"}


@pytest.mark.slow
def test_every_file_is_in_the_wheel(wheel: Path) -> None:
    source = Path(plexus.__file__).parents[1]
    files = {
        str(path.relative_to(source))
        for folder in (source / "plexus", source / "plexus" / "experiments")
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert packed == files
    assert wheel.name.startswith(f"plexus_learning-{plexus.__version__}-")


@pytest.mark.slow
def test_the_quick_start_runs_without_the_repository(installed: Path, tmp_path: Path) -> None:
    where = "import plexus; print(plexus.__file__)"
    assert run(installed / "python", "-c", where, cwd=tmp_path).startswith(str(installed.parent))
    printed = run(installed / "plexus", "--version", cwd=tmp_path)
    assert printed == f"plexus, version {plexus.__version__}\n"
    small = ("--set", "hours=0.2", "--set", "nodes=20")
    printed = run(installed / "plexus", "run", "quickstart", *small, cwd=tmp_path)
    assert "quickstart: plexus on digits, 20 nodes, seed 1" in printed
    (path,) = (tmp_path / "runs").iterdir()
    found = load_run(path)
    assert found.result is not None and found.result.rounds > 0
    assert found.versions["plexus"] == plexus.__version__
    studies = run(installed / "plexus", "reproduce", "fig1", "--plan", "--size=tiny", cwd=tmp_path)
    assert "runs in runs/reproduce-tiny/runs" in studies
    run(installed / "plexus", "report", "runs", cwd=tmp_path)
    assert (tmp_path / "report.html").stat().st_size > 50_000
