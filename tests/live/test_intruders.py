"""Intruders against a running peer: none gets in, crashes it or makes it grow."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from plexus.live.fleet.fleet import Fleet
from plexus.live.fleet.members import Member
from plexus.live.identity.admission import KEY_FILE, REVOKED_FILE
from plexus.live.identity.authority import Authority
from plexus.live.identity.keys import create_key, load_key
from plexus.live.models import SEAL_BYTES
from plexus.live.operator.control import ask
from plexus.live.operator.log import ALIKE
from plexus.live.transport.frames import Hello, Kind, Refused, frame, numbered
from plexus.protocol import wire
from plexus.protocol.messages import (
    NO_ADDRESS,
    Ack,
    AggregateRequest,
    Joined,
    Left,
    Ping,
    Pong,
    TrainRequest,
    ViewReply,
    ViewRequest,
)
from plexus.protocol.roster import Roster, key_of
from plexus.protocol.view import View
from plexus.protocol.wire import WireError
from plexus.spec.experiment import parse_spec
from tests.live.party import Party, lax_context, self_signed

GROWTH_MB = 64
MALFORMED = 2000
VIEW = View.of(3, [(0, 5), (2, 7)]).snapshot()
MESSAGES = [
    Ping(4, 2),
    Pong(4, 2, 1, 3),
    Joined(3, 1000),
    Left(3),
    Ack(5),
    ViewRequest(),
    ViewReply(VIEW),
    TrainRequest(5, 4, 2, 3, VIEW, None),
    AggregateRequest(5, 4, 2, 3, 10, VIEW, None),
]
SPEC = """
name = "fortress"
nodes = 2
hours = 1
task = { name = "digits" }
traces = { availability = "none" }
# Nothing happens by itself, so whatever the node handles was brought by somebody.
protocol = { start_delay_s = 500.0, readvertise_s = 500.0 }
"""


class Fortress:
    """One peer, and what intruders know of it."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.authority = Authority.load(fleet.out / "session")

    @property
    def peer(self) -> Member:
        return self.fleet.members[0]

    @property
    def port(self) -> int:
        return int(self.peer.command[self.peer.command.index("--listen") + 1].rpartition(":")[2])

    def status(self) -> dict[str, Any]:
        return ask(self.peer.home, "status")

    def resident_mb(self) -> float:
        assert self.peer.process is not None
        pages = int(Path(f"/proc/{self.peer.process.pid}/statm").read_text().split()[1])
        return pages * 4096 / 1e6

    def log(self) -> list[dict[str, Any]]:
        lines = (self.peer.home / "log.jsonl").read_bytes().splitlines()
        return [msgspec.json.decode(line) for line in lines]

    def handled(self) -> int:
        """How many events the node has handled, but for the ends of links."""
        ends = sum(line["event"] == "link_down" for line in self.log())
        return int(self.status()["counts"]["events_handled"]) - ends

    def refused(self) -> int:
        return int(self.status()["counts"]["messages_refused"])

    def home(self, out: Path, **options: Any) -> Path:
        """Credentials that the authority has issued."""
        out.mkdir(parents=True)
        public = create_key(out / KEY_FILE).public_key().public_bytes_raw()
        digest = options.pop("digest", self.digest)
        (out / "node.crt").write_text(
            self.authority.invite(public, digest, options.pop("valid", timedelta(days=1)))
        )
        return out

    @property
    def digest(self) -> bytes:
        text = (self.fleet.out / "session" / "session.toml").read_text()
        return bytes.fromhex(text.partition('digest = "')[2][:32])

    def dial(self, source: str = "127.0.0.1") -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self.port), timeout=15, source_address=(source, 0))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def reasons(self) -> list[str]:
        return [line["reason"] for line in self.log() if line["event"] == "no_link"]

    def until_linked(self, count: int) -> None:
        until = time.monotonic() + 10
        while self.status()["peers"]["linked"] != count:
            assert time.monotonic() < until
            time.sleep(0.05)

    def until_said(self, is_so: Callable[[list[str]], object]) -> None:
        """An intruder may hear of its refusal a moment before the peer has written it down."""
        until = time.monotonic() + 10
        while not is_so(self.reasons()):
            assert time.monotonic() < until, self.reasons()[-25:]
            time.sleep(0.05)


