"""A revocation takes effect at once and everywhere: on standing links, in views, for good."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from plexus.errors import RevokedError
from plexus.live.fleet.fleet import Fleet
from plexus.live.identity.admission import Admission, NewerLists
from plexus.spec.experiment import parse_spec
from tests.live.ends import End
from tests.live.party import Party


class Member(End):
    """An end that looks after revocations as a peer does."""

    def __init__(self, admission: Admission) -> None:
        super().__init__(admission)
        self.expelled: list[bytes] = []
        self.revoking = NewerLists(self.hub, self.expelled.append)

    def list_offered(self, src: bytes, list_der: bytes) -> None:
        self.revoking.offered(src, list_der)


@asynccontextmanager
async def members(party: Party, names: str) -> AsyncIterator[list[Member]]:
    """Nodes of which each is linked with the next, and all with the last."""
    made = [Member(admission) for admission in party.admissions(names)]
    *chain, last = made
    for each in made:
        await each.open()
    for each, other in [*pairwise(chain), *((each, last) for each in chain)]:
        each.knows(other)
        each.send(other, b"hello")
        await each.until(lambda each=each, other=other: each.is_linked(other))
    try:
        yield made
        assert [failure for each in made for failure in each.failures] == []
    finally:
        for each in made:
            await each.hub.close("the end")


def test_a_list_reaches_everybody_over_links_that_are_up(tmp_path: Path) -> None:
    async def story() -> None:
        party = Party(tmp_path)
        async with members(party, "abcdx") as (*others, x):
            a, d = others[0], others[-1]
            party.authority.revoke(x.key)
            shutil.copy(tmp_path / "session" / "revoked.crl", tmp_path / "a")
            await a.revoking.look_on_disk()
            for each in others:
                await each.until(lambda each=each: each.expelled == [x.key])
                await each.until(lambda each=each: not each.is_linked(x))
            await x.until(lambda: len(x.downs) == len(others))
            assert set(x.downs) == {"refused: the certificate has been revoked"}
            await x.until(lambda: x.key in x.expelled)
            assert x.hub.admission.is_revoked, "it has the authority's word for it"
            await d.until(lambda: (tmp_path / "d" / "revoked.crl").exists())
            assert all(len(each.hub.links) in (1, 2) for each in others), "those stay up"
            x.knows(d)
            x.send(d, b"let me in")
            await x.until(lambda: x.hub.refused)

    asyncio.run(story())


@pytest.mark.parametrize("dialled", [False, True])
def test_who_was_cut_off_when_it_was_revoked_hears_it_from_whomever_it_meets(
    tmp_path: Path, dialled: bool
) -> None:
    """With the authority's list, be it that it dials or is dialled: the word of one member is not enough."""

    async def story() -> None:
        party = Party(tmp_path)
        async with members(party, "ab") as (a, _):
            x = Member(party.admission("x"))
            await x.open()
            party.authority.revoke(x.key)
            a.revoking.offered(x.key, party.revocations())
            await a.until(lambda: a.expelled == [x.key])
            caller, other = (a, x) if dialled else (x, a)
            await caller.hub.dialler.introduce(other.address)
            await x.until(lambda: x.key in x.expelled)
            assert x.hub.admission.is_revoked
            assert not (x.hub.links or a.is_linked(x))
            said = [line["reason"] for line in a.warnings() if line["event"] == "no_link"]
            assert dialled or said == ["the certificate has been revoked"]
            await x.hub.close("the end")

    asyncio.run(story())


def test_whoever_is_invited_brings_the_list_that_says_so(tmp_path: Path) -> None:
    """It links with one of those who are there; that one tells the others, and nobody loses a link."""

    async def story() -> None:
        party = Party(tmp_path)
        async with members(party, "abcd") as there:
            newcomer = Member(party.admission("new"))
            newcomer.knows(there[0])
            newcomer.send(there[0], b"hello")
            for each in there:
                await each.until(lambda each=each: newcomer.key in each.hub.admission.list.nodes)
                assert (each.expelled, each.downs) == ([], [])
            await there[2].until(lambda: (tmp_path / "c" / "revoked.crl").exists())
            again = Admission(tmp_path / "c", party.session)
            assert newcomer.key in again.list.nodes, "it is kept"
            await newcomer.hub.close("the end")

    asyncio.run(story())


