"""Who is let in: TLS contexts that trust the session's authority alone, and what they cannot check.

OpenSSL verifies, on both sides and before any byte of ours is read, that the other side holds the key of
a certificate signed by this authority and not expired. `Admission.admit` then compares the session's digest
and looks for the certificate on the authority's list: not OpenSSL, for who is revoked is to be told so with
that list, on the authority's word. Sessions are never resumed: a ticket would outlive a revocation.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from msgspec import Struct

from plexus.errors import PlexusError, RevokedError
from plexus.files import write_text
from plexus.live.identity import authority
from plexus.live.identity.authority import ANEW, Admitted, AuthorityList, pem
from plexus.live.identity.keys import load_key
from plexus.live.identity.session_file import Session
from plexus.protocol.roster import key_of

if TYPE_CHECKING:
    from plexus.live.operator.log import Log
    from plexus.live.transport.hub import Hub

KEY_FILE, CERTIFICATE_FILE, REVOKED_FILE = ("node.key", "node.crt", "revoked.crl")
MAX_LIST_BYTES = 2**21
ITSELF = "the certificate is this node's own"
WARNED_OF_EXPIRY_S = (7 * 86400.0, 3 * 86400.0, 86400.0, 3600.0)
"""How long before its certificate runs out the log says so."""


class RefusedError(Exception):
    """A peer is not let in, or does not let us in; the text says why."""


class RevokedPeerError(RefusedError):
    """The authority's list says so, which the peer may not have."""


