"""The authority of a session, which admits nodes and takes that back.

It is ordinary X.509, so that TLS itself refuses strangers before any code of ours sees a byte.
A certificate names the node's key and the session's digest. The authority's list says who belongs to the
session: it is a list of revocations, which names certificates and, in an extension of each entry, the node (a
key that was revoked is out for good), and in an extension of its own it names all nodes that were ever
admitted, and until when. It is made anew for every certificate and every revocation. A list carries a number,
and the higher one replaces the lower wherever two meet.
"""

from __future__ import annotations

import os
import re
import struct
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from msgspec import Struct

from plexus.checked import suggest
from plexus.errors import PlexusError
from plexus.files import lock_directory, named, read_bytes, write_text
from plexus.live.identity.keys import load_key, parse_public, public_text
from plexus.protocol.roster import key_of
from plexus.spec import toml

FAR_FUTURE = timedelta(days=365 * 50)
CLOCK_SKEW = timedelta(hours=1)
"""A certificate counts from this long before it was issued: clocks of peers may be behind."""

REVOKED_NODE = x509.ObjectIdentifier("2.25.245106770965905479003243271991024563904")
"""Of the extension that says whose certificate was revoked: an OCTET STRING of 16 bytes."""
_OCTET_STRING = b"\x04\x10"
ADMITTED = x509.ObjectIdentifier("2.25.194133467088340168323127594527835804172")
"""Of the extension that says who was admitted: for each node its public key, and until when as four bytes of
seconds since 1970."""
_ADMITTED = struct.Struct(">32sI")

ANEW = "get the file anew from the authority"
RESTORE = "restore it from the backup of this directory"

KEY_FILE, CERTIFICATE_FILE, REVOKED_FILE = FOUNDED = ("authority.key", "authority.crt", "revoked.crl")
ISSUED, NAMES_FILE = "issued", "names.toml"
_NODE_NAME = re.compile("[A-Za-z][A-Za-z0-9._-]*")


class Admitted(NamedTuple):
    public: bytes
    until_s: float
    """End of its certificate, in seconds since 1970."""


class KnownNode(Struct, frozen=True):
    """A node that was invited, as `plexus session list` shows it."""

    name: str
    node: str
    state: str
    """admitted, expired, removed or revoked."""
    days_left: float
    """Of the certificate that is good for longest; below 0 since it has run out, 0 once taken back."""
    public_key: str


class AuthorityList:
    """A list as it is signed, taken apart. Who may be believed is looked up here."""

    def __init__(self, signed: x509.CertificateRevocationList, signer: Ed25519PublicKey) -> None:
        """ValueError if `signer` has not signed it, or it is not one of this version."""
        if not signed.is_signature_valid(signer):
            raise ValueError("its signature is not the authority's")
        try:
            self.number = signed.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
            admitted = signed.extensions.get_extension_for_oid(ADMITTED).value.value  # type: ignore[attr-defined]
            nodes = map(Admitted._make, _ADMITTED.iter_unpack(admitted))
            self.nodes = {key_of(node.public): node for node in nodes}
        except (x509.ExtensionNotFound, struct.error):
            raise ValueError(
                "it does not say who is admitted, as those of earlier versions: invite again with"
                " `plexus session invite`"
            ) from None
        self.order = tuple(self.nodes)
        self.places = {key: place for place, key in enumerate(self.order)}
        self.signed = signed
        self.der = signed.public_bytes(serialization.Encoding.DER)
        self.revoked = {entry.serial_number: _revoked_node(entry) for entry in signed}
        """By certificate the node it was of."""
        self.name = key_of(self.der)
        self.revoked_nodes = frozenset(filter(None, self.revoked.values()))


