"""What the peers of a session agree on: one file, the same for all, and its digest.

A session file is an experiment's spec with a `[session]` table: the authority's public key, and the digest
of everything that peers must have in common (name, seed, number of nodes, protocol, task, aggregation,
authority). What only matters to a rehearsal (traces, network, hours) is not in the digest and may be changed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from plexus.errors import PlexusError
from plexus.files import write_text
from plexus.live.identity.authority import KEY_FILE, Authority
from plexus.live.identity.keys import create_key, make_home, parse_public, public_text, raw_public
from plexus.spec import toml

SESSION_FILE = "session.toml"
WIRE_VERSION = 1
"""Part of the digest: peers that speak differently are in different sessions."""

_AGREED = ("name", "seed", "nodes", "protocol", "task", "aggregation")
_DIGEST = re.compile(r"[0-9a-f]{32}")


class Session(Struct, frozen=True):
    """A session as a peer knows it."""

    name: str
    nodes: int
    authority: bytes
    """The authority's public key, 32 bytes."""
    digest: bytes
    """16 bytes; also what the order of samples is derived from."""


def session_digest(spec: Mapping[str, Any], authority: bytes) -> bytes:
    """The digest of what the peers agree on; `spec` is the resolved spec as plain tables."""
    agreed = {key: spec[key] for key in _AGREED}
    agreed |= {"authority": authority.hex(), "wire": WIRE_VERSION}
    canonical = json.dumps(agreed, sort_keys=True).encode()
    return hashlib.blake2b(canonical, digest_size=16, person=b"plexus session").digest()


def found_session(directory: Path, spec: Mapping[str, Any]) -> Session:
    """Make `directory` the home of a new session: its file, its authority and nothing yet revoked."""
    make_home(directory)
    if (directory / SESSION_FILE).exists():
        raise PlexusError(f"{directory / SESSION_FILE}: there is a session in this directory already")
    key = create_key(directory / KEY_FILE)
    public = raw_public(key.public_key())
    digest = session_digest(spec, public)
    Authority.create(directory, key, spec["name"], digest)
    table = {"authority": public_text(public), "digest": digest.hex()}
    write_text(directory / SESSION_FILE, toml.dumps({**spec, "session": table}))
    return Session(spec["name"], spec["nodes"], public, digest)


def read_session(path: Path, table: Any, spec: Mapping[str, Any]) -> Session:
    """The session of the file at `path`, whose `[session]` is `table` and whose resolved spec is `spec`."""
    if table is None:
        raise PlexusError(f"{path}: no [session] table; `plexus session init` makes a session file")
    if not isinstance(table, dict) or set(table) != {"authority", "digest"}:
        raise PlexusError(f"{path}: [session] must have exactly the keys authority and digest")
    if not isinstance(table["authority"], str):
        raise PlexusError(f"{path}: session.authority must be a string")
    authority = parse_public(table["authority"])
    stated = table["digest"]
    if not isinstance(stated, str) or not _DIGEST.fullmatch(stated):
        raise PlexusError(f"{path}: session.digest must be 32 hex digits")
    actual = session_digest(spec, authority)
    if actual.hex() != stated:
        raise PlexusError(
            f"{path}: session.digest is {stated}, but the file's contents have {actual.hex()}: it was"
            " changed after `plexus session init`, or is of another version of Plexus"
        )
    return Session(spec["name"], spec["nodes"], authority, actual)
