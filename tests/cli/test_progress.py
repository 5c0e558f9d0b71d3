"""Progress: cheap to feed, shown in time, and right about how far a run has come."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console

from plexus.api import as_spec
from plexus.cli import progress
from plexus.cli.progress import (
    Bar,
    Display,
    Lines,
    RunProgress,
    display_for,
    download_progress,
    drawing,
    study_progress,
)
from plexus.experiment.progress import Tick
from plexus.machine import Heard
from plexus.studies.plan import Planned
from plexus.studies.pool import Order, Standing


class Clock:
    """Time on the wall, under control."""

    now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_without_a_terminal_there_is_a_line_every_so_often(clock: Clock) -> None:
    stream = io.StringIO()
    with Lines(stream) as display:
        shown = RunProgress("small", 7200.0, display)
        for second in range(21):
            metric = ("accuracy", 0.5) if second == 5 else (None, None)
            shown(Tick(second * 180.0, second, 40, *metric))
            clock.now_s += 1
    assert stream.getvalue().splitlines() == [
        "small: 0.0 of 2 h, round 0, 40 online",
        "small: 0.5 of 2 h, round 10, 40 online, accuracy 50.0 %, 0.05 h/s, 0:30 left",
        "small: 1.0 of 2 h, round 20, 40 online, accuracy 50.0 %, 0.05 h/s, 0:20 left",
    ]


def test_a_resumed_run_is_said_to_replay(clock: Clock) -> None:
    stream = io.StringIO()
    with Lines(stream) as display:
        shown = RunProgress("small", 43_200.0, display)
        for second in range(5):
            replay_s = 11_520.0 if second < 3 else None
            shown(Tick(second * 3840.0, second, 40, None, None, replay_s))
            if second == 1:
                assert shown.how_far() == "while replaying 1.1 of 3.2 simulated hours, round 1"
            clock.now_s += 10
    assert stream.getvalue().splitlines() == [
        "small: replaying 0.0 of 3.2 h, round 0, 40 online",
        "small: replaying 1.1 of 3.2 h, round 1, 40 online, 0.107 h/s, 0:20 left",
        "small: replaying 2.1 of 3.2 h, round 2, 40 online, 0.107 h/s, 0:10 left",
        "small: 3.2 of 12 h, round 3, 40 online",
        "small: 4.3 of 12 h, round 4, 40 online, 0.107 h/s, 1:12 left",
    ]


def test_a_bar_is_redrawn_a_few_times_a_second_and_gone_at_the_end(clock: Clock) -> None:
    stream = Terminal()
    with Bar(Console(file=stream, width=80, force_terminal=True)) as display:
        shown = RunProgress("small", 7200.0, display)
        for step in range(100):
            shown(Tick(step * 36.0, step, 40, "accuracy", 0.25))
            clock.now_s += 0.1
    drawn = stream.getvalue()
    assert 45 < drawn.count("small") < 55, "every other tick, and once at the end"
    assert "round 98 · 40 online · accuracy 25.0 % · 0.1 h/s · 0:10 left" in drawn
    assert drawn.endswith("\x1b[1A\x1b[2K")


@pytest.mark.parametrize("width", [30, 60, 200])
def test_a_bar_fits_any_terminal(width: int) -> None:
    console = Console(file=io.StringIO(), width=width)
    shown = RunProgress("a-rather-long-name", 360_000.0, Display())
    console.print(drawing(shown.panel(Tick(180_000.0, 123_456, 1000, "accuracy", 0.912))))
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert len(lines) == 2
    assert max(map(len, lines)) <= width


def test_how_far_a_run_came_is_known_though_it_was_not_shown() -> None:
    silent = RunProgress("small", 7200.0, Display())
    assert silent.last is None
    assert silent.how_far() == "before the simulation began"
    silent(Tick(0.0, 0, 40))
    silent(Tick(5400.0, 57, 41, "mse", 1.5))
    silent(Tick(5760.0, 60, 42))
    assert silent.last == Tick(5760.0, 60, 42, "mse", 1.5)
    assert silent.how_far() == "at 1.6 of 2 simulated hours, round 60"


def test_what_is_shown_depends_on_where_it_goes() -> None:
    assert type(display_for(Terminal())) is Bar
    assert type(display_for(io.StringIO())) is Lines
    assert type(display_for(Terminal(), quiet=True)) is Display


def test_many_runs_are_shown_together_with_those_under_way(clock: Clock) -> None:
    base = as_spec({"name": "x", "nodes": 10, "hours": 2, "task": "digits"})
    runs = [Planned(replace(base, seed=seed), Path(), Path(f"runs/{seed}")) for seed in (1, 2, 3, 4)]
    standing, stream = Standing(runs, done_before=3), io.StringIO()
    with Lines(stream) as display:
        show = study_progress(display)
        standing.under_way[runs[0].out] = (runs[0], None)
        show(standing)
        standing.under_way[runs[0].out] = (runs[0], Tick(3600.0, 5, 4, "accuracy", 0.5))
        clock.now_s += 10
        show(standing)
        order = Order(runs[0], resume=False, device=None)
        standing.hear(Heard(order, "failed", "MemoryError: no room"))
        clock.now_s += 5
        show(standing)
    assert stream.getvalue().splitlines() == [
        "reproduce: 0 of 4 runs, 0 %, 3 more were there already; now plexus on digits, seed 1, 0.0 of 2 h",
        "reproduce: 0 of 4 runs, 12 %, about 1:10 left, 3 more were there already;"
        " now plexus on digits, seed 1, 1.0 of 2 h, 50.0 %",
        "plexus: runs/1 failed: MemoryError: no room",
    ]
    assert (standing.done, standing.share, standing.under_way) == (1, 0.25, {})


def test_a_download_tells_how_much_is_here_how_fast_it_comes_and_what_is_left(clock: Clock) -> None:
    stream = io.StringIO()
    with Lines(stream) as display:
        show = download_progress("fetching x", 5_000_000, display)
        for have in (0, 2_000_000, 5_000_000):
            show(have)
            clock.now_s += 10
    assert stream.getvalue().splitlines() == [
        "fetching x: 0 B of 5 MB",
        "fetching x: 2 MB of 5 MB, 200 kB/s, 0:15 left",
        "fetching x: 5 MB of 5 MB, 250 kB/s, 0:00 left",
    ]
