"""Eight hospitals, twenty rounds, no operator: `make drill`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.live import drill
from tests.live.wan import why_not


@pytest.mark.drill
@pytest.mark.timeout(1800)
@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_twenty_rounds_whatever_happens(tmp_path: Path) -> None:
    seed, nat = int(os.environ.get("DRILL_SEED", "1")), bool(os.environ.get("DRILL_NAT"))
    outcome = drill.run(tmp_path, seed, nat)
    print(f"\n{drill.page(outcome, seed, nat)}")
    assert all(check.holds for check in outcome.checks)
