"""Peers are killed and restarted at random, aggregators among them; the session goes on."""

from __future__ import annotations

import asyncio
import os
import signal
from itertools import pairwise
from pathlib import Path
from random import Random

import msgspec
import pytest

from plexus.live.fleet import Fleet, Member
from plexus.spec import parse_spec

FULL = bool(os.environ.get("PLEXUS_LIVE_FULL"))
NODES, SECONDS = (16, 60.0) if FULL else (10, 24.0)
EVERY_S = 3.0
PING_S, ACK_S, WATCHDOG_S = 1.0, 5.0, 8.0
SPEC = f"""
name = "chaos"
nodes = {NODES}
hours = 1
evaluation = {{ every_rounds = 5 }}
task = {{ name = "digits" }}

[protocol]
sample_size = 5
success_fraction = 0.6
ping_timeout_s = {PING_S}
aggregation_timeout_s = 3.0
ack_timeout_s = {ACK_S}
watchdog_s = {WATCHDOG_S}
readvertise_s = 5.0
start_delay_s = 2.0

[traces]
availability = "none"
"""


class Chaos:
    """Kills and restarts members, and keeps at least half of them alive."""

    def __init__(self, fleet: Fleet, rng: Random) -> None:
        self._fleet = fleet
        self._rng = rng
        self.killed: list[str] = []

    async def strike(self, number: int) -> None:
        members = self._fleet.members
        down = [member for member in members if not member.is_running]
        if down and (len(down) >= len(members) // 2 or self._rng.random() < 0.5):
            await self._rng.choice(down).start()
            return
        up = [member for member in members if member.is_running]
        victim = self._aggregator(up) if number % 3 == 0 else self._rng.choice(up)
        await victim.end(signal.SIGKILL)
        self.killed.append(victim.id)

    def _aggregator(self, up: list[Member]) -> Member:
        """Who aggregated last: the paper's critical node."""
        return max(up, key=lambda member: member.log.round)


async def run(out: Path) -> tuple[Fleet, list[str]]:
    fleet = Fleet(parse_spec(SPEC, "chaos.toml"), out, world=None)
    chaos = Chaos(fleet, Random(5))
    try:
        await fleet.prepare()
        for member in fleet.members:
            await member.start()
        async with asyncio.timeout(90):
            while fleet.round < 5:
                await _look(fleet)
        for number in range(int(SECONDS / EVERY_S)):
            await chaos.strike(number)
            for _ in range(int(EVERY_S / 0.2)):
                await _look(fleet)
    finally:
        await fleet.close()
    return fleet, chaos.killed


async def _look(fleet: Fleet) -> None:
    await asyncio.sleep(0.2)
    for member in fleet.members:
        member.log.read()
        assert not member.notice_death(), f"node {member.number} died by itself"


def counters(member: Member) -> list[int]:
    lines = (member.home / "log.jsonl").read_bytes().splitlines()
    events = [msgspec.json.decode(line) for line in lines if line.startswith(b"{")]
    return [event["counter"] for event in events if event["event"] == "counter"]


@pytest.mark.slow
def test_the_session_outlives_its_members(tmp_path: Path) -> None:
    fleet, killed = asyncio.run(run(tmp_path))
    times = sorted((time, k) for member in fleet.members for time, k in member.log.rounds)
    newest = max(k for _, k in times)
    pauses = [later - earlier for (earlier, _), (later, _) in pairwise(times)]
    metrics = sorted(each for member in fleet.members for each in member.log.metrics)
    print(
        f"\n{NODES} nodes, {len(killed)} kills, {newest} rounds, longest pause {max(pauses):.1f} s,"
        f" accuracy {metrics[0][1]:.3f} to {metrics[-1][1]:.3f}"
    )
    assert killed
    assert max(pauses) <= ACK_S + WATCHDOG_S
    assert metrics[-1][1] > metrics[0][1]
    assert metrics[-1][1] > 0.8
    assert not any(member.unexpected for member in fleet.members)
    assert not any(member.log.errors for member in fleet.members)
    for member in fleet.members:
        used = counters(member)
        assert used == sorted(set(used)), f"node {member.number} reused a counter: {used}"
