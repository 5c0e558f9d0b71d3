"""Four live peers and three mishaps, in under two minutes: `make smoke`. Every step says what it saw."""

from __future__ import annotations

import asyncio
import shutil
import signal
import socket
import ssl
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from plexus.errors import PlexusError
from plexus.live.fleet.fleet import LOOPBACK, Fleet
from plexus.live.fleet.members import Member
from plexus.live.identity.admission import CERTIFICATE_FILE, KEY_FILE, REVOKED_FILE
from plexus.live.identity.authority import Authority
from plexus.live.identity.keys import create_key
from plexus.live.identity.session_file import SESSION_FILE
from plexus.live.operator.control import ask
from plexus.spec.experiment import parse_spec
from tests.live.homes import node_keys, session_digest
from tests.live.party import lax_context

STEP_S = 20.0
"""What any step may take; starting four interpreters on a busy machine takes most of it."""
ALL_S = 85.0
"""What all steps may take, so that there is time to end the fleet within two minutes."""
SPEC = """
name = "smoke"
nodes = 4
hours = 1
evaluation = { every_rounds = 1000 }
task = { name = "digits" }
traces = { availability = "none" }

[protocol]
sample_size = 3
success_fraction = 0.6
ping_timeout_s = 0.5
aggregation_timeout_s = 3.0
ack_timeout_s = 4.0
watchdog_s = 6.0
readvertise_s = 5.0
start_delay_s = 1.0
"""


