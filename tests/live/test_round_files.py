"""How many files one round of real peers goes through, their training workers among them."""

from __future__ import annotations

import pytest

from tools.round_files import LIMITS, live, typical

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def files() -> set[str]:
    return typical(live())


def test_the_files_of_a_round_are_found_in_all_processes(files: set[str]) -> None:
    assert {"protocol/plexus.py", "live/runtime.py", "live/worker/process.py", "learn/trainer.py"} <= files
    assert not [file for file in files if file.startswith(("runs/", "spec/", "sim/", "live/operator/"))]


def test_a_round_goes_through_few_files(files: set[str]) -> None:
    assert len(files) <= LIMITS["live"], sorted(files)