class Authority:
    """The holder of the authority key, in the session's directory."""

    def __init__(self, directory: Path, key: Ed25519PrivateKey, certificate: x509.Certificate) -> None:
        self.directory = directory
        self._key = key
        self._certificate = certificate
        self._identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())

    @classmethod
    def create(cls, directory: Path, key: Ed25519PrivateKey, name: str, digest: bytes) -> None:
        """Found a session: the authority's own certificate and an empty list of revocations."""
        subject = _name(f"plexus {name}"[:64], digest)
        certificate = _unsigned(subject, subject, key.public_key(), FAR_FUTURE, signs=True).sign(key, None)
        write_text(directory / CERTIFICATE_FILE, pem(certificate))
        with named(directory / ISSUED):
            (directory / ISSUED).mkdir(exist_ok=True)
        cls(directory, key, certificate)._sign_list({}, [], number=1)

    @classmethod
    def load(cls, directory: Path) -> Authority:
        key = load_key(directory / KEY_FILE)
        if not (directory / ISSUED).is_dir():
            raise PlexusError(f"{directory / ISSUED}: no such folder; {RESTORE}")
        certificate = load_certificates(directory / CERTIFICATE_FILE, RESTORE)[0]
        check_signature(certificate, certificate, directory / CERTIFICATE_FILE)
        if key.public_key().public_bytes_raw() != certificate_public(certificate):
            raise PlexusError(f"{directory}: {CERTIFICATE_FILE} does not belong to {KEY_FILE}")
        return cls(directory, key, certificate)

    def invite(self, public: bytes, digest: bytes, valid: timedelta, name: str | None = None) -> str:
        """A certificate for a node, with all else that it needs to join; its operators know it by `name`."""
        return self.invite_all([public], digest, valid, name)[0]

    def invite_all(
        self, publics: Sequence[bytes], digest: bytes, valid: timedelta, name: str | None = None
    ) -> list[str]:
        """The same for several nodes, which know of each other from the beginning; it is the first's name."""
        with self._changing() as now:
            for public in publics:
                if key_of(public) in now.revoked_nodes:
                    raise PlexusError(
                        f"node {key_of(public).hex()} has been revoked: its owner has to delete its"
                        " node.key and make a new one with `plexus node key`"
                    )
            if name is not None:
                self._call(publics[0], name)
            certificates = [self._node_certificate(public, digest, valid) for public in publics]
            for each in certificates:
                write_text(self.directory / ISSUED / f"{each.serial_number:x}.crt", pem(each))
                public, until_s = certificate_public(each), each.not_valid_after_utc.timestamp()
                before = now.nodes.get(key_of(public), Admitted(public, 0))
                now.nodes[key_of(public)] = Admitted(public, max(before.until_s, until_s))
            self._sign_list(now.revoked, list(now.nodes.values()), now.number + 1)
            rest = pem(self._certificate) + pem(self.newest_list().signed)
        return [pem(each) + rest for each in certificates]

    def _call(self, public: bytes, name: str) -> None:
        if not _NODE_NAME.fullmatch(name):
            raise PlexusError(
                f"--name {name}: must consist of letters, digits, '.', '_' and '-', and begin with a letter"
            )
        names = self._names()
        owner = next((key for key, other in names.items() if other == name), key_of(public).hex())
        if owner != key_of(public).hex():
            raise PlexusError(f"--name {name}: that is node {owner[:12]} already")
        write_text(self.directory / NAMES_FILE, toml.dumps({**names, key_of(public).hex(): name}))

    def nodes(self) -> list[KnownNode]:
        """All that were ever invited, by name."""
        now_s, names, newest = time.time(), self._names(), self.newest_list()
        found = []
        for key, (public, until_s) in newest.nodes.items():
            state = "admitted" if until_s > now_s else "expired" if until_s else "removed"
            state = "revoked" if key in newest.revoked_nodes else state
            left = round((until_s - now_s) / 86400, 1) if until_s and state != "revoked" else 0.0
            found.append(
                KnownNode(names.get(key.hex(), ""), key.hex()[:12], state, left, public_text(public))
            )
        return sorted(found, key=lambda node: (node.name == "", node.name, node.node))

    def resolve(self, node: str) -> bytes:
        """The key of the node with this name or public key, or whose id begins so."""
        named_so = [key for key, name in self._names().items() if name == node]
        if named_so:
            return bytes.fromhex(named_so[0])
        if ":" in node:
            return key_of(parse_public(node))
        if re.fullmatch("[0-9a-fA-F]+", node):
            return self.find(node.lower())
        known = (each.name for each in self.nodes() if each.name)
        raise PlexusError(
            f"{node!r} is neither a node's name{suggest(node, known)}, nor a public key, nor a node's id"
        )

    def renew(self, node: bytes, digest: bytes, valid: timedelta) -> str:
        """Another certificate for a node that was invited before."""
        return self.invite(certificate_public(self._of(node)[0]), digest, valid)

    def _names(self) -> dict[str, str]:
        path = self.directory / NAMES_FILE
        if not path.exists():
            return {}
        try:
            names = tomllib.loads(read_bytes(path).decode())
        except ValueError as error:
            raise PlexusError(f"{path}: damaged: {error}; {RESTORE}") from None
        return {str(key): str(name) for key, name in names.items()}

    def find(self, digits: str) -> bytes:
        """The key of the invited node whose id begins with these hex digits."""
        found = sorted(key.hex() for key in self.newest_list().nodes if key.hex().startswith(digits))
        if not found:
            raise PlexusError(f"{self.directory}: no certificate was issued to a node {digits}")
        if len(found) > 1:
            shown = ", ".join(found[:3])
            raise PlexusError(f"{digits} is how {len(found)} ids begin ({shown}): give more digits")
        return bytes.fromhex(found[0])

    def revoke(self, node: bytes, for_good: bool = True) -> int:
        """Take back all certificates of the node with this key; the number of them. It is out for good, or
        leaves in peace and may be invited again."""
        with self._changing() as now:
            serials = {certificate.serial_number for certificate in self._of(node)}
            if node in now.revoked_nodes:
                raise PlexusError(f"node {node.hex()} has been revoked already: it is out for good")
            if not for_good:  # others may still speak of it, and are no liars
                now.nodes[node] = Admitted(now.nodes[node].public, 0)
            revoked = now.revoked | dict.fromkeys(serials, node if for_good else None)
            self._sign_list(revoked, list(now.nodes.values()), now.number + 1)
        return len(serials)

    def _of(self, node: bytes) -> list[x509.Certificate]:
        if node not in self.newest_list().nodes:
            raise PlexusError(f"{self.directory}: no certificate was issued to node {node.hex()}")
        issued = []
        for file in sorted((self.directory / ISSUED).glob("*.crt")):
            [certificate] = load_certificates(file, RESTORE)
            check_signature(certificate, self._certificate, file)
            if key_of(certificate_public(certificate)) == node:
                issued.append(certificate)
        if not issued:
            raise PlexusError(
                f"{self.directory / ISSUED}: has no certificate of node {node.hex()}; {RESTORE}"
            )
        return issued

    def newest_list(self) -> AuthorityList:
        return load_list(self.directory / REVOKED_FILE, self._key.public_key(), RESTORE)

    @contextmanager
    def _changing(self) -> Iterator[AuthorityList]:
        """The newest list, while nobody else makes one: two of the same number would be at odds."""
        lock = lock_directory(self.directory, "another command is using this session's authority")
        try:
            yield self.newest_list()
        finally:
            os.close(lock)

    def _node_certificate(self, public: bytes, digest: bytes, valid: timedelta) -> x509.Certificate:
        key = Ed25519PublicKey.from_public_bytes(public)
        usage = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        subject = _name(key_of(public).hex(), digest)
        return (
            _unsigned(subject, self._certificate.subject, key, valid, signs=False)
            .add_extension(x509.ExtendedKeyUsage(usage), critical=False)
            .add_extension(self._identifier, critical=False)
            .sign(self._key, None)
        )

    def _sign_list(
        self, revoked: Mapping[int, bytes | None], admitted: Sequence[Admitted], number: int
    ) -> None:
        now = datetime.now(UTC)
        nodes = b"".join(_ADMITTED.pack(each.public, min(int(each.until_s), 2**32 - 1)) for each in admitted)
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self._certificate.subject)
            .last_update(now - CLOCK_SKEW)
            .next_update(now + FAR_FUTURE)
            .add_extension(x509.CRLNumber(number), critical=False)
            .add_extension(self._identifier, critical=False)
            .add_extension(x509.UnrecognizedExtension(ADMITTED, nodes), critical=False)
        )
        for serial, node in sorted(revoked.items()):
            entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now)
            if node is not None:
                whose = x509.UnrecognizedExtension(REVOKED_NODE, _OCTET_STRING + node)
                entry = entry.add_extension(whose, critical=False)
            builder = builder.add_revoked_certificate(entry.build())
        write_text(self.directory / REVOKED_FILE, pem(builder.sign(self._key, None)))