class LinkedPeer(Struct, frozen=True):
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
        private = load_key(home / KEY_FILE)
        self.sign = private.sign
        self._public = private.public_key().public_bytes_raw()
        self._own, self._anchor = self._read_own()
        if (begins := self._own.not_valid_before_utc) > datetime.now(UTC):
            wrong = f"begins on {begins:%Y-%m-%d %H:%M} UTC, still to come: is this machine's clock wrong?"
            raise PlexusError(f"{home / CERTIFICATE_FILE}: {wrong}")
        self.key = key_of(self._public)
        self.expires_s = self._own.not_valid_after_utc.timestamp()
        self.is_shorter_on_disk = False
        """Whether the home has another certificate than the one in force, which is good for longer."""
        self._certified: dict[bytes, Admitted] = {}
        """Nodes that have shown their certificates: a list may be older."""
        self._lock = threading.Lock()
        """Lists are kept in threads: writing to disks takes its time."""
        self._seen = self._stamps()
        self.list = self._newest_on_disk()
        """The one in force."""
        self._renew_contexts()
        if self.is_revoked:
            raise self.revoked()

    @property
    def is_revoked(self) -> bool:
        """This node's own certificate."""
        return self._own.serial_number in self.list.revoked or self.key in self.list.revoked_nodes

    def revoked(self) -> RevokedError:
        """To be raised if it is."""
        removed = "the authority has removed this node, and may invite it again with the same key"
        why = "this certificate has been revoked" if self.key in self.list.revoked_nodes else removed
        return RevokedError(f"{self._home / CERTIFICATE_FILE}: {why}")

    def admitted(self, key: bytes) -> Admitted | None:
        """The node with this key, if the authority has ever admitted it."""
        return self.list.nodes.get(key) or self._certified.get(key)

    def admit(self, certificate_der: bytes | None) -> LinkedPeer:
        """The peer behind a finished handshake, or `RefusedError`."""
        if certificate_der is None:
            raise RefusedError("no certificate was presented")
        try:
            certificate = x509.load_der_x509_certificate(certificate_der)
            public = authority.certificate_public(certificate)
            digest = authority.certificate_session(certificate)
        except ValueError as error:
            raise RefusedError(f"the certificate is not one of Plexus: {error}") from None
        if digest != self.session.digest:
            raise RefusedError(
                f"the certificate is for session {digest.hex()}, this is {self.session.digest.hex()}"
            )
        key, expires_s = key_of(public), certificate.not_valid_after_utc.timestamp()
        peer = LinkedPeer(key, expires_s, certificate.serial_number)
        self.check_still(peer)
        if key == self.key:
            raise RefusedError(ITSELF)
        self._certified[key] = Admitted(public, expires_s)
        return peer

    def check_still(self, peer: LinkedPeer) -> None:
        """Refuse a peer whose certificate has since expired or been revoked."""
        if peer.serial in self.list.revoked or peer.key in self.list.revoked_nodes:
            raise RevokedPeerError("the certificate has been revoked")
        renewed = self.list.nodes.get(peer.key)
        expires_s = max(peer.expires_s, renewed.until_s if renewed else 0.0)
        if expires_s <= datetime.now(UTC).timestamp():
            raise RefusedError("the certificate has expired")

    def read(self, list_der: bytes) -> AuthorityList:
        """A list that was passed on, if it is the authority's."""
        try:
            return AuthorityList(x509.load_der_x509_crl(list_der), self._authority)
        except (ValueError, x509.InvalidVersion) as error:
            raise RefusedError(f"not a list by this authority: {error}") from None

    def read_from_disk(self) -> AuthorityList:
        """The operator may have put a newer list or certificate into the node's home."""
        stamps = self._stamps()
        if stamps == self._seen:
            return self.list
        self._seen = stamps
        own, _ = self._read_own()
        newest = self._newest_on_disk()
        before = self._own
        if own.not_valid_after_utc > before.not_valid_after_utc or before.serial_number in newest.revoked:
            self._own = own
            self._renew_contexts()
            self.expires_s = own.not_valid_after_utc.timestamp()
        self.is_shorter_on_disk = own.serial_number != self._own.serial_number
        return newest

    def adopt(self, offered: AuthorityList) -> bool:
        """Put a list in force if it is newer; say whether it was."""
        if offered.number <= self.list.number:
            return False
        self.list = offered
        return True

    def keep(self) -> None:
        """Have the list in force on the disk, too."""
        with self._lock:
            write_text(self._home / REVOKED_FILE, pem(self.list.signed))

    def _read_own(self) -> list[x509.Certificate]:
        path = self._home / CERTIFICATE_FILE
        if not path.exists():
            raise PlexusError(
                f"{path}: no such file: it is what the authority's `plexus session invite` writes for the"
                f" public key that `plexus node key --home {self._home}` prints"
            )
        chain = authority.load_certificates(path)
        if len(chain) != 2:
            raise PlexusError(f"{path}: expected two certificates, the node's and the authority's; {ANEW}")
        own, anchor = chain
        authority.check_signature(anchor, anchor, path)
        authority.check_signature(own, anchor, path)
        if authority.certificate_public(own) != self._public:
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
        return chain

    def _files(self) -> list[Path]:
        """Where lists may be."""
        paths = (self._home / CERTIFICATE_FILE, self._home / REVOKED_FILE)
        return [path for path in paths if path.exists()]

    def _stamps(self) -> list[tuple[int, int]]:
        """What changes when one of the files does."""
        return [(path.stat().st_mtime_ns, path.stat().st_size) for path in self._files()]

    def _newest_on_disk(self) -> AuthorityList:
        found = [authority.load_list(path, self._authority) for path in self._files()]
        return max(found, key=lambda each: each.number)

    def _renew_contexts(self) -> None:
        self.server_context = self._context(ssl.PROTOCOL_TLS_SERVER)
        self.client_context = self._context(ssl.PROTOCOL_TLS_CLIENT)

    def _context(self, side: ssl._SSLMethod) -> ssl.SSLContext:
        context = ssl.SSLContext(side)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False  # a peer is its key, wherever it is
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        context.load_verify_locations(cadata=pem(self._anchor))
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


