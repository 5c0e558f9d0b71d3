"""Who is let in: TLS contexts that trust the session's authority alone, and what they cannot check.

OpenSSL verifies, on both sides and before any byte of ours is read, that the other side holds the key of
a certificate signed by this authority, not expired and not revoked. `Admission.admit` then compares the
session's digest. Sessions are never resumed: a ticket would outlive a revocation.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from msgspec import Struct

from plexus.errors import PlexusError
from plexus.files import named, write_text
from plexus.live.identity import authority
from plexus.live.identity.authority import ANEW, Session, pem
from plexus.live.identity.keys import load_key, raw_public
from plexus.protocol.roster import key_of

if TYPE_CHECKING:
    from plexus.live.transport.hub import Hub

KEY_FILE, CERTIFICATE_FILE, REVOKED_FILE, TRUST_FILE = ("node.key", "node.crt", "revoked.crl", "trust.pem")
MAX_REVOCATIONS_BYTES = 2**20


class RefusedError(Exception):
    """A peer is not let in, or does not let us in; the text says why."""


class Admitted(Struct, frozen=True):
    """A peer whose certificate was accepted."""

    key: bytes
    expires_s: float
    """End of its certificate, in seconds since 1970."""
    serial: int


class Admission:
    """This node's credentials, and its judgement of others'."""

    def __init__(self, home: Path, session: Session) -> None:
        self._home = home
        self.session = session
        self._authority = Ed25519PublicKey.from_public_bytes(session.authority)
        public = raw_public(load_key(home / KEY_FILE).public_key())
        chain = authority.load_certificates(home / CERTIFICATE_FILE)
        self._check_own(chain, public)
        self._own, self._anchor = chain
        self.key = key_of(public)
        self.expires_s = self._own.not_valid_after_utc.timestamp()
        self._lock = threading.Lock()
        """Lists are adopted and kept in threads: parsing them and writing to disks takes its time."""
        self._seen = self._stamps()
        self._put_in_force(self._newest_on_disk())
        self._renew_contexts()
        if self._own.serial_number in self._revoked or self.key in self.revoked_nodes:
            raise PlexusError(f"{home / CERTIFICATE_FILE}: this certificate has been revoked")

    def admit(self, certificate_der: bytes | None) -> Admitted:
        """The peer behind a finished handshake, or `RefusedError`."""
        if certificate_der is None:
            raise RefusedError("no certificate was presented")
        try:
            certificate = x509.load_der_x509_certificate(certificate_der)
            key = authority.certificate_node(certificate)
            digest = authority.certificate_session(certificate)
        except ValueError as error:
            raise RefusedError(f"the certificate is not one of Plexus: {error}") from None
        if digest != self.session.digest:
            raise RefusedError(
                f"the certificate is for session {digest.hex()}, this is {self.session.digest.hex()}"
            )
        admitted = Admitted(key, certificate.not_valid_after_utc.timestamp(), certificate.serial_number)
        self.check_still(admitted)
        if key == self.key:
            raise RefusedError("the certificate is this node's own")
        return admitted

    def check_still(self, peer: Admitted) -> None:
        """Refuse a peer whose certificate has since expired or been revoked."""
        if peer.serial in self._revoked or peer.key in self.revoked_nodes:
            raise RefusedError("the certificate has been revoked")
        if peer.expires_s <= datetime.now(UTC).timestamp():
            raise RefusedError("the certificate has expired")

    def adopt(self, revocations_der: bytes) -> bool:
        """Put a list of revocations in force if it is the authority's and newer; say whether it was."""
        try:
            offered = authority.signed_revocations(x509.load_der_x509_crl(revocations_der), self._authority)
            return self._adopt(offered)
        except (ValueError, x509.ExtensionNotFound, x509.InvalidVersion) as error:
            raise RefusedError(f"not a list of revocations by this authority: {error}") from None

    def adopt_from_disk(self) -> bool:
        """The operator may have put a newer list beside the certificate."""
        stamps = self._stamps()
        if stamps == self._seen:
            return False
        self._seen = stamps
        return self._adopt(self._newest_on_disk())

    def keep(self) -> None:
        """Have the list in force on the disk too, and in the handshakes to come."""
        with self._lock:
            self._renew_contexts()
            write_text(self._home / REVOKED_FILE, pem(self._revocations))

    def _adopt(self, offered: x509.CertificateRevocationList) -> bool:
        with self._lock:
            if authority.revocations_number(offered) <= self.revocations_number:
                return False
            self._put_in_force(offered)
            return True

    def _check_own(self, chain: list[x509.Certificate], public: bytes) -> None:
        path = self._home / CERTIFICATE_FILE
        if len(chain) != 2:
            raise PlexusError(f"{path}: expected two certificates, the node's and the authority's; {ANEW}")
        own, anchor = chain
        authority.check_signature(anchor, anchor, path)
        authority.check_signature(own, anchor, path)
        if authority.certificate_public(own) != public:
            raise PlexusError(f"{path}: this certificate is not for the key in {KEY_FILE}")
        if authority.certificate_public(anchor) != self.session.authority:
            raise PlexusError(f"{path}: signed by another authority than that of the session file")
        if authority.certificate_session(own) != self.session.digest:
            raise PlexusError(
                f"{path}: issued for session {authority.certificate_session(own).hex()}, but the"
                f" session file is {self.session.digest.hex()}"
            )
        if own.not_valid_after_utc <= datetime.now(UTC):
            raise PlexusError(f"{path}: expired on {own.not_valid_after_utc:%Y-%m-%d %H:%M} UTC")

    def _files(self) -> list[Path]:
        """Where lists of revocations may be."""
        paths = (self._home / CERTIFICATE_FILE, self._home / REVOKED_FILE)
        return [path for path in paths if path.exists()]

    def _stamps(self) -> list[tuple[int, int]]:
        """What changes when one of the files does."""
        return [(path.stat().st_mtime_ns, path.stat().st_size) for path in self._files()]

    def _newest_on_disk(self) -> x509.CertificateRevocationList:
        found = [authority.load_revocations(path, self._authority) for path in self._files()]
        return max(found, key=authority.revocations_number)

    def _put_in_force(self, revocations: x509.CertificateRevocationList) -> None:
        self._revocations = revocations
        self._revoked = {entry.serial_number for entry in revocations}
        self.revoked_nodes = authority.revoked_nodes(revocations)
        self.revocations_number = authority.revocations_number(revocations)
        self.revocations = revocations.public_bytes(serialization.Encoding.DER)
        """The list, to pass on to others."""

    def _renew_contexts(self) -> None:
        # ssl takes revocations from a file only. It is made anew at every start: no need to sync it.
        with named(self._home / TRUST_FILE):
            (self._home / TRUST_FILE).write_text(pem(self._anchor) + pem(self._revocations))
        self.server_context = self._context(ssl.PROTOCOL_TLS_SERVER)
        self.client_context = self._context(ssl.PROTOCOL_TLS_CLIENT)

    def _context(self, side: ssl._SSLMethod) -> ssl.SSLContext:
        context = ssl.SSLContext(side)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False  # a peer is its key, wherever it is
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF | ssl.VERIFY_X509_STRICT
        context.load_verify_locations(cafile=self._home / TRUST_FILE)
        try:
            context.load_cert_chain(self._home / CERTIFICATE_FILE, self._home / KEY_FILE)
        except ssl.SSLError as error:
            raise PlexusError(
                f"{self._home}: {CERTIFICATE_FILE} or {KEY_FILE} is damaged: {error.reason or error}; {ANEW}"
            ) from None
        context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
        if side == ssl.PROTOCOL_TLS_SERVER:
            context.num_tickets = 0
        return context


