"""Five of six peers are killed: the one that is left does not race away, and goes on with the first that
is back."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from plexus.live.fleet.fleet import Fleet
from plexus.spec.experiment import parse_spec

WATCHDOG_S, PATIENCE_S = 4.0, 120.0
SPEC = f"""
name = "alone"
nodes = 6
hours = 1
evaluation = {{ every_rounds = 100 }}
task = {{ name = "digits", hidden = 8 }}
traces = {{ availability = "none" }}

[protocol]
sample_size = 4
ping_timeout_s = 0.5
aggregation_timeout_s = 2.0
ack_timeout_s = 3.0
watchdog_s = {WATCHDOG_S}
readvertise_s = 5.0
start_delay_s = 1.0
"""


async def _until(fleet: Fleet, is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():
            await asyncio.sleep(0.1)
            for member in fleet.members:
                member.log.read()
                assert not member.notice_death(), f"node {member.number} died by itself"


async def run(out: Path) -> tuple[int, float, list[int]]:
    """How many rounds the survivor made alone, in how many seconds; and by how many rounds it and the one
    that came back went on together."""
    fleet = Fleet(parse_spec(SPEC, "alone.toml"), out, world=None)
    try:
        await fleet.prepare()
        survivor, returning, *others = fleet.members
        await asyncio.gather(*(member.start() for member in fleet.members))
        await _until(fleet, lambda: min(member.log.worked_on for member in fleet.members) >= 3)
        for member in (returning, *others):
            await member.end(signal.SIGKILL)
        before, began = survivor.log.worked_on, time.monotonic()
        await _until(fleet, lambda: survivor.log.worked_on >= before + 4)
        alone, alone_s = survivor.log.worked_on - before, time.monotonic() - began
        await returning.start()
        at_return = survivor.log.worked_on
        both = (survivor, returning)
        await _until(fleet, lambda: min(member.log.worked_on for member in both) >= at_return + 20)
        return alone, alone_s, [member.log.worked_on - at_return for member in both]
    finally:
        await fleet.close()


@pytest.mark.slow
def test_who_is_left_alone_waits_for_the_others_and_goes_on_with_them(tmp_path: Path) -> None:
    alone, alone_s, together = asyncio.run(run(tmp_path))
    print(f"\n{alone} rounds alone in {alone_s:.1f} s, then {together} together")
    # The round that was under way, and the first for which nobody was missed yet, may be fast.
    assert alone <= 2 + alone_s / WATCHDOG_S