class NewerLists:
    """The authority's list while a peer runs: a newer one takes effect at once, and travels on at once.

    Lists come from the operator, as a file in the node's home, and from other peers. They are parsed, checked
    and written in threads: the event loop has links to keep. In force they are on the loop alone, so that on
    every link a list goes before whatever is believed because of it.
    """

    def __init__(self, hub: Hub, expel: Callable[[bytes], None]) -> None:
        self._hub, self._admission, self._log = hub, hub.admission, hub.log
        self._expel = expel
        self._offers: dict[bytes, bytes] = {}
        """The last list that each peer has sent, if nobody has looked at it yet."""
        self._judging: asyncio.Task[None] | None = None

    @property
    def is_judging(self) -> bool:
        """Whether there is a list that has come and is not in force."""
        return self._judging is not None and not self._judging.done()

    def offered(self, src: bytes, list_der: bytes) -> None:
        """A peer passes on a list."""
        if list_der == self._admission.list.der:
            return  # most often: everybody tells everybody
        self._offers[src] = list_der
        if not self.is_judging:
            self._judging = asyncio.get_running_loop().create_task(self._judge())

    async def look_on_disk(self) -> None:
        """The operator may have put a newer list into the node's home."""
        try:
            await self._enforce(self._admission.read_from_disk)
        except PlexusError as error:
            self._log.warning("home_not_read", reason=str(error))

    async def _judge(self) -> None:
        while self._offers:
            src, list_der = self._offers.popitem()
            try:
                await self._enforce(partial(self._admission.read, list_der))
            except RefusedError as error:
                link = self._hub.links.get(src)
                if link is not None:
                    link.connection.close(str(error))

    async def _enforce(self, read: Callable[[], AuthorityList]) -> None:
        offered = await asyncio.to_thread(read)
        before = self._admission.list.revoked_nodes
        if not self._admission.adopt(offered):
            return
        event = "admissions" if offered.revoked_nodes == before else "revocations"
        self._log.info(event, number=offered.number, admitted=len(offered.nodes))
        self._hub.enforce_list()
        for key in offered.revoked_nodes - before:
            self._expel(key)
        if self._admission.is_revoked:
            self._expel(self._admission.key)
        try:
            await asyncio.to_thread(self._admission.keep)
        except (PlexusError, OSError) as error:
            self._log.warning("list_not_written", reason=str(error))


class CertificateWatch:
    """A node's own certificate while it runs: the log says when it was renewed, and when it has to be."""

    def __init__(self, admission: Admission, log: Log) -> None:
        self._admission, self._log = admission, log
        self._expires_s = admission.expires_s
        self._warned_s = float("inf")
        """How long it was still good when the log said so last."""
        self._was_shorter = False

    def has_run_out(self) -> bool:
        """To be asked now and then."""
        left_s = self._admission.expires_s - time.time()
        if self._admission.expires_s != self._expires_s:
            self._expires_s, self._warned_s = self._admission.expires_s, float("inf")
            self._log.info("certificate_renewed", days_left=round(left_s / 86400, 2))
        if self._admission.is_shorter_on_disk and not self._was_shorter:
            self._log.warning("shorter_certificate_ignored", days_left=round(left_s / 86400, 2))
        self._was_shorter = self._admission.is_shorter_on_disk
        due = [limit_s for limit_s in WARNED_OF_EXPIRY_S if left_s <= limit_s < self._warned_s]
        if due:
            self._warned_s = due[-1]
            self._log.warning("certificate_runs_out", hours_left=round(left_s / 3600, 2))
        return left_s <= 0


_VERIFICATION = {
    9: "it is not valid yet, or one of our clocks is wrong",
    18: "it is self-signed",
    19: "it is signed by another authority than this session's",
    20: "it is signed by another authority than this session's",
}
_ALERTS = {
    "TLSV1_ALERT_UNKNOWN_CA": "it does not know the authority that signed our certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it says our certificate has expired",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "it says our certificate has been revoked",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "it requires a certificate and we presented none",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it says our certificate is malformed, or one of our clocks is wrong",
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
