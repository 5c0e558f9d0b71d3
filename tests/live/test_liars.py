"""A member that says of others what they have not said, over TLS, with a certificate that is good."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import ssl
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from plexus.cli.session import read_session_file
from plexus.live.fleet.fleet import Fleet
from plexus.live.fleet.members import Member
from plexus.live.identity.admission import Admission
from plexus.live.identity.authority import SESSION_FILE
from plexus.live.identity.events import SignedRoster, statement
from plexus.live.identity.keys import short
from plexus.live.state import STATE_FILE, read_state
from plexus.live.transport.frames import Hello, Kind, Refused, frame
from plexus.protocol import wire
from plexus.protocol.messages import NO_ADDRESS, Message, Pong, ViewReply
from plexus.protocol.roster import Entry, Roster
from plexus.protocol.view import JOINED, LAST, LEFT, View, counter_of, event_number
from plexus.spec.experiment import parse_spec
from tests.live.homes import node_keys
from tests.live.party import lax_context

SPEC = """
name = "liars"
nodes = 4
hours = 1
evaluation = { every_rounds = 1000 }
task = { name = "digits", hidden = 8 }
traces = { availability = "none" }

[protocol]
sample_size = 3
ping_timeout_s = 1.0
start_delay_s = 2.0
aggregation_timeout_s = 5.0
ack_timeout_s = 8.0
watchdog_s = 12.0
"""
HONEST = 3
INVENTED = 20_000
ROUNDS = 40


class Forger(SignedRoster):
    """Of others it tells whatever it likes, and signs that with its own key."""

    def __init__(self, admission: Admission) -> None:
        super().__init__(admission, 2 * INVENTED)

    def entry(self, node: int, event: int, bandwidth_bytes_per_s: int) -> Entry:
        said = Entry(event, bandwidth_bytes_per_s, NO_ADDRESS)
        return said._replace(proof=self._admission.sign(statement(self.session, self.keys[node], said)))


class Liar:
    """The last node of a fleet, as its owner has changed it: it links with somebody and says one thing."""

    def __init__(self, fleet: Fleet) -> None:
        self.home = fleet.members[HONEST].home
        self.session = read_session_file(fleet.out / "session" / SESSION_FILE)[0]
        self._admission = Admission(self.home, self.session)
        self.id = short(self._admission.key)

    def view(self, entries: Iterable[tuple[bytes, int, int]]) -> bytes:
        roster = Forger(self._admission)
        view = View.of(1, is_signed=True)
        for key, event, bandwidth in entries:
            view.learn(roster.number(key), event, bandwidth)
        return wire.encode(ViewReply(view.snapshot()), roster)

    def message(self, body: Message) -> bytes:
        return wire.encode(body, Roster(b""))

    def say(self, to: Member, what: bytes, listen_s: float = 3.0) -> str:
        """Why the other one ended the link, if it did."""
        port = int(to.command[to.command.index("--listen") + 1].rpartition(":")[2])
        hello = Hello(self.session.digest, os.urandom(8), NO_ADDRESS, self._admission.list.number, NO_ADDRESS)
        sock = socket.create_connection(("127.0.0.1", port), timeout=10)
        with sock, lax_context(self.home).wrap_socket(sock) as secured:
            secured.sendall(frame(Kind.HELLO, msgspec.msgpack.encode(hello)))
            assert secured.recv(1000)[0] == Kind.WELCOME
            secured.sendall(what)
            secured.settimeout(listen_s)
            heard = b""
            with suppress(TimeoutError, ssl.SSLError, ConnectionError):
                while data := secured.recv(65536):
                    heard += data
        return next((reason for kind, reason in frames(heard) if kind == Kind.REFUSED), "")


def frames(data: bytes) -> Iterable[tuple[int, str]]:
    while len(data) >= 4:
        kind, length = data[0], int.from_bytes(data[1:4], "big")
        payload, data = data[4 : 4 + length], data[4 + length :]
        yield kind, msgspec.msgpack.decode(payload, type=Refused).reason if kind == Kind.REFUSED else ""


class Session:
    """Three honest peers that train, and a fourth certificate."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.honest = fleet.members[:HONEST]
        self.keys = node_keys([member.home for member in self.honest])

    async def start(self) -> None:
        for member in self.honest:
            member.command += ["--at-least", str(HONEST - 1)]
        await asyncio.gather(*(member.start() for member in self.honest))

    async def rounds(self, count: int) -> float:
        """Wait for so many more; how long they took."""
        began_s, wanted = time.monotonic(), self.newest() + count
        while self.newest() < wanted:
            await asyncio.sleep(0.05)
            assert not any(member.notice_death() for member in self.honest)
        return time.monotonic() - began_s

    def newest(self) -> int:
        for member in self.honest:
            member.log.read()
        return max(member.log.round for member in self.honest)

    def refusals(self) -> list[tuple[str, str]]:
        """Who was named, and why."""
        said = [event for member in self.honest for event in events(member) if event["event"] == "Refused"]
        return [(event["peer"], event["reason"]) for event in said]

    def known(self, member: Member) -> dict[bytes, int]:
        """Who its state on disk knows, and by which events."""
        roster = Roster(b"")
        body, _ = wire.decode(read_state(member.home / STATE_FILE).view[wire.LENGTH_BYTES :], roster)
        assert isinstance(body, ViewReply)
        return {roster.keys[node]: event for node, event in enumerate(body.view.events.tolist()) if event}

    async def restart(self) -> None:
        await asyncio.gather(*(member.end(signal.SIGTERM) for member in self.honest))
        await asyncio.gather(*(member.start() for member in self.honest))