@pytest.fixture(scope="module")
def fortress(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fortress]:
    out = tmp_path_factory.mktemp("fortress")
    with asyncio.Runner() as runner:
        fleet = Fleet(parse_spec(SPEC, "fortress.toml"), out, world=None)
        runner.run(fleet.prepare())
        fleet.members = fleet.members[:1]
        words = fleet.members[0].command
        words[words.index("--join") :] = ["--log-level", "debug"]
        runner.run(fleet.members[0].start())
        there = Fortress(fleet)
        try:
            _wait_online(there)
            before = there.resident_mb()
            yield there
            print(f"\n{before:.0f} MB before, {there.resident_mb():.0f} MB after all intruders")
            assert there.resident_mb() - before < GROWTH_MB
            assert there.status()["counts"]["errors"] == 0
        finally:
            runner.run(fleet.close())
        assert fleet.members[0].unexpected == [], "the peer must end with 0, when told to"


def _wait_online(there: Fortress) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        with suppress(ValueError):
            if there.status()["phase"] == "online":
                return
        time.sleep(0.1)
    raise AssertionError("the peer did not go online")


@pytest.fixture
def unharmed(fortress: Fortress) -> Iterator[Fortress]:
    """Whatever a test does: the peer is there, has not grown, and its node has handled nothing."""
    before, handled, refused = fortress.resident_mb(), fortress.handled(), fortress.refused()
    yield fortress
    assert fortress.status()["phase"] == "online"
    until = time.monotonic() + 5
    # Of who talks nonsense it is told so, and a link may end between two looks.
    while not 0 <= fortress.handled() - handled <= fortress.refused() - refused:
        assert time.monotonic() < until
        time.sleep(0.1)
    assert fortress.resident_mb() - before < GROWTH_MB


def hear(context: ssl.SSLContext, sock: socket.socket, first: bytes = b"") -> str:
    """Shake hands, say something, and report how it ended."""
    try:
        with context.wrap_socket(sock) as secured:
            if first:
                secured.sendall(first)
            while data := secured.recv(65536):
                if data[0] == Kind.REFUSED:
                    return msgspec.msgpack.decode(data[4:], type=Refused).reason
            return "closed"
    except (ssl.SSLError, ConnectionError) as error:
        return str(getattr(error, "reason", None) or type(error).__name__)


def greeting(fortress: Fortress, digest: bytes | None = None) -> bytes:
    # With a list as new as can be: it is not sent another.
    hello = Hello(digest or fortress.digest, bytes(8), NO_ADDRESS, 2**40, NO_ADDRESS)
    return frame(Kind.HELLO, msgspec.msgpack.encode(hello))


@pytest.fixture
def revoked(fortress: Fortress, tmp_path: Path) -> Path:
    """Somebody of whose revocation the peer knows; that is the last thing its node hears of it."""
    home = fortress.home(tmp_path / "revoked")
    fortress.authority.revoke(key_of(load_key(home / KEY_FILE).public_key().public_bytes_raw()))
    newest = (fortress.fleet.out / "session" / "revoked.crl").read_text()
    (fortress.peer.home / REVOKED_FILE).write_text(newest)
    time.sleep(2.5)  # until it looks
    return home


