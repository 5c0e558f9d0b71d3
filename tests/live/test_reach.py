"""Eight hosts of which most reach nobody but one or two: they train, and aggregate, by way of these."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from plexus.live.fleet.fleet import Fleet
from plexus.live.fleet.members import Member
from plexus.live.operator.control import ask
from plexus.spec.experiment import parse_spec
from tests.live.netns import why_not
from tests.live.star import Star, star

HOSTS, PORT = 8, 7000
APART_S = 15.0
"""By then everybody suspects the relay to be gone."""
SPEC = """
name = "reach"
nodes = 8
hours = 1
task = { name = "digits" }
traces = { availability = "none" }

[protocol]
sample_size = 5
ping_timeout_s = 2.0
aggregation_timeout_s = 6.0
ack_timeout_s = 10.0
watchdog_s = 15.0
readvertise_s = 5.0
start_delay_s = 2.0

[session]
start_with = 8
"""


def move_into(net: Star, fleet: Fleet, reachable: int) -> None:
    """Every member on its own host. Half of those who cannot be dialled know it, the others do not."""
    for member in fleet.members:
        number = member.number + 1
        words = member.command[: member.command.index("--home") + 4]
        words += ["--fork-server", str(fleet.out / "forkserver.sock"), "--listen", f"0.0.0.0:{PORT}"]
        for other in range(1, reachable + 1):
            if other != number:
                words += ["--join", f"{net.address(other)}:{PORT}"]
        # Who cannot be dialled is the best all the same.
        words += ["--bandwidth", str(1_000_000 + 100_000 * number)]
        if number > reachable and number % 2:
            words += ["--advertise", "none"]
        member.command = ["ip", "netns", "exec", net.host(number), *words, "--log-level", "debug"]


async def look(members: list[Member], seconds: float = 0.2) -> None:
    await asyncio.sleep(seconds)
    for member in members:
        member.log.read()
        assert not member.notice_death(), f"node {member.number} died"


async def all_train(members: list[Member], rounds: int) -> None:
    """Wait until each has trained so many times more."""
    before = [member.log.counts["TrainingStarted"] for member in members]
    async with asyncio.timeout(120):
        while any(
            member.log.counts["TrainingStarted"] < count + rounds
            for member, count in zip(members, before, strict=True)
        ):
            await look(members)


async def run(net: Star, out: Path, reachable: int) -> tuple[Fleet, list[int]]:
    """The fleet, and how many links by way of others each had while all were there."""
    fleet = Fleet(parse_spec(SPEC, "reach.toml"), out, world=None)
    try:
        await fleet.prepare()
        move_into(net, fleet, reachable)
        await asyncio.gather(*(member.start() for member in fleet.members))
        await all_train(fleet.members, 5)
        seen = [await asyncio.to_thread(ask, member.home, "status") for member in fleet.members]
        await fleet.members[0].end(signal.SIGKILL)
        if reachable > 1:
            await all_train(fleet.members[1:], 5)
        else:
            await asyncio.sleep(APART_S)
            await fleet.members[0].start()
            await all_train(fleet.members, 5)
    finally:
        await fleet.close()
    return fleet, [each["peers"]["relayed"] for each in seen]


@pytest.mark.slow
@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
@pytest.mark.parametrize("reachable", [1, 2])
def test_those_whom_nobody_can_dial_train_and_aggregate(tmp_path: Path, reachable: int) -> None:
    """By way of one, which is killed and comes back; or of two, of which one is killed for good."""
    with star(HOSTS, reachable) as net:
        fleet, relayed = asyncio.run(run(net, tmp_path, reachable))
    hidden = fleet.members[reachable:]
    aggregated = [member.log.counts["AggregationCompleted"] for member in fleet.members]
    print(f"\nrounds {fleet.round}, aggregated by {aggregated}, relayed links of each {relayed}")
    assert sum(aggregated[reachable:]) >= 5
    assert all(count >= 1 for count in relayed[reachable:])
    assert all(member.log.counts["TrainingStarted"] >= 5 for member in hidden)
    # The log of who was killed may hold a line that was cut off.
    assert not any(member.log.errors or member.unexpected for member in fleet.members[1:])
