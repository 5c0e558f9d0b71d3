"""Who a node is: an Ed25519 key pair in a file that nobody else can read.

The public key is the node's identity; its 16-byte fingerprint is the node's key in views and samples.
"""

from __future__ import annotations

import re
from pathlib import Path

from cryptography.exceptions import InternalError, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from plexus.errors import PlexusError
from plexus.files import named, write_synced

PRIVATE_MODE, PRIVATE_FOLDER_MODE = 0o600, 0o700
_PUBLIC = re.compile("ed25519:([0-9a-f]{64})")


def make_home(path: Path) -> None:
    """A folder for a key and what goes with it, that only its owner can look into. One that exists stays."""
    with named(path):
        path.mkdir(PRIVATE_FOLDER_MODE, parents=True, exist_ok=True)


def exposure(home: Path) -> str | None:
    """What is wrong if others can look into a home; not mended, for it may be anybody's folder."""
    mode = home.stat().st_mode & 0o777
    if not mode & 0o077:
        return None
    return f"{home}: its mode is {mode:o}, so others can look into it; run chmod 700 {home}"


def create_key(path: Path) -> Ed25519PrivateKey:
    """Make a new key and keep it at `path`, readable by its owner alone. An existing file is not touched."""
    key = Ed25519PrivateKey.generate()
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    with named(path):
        path.touch(PRIVATE_MODE, exist_ok=False)  # at no moment can another user open it
        try:
            write_synced(path, text)
        except OSError:
            path.unlink()  # half a key is none
            raise
    return key


def load_key(path: Path) -> Ed25519PrivateKey:
    """The key at `path`, if it is one and only its owner can read it."""
    with named(path):
        mode = path.stat().st_mode & 0o777
        text = path.read_bytes()
    if mode & 0o077:
        raise PlexusError(
            f"{path}: its mode is {mode:o}, so others can read this private key; run chmod 600 {path}"
        )
    try:
        key = serialization.load_pem_private_key(text, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm, InternalError):
        raise PlexusError(
            f"{path}: damaged, or not a private key without a password in PEM; restore it, or delete"
            " it, make a new one and get invited with that"
        ) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise PlexusError(f"{path}: not an Ed25519 key")
    return key


def public_text(raw: bytes) -> str:
    """A public key as people pass it on."""
    return f"ed25519:{raw.hex()}"


def parse_public(text: str) -> bytes:
    """The 32 bytes that `public_text` wrote."""
    found = _PUBLIC.fullmatch(text.strip())
    if found is None:
        raise PlexusError(f"{text.strip()[:80]!r} is not a public key: expected ed25519: and 64 hex digits")
    return bytes.fromhex(found[1])


def short(key: bytes) -> str:
    """A node's key as logs and tables show it: enough digits to tell the nodes of a session apart."""
    return key.hex()[:12]