def load_certificates(path: Path, remedy: str = ANEW) -> list[x509.Certificate]:
    """The certificates in the PEM file at `path`, at least one."""
    text = read_bytes(path)
    try:
        return x509.load_pem_x509_certificates(text)
    except (ValueError, x509.InvalidVersion):
        raise PlexusError(f"{path}: holds no certificate in PEM, or a damaged one; {remedy}") from None


def check_signature(certificate: x509.Certificate, signer: x509.Certificate, path: Path) -> None:
    """Refuse a certificate (of the file at `path`) that `signer` has not signed as it is."""
    try:
        certificate_public(certificate)  # those of another kind are none of ours
        certificate.verify_directly_issued_by(signer)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        raise PlexusError(
            f"{path}: a signature is not the authority's: damaged, or of another session; {ANEW}"
        ) from None


def load_list(path: Path, signer: Ed25519PublicKey, remedy: str = ANEW) -> AuthorityList:
    text = read_bytes(path)
    try:
        signed = x509.load_pem_x509_crl(text)
    except (ValueError, x509.InvalidVersion):  # whose text is for programmers
        raise PlexusError(f"{path}: holds no list in PEM, or a damaged one; {remedy}") from None
    try:
        return AuthorityList(signed, signer)
    except ValueError as error:
        raise PlexusError(f"{path}: no list of this session's authority: {error}; {remedy}") from None


