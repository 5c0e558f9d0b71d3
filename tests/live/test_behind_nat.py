"""A peer that nobody can dial: it keeps links to all others, trains, and aggregates if it is the best."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from plexus.live.fleet.fleet import Fleet
from plexus.spec.experiment import parse_spec

SPEC = """
name = "nat"
nodes = 4
hours = 1
task = { name = "digits" }
traces = { availability = "none" }

[protocol]
sample_size = 3
start_delay_s = 2.0
aggregation_timeout_s = 5.0
ack_timeout_s = 8.0
watchdog_s = 12.0
"""
HIDDEN = 3


async def run(out: Path, *others: int) -> Fleet:
    """With one hidden peer, and others that are hidden, too, and of the version before."""
    fleet = Fleet(parse_spec(SPEC, "nat.toml"), out, world=None)
    try:
        await fleet.prepare()
        for member in fleet.members:
            # Those with an address know only of each other; the hidden one must find them.
            visible = [at for at, word in enumerate(member.command) if word == "--join"]
            if member.number != HIDDEN:
                del member.command[visible[-1] : visible[-1] + 2]
        for number in (HIDDEN, *others):
            hidden = fleet.members[number].command
            hidden[hidden.index("--advertise") + 1] = "none"
            if number in others:
                hidden[hidden.index("plexus")] = "tests.live.previous"
        fleet.members[HIDDEN].command += ["--bandwidth", "4000000000"]
        await asyncio.gather(*(member.start() for member in fleet.members))
        async with asyncio.timeout(80):
            while fleet.members[HIDDEN].log.counts["TrainingStarted"] < 10:
                await asyncio.sleep(0.2)
                for member in fleet.members:
                    member.log.read()
                    assert not member.notice_death()
    finally:
        await fleet.close()
    return fleet


@pytest.mark.slow
def test_a_hidden_peer_takes_part_and_aggregates(tmp_path: Path) -> None:
    fleet = asyncio.run(run(tmp_path))
    hidden = fleet.members[HIDDEN].log
    assert hidden.counts["TrainingStarted"] >= 10
    assert hidden.counts["AggregationCompleted"] > 0
    assert sum(member.log.counts["AggregationCompleted"] for member in fleet.members) > 10
    assert not any(member.log.errors or member.unexpected for member in fleet.members)


@pytest.mark.slow
def test_a_hidden_peer_of_the_version_before_reaches_another_by_way_of_a_third(tmp_path: Path) -> None:
    """The other one is the best connected, so it aggregates."""
    fleet = asyncio.run(run(tmp_path, 2))
    assert fleet.members[2].log.counts["TrainingStarted"] > 0
    assert fleet.members[HIDDEN].log.counts["AggregationCompleted"] > 0
    assert "aggregate,false" in (fleet.members[2].home / "run" / "transfers.csv").read_text()
    assert not any(member.log.errors or member.unexpected for member in fleet.members)
