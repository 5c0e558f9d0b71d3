"""Progress: cheap to feed, shown in time, and right about how far a run has come."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from plexus.cli import progress
from plexus.cli.progress import Bar, Lines, Progress, Tick, progress_for


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
    with Lines("small", 7200.0, stream) as shown:
        for second in range(21):
            metric = ("accuracy", 0.5) if second == 5 else (None, None)
            shown.tick(Tick(second * 180.0, second, 40, *metric))
            clock.now_s += 1
    assert stream.getvalue().splitlines() == [
        "small: 0.0 of 2 h, round 0, 40 online",
        "small: 0.5 of 2 h, round 10, 40 online, accuracy 50.0 %, 0.05 h/s, 0:30 left",
        "small: 1.0 of 2 h, round 20, 40 online, accuracy 50.0 %, 0.05 h/s, 0:20 left",
    ]


def test_a_resumed_run_is_said_to_replay(clock: Clock) -> None:
    stream = io.StringIO()
    with Lines("small", 43_200.0, stream) as shown:
        for second in range(5):
            replay_s = 11_520.0 if second < 3 else None
            shown.tick(Tick(second * 3840.0, second, 40, None, None, replay_s))
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
    with Bar("small", 7200.0, Console(file=stream, width=80, force_terminal=True)) as shown:
        for step in range(100):
            shown.tick(Tick(step * 36.0, step, 40, "accuracy", 0.25))
            clock.now_s += 0.1
    drawn = stream.getvalue()
    assert 45 < drawn.count("small") < 55, "every other tick, and once at the end"
    assert "round 98 · 40 online · accuracy 25.0 % · 0.1 h/s · 0:10 left" in drawn
    assert drawn.endswith("\x1b[1A\x1b[2K")


@pytest.mark.parametrize("width", [30, 60, 200])
def test_a_bar_fits_any_terminal(width: int) -> None:
    console = Console(file=io.StringIO(), width=width)
    bar = Bar("a-rather-long-name", 360_000.0, console)
    console.print(bar.drawing(Tick(180_000.0, 123_456, 1000, "accuracy", 0.912)))
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert len(lines) == 2
    assert max(map(len, lines)) <= width


def test_how_far_a_run_came_is_known_though_it_was_not_shown() -> None:
    silent = Progress("small", 7200.0)
    assert silent.last is None
    assert silent.how_far() == "before the simulation began"
    silent.tick(Tick(0.0, 0, 40))
    silent.tick(Tick(5400.0, 57, 41, "mse", 1.5))
    silent.tick(Tick(5760.0, 60, 42))
    assert silent.last == Tick(5760.0, 60, 42, "mse", 1.5)
    assert silent.how_far() == "at 1.6 of 2 simulated hours, round 60"


def test_what_is_shown_depends_on_where_it_goes() -> None:
    assert type(progress_for("x", 1.0, Terminal())) is Bar
    assert type(progress_for("x", 1.0, io.StringIO())) is Lines
    assert type(progress_for("x", 1.0, Terminal(), quiet=True)) is Progress
