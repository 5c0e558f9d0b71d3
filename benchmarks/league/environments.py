"""An environment for every peer, with the versions that requirements/ pins, below an ignored folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from benchmarks.league.work import ROOT

HERE = Path(__file__).parent
ENVIRONMENTS = ROOT / ".cache" / "league"
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "FLWR_TELEMETRY_ENABLED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "JAX_PLATFORMS": "cpu",
}
"""What everybody is given: one thread a process, and nothing that is sent to makers."""


@dataclass(frozen=True)
class Contender:
    """One entry of contenders.toml."""

    name: str
    label: str
    kind: str
    adapter: str | None = None
    requirements: str | None = None
    shared: bool = False
    package: str = ""
    home: str = ""
    what: str = ""
    note: str = ""
    first: int = 10
    last: int = 120

    def python(self) -> Path:
        return Path(sys.executable) if self.requirements is None else _python(self.requirements)

    def run(self, module: str, *arguments: object, timeout_s: float = 300) -> str:
        """What a module of the league prints when it runs in this environment."""
        command = [self.python(), "-m", f"benchmarks.league.{module}", *map(str, arguments)]
        environment = {**os.environ, **ONE_THREAD}
        if self.requirements is not None:
            environment["PYTHONPATH"] = str(ROOT)
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=timeout_s
        )
        if done.returncode:
            raise RuntimeError(f"{self.label}, {module}: {done.stderr.strip()[-2000:]}")
        return done.stdout


def contenders() -> list[Contender]:
    """All that are listed."""
    listed = tomllib.loads((HERE / "contenders.toml").read_text())
    return [Contender(name, **entry) for name, entry in listed.items()]


def prepare(contender: Contender) -> str | None:
    """Make the environment of a contender, if it is not there; why it cannot be made, in a line."""
    if contender.requirements is None:
        return None
    if contender.shared:
        wrong = _install("shared")
        assert wrong is None, wrong
    return _install(contender.requirements, _packages("shared") if contender.shared else None)


def _install(name: str, seen: Path | None = None) -> str | None:
    wanted = HERE / "requirements" / f"{name}.txt"
    mark = ENVIRONMENTS / name / "installed"
    digest = sha256(wanted.read_bytes()).hexdigest()
    if mark.exists() and mark.read_text() == digest:
        return None
    subprocess.run([sys.executable, "-m", "venv", "--clear", ENVIRONMENTS / name], check=True)
    if seen is not None:
        (_packages(name) / "shared.pth").write_text(f"{seen}\n")
    # All that is needed is listed, torch among it: nothing else may come along.
    install = [
        _python(name),
        "-m",
        "pip",
        "install",
        "--disable-pip-version-check",
        "--no-deps",
        "-r",
        wanted,
    ]
    done = subprocess.run(install, capture_output=True, text=True, check=False)
    if done.returncode:
        return _reason(done.stderr, wanted.read_text())
    mark.write_text(digest)
    return None


def _reason(said: str, wanted: str) -> str:
    """Of what pip says, the line that matters."""
    version = wanted.split()[0].partition("==")[2]
    if needed := re.search(rf"\b{re.escape(version)} Requires-Python ([^;\n]+)", said):
        return f"{wanted.split()[0]} needs Python {needed[1].strip()}; this is {sys.version.split()[0]}"
    errors = [line for line in said.splitlines() if line.startswith("ERROR:")]
    return errors[-1].removeprefix("ERROR: ")[:200] if errors else "pip failed"


def _python(name: str) -> Path:
    return ENVIRONMENTS / name / "bin" / "python"


def _packages(name: str) -> Path:
    version = ".".join(map(str, sys.version_info[:2]))
    return ENVIRONMENTS / name / "lib" / f"python{version}" / "site-packages"