@pytest.mark.slow
def test_nobody_gets_in_without_a_good_certificate_and_both_sides_say_why(
    revoked: Path, unharmed: Fortress, tmp_path: Path
) -> None:
    intruders = {
        "none": None,
        "self-signed": self_signed(tmp_path / "self-signed"),
        "foreign session": Party(tmp_path / "foreign").home("x"),
        "expired": unharmed.home(tmp_path / "expired", valid=timedelta(seconds=-1)),
        "revoked": revoked,
        "other digest": unharmed.home(tmp_path / "other", digest=b"another session!"),
    }
    heard = {
        name: hear(lax_context(home), unharmed.dial(), greeting(unharmed)) for name, home in intruders.items()
    }
    assert heard == {
        "none": "TLSV13_ALERT_CERTIFICATE_REQUIRED",
        "self-signed": "TLSV1_ALERT_UNKNOWN_CA",
        "foreign session": "TLSV1_ALERT_UNKNOWN_CA",
        "expired": "SSLV3_ALERT_CERTIFICATE_EXPIRED",
        "revoked": "the certificate has been revoked",
        "other digest": "the certificate is for session 616e6f746865722073657373696f6e21,"
        f" this is {unharmed.digest.hex()}",
    }
    for reason in (
        "it presented no certificate",
        "its certificate was not accepted: it is self-signed",
        "its certificate was not accepted: it is signed by another authority than this session's",
        "its certificate was not accepted: certificate has expired",
        "the certificate has been revoked",
        f"the certificate is for session 616e6f746865722073657373696f6e21, this is {unharmed.digest.hex()}",
    ):
        unharmed.until_said(lambda said: reason in said)  # noqa: B023


@pytest.mark.slow
def test_a_member_with_another_session_file_is_refused(unharmed: Fortress, tmp_path: Path) -> None:
    member = lax_context(unharmed.home(tmp_path / "member"))
    heard = hear(member, unharmed.dial(), greeting(unharmed, digest=b"my own variation"))
    assert heard == f"this is session {unharmed.digest.hex()}, not {b'my own variation'.hex()}"


@pytest.mark.slow
def test_a_recorded_conversation_cannot_be_replayed(unharmed: Fortress, tmp_path: Path) -> None:
    member = lax_context(unharmed.home(tmp_path / "member"))
    recorded = _record(unharmed, member)
    assert len(recorded) > 500
    with unharmed.dial() as sock:
        sock.sendall(recorded)
        answer = b""
        with suppress(ConnectionError):
            while data := sock.recv(65536):
                answer += data
    # The server's part of a handshake, and an alert: nothing of a conversation.
    unharmed.until_said(lambda said: "TLS" in said[-1] or "signature" in said[-1])


