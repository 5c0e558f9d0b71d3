"""The authority of a session: signs certificates that admit nodes, and the list of those taken back.

Everything is ordinary X.509, so that TLS itself refuses strangers before any code of ours sees a byte.
A certificate names the node's key and the session's digest; the list of revocations carries a number, and
a higher number replaces a lower one wherever two lists meet.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from plexus.errors import PlexusError
from plexus.live.identity import create_key, load_key, node_key, raw_public
from plexus.metrics.files import named, write_text

FAR_FUTURE = timedelta(days=365 * 50)
CLOCK_SKEW = timedelta(hours=1)
"""A certificate counts from this long before it was issued: clocks of peers may be behind."""

KEY_FILE, CERTIFICATE_FILE, REVOKED_FILE, ISSUED = (
    "authority.key",
    "authority.crt",
    "revoked.crl",
    "issued",
)


class Authority:
    """The holder of the authority key, in the session's directory."""

    def __init__(
        self, directory: Path, key: Ed25519PrivateKey, certificate: x509.Certificate
    ) -> None:
        self.directory = directory
        self._key = key
        self._certificate = certificate

    @classmethod
    def create(cls, directory: Path, key: Ed25519PrivateKey, name: str, digest: bytes) -> Authority:
        """Found a session: the authority's own certificate and an empty list of revocations."""
        certificate = _authority_certificate(key, name, digest)
        write_text(directory / CERTIFICATE_FILE, _pem(certificate))
        with named(directory / ISSUED):
            (directory / ISSUED).mkdir()
        authority = cls(directory, key, certificate)
        authority._sign_revocations([], number=1)
        return authority

    @classmethod
    def load(cls, directory: Path) -> Authority:
        """The authority whose files are in `directory`."""
        key = load_key(directory / KEY_FILE)
        certificate = load_certificates(directory / CERTIFICATE_FILE)[0]
        if raw_public(key.public_key()) != certificate_public(certificate):
            raise PlexusError(f"{directory}: {CERTIFICATE_FILE} does not belong to {KEY_FILE}")
        return cls(directory, key, certificate)

    def invite(self, public: bytes, digest: bytes, valid: timedelta) -> str:
        """A certificate for the node with this public key, with all else that the node needs to join."""
        serial = x509.random_serial_number()
        certificate = self._node_certificate(public, digest, valid, serial)
        write_text(self.directory / ISSUED / f"{serial:x}.crt", _pem(certificate))
        revoked = self._read(REVOKED_FILE)
        return _pem(certificate) + _pem(self._certificate) + revoked

    def revoke(self, node: bytes) -> int:
        """Take back all certificates of the node with this key; the number of them."""
        serials = [c.serial_number for c in self._issued() if certificate_node(c) == node]
        if not serials:
            raise PlexusError(f"{self.directory}: no certificate was issued to node {node.hex()}")
        now = load_revocations(self._read(REVOKED_FILE).encode())
        revoked = {entry.serial_number for entry in now} | set(serials)
        self._sign_revocations(sorted(revoked), revocations_number(now) + 1)
        return len(serials)

    def _issued(self) -> list[x509.Certificate]:
        files = sorted((self.directory / ISSUED).glob("*.crt"))
        return [certificate for file in files for certificate in load_certificates(file)]

    def _read(self, name: str) -> str:
        with named(self.directory / name):
            return (self.directory / name).read_text()

    def _node_certificate(
        self, public: bytes, digest: bytes, valid: timedelta, serial: int
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        key = Ed25519PublicKey.from_public_bytes(public)
        usage = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        return (
            x509.CertificateBuilder()
            .subject_name(_name(node_key(public).hex(), digest))
            .issuer_name(self._certificate.subject)
            .public_key(key)
            .serial_number(serial)
            .not_valid_before(now - CLOCK_SKEW)
            .not_valid_after(now + valid)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usage), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(self._authority_identifier(), critical=False)
            .sign(self._key, None)
        )

    def _sign_revocations(self, serials: list[int], number: int) -> None:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self._certificate.subject)
            .last_update(now - CLOCK_SKEW)
            .next_update(now + FAR_FUTURE)
            .add_extension(x509.CRLNumber(number), critical=False)
            .add_extension(self._authority_identifier(), critical=False)
        )
        for serial in serials:
            entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now)
            builder = builder.add_revoked_certificate(entry.build())
        text = builder.sign(self._key, None).public_bytes(serialization.Encoding.PEM).decode()
        write_text(self.directory / REVOKED_FILE, text)

    def _authority_identifier(self) -> x509.AuthorityKeyIdentifier:
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())


def create_authority_key(directory: Path) -> Ed25519PrivateKey:
    """The first step of founding a session: its digest depends on the authority's key."""
    return create_key(directory / KEY_FILE)


def load_certificates(path: Path) -> list[x509.Certificate]:
    """The certificates in the PEM file at `path`, at least one."""
    with named(path):
        text = path.read_bytes()
    try:
        return x509.load_pem_x509_certificates(text)
    except ValueError:
        raise PlexusError(f"{path}: holds no certificate in PEM") from None


def load_revocations(text: bytes) -> x509.CertificateRevocationList:
    """The list of revocations in PEM text; ValueError if there is none."""
    return x509.load_pem_x509_crl(text)


def revocations_number(revocations: x509.CertificateRevocationList) -> int:
    """Which of two lists is the newer: the one with the higher number."""
    return revocations.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number


def certificate_public(certificate: x509.Certificate) -> bytes:
    """The 32 bytes of the certified Ed25519 key; ValueError if it is another kind of key."""
    key = certificate.public_key()
    if not isinstance(key, Ed25519PublicKey):
        raise ValueError("not an Ed25519 key")
    return raw_public(key)


def certificate_node(certificate: x509.Certificate) -> bytes:
    """The key of the node that the certificate admits."""
    return node_key(certificate_public(certificate))


def certificate_session(certificate: x509.Certificate) -> bytes:
    """The digest of the session that the certificate admits to."""
    names = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    return bytes.fromhex(str(names[0].value)) if names else b""


def _authority_certificate(key: Ed25519PrivateKey, name: str, digest: bytes) -> x509.Certificate:
    now = datetime.now(UTC)
    subject = _name(f"plexus {name}"[:64], digest)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + FAR_FUTURE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(identifier, critical=False)
        .sign(key, None)
    )


def _usage(signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common: str, digest: bytes) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.COMMON_NAME, common),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, digest.hex()),
        ]
    )


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
