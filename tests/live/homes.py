"""Looking into the directories that sessions and nodes leave."""

from __future__ import annotations

from pathlib import Path

from plexus.cli.session import read_session_file
from plexus.live.identity.admission import KEY_FILE
from plexus.live.identity.authority import CERTIFICATE_FILE, certificate_public, load_certificates
from plexus.live.identity.keys import load_key
from plexus.protocol.roster import key_of


def node_keys(homes: list[Path]) -> list[bytes]:
    """The keys of the nodes in these homes, in the same order."""
    return [key_of(load_key(home / KEY_FILE).public_key().public_bytes_raw()) for home in homes]


def authority_public(session: Path) -> bytes:
    return certificate_public(load_certificates(session / CERTIFICATE_FILE)[0])


def session_digest(session_file: Path) -> bytes:
    return read_session_file(session_file)[0].digest
