"""The session file: what its peers agree on.

It is an experiment's spec with more in its `[session]` table: the authority's public key, and the digest of
everything that peers must have in common (name, seed, number of nodes, protocol, task, aggregation, beginning
and end, authority), as far as the file says it: a parameter that a later version adds is in no file of before
and voids none. What only matters to a rehearsal (traces, network, hours) is not in the digest and may be
changed.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from plexus.errors import PlexusError
from plexus.files import read_bytes, write_bytes, write_text
from plexus.live.identity.authority import ANEW, FOUNDED, ISSUED, KEY_FILE, RESTORE, Authority
from plexus.live.identity.keys import create_key, make_home, parse_public, public_text
from plexus.protocol.registry import SERVERS
from plexus.spec import toml

SESSION_FILE, MODEL_FILE = "session.toml", "model.safetensors"
EXTRAS = ("model", "frozen", "founded")
"""Keys of [session] that only a session to deploy has. Two name weights by their hash: of the model that it
starts from, in `MODEL_FILE`, and of what nobody trains or sends. The third says when it was founded, in
seconds since 1970, where rounds begin by the clock."""
NO_CLOCK = ("plexus", "gossip", *SERVERS)

_AGREED = ("name", "seed", "nodes", "protocol", "task", "aggregation", "session")
_DIGEST = re.compile(r"[0-9a-f]{32}")


class Session(Struct, frozen=True):
    name: str
    authority: bytes
    """The authority's public key, 32 bytes."""
    digest: bytes
    """16 bytes; also what the order of samples is derived from."""
    frozen: str = ""
    """The hash of the model's weights that nobody trains or sends, if its founder knew it."""
    founded_s: int = 0
    """Since when time is counted, if all peers have to agree on it."""


def session_digest(spec: Mapping[str, Any], authority: bytes, weights: Mapping[str, str] = {}) -> bytes:
    """The digest of what the peers agree on; `spec` is the spec as plain tables, without what was not said.

    `weights` are hashes of what a session file does not hold itself, and more: see `EXTRAS`.
    """
    agreed = tomllib.loads(toml.dumps({key: spec[key] for key in _AGREED if key in spec}))
    agreed |= {"authority": authority.hex(), **weights}
    canonical = json.dumps(agreed, sort_keys=True).encode()
    return hashlib.blake2b(canonical, digest_size=16, person=b"plexus session").digest()


def found_session(
    directory: Path, spec: Mapping[str, Any], initial: Path | None = None, frozen: str = ""
) -> Session:
    """Make `directory` the home of a new session: its file, its authority and nothing yet revoked.

    `initial` is the file of the model that it starts from, if not from a new one; it gets a copy. `frozen` is
    the hash of weights that nobody trains or sends.
    """
    weights = {} if initial is None else {"model": hash_of(initial)}
    weights |= {"frozen": frozen} if frozen else {}
    if spec["protocol"].get("name", NO_CLOCK[0]) not in NO_CLOCK:
        weights["founded"] = str(int(time.time()))
    make_home(directory)
    files = [directory / name for name in (*FOUNDED, SESSION_FILE)]
    if (directory / SESSION_FILE).exists():
        raise PlexusError(f"{directory / SESSION_FILE}: there is a session in this directory already")
    if any(file.exists() for file in (*files, *(directory / ISSUED).glob("*"))):
        gone = f"{directory / SESSION_FILE}: missing, but a session was founded in this directory"
        raise PlexusError(f"{gone}; {RESTORE}, or found another one elsewhere")
    key = create_key(directory / KEY_FILE)
    try:
        public = key.public_key().public_bytes_raw()
        if initial is not None:
            write_bytes(directory / MODEL_FILE, initial.read_bytes())
            spec = {**spec, "task": {**spec["task"], "initial": MODEL_FILE}}
        digest = session_digest(spec, public, weights)
        Authority.create(directory, key, spec["name"], digest)
        agreement = {"authority": public_text(public), "digest": digest.hex(), **weights}
        table = {**spec.get("session", {}), **agreement}
        write_text(directory / SESSION_FILE, toml.dumps({**spec, "session": table}))
    except BaseException:  # half a session would be in the way of the next one
        for file in files:
            file.unlink(missing_ok=True)
        raise
    return Session(spec["name"], public, digest, frozen, int(weights.get("founded", 0)))


def hash_of(path: Path) -> str:
    return hashlib.blake2b(read_bytes(path), digest_size=16).hexdigest()


def read_session(path: Path, said: Mapping[str, Any], spec: Mapping[str, Any]) -> Session:
    """The session of the file at `path`, which has said this, and whose resolved spec is `spec`."""
    table = said.get("session", {})
    if not {"authority", "digest"} & set(table):
        raise PlexusError(f"{path}: [session] has no authority: `plexus session init` makes a session file")
    for key in ("authority", "digest"):
        if key not in table:
            raise PlexusError(f"{path}: [session] has no {key}; {ANEW}")
    weights = {key: str(table[key]) for key in EXTRAS if key in table}
    if "model" in weights and hash_of(path.parent / MODEL_FILE) != weights["model"]:
        raise PlexusError(f"{path.parent / MODEL_FILE}: not the model that this session starts from")
    if not isinstance(table["authority"], str):
        raise PlexusError(f"{path}: session.authority must be a string")
    authority = parse_public(table["authority"])
    stated = table["digest"]
    if not isinstance(stated, str) or not _DIGEST.fullmatch(stated):
        raise PlexusError(f"{path}: session.digest must be 32 hex digits")
    actual = session_digest(_as_said(spec, said), authority, weights)
    if actual.hex() != stated:
        raise PlexusError(
            f"{path}: session.digest is {stated}, but the file's contents have {actual.hex()}: it was"
            " changed after `plexus session init`, or is of another version of Plexus"
        )
    founded_s = int(weights.get("founded", 0))  # the digest has been checked
    return Session(spec["name"], authority, actual, weights.get("frozen", ""), founded_s)


def _as_said(value: Any, said: Any) -> Any:
    """What of a resolved table the file itself says, however it writes it."""
    if not isinstance(value, Mapping):
        return value
    if not isinstance(said, Mapping):  # a name alone
        return value["name"]
    return {key: _as_said(value[key], said[key]) for key in said if key in value}
