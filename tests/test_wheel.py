"""The wheel holds all of Plexus, and runs where the repository is not."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import tomllib
import zipfile
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

import plexus
from plexus.runs.run import load_run

ROOT = Path(__file__).parents[1]
PARTS = ("pyproject.toml", "README.md", "LICENSE", "src", "experiments")


APART = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV", "PLEXUS"))}


def run(*command: object, cwd: Path, status: int = 0) -> str:
    """What a command prints, away from the repository and its tests; of one that is to fail, its errors."""
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=APART, capture_output=True, text=True, timeout=250
    )
    assert done.returncode == status, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stderr if status else done.stdout


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


@pytest.fixture(scope="module")
def empty(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the commands of an environment that has torch, the wheel and what it needs alone."""
    home = tmp_path_factory.mktemp("empty")
    run(sys.executable, "-m", "venv", home, cwd=home)
    pip = (home / "bin" / "pip", "install", "--quiet", "-c", ROOT / "constraints.txt")
    run(*pip, "torch", cwd=home)
    run(*pip, wheel, cwd=home)
    return home / "bin"


MOST_MB = 120
SIZES = """
from importlib.metadata import distribution
from pip._vendor.packaging.requirements import Requirement
sizes, waiting = {}, ["plexus-learning"]
while waiting:
    name = waiting.pop()
    if name not in ("torch", *sizes):
        found = distribution(name)
        sizes[name] = sum(file.locate().stat().st_size for file in found.files if file.locate().exists())
        needs = map(Requirement, found.requires or ())
        waiting += [each.name for each in needs if each.marker is None or each.marker.evaluate({"extra": ""})]
for name, size in sorted(sizes.items(), key=lambda item: -item[1]):
    print(f"{size / 1e6:.1f} MB {name}")
print(f"{sum(sizes.values()) / 1e6:.1f} MB in all")
"""
"""What Plexus and all that it needs take on the disk, but for torch and what only torch needs."""
WINE = "alcohol,acid,colour,cultivar,estate\n" + "".join(
    f"{13 + n % 3},{(n * 7) % 5},{n % 4},{('barolo', 'barbera', 'grignolino')[n % 3]},e{n % 12}\n"
    for n in range(144)
)


@pytest.mark.trial
@pytest.mark.timeout(600)
def test_a_new_user_comes_from_the_wheel_to_predictions(wheel: Path, empty: Path) -> None:
    """No repository, no make: what README and the guides tell a new user to do."""
    # Its path is short: those of a peer's sockets may not be long.
    with tempfile.TemporaryDirectory(prefix="plexus-") as name:
        home = Path(name)

        def plexus(line: str, status: int = 0) -> str:
            return run(empty / "plexus", *line.split(), cwd=home, status=status)

        sizes = run(empty / "python", "-c", SIZES, cwd=home)
        print(sizes)
        assert float(sizes.split()[-4]) <= MOST_MB
        began_s = time.perf_counter()
        plexus("--help")
        print(f"{time.perf_counter() - began_s:.3f} s for plexus --help")
        plexus("doctor")
        assert "accuracy" in plexus("run quickstart --out runs/quickstart")
        for line in ("dashboard runs", "run quickstart --watch --out runs/quickstart --force"):
            assert "pip install 'plexus-learning[dashboard]'" in plexus(line, status=2)
        assert (home / "runs" / "quickstart" / "result.json").exists(), "nothing is lost by a mistake"

        extras = f"{wheel}[report,dashboard]"
        run(empty / "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", extras, cwd=home)
        (home / "wine.csv").write_text(WINE)
        plexus("new wine --csv wine.csv --target cultivar --owner estate")
        plexus("run wine/session.toml --out runs/wine")
        plexus("sweep wine/session.toml --grid protocol.sample_size=2,5 --seeds 1,2 --out sweep")
        plexus("fleet run wine/session.toml --nodes 3 --rounds 10 --out runs/fleet")
        plexus("export runs/fleet -o wine.safetensors")
        assert "barolo" in plexus("predict wine.safetensors --csv wine.csv --task-dir wine")
        plexus("report runs -o report.html")
        assert {each["id"] for each in shown_runs(empty / "plexus", home)} == {"quickstart", "wine", "fleet"}


def shown_runs(plexus: Path, home: Path) -> list[dict[str, Any]]:
    """What the dashboard lists."""
    command = [plexus, "dashboard", "runs", "--port", "0"]
    with subprocess.Popen(command, cwd=home, env=APART, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            url = re.search(r"http://\S+", server.stderr.readline())
            assert url is not None
            assert b"<title>" in urlopen(url[0]).read()
            listed: list[dict[str, Any]] = json.load(urlopen(f"{url[0]}api/runs"))["runs"]
            return listed
        finally:
            server.terminate()