def _revoked_node(entry: x509.RevokedCertificate) -> bytes | None:
    values = [each.value.value for each in entry.extensions if each.oid == REVOKED_NODE]
    return values[0][len(_OCTET_STRING) :] if values else None


def certificate_public(certificate: x509.Certificate) -> bytes:
    """The 32 bytes of the certified Ed25519 key; ValueError if it is another kind of key."""
    key = certificate.public_key()
    if not isinstance(key, Ed25519PublicKey):
        raise ValueError("not an Ed25519 key")
    return key.public_bytes_raw()


def certificate_session(certificate: x509.Certificate) -> bytes:
    """The digest of the session that the certificate admits to."""
    names = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    return bytes.fromhex(str(names[0].value)) if names else b""


def _unsigned(
    subject: x509.Name, issuer: x509.Name, key: Ed25519PublicKey, valid: timedelta, signs: bool
) -> x509.CertificateBuilder:
    """What all certificates have: those of nodes, and the one with which the authority signs them."""
    now = datetime.now(UTC)
    unused = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    never = dict.fromkeys((*unused, "encipher_only", "decipher_only"), False)
    usage = x509.KeyUsage(digital_signature=not signs, key_cert_sign=signs, crl_sign=signs, **never)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + valid)
        .add_extension(x509.BasicConstraints(ca=signs, path_length=0 if signs else None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _name(common: str, digest: bytes) -> x509.Name:
    parts = {NameOID.COMMON_NAME: common, NameOID.ORGANIZATION_NAME: digest.hex()}
    return x509.Name([x509.NameAttribute(*part) for part in parts.items()])


def pem(document: x509.Certificate | x509.CertificateRevocationList) -> str:
    return document.public_bytes(serialization.Encoding.PEM).decode()
