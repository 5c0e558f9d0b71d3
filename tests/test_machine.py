"""What this process has cost; a pool of real processes: what they say, what comes of them, how they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from plexus.machine import ONE_THREAD, Heard, Pool, Say

pytestmark = pytest.mark.slow


def test_peak_memory_is_that_of_this_process_alone() -> None:
    """A child counts its own memory, not what its parent held when it was started."""
    script = "from plexus.machine import peak_mb; {}; print(peak_mb())"
    peaks = [
        float(subprocess.check_output([sys.executable, "-c", script.format(held)]))
        for held in ("pass", "b'x' * 200_000_000")
    ]
    assert 5 < peaks[0] < 150
    assert 180 < peaks[1] - peaks[0] < 220


def work(job: Any, say: Say) -> Any:
    match job:
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "fail":
            raise RuntimeError("no luck")
        case "threads":
            return [os.environ.get(name) for name in ONE_THREAD]
        case "endless":
            try:
                while True:
                    say("at it")
                    time.sleep(0.01)
            except KeyboardInterrupt:
                return "kept"
        case "mute":
            while True:
                time.sleep(0.01)
    say(f"at {job}")
    return 2 * job


def outcomes(*jobs: Any, count: int = 2) -> dict[Any, tuple[str, Any]]:
    heard: list[Heard] = []
    Pool(work, count).run(jobs, heard.append)
    assert {news.job: news.value for news in heard if news.kind == "said"} == {
        job: f"at {job}" for job in jobs if isinstance(job, int)
    }
    return {news.job: (news.kind, news.value) for news in heard if news.kind != "said"}


def test_every_job_is_done_once_and_may_say_how_far_it_is() -> None:
    assert outcomes(1, 2, 3, 4, 5) == {job: ("done", 2 * job) for job in (1, 2, 3, 4, 5)}
    assert outcomes() == {}


def test_a_process_that_dies_or_fails_costs_its_own_job_and_no_other() -> None:
    found = outcomes("die", 1, "fail", 2, "threads", count=1)
    assert found["die"] == ("failed", "its process ended with -9")
    assert found["fail"][0] == "failed" and found["fail"][1].startswith("RuntimeError: no luck")
    assert (found[1], found[2]) == (("done", 2), ("done", 4))
    assert found["threads"] == ("done", ["1"] * len(ONE_THREAD))
    assert not set(ONE_THREAD) & set(os.environ)


def test_jobs_are_taken_when_somebody_is_free_for_them() -> None:
    done: list[int] = []

    def jobs() -> Iterator[int]:
        for job in range(1, 5):
            assert len(done) >= job - 2, "one more than there are processes is taken"
            yield job

    Pool(work, 1).run(jobs(), lambda news: done.append(news.job) if news.kind == "done" else None)
    assert done == [1, 2, 3, 4]


def test_ctrl_c_hears_out_those_at_work_and_is_raised_again() -> None:
    heard: list[Heard] = []

    def hear(news: Heard) -> None:
        heard.append(news)
        if news.kind == "said" and len(heard) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Pool(work, 1).run(["endless", "never begun"], hear)
    assert heard[-1] == Heard("endless", "done", "kept")
    assert {news.job for news in heard} == {"endless"}


def test_ctrl_c_stops_at_once_what_has_said_nothing_yet() -> None:
    heard: list[Heard] = []
    looks: list[int] = []

    def look() -> None:
        looks.append(1)
        if len(looks) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Pool(work, 1).run(["mute"], heard.append, look)
    assert [(news.job, news.kind) for news in heard] == [("mute", "stopped")]


def test_an_error_of_whoever_hears_ends_the_processes_too() -> None:
    def hear(news: Heard) -> None:
        raise ValueError("I do not like it")

    with pytest.raises(ValueError, match="I do not like it"):
        Pool(work, 2).run(["mute", 1], hear)
