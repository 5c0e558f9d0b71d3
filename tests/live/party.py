"""A session's authority and nodes for tests, without any command line."""

from __future__ import annotations

import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import NameOID

from plexus.live.identity.admission import CERTIFICATE_FILE, KEY_FILE, Admission
from plexus.live.identity.authority import REVOKED_FILE, Authority
from plexus.live.identity.keys import create_key
from plexus.live.identity.session_file import Session, found_session
from plexus.live.transport.addresses import Address
from plexus.live.transport.frames import Hello, Kind, frame
from plexus.protocol.messages import NO_ADDRESS, OLDEST_WIRE

SPEC = {
    "name": "test",
    "seed": 1,
    "nodes": 4,
    "protocol": {"name": "plexus"},
    "task": {},
    "aggregation": "mean",
}


class Party:
    """One session and homes for its nodes under `directory`."""

    def __init__(self, directory: Path, name: str = "test") -> None:
        self.directory = directory
        self.session: Session = found_session(directory / "session", {**SPEC, "name": name})
        self.authority = Authority.load(directory / "session")

    def home(self, name: str, valid: timedelta = timedelta(days=1), digest: bytes = b"") -> Path:
        """A node's home with key and certificate."""
        home = self.directory / name
        home.mkdir()
        public = create_key(home / KEY_FILE).public_key().public_bytes_raw()
        text = self.authority.invite(public, digest or self.session.digest, valid)
        (home / CERTIFICATE_FILE).write_text(text)
        return home

    def admission(self, name: str) -> Admission:
        return Admission(self.home(name), self.session)

    def admissions(self, names: str) -> list[Admission]:
        """Of nodes that all know of each other."""
        made = [self.admission(name) for name in names]
        for each in made:
            each.adopt(each.read(self.revocations()))
        return made

    def revocations(self) -> bytes:
        """The authority's newest list, as peers pass it on."""
        text = (self.directory / "session" / REVOKED_FILE).read_bytes()
        return x509.load_pem_x509_crl(text).public_bytes(serialization.Encoding.DER)


def lax_context(home: Path | None) -> ssl.SSLContext:
    """How somebody dials who does not care whom: with the credentials in `home`, or none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if home is not None:
        context.load_cert_chain(home / CERTIFICATE_FILE, home / KEY_FILE)
    return context


def greeted(party: Party, home: Path, address: Address, wire: int = OLDEST_WIRE) -> ssl.SSLSocket:
    """A member whose link is up, with nothing but Python's sockets."""
    member = lax_context(home).wrap_socket(socket.create_connection(address, timeout=20))
    hello = Hello(party.session.digest, bytes(8), NO_ADDRESS, 1, NO_ADDRESS, wire)
    member.sendall(frame(Kind.HELLO, msgspec.msgpack.encode(hello)))
    assert member.recv(1000)[0] == Kind.WELCOME
    return member


def self_signed(home: Path) -> Path:
    """Credentials that nobody has signed but their owner."""
    home.mkdir(parents=True)
    key = create_key(home / KEY_FILE)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "me")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .sign(key, None)
    )
    (home / CERTIFICATE_FILE).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return home
