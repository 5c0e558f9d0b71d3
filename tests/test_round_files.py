"""How many files one simulated round goes through; tests/live counts those of a live one."""

from __future__ import annotations

import pytest

from tools.round_files import LIMITS, simulated, typical

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def files() -> set[str]:
    return typical(simulated())


def test_the_files_of_a_round_are_found_and_those_beside_it_are_not(files: set[str]) -> None:
    assert {"protocol/plexus.py", "sim/kernel.py", "learn/graph.py", "learn/trainer.py"} <= files
    assert not [file for file in files if file.startswith(("runs/", "spec/", "traces/", "experiment/eval"))]


def test_a_round_goes_through_few_files(files: set[str]) -> None:
    assert len(files) <= LIMITS["simulated"], sorted(files)
