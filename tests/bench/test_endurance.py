"""What the endurance benchmark makes of what it saw."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.endurance import LOOK_S, SETTLED_S, Look, Watch
from plexus.live.fleet.members import Member


def watched(looks: int, **of: Callable[[float], float]) -> Watch:
    """One peer, whose numbers are functions of the time."""
    member = Member(0, Path(), "a", [])
    columns = {name: of.get(name, lambda _: 0) for name in Look._fields}
    times = [LOOK_S * number for number in range(looks)]
    rows = [Look(**{name: column(at_s) for name, column in columns.items()}) for at_s in times]  # type: ignore[arg-type]
    return Watch([member], {0: [row._replace(at_s=at_s) for row, at_s in zip(rows, times, strict=True)]})


def test_what_grows_is_seen_in_the_quarters_of_the_time() -> None:
    watch = watched(40, memory_mb=lambda at_s: min(50.0, at_s), log_bytes=lambda at_s: at_s**2)
    assert watch.course([0], lambda look: look.memory_mb) == [22.5, 50, 50, 50]
    first, second, third, last = watch.log_bytes([0])
    assert first < second < third < last
    assert watch.most_mb() == 50.0


def test_only_who_has_settled_and_has_no_work_is_idle() -> None:
    """Starting costs a second, every work another, and being there a thousandth."""

    def cpu_s(at_s: float) -> float:
        return min(1.0, at_s) + at_s // 60 + at_s / 1000

    watch = watched(100, cpu_s=cpu_s, work=lambda at_s: at_s // 60)
    mean, most = watch.idle_share()
    assert mean == most == pytest.approx(0.001)
    assert SETTLED_S > 1