def _record(fortress: Fortress, context: ssl.SSLContext) -> bytes:
    """What a member sends when it shakes hands, greets and gets its welcome."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    side = context.wrap_bio(incoming, outgoing)
    recorded = b""
    with fortress.dial() as sock:
        greeted = False
        while True:
            try:
                if not greeted:
                    side.do_handshake()
                    side.write(greeting(fortress))
                    greeted = True
                welcomed = side.read(1000)
                break
            except ssl.SSLWantReadError:
                out = outgoing.read()
                recorded += out
                sock.sendall(out)
                incoming.write(sock.recv(65536))
    assert welcomed[0] == Kind.WELCOME
    return recorded


@pytest.mark.slow
def test_noise_before_tls_is_refused(unharmed: Fortress) -> None:
    rng = Random(1)
    for first in (b"\xff\xff\xff\xff", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff"):
        with unharmed.dial() as sock, suppress(ConnectionError):
            sock.sendall(first + rng.randbytes(100_000))
            while sock.recv(65536):
                pass


@pytest.mark.slow
def test_slow_handshakes_neither_pile_up_nor_keep_others_out(unharmed: Fortress, tmp_path: Path) -> None:
    member = lax_context(unharmed.home(tmp_path / "member"))
    with ExitStack() as stack:
        for _ in range(300):
            sock = stack.enter_context(unharmed.dial())
            with suppress(OSError):
                sock.sendall(b"\x16\x03\x01")
        # From another address a member still gets in at once.
        secured = stack.enter_context(member.wrap_socket(unharmed.dial("127.0.0.2")))
        secured.sendall(greeting(unharmed))
        assert secured.recv(1000)[0] == Kind.WELCOME
    time.sleep(0.5)


@pytest.mark.slow
def test_who_drips_byte_after_byte_is_cut_off(unharmed: Fortress, tmp_path: Path) -> None:
    """Before TLS and after it: the time for a handshake is one time for all of it."""
    member = lax_context(unharmed.home(tmp_path / "member"))
    refused = unharmed.status()["counts"]["connections_refused"]
    hello = b"\x16\x03\x01\x01\x00" + bytes(256)
    with ExitStack() as stack:
        sockets = [stack.enter_context(unharmed.dial("127.0.0.3")) for _ in range(20)]
        secured = stack.enter_context(member.wrap_socket(unharmed.dial("127.0.0.4")))
        drips = [(sock, hello) for sock in sockets] + [(secured, greeting(unharmed))]
        waiting = dict(drips)
        for at in range(40):
            for sock in list(waiting):
                if _is_cut(sock, waiting[sock][at : at + 1]):
                    del waiting[sock]
            if not waiting:
                break
            time.sleep(0.4)
        assert not waiting, "the peer listens to the end"
    refused += 21
    assert unharmed.status()["counts"]["connections_refused"] == refused
    # The rest is counted.
    unharmed.until_said(lambda said: said[-ALIKE:] == ["no link within 10 s"] * ALIKE)


def _is_cut(sock: socket.socket, drip: bytes) -> bool:
    """Send a byte; says whether the other side has ended the connection."""
    sock.settimeout(0.0)
    try:
        sock.sendall(drip)
        return sock.recv(1000) == b""
    except (BlockingIOError, ssl.SSLWantReadError):
        return False
    except OSError:
        return True


def _notify(secured: ssl.SSLSocket) -> None:
    with suppress(ssl.SSLError, OSError):
        secured.unwrap()


def _notify_and_listen(secured: ssl.SSLSocket) -> None:
    """TLS knows half a close: one may go on listening."""
    secured.settimeout(0.0)
    with suppress(ssl.SSLWantReadError):
        secured.unwrap()
    secured.settimeout(10.0)
    with suppress(ssl.SSLError, OSError):
        while socket.socket.recv(secured, 65536):
            pass


def _finish(secured: ssl.SSLSocket) -> None:
    secured.shutdown(socket.SHUT_WR)
    with suppress(ssl.SSLError, OSError):
        while secured.recv(65536):
            pass


def _reset(secured: ssl.SSLSocket) -> None:
    secured.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    secured.close()


@pytest.mark.slow
@pytest.mark.parametrize("is_linked", [False, True])
@pytest.mark.parametrize("hang_up", [_notify, _notify_and_listen, _finish, _reset])
def test_however_a_member_hangs_up_the_peer_goes_on(
    unharmed: Fortress, tmp_path: Path, hang_up: Callable[[ssl.SSLSocket], None], is_linked: bool
) -> None:
    member = lax_context(unharmed.home(tmp_path / "member"))
    with unharmed.dial() as sock, member.wrap_socket(sock) as secured:
        if is_linked:
            secured.sendall(greeting(unharmed))
            assert secured.recv(1000)[0] == Kind.WELCOME
        hang_up(secured)
    unharmed.until_linked(0)
    assert_welcome(unharmed, member)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_openssls_own_client_comes_and_goes(unharmed: Fortress, tmp_path: Path) -> None:
    home = unharmed.home(tmp_path / "member")
    command = ["openssl", "s_client", "-connect", f"127.0.0.1:{unharmed.port}"]
    command += ["-cert", str(home / "node.crt"), "-key", str(home / "node.key")]
    done = subprocess.run(command, input=b"\n", capture_output=True, timeout=20, check=False)
    assert b"BEGIN CERTIFICATE" in done.stdout, "it has shaken hands"
    assert_welcome(unharmed, lax_context(home))


def assert_welcome(fortress: Fortress, member: ssl.SSLContext) -> None:
    with fortress.dial() as sock, member.wrap_socket(sock) as secured:
        secured.sendall(greeting(fortress))
        assert secured.recv(1000)[0] == Kind.WELCOME


@pytest.mark.slow
def test_a_member_that_talks_nonsense_loses_its_link_and_nothing_else(
    unharmed: Fortress, tmp_path: Path
) -> None:
    member = lax_context(unharmed.home(tmp_path / "member"))
    rng = Random(7)
    nonsense = [
        b"\xff\xff\xff\xff" + bytes(64),  # four gigabytes are announced
        b"\x00\xff\xff\xff" + bytes(64),  # sixteen megabytes
        frame(Kind.HELLO),
        frame(Kind.MESSAGE, b"\xc1"),
        frame(Kind.MESSAGE, b"\x91" * 3000),
        numbered(Kind.OFFER, 1, bytes(SEAL_BYTES) + b"\x94\x05\x01\x01\x00"),
        numbered(Kind.OFFER, 1, bytes(5)),
        numbered(Kind.DONE, 9) + numbered(Kind.RECEIVED, 2**31),
        b"".join(numbered(Kind.OFFER, n, bytes(SEAL_BYTES)) for n in range(9)),
        numbered(Kind.OFFER, 1, bytes(SEAL_BYTES)) + _endless_chunks(1),
        frame(Kind.LIST, rng.randbytes(3000)),
    ]
    nonsense += [rng.randbytes(rng.randint(1, 400)) for _ in range(100)]
    for piece in nonsense:
        _say(unharmed, member, piece)


@pytest.mark.slow
def test_thousands_of_malformed_frames_over_tls(unharmed: Fortress, tmp_path: Path) -> None:
    """`test_frames.py` throws 10,000 at codec and connection; these come over the network."""
    member = lax_context(unharmed.home(tmp_path / "member"))
    rng = Random(11)
    refused = unharmed.status()["counts"]["connections_refused"]
    for _ in range(MALFORMED):
        # What is no valid frame for certain ends the link, if the malformed one has not.
        _say(unharmed, member, malformed(rng) + frame(Kind.HELLO), is_all=True)
    assert unharmed.status()["counts"]["connections_refused"] == refused, "all of them were linked"
    assert unharmed.status()["peers"]["linked"] == 0


def malformed(rng: Random) -> bytes:
    """A good frame with some of its bytes changed, cut off or added, that is not good any more."""
    body = rng.choice(MESSAGES)
    model_bytes = 1000 if hasattr(body, "model") else 0
    payload = bytearray(wire.encode(body, Roster.simulated(b"session", 3), model_bytes)[wire.LENGTH_BYTES :])
    for _ in range(rng.randint(1, 4)):
        match rng.randrange(3):
            case 0:
                payload[rng.randrange(len(payload))] ^= 1 << rng.randrange(8)
            case 1 if len(payload) > 1:
                del payload[rng.randrange(1, len(payload)) :]
            case _:
                payload += rng.randbytes(rng.randint(1, 60))
    try:
        if not hasattr(wire.decode(bytes(payload), Roster(b"session"))[0], "model"):
            return malformed(rng)
    except WireError:
        pass
    kind = rng.choice([Kind.MESSAGE, Kind.MESSAGE, Kind.OFFER, *Kind])
    if kind is Kind.MESSAGE:
        return frame(kind, bytes(payload))
    return numbered(kind, rng.randrange(4), rng.choice((b"", bytes(SEAL_BYTES))) + payload)


def _endless_chunks(number: int) -> bytes:
    """More of a model than it has."""
    return b"".join(numbered(Kind.CHUNK, number, bytes(200_000)) for _ in range(5))


def _say(fortress: Fortress, context: ssl.SSLContext, piece: bytes, is_all: bool = False) -> None:
    """Link, say something and listen to the answer; `is_all`: and hang up on this side."""
    with fortress.dial() as sock, suppress(ssl.SSLError, ConnectionError):
        # Reset instead of lingering: the next one has the same certificate and replaces this link.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with context.wrap_socket(sock) as secured:
            secured.sendall(greeting(fortress))
            assert secured.recv(1000)[0] == Kind.WELCOME
            secured.sendall(piece)
            secured.settimeout(10.0 if is_all else 0.2)
            if is_all:
                with suppress(OSError):  # the other side may have been faster
                    secured.shutdown(socket.SHUT_WR)
            with suppress(TimeoutError):
                while secured.recv(65536):
                    pass
