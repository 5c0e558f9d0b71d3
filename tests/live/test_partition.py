"""Four hosts, cut into halves and joined again: both halves go on, then there is one model again."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from pathlib import Path

import msgspec
import pytest

from plexus.live.fleet.fleet import Fleet
from plexus.spec.experiment import parse_spec
from tests.live.netns import HALVES, Network, move_into, network, why_not

PARTITION_S = 20.0
SIDES = [{number - 1 for number in half} for half in HALVES]
SPEC = """
name = "partition"
nodes = 4
hours = 1
task = { name = "digits" }
traces = { availability = "none" }

[protocol]
sample_size = 4
ping_timeout_s = 1.0
aggregation_timeout_s = 4.0
ack_timeout_s = 6.0
watchdog_s = 9.0
readvertise_s = 5.0
start_delay_s = 2.0
"""
Held = dict[int, dict[int, int]]
"""Round -> node -> a checksum of the model of that round it holds."""


async def run(net: Network, out: Path) -> tuple[Fleet, list[int], list[int]]:
    """The fleet, and every node's newest round at the cut and at the healing."""
    fleet = Fleet(parse_spec(SPEC, "partition.toml"), out, world=None)
    try:
        await fleet.prepare()
        move_into(net, fleet, "--at-least", "3", "--log-level", "debug")
        await asyncio.gather(*(member.start() for member in fleet.members))
        async with asyncio.timeout(60):
            while _newest(fleet) < 10:
                await _look(fleet, 0.2)
        net.partition()
        at_cut = [member.log.worked_on for member in fleet.members]
        await _look(fleet, PARTITION_S)
        at_healing = [member.log.worked_on for member in fleet.members]
        net.heal()
        async with asyncio.timeout(60):
            while len(agreed(models_held(fleet), max(at_healing))) < 8:
                await _look(fleet, 0.5)
    finally:
        await fleet.close()
    return fleet, at_cut, at_healing


def _newest(fleet: Fleet) -> int:
    return max(member.log.worked_on for member in fleet.members)


async def _look(fleet: Fleet, seconds: float) -> None:
    await asyncio.sleep(seconds)
    for member in fleet.members:
        member.log.read()
        assert not member.notice_death(), f"node {member.number} died"


def models_held(fleet: Fleet) -> Held:
    held: Held = defaultdict(dict)
    for member in fleet.members:
        *whole, _ = (member.home / "log.jsonl").read_bytes().split(b"\n")
        for text in whole:
            line = msgspec.json.decode(text)
            if line["event"] == "holds":
                held[line["round"]][member.number] = line["crc"]
    return held


def agreed(held: Held, after: int) -> list[int]:
    """The rounds after this one of which both halves hold the same model."""
    return [
        k
        for k in sorted(held)
        if k > after and len(set(held[k].values())) == 1 and all(half & set(held[k]) for half in SIDES)
    ]


@pytest.mark.slow
@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_halves_go_on_by_themselves_and_become_one_session_again(tmp_path: Path) -> None:
    with network() as net:
        fleet, at_cut, at_healing = asyncio.run(run(net, tmp_path))
    held = models_held(fleet)
    for half in SIDES:
        for node in half:
            assert at_healing[node] > at_cut[node], f"node {node} stood still in the partition"
    healed = max(at_healing)
    split = [k for k in held if k <= healed and len(set(held[k].values())) > 1]
    assert split, "both halves should have made models of the same round"
    together = agreed(held, healed)
    print(f"\ncut at {at_cut}, healed at {at_healing}, one model again in round {together[0]}")
    assert all(len(set(held[k].values())) == 1 for k in held if k >= together[0])
    assert not any(member.log.errors or member.unexpected for member in fleet.members)