def events(member: Member) -> list[dict[str, Any]]:
    *whole, _ = (member.home / "log.jsonl").read_text().split("\n")
    return [json.loads(line) for line in whole if line.startswith("{")]


async def tell_all(session: Session, liar: Liar, lie: bytes) -> list[str]:
    return await asyncio.gather(*(asyncio.to_thread(liar.say, to, lie) for to in session.honest))


async def story(out: Path) -> None:
    fleet = Fleet(parse_spec(SPEC, "liars.toml"), out, world=None)
    try:
        await fleet.prepare()
        session, liar = Session(fleet), Liar(fleet)
        await session.start()
        async with asyncio.timeout(240):
            await session.rounds(10)
            before_s = await session.rounds(ROUNDS)
            await everybody_else_left(session, liar)
            await invented_nodes(session, liar)
            await last_event(session, liar)
            after_s = await session.rounds(ROUNDS)
            print(f"{ROUNDS} rounds in {before_s:.1f} s before and in {after_s:.1f} s after all lies")
            assert after_s < 2 * before_s + 5
            await session.restart()
            await session.rounds(10)
            await goodbye_is_heard(session)
    finally:
        await fleet.close()
    assert not any(member.log.errors for member in fleet.members)


async def everybody_else_left(session: Session, liar: Liar) -> None:
    gone = [(key, event_number(1000, LEFT), 0) for key in session.keys]
    heard = await tell_all(session, liar, liar.view(gone))
    assert all("that it has not signed" in reason for reason in heard), heard
    await session.rounds(ROUNDS)
    named = [reason for peer, reason in session.refusals() if peer == liar.id]
    assert sum("that it has not signed" in reason for reason in named) >= HONEST


async def invented_nodes(session: Session, liar: Liar) -> None:
    invented = [(os.urandom(16), event_number(1, JOINED), 10**9) for _ in range(INVENTED)]
    lie = liar.view(invented)
    assert len(lie) > 840_000
    assert await tell_all(session, liar, lie) == [""] * HONEST, "nothing of it is believed, and that is all"
    await session.rounds(ROUNDS)
    why = "nodes that the authority has not admitted"
    assert session.refusals().count((liar.id, why)) >= HONEST
    for member in session.honest:
        assert len(session.known(member)) <= HONEST + 1


async def last_event(session: Session, liar: Liar) -> None:
    victim = session.honest[0]
    claims = [liar.view([(session.keys[0], LAST, 0)]), liar.message(Pong(0, 0, 0, LAST))]
    for claim in claims:
        await tell_all(session, liar, claim)
    assert liar.say(victim, liar.message(Pong(0, 0, 0, LAST))) == ""
    await session.rounds(ROUNDS)


async def goodbye_is_heard(session: Session) -> None:
    """Nobody's counter was driven to its end, so everybody can say that it leaves."""
    victim, *others = session.honest
    await victim.end(signal.SIGTERM)
    await asyncio.sleep(2.0)
    await asyncio.gather(*(member.end(signal.SIGTERM) for member in others))
    for member in others:
        event = session.known(member)[session.keys[0]]
        assert event & 3 == LEFT
        assert counter_of(event) < 100


@pytest.mark.slow
def test_a_member_that_speaks_for_others_is_not_believed_and_named(tmp_path: Path) -> None:
    asyncio.run(story(tmp_path))
