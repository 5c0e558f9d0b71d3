"""What `make` would do: who only runs Plexus installs no tools for developing it, and torch goes first."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RUNNING = ["torch", "-e '.[report,dashboard]'"]
DEVELOPING = [*RUNNING, "-e '.[report,dashboard,dev]'", "--no-deps byzfl"]


def would_do(*targets: str) -> list[str]:
    """The commands for these targets on a fresh machine."""
    command = ["make", "--dry-run", "--always-make", "--no-print-directory", *targets]
    return subprocess.check_output(command, cwd=ROOT, text=True).splitlines()


@pytest.mark.parametrize(
    ("target", "packages"),
    [
        ("install", RUNNING),
        ("quickstart", RUNNING),
        ("reproduce", RUNNING),
        ("storm", RUNNING),
        ("fuzz", [*RUNNING, "atheris"]),
        *((target, DEVELOPING) for target in ("develop", "check", "test", "test-live", "docs")),
    ],
)
def test_a_target_installs_what_it_needs(target: str, packages: list[str]) -> None:
    found = [re.search(r"pip install .*-c constraints\.txt (.*)", line) for line in would_do(target)]
    assert [each[1] for each in found if each] == packages


def test_nightly_does_all_that_takes_long() -> None:
    done = [line for line in would_do("nightly") if line.startswith((".venv/bin/", "NO_MKDOCS", "DRILL"))]
    steps = [line for line in done if "pip install" not in line]
    assert steps == [
        ".venv/bin/pytest -q -rP -m live tests/live",
        "DRILL_SEED=1 DRILL_NAT= .venv/bin/pytest -q -s -o faulthandler_timeout=0 -m drill tests/live",
        "DRILL_SEED=1 DRILL_NAT=1 .venv/bin/pytest -q -s -o faulthandler_timeout=0 -m drill tests/live",
        ".venv/bin/python benchmarks/endurance.py crowd --minutes 10",
        ".venv/bin/python benchmarks/endurance.py soak --minutes 30",
        ".venv/bin/python -m benchmarks.relay",
        ".venv/bin/python -m benchmarks.large_model",
        ".venv/bin/pytest -q -m paper tests/studies",
        "NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict",
        ".venv/bin/pytest -n auto -q -m docs tests/docs",
        ".venv/bin/python -m fuzz 5",
        ".venv/bin/plexus storm --minutes 30",
    ]


def test_every_target_is_explained_and_phony() -> None:
    text = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", text, re.MULTILINE))
    explained = set(re.findall(r"^([a-z-]+):.*## ", text, re.MULTILINE))
    phony = text.partition(".PHONY: ")[2].partition("help:")[0].replace("\\", " ").split()
    assert targets == set(phony) == explained | {"help"}