def test_who_passes_on_something_else_loses_its_link(tmp_path: Path) -> None:
    async def story() -> None:
        party = Party(tmp_path)
        async with members(party, "ab") as (a, b):
            a.revoking.offered(b.key, b"rubbish")
            await b.until(lambda: not b.is_linked(a))
            assert "not a list by this authority" in b.downs[0]
            assert a.expelled == []

    asyncio.run(story())


def test_a_disk_that_does_not_take_the_list_does_not_keep_it_from_taking_effect(tmp_path: Path) -> None:
    async def story() -> None:
        party = Party(tmp_path)
        async with members(party, "abx") as (a, b, x):
            party.authority.revoke(x.key)
            (tmp_path / "a" / "revoked.crl").mkdir()
            a.revoking.offered(b.key, party.revocations())
            await a.until(lambda: a.expelled == [x.key])
            assert not a.is_linked(x)
            await b.until(lambda: b.expelled == [x.key])

    asyncio.run(story())


SPEC = """
name = "revoked"
nodes = 4
hours = 1
evaluation = { every_rounds = 100 }
task = { name = "digits", hidden = 8 }

[protocol]
sample_size = 3
ping_timeout_s = 1.0
start_delay_s = 2.0
aggregation_timeout_s = 5.0
ack_timeout_s = 8.0
watchdog_s = 12.0

[traces]
availability = "none"
"""


def events(home: Path) -> list[dict[str, Any]]:
    *whole, _ = (home / "log.jsonl").read_text().split("\n")
    return [json.loads(line) for line in whole if line.startswith("{")]


async def run(out: Path) -> Fleet:
    fleet = Fleet(parse_spec(SPEC, "revoked.toml"), out, world=None)

    def newest() -> int:
        return max(member.log.round for member in fleet.members[:3])

    async def until_round(wanted: int) -> None:
        while newest() < wanted:
            await asyncio.sleep(0.1)
            for member in fleet.members:
                member.log.read()
                assert not member.notice_death() or member is fleet.members[3]

    try:
        await fleet.prepare()
        fleet.wait_for_all()
        await asyncio.gather(*(member.start() for member in fleet.members))
        async with asyncio.timeout(120):
            await until_round(5)
            command = [sys.executable, "-m", "plexus", "session", "revoke", str(out / "session")]
            subprocess.run([*command, fleet.members[3].id], check=True, capture_output=True)
            shutil.copy(out / "session" / "revoked.crl", fleet.members[0].home)
            while not all(
                any(event["event"] == "revocations" for event in events(member.home))
                for member in fleet.members[:3]
            ):
                await asyncio.sleep(0.1)
            restarted = fleet.members[1]
            await restarted.end(signal.SIGTERM)
            restarted.command += ["--at-least", "2"]  # the revoked one cannot be reached any more
            await restarted.start()
            while sum(event["event"] == "online" for event in events(restarted.home)) < 2:
                await asyncio.sleep(0.1)
            sampled = restarted.log.counts["SampleDerived"]
            while restarted.log.counts["SampleDerived"] < sampled + 10:
                await until_round(newest() + 10)
    finally:
        await fleet.close()
    return fleet


@pytest.mark.slow
def test_a_revoked_node_is_a_candidate_of_nobody(tmp_path: Path) -> None:
    """The list is given to one of four, by the twelve digits that a status shows. Another one is started
    again meanwhile: it finds in its saved view that the revoked node is online."""
    fleet = asyncio.run(run(tmp_path))
    revoked = fleet.members[3]
    assert (
        revoked.unexpected == [RevokedError.exit_code]
        and "this certificate has been revoked" in revoked.log.last_words
    )
    for member in fleet.members[:3]:
        log = events(member.home)
        told_at = next(n for n, event in enumerate(log) if event["event"] == "revocations")
        newest = max(event.get("round", 0) for event in log[:told_at])
        later = [
            event["sample"]
            for event in log[told_at:]
            # A search that was under way may still have found it.
            if event["event"] == "SampleDerived" and event["round"] > newest + 1
        ]
        assert later
        assert not any(revoked.id in sample for sample in later)
    assert not any(member.log.errors for member in fleet.members[:3])
