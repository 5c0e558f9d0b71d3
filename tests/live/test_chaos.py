"""Peers are killed and restarted at random, aggregators among them; the session goes on."""

from __future__ import annotations

import asyncio
import signal
import time
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from plexus.live.fleet.fleet import Fleet
from plexus.live.fleet.members import Member
from plexus.runs.run import started_s
from plexus.runs.tables import read
from plexus.spec.experiment import parse_spec

NODES, SECONDS, EVERY_S = 16, 60.0, 3.0
PING_S, ACK_S, WATCHDOG_S = 0.3, 5.0, 8.0
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
        self.killed = 0
        self.aggregators_killed = 0
        self.restarted = 0

    async def strike(self, number: int) -> None:
        members = self._fleet.members
        down = [member for member in members if not member.is_running]
        if number % 3 == 0:
            await self._kill(self._aggregator())
            self.aggregators_killed += 1
        elif down and (len(down) >= len(members) // 2 or self._rng.random() < 0.5):
            await self._rng.choice(down).start()
            self.restarted += 1
        else:
            await self._kill(self._rng.choice([each for each in members if each.is_running]))

    async def _kill(self, victim: Member) -> None:
        await victim.end(signal.SIGKILL)
        self.killed += 1

    def _aggregator(self) -> Member:
        """Whom the others are sending their models to at this moment."""
        members = self._fleet.members
        for member in members:
            member.log.read()
        running = {member.id: member for member in members if member.is_running}
        newest = [member.log.newest.get("AggregatorChosen") for member in members]
        chosen = sorted(((line["round"], line["aggregator"]) for line in newest if line), reverse=True)
        return next(running[node] for _, node in chosen if node in running)


async def run(out: Path) -> tuple[Fleet, Chaos, tuple[float, float]]:
    """The fleet, what was done to it, and from when till when."""
    fleet = Fleet(parse_spec(SPEC, "chaos.toml"), out, world=None)
    chaos = Chaos(fleet, Random(5))
    try:
        await fleet.prepare()
        await asyncio.gather(*(member.start() for member in fleet.members))
        async with asyncio.timeout(90):
            while fleet.round < 5:
                await _look(fleet)
        began = time.time()
        for number in range(int(SECONDS / EVERY_S)):
            await chaos.strike(number)
            while time.time() < began + (number + 1) * EVERY_S:
                await _look(fleet)
        ended = time.time()
    finally:
        await fleet.close()
    return fleet, chaos, (began, ended)


async def _look(fleet: Fleet) -> None:
    await asyncio.sleep(0.2)
    for member in fleet.members:
        member.log.read()
        assert not member.notice_death(), f"node {member.number} died by itself"


def pauses(fleet: Fleet, span: tuple[float, float]) -> list[float]:
    """How long each round was the newest one to be completed."""
    began, ended = span
    completed = sorted(
        (started_s(member.home / "run") + at_s, k)
        for member in fleet.members
        for at_s, k in zip(*_columns(member, "rounds", "simulated_s", "round"), strict=True)
    )
    newest, moments = 0, [began]
    for at, k in completed:
        if k > newest:
            newest = k
            if began < at < ended:
                moments.append(at)
    return [later - earlier for earlier, later in pairwise([*moments, ended])]


def _columns(member: Member, table: str, *names: str) -> list[list[Any]]:
    columns = read(member.home / "run" / f"{table}.csv")
    return [columns[name].tolist() if columns else [] for name in names]


def counters(member: Member) -> list[int]:
    lines = (member.home / "log.jsonl").read_bytes().splitlines()
    events = [msgspec.json.decode(line) for line in lines if line.startswith(b"{")]
    return [event["counter"] for event in events if event["event"] == "counter"]


@pytest.mark.slow
def test_the_session_outlives_its_members(tmp_path: Path) -> None:
    fleet, chaos, span = asyncio.run(run(tmp_path))
    longest_s = max(pauses(fleet, span))
    metrics = sorted(
        each
        for member in fleet.members
        for each in zip(*_columns(member, "evaluations", "round", "accuracy"), strict=True)
    )
    print(
        f"\n{NODES} nodes, {chaos.killed} kills ({chaos.aggregators_killed} of aggregators),"
        f" {chaos.restarted} restarts, {fleet.round} rounds, longest pause {longest_s:.1f} s,"
        f" accuracy {metrics[0][1]:.3f} to {metrics[-1][1]:.3f}"
    )
    assert chaos.aggregators_killed >= 5
    assert chaos.restarted >= 3
    assert longest_s <= ACK_S + WATCHDOG_S
    assert metrics[-1][1] > metrics[0][1]
    assert metrics[-1][1] > 0.8
    assert not any(member.unexpected for member in fleet.members)
    assert not any(member.log.errors for member in fleet.members)
    for member in fleet.members:
        used = counters(member)
        assert used == sorted(set(used)), f"node {member.number} reused a counter: {used}"
