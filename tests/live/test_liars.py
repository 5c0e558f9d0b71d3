"""A member that lies, over TLS, with a certificate that is good: of others, of rounds, by its models."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import ssl
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from plexus.cli.session import read_session_file
from plexus.live.fleet.fleet import Fleet
from plexus.live.fleet.members import Member
from plexus.live.identity.admission import Admission
from plexus.live.identity.events import SignedRoster, statement
from plexus.live.identity.keys import short
from plexus.live.identity.session_file import SESSION_FILE
from plexus.live.state import STATE_FILE, newest_model, read_state
from plexus.live.transport.frames import Hello, Kind, Refused, frame
from plexus.live.transport.receiving import OVERDUE
from plexus.live.worker.client import SetUp
from plexus.protocol import wire
from plexus.protocol.messages import NO_ADDRESS, Message, Pong, ViewReply
from plexus.protocol.roster import Entry, Roster
from plexus.protocol.view import JOINED, LAST, LEFT, View, counter_of, event_number
from plexus.spec.experiment import parse_spec
from tests.live import modified
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
    """Honest peers that train, and a last certificate."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.honest = fleet.members[:-1]
        self.keys = node_keys([member.home for member in self.honest])

    async def start(self) -> None:
        for member in self.honest:
            member.command += ["--at-least", str(len(self.honest) - 1)]
        await asyncio.gather(*(member.start() for member in self.honest))

    async def rounds(self, count: int) -> float:
        """Wait for so many more; how long they took."""
        began_s, wanted = time.monotonic(), self.newest() + count
        while self.newest() < wanted:
            await asyncio.sleep(0.05)
            assert not any(member.notice_death() for member in self.honest)
        return time.monotonic() - began_s

    async def rounds_in(self, seconds: float) -> int:
        """How many there are."""
        began = self.newest()
        await asyncio.sleep(seconds)
        assert not any(member.notice_death() for member in self.honest)
        return self.newest() - began

    async def accuracy(self) -> float:
        """In percent, of the newest model that somebody honest holds."""
        held = [model for member in self.honest if (model := newest_model(member.home))]
        newest = max(held, key=lambda each: each.round)
        setup = SetUp(self.fleet.spec.to_toml(), "0", str(self.fleet.out))
        return 100 * (await self.fleet._fork_server.evaluate(setup, newest.data)).value

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


# What a peer says whose owner has changed it, while it takes part

ROWS_SPEC = [
    "nodes=5",
    "protocol.sample_size=4",
    "protocol.aggregation_timeout_s=1.5",
    "protocol.ack_timeout_s=2.0",
    "protocol.watchdog_s=4.0",
]
WATCHED_S, WINDOWS = 5.0, 4
NAMED_S = 10.0
ROWS: list[dict[str, str | None]] = [
    {
        "far": "nobody else knows of it",
        "lone": "others of its sample say otherwise",
        "many": "more participants than a sample has",
        "silent": "it made nothing of the models",
    },
    {"unfilled": OVERDUE, "zeros": "further from this node's model"},
    {"beyond": "must be an integer from 0 to", "huge": "further from this node's model"},
]
"""By how it lies: why it is named, if it can be told from somebody honest. After each group everybody starts
anew, because a member that sent what cannot be used is hardly asked for anything any more."""


class Modified:
    """The last member of a fleet, and its lies."""

    def __init__(self, member: Member) -> None:
        at = member.command.index("-m")
        member.command[at : at + 2] = [str(Path(modified.__file__))]
        self.member = member
        self._file = member.home / modified.LIE_FILE

    @contextmanager
    def lying(self, how: str) -> Iterator[None]:
        self._file.write_text(how)
        yield
        self._file.unlink()

    async def restart(self) -> None:
        """It has believed itself: it begins anew."""
        await self.member.end(signal.SIGKILL)
        (self.member.home / STATE_FILE).unlink()
        await self.member.start()


class Attacked(Session):
    """A session with a member that lies, and how it went before that."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__(fleet)
        self.liar = Modified(fleet.members[-1])
        self.pace = 0
        self.best = 0.0

    async def begin(self) -> None:
        await self.start()
        await self.liar.member.start()
        await self.rounds(60)
        self.pace, self.best = await self.rounds_in(WATCHED_S), await self.accuracy()

    async def restart(self) -> None:
        """Nothing of the lies is left."""
        await asyncio.gather(super().restart(), self.liar.restart())
        await self.rounds(10)
        pace = await self.rounds_in(WATCHED_S)
        assert 2 * pace >= self.pace
        assert await self.accuracy() >= self.best - 3
        self.pace = min(pace, self.pace)

    async def attack(self, how: str, why: str | None) -> list[str]:
        """What is wrong after that."""
        named = self.names(why)
        with self.liar.lying(how):
            for _ in range(WINDOWS):  # a lie may cost something until each node has seen through it
                rounds = await self.rounds_in(WATCHED_S)
                if 2 * rounds >= self.pace:
                    break
        accuracy = await self.accuracy()
        self.best = max(self.best, accuracy)
        newest = max(read_state(member.home / STATE_FILE).round for member in self.honest)
        until_s = time.monotonic() + NAMED_S
        while self.names(why) == named >= 0 and time.monotonic() < until_s:
            await asyncio.sleep(0.2)
        named = self.names(why) - named
        print(f"{how}: {rounds} rounds instead of {self.pace}, accuracy {accuracy:.1f}, named {named} times")
        holds = {
            "pace": 2 * rounds >= self.pace,
            "accuracy": accuracy >= self.best - 3,
            "named": why is None or named > 0,
            "rounds": newest < 10**6,
        }
        return [f"{how}: {what}" for what, is_so in holds.items() if not is_so]

    def names(self, why: str | None) -> int:
        """How often the liar was named for this."""
        if why is None:
            return -1
        return sum(peer == self.liar.member.id and why in reason for peer, reason in self.refusals())


async def rows(out: Path) -> None:
    fleet = Fleet(parse_spec(SPEC, "liars.toml", ROWS_SPEC), out, world=None)
    try:
        await fleet.prepare()
        session = Attacked(fleet)
        async with asyncio.timeout(240):
            await session.begin()
            wrong: list[str] = []
            for group in ROWS:
                for how, why in group.items():
                    wrong += await session.attack(how, why)
                await session.restart()
            assert wrong == []
    finally:
        await fleet.close()
    honest = {member.id for member in session.honest}
    assert not [(peer, why) for peer, why in session.refusals() if peer in honest]
    assert not any(member.log.errors for member in session.honest)


@pytest.mark.slow
def test_whatever_a_modified_peer_says_rounds_go_on_and_it_is_named(tmp_path: Path) -> None:
    asyncio.run(rows(tmp_path))