class Smoke:
    """A fleet, watched while things happen to it."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.lost: set[int] = set()
        """Numbers of nodes that are meant to be down or out."""

    @property
    def well(self) -> list[Member]:
        return [member for member in self.fleet.members if member.number not in self.lost]

    @property
    def round(self) -> int:
        """The newest that one of those that are well has completed by now."""
        for member in self.well:
            member.log.read()
        return max(member.log.round for member in self.well)

    async def until(self, what: str, is_so: Callable[[], bool]) -> None:
        """Wait for something, but not for long; a node that is well and ends by itself ends the wait."""
        began_s = time.monotonic()
        while True:
            for member in self.fleet.members:
                member.log.read()
                if member.notice_death() and member.number not in self.lost:
                    pytest.fail(f"node {member.number} ended by itself: {member.log.last_words}")
            if is_so():
                print(f"{time.monotonic() - began_s:5.1f} s  {what}", flush=True)
                return
            if time.monotonic() - began_s > STEP_S:
                pytest.fail(f"not within {STEP_S:g} s: {what}")
            await asyncio.sleep(0.1)

    async def goes_on(self, after: str, beyond: int = 0) -> None:
        """Three rounds more, and all that are well answer."""
        before = max(self.round, beyond)
        await self.until(f"{after}: rounds beyond {before + 3}", lambda: self.round > before + 3)
        for member in self.well:
            await self.status(member, after)

    async def status(self, member: Member, when: str) -> dict[str, Any]:
        try:
            return await asyncio.to_thread(ask, member.home, "status")
        except PlexusError:
            pytest.fail(f"{when}: node {member.number} does not answer its operator any more")


@pytest.mark.smoke
@pytest.mark.live
@pytest.mark.timeout(120)
def test_smoke(tmp_path: Path) -> None:
    asyncio.run(_smoke(tmp_path))


async def _smoke(out: Path) -> None:
    fleet = Fleet(parse_spec(SPEC, "smoke.toml"), out, world=None)
    smoke = Smoke(fleet)
    try:
        async with asyncio.timeout(ALL_S):
            await fleet.prepare()
            fleet.wait_for_all()
            await asyncio.gather(*(member.start() for member in fleet.members))
            await smoke.until("four peers learn: round 3", lambda: smoke.round >= 3)
            await _one_is_killed(smoke, fleet.members[3])
            await _a_member_says_goodbye_at_once(smoke, fleet.members[0], out)
            await _one_is_revoked(smoke, fleet.members[1], out)
    finally:
        await fleet.close()
    # A log of two lives may hold a line that kill -9 cut off.
    once = [member for member in smoke.well if member.starts == 1]
    errors = {member.number: member.log.errors for member in once if member.log.errors}
    assert errors == {}, f"nodes that logged errors: {errors}"


async def _one_is_killed(smoke: Smoke, victim: Member) -> None:
    await victim.end(signal.SIGKILL)
    smoke.lost.add(victim.number)
    await smoke.goes_on(f"kill -9 of node {victim.number}")
    trained = victim.log.counts["TrainingStarted"]
    await victim.start()
    await smoke.until(
        f"node {victim.number} trains again", lambda: victim.log.counts["TrainingStarted"] > trained
    )
    smoke.lost.remove(victim.number)


async def _a_member_says_goodbye_at_once(smoke: Smoke, host: Member, out: Path) -> None:
    """TLS and nothing else: a handshake with good credentials, then close_notify."""
    home = out / "visitor"
    home.mkdir()
    public = create_key(home / KEY_FILE).public_key().public_bytes_raw()
    authority = Authority.load(out / "session")
    digest = session_digest(out / "session" / SESSION_FILE)
    (home / CERTIFICATE_FILE).write_text(authority.invite(public, digest, timedelta(hours=1)))
    await asyncio.to_thread(_shake_hands_and_close, lax_context(home), _port(host))
    await smoke.goes_on(f"a bare TLS close at node {host.number}")


def _shake_hands_and_close(context: ssl.SSLContext, port: int) -> None:
    with socket.create_connection((LOOPBACK, port), timeout=5.0) as sock:
        secured = context.wrap_socket(sock)
        secured.settimeout(2.0)
        try:
            secured.unwrap()
        except OSError:
            pass  # how the peer answers is its own affair; that it goes on is not
        finally:
            secured.close()


async def _one_is_revoked(smoke: Smoke, outcast: Member, out: Path) -> None:
    """The list is given to one peer, which tells the others."""
    (key,) = node_keys([outcast.home])
    Authority.load(out / "session").revoke(key)
    smoke.lost.add(outcast.number)
    first = smoke.well[0]
    shutil.copy(out / "session" / REVOKED_FILE, first.home / REVOKED_FILE)
    others = len(smoke.well) - 1
    for member in smoke.well:
        await _until_linked_to(smoke, member, others, f"node {outcast.number} revoked")
    outcast.log.read()  # it may have aggregated most rounds so far
    before = max(smoke.round, outcast.log.worked_on)
    await smoke.goes_on(f"node {outcast.number} revoked", beyond=before)
    samples = [each for member in smoke.well for each in _samples(member) if each[0] > before + 1]
    print(f"         {len(samples)} samples since, of rounds after {before + 1}")
    assert samples, "nobody derived a sample"
    asked = [round for round, nodes in samples if outcast.id in nodes]
    assert asked == [], f"rounds whose sample holds the revoked node {outcast.number}: {asked}"


async def _until_linked_to(smoke: Smoke, member: Member, most: int, when: str) -> None:
    until_s = time.monotonic() + STEP_S
    while (linked := (await smoke.status(member, when))["peers"]["linked"]) > most:
        if time.monotonic() > until_s:
            pytest.fail(f"{when}: after {STEP_S:g} s node {member.number} has {linked} links, not {most}")
        await asyncio.sleep(0.1)
    print(f"         {when}: node {member.number} has {linked} links", flush=True)


def _samples(member: Member) -> list[tuple[int, list[str]]]:
    """(round, nodes) of every sample that the node derived."""
    lines = (member.home / "log.jsonl").read_bytes().splitlines()
    events = [msgspec.json.decode(line) for line in lines if line.startswith(b"{")]
    return [(each["round"], each["sample"]) for each in events if each["event"] == "SampleDerived"]


def _port(member: Member) -> int:
    return int(member.command[member.command.index("--listen") + 1].rpartition(":")[2])