class Revocations:
    """Revocations while a peer runs: a newer list takes effect at once, and travels on at once.

    Lists come from the operator, as a file in the node's home, and from other peers. They are parsed, checked
    and written in threads: the event loop has links to keep.
    """

    def __init__(self, hub: Hub, expel: Callable[[bytes], None]) -> None:
        self._hub, self._admission, self._log = hub, hub.admission, hub.log
        self._expel = expel
        self._offers: dict[bytes, bytes] = {}
        """The last list that each peer has sent, if nobody has looked at it yet."""
        self._judging: asyncio.Task[None] | None = None

    def offered(self, src: bytes, list_der: bytes) -> None:
        """A peer passes on a list."""
        if list_der == self._admission.revocations:
            return  # most often: everybody tells everybody
        self._offers[src] = list_der
        if self._judging is None or self._judging.done():
            self._judging = asyncio.get_running_loop().create_task(self._judge())

    async def look_on_disk(self) -> None:
        """The operator may have put a newer list into the node's home."""
        try:
            await self._enforce(self._admission.adopt_from_disk)
        except PlexusError as error:
            self._log.warning("revocations_not_read", reason=str(error))

    async def _judge(self) -> None:
        while self._offers:
            src, list_der = self._offers.popitem()
            try:
                await self._enforce(partial(self._admission.adopt, list_der))
            except RefusedError as error:
                link = self._hub.links.get(src)
                if link is not None:
                    link.connection.close(str(error))

    async def _enforce(self, adopt: Callable[[], bool]) -> None:
        before = self._admission.revoked_nodes
        if not await asyncio.to_thread(adopt):
            return
        self._log.info("revocations", number=self._admission.revocations_number)
        self._hub.enforce_revocations()
        for key in self._admission.revoked_nodes - before:
            self._expel(key)
        try:
            await asyncio.to_thread(self._admission.keep)
        except PlexusError as error:
            self._log.warning("revocations_not_written", reason=str(error))


_VERIFICATION = {
    18: "it is self-signed",
    19: "it is signed by another authority than this session's",
    20: "it is signed by another authority than this session's",
}
_ALERTS = {
    "TLSV1_ALERT_UNKNOWN_CA": "it does not know the authority that signed our certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it says our certificate has expired",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "it says our certificate has been revoked",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it requires a certificate and we presented none",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it says our certificate is malformed",
    "TLSV1_ALERT_DECRYPT_ERROR": "it says our signature does not fit our certificate",
}


def explain(error: ssl.SSLError) -> str:
    """Why a handshake failed, in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        why = _VERIFICATION.get(error.verify_code, error.verify_message)
        return f"its certificate was not accepted: {why}"
    reason = error.reason or ""
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "it presented no certificate"
    return _ALERTS.get(reason) or f"TLS: {reason.replace('_', ' ').lower() or error}"
