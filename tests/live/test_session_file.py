"""What the peers of a session agree on, and who may be taken back from it."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from plexus.errors import PlexusError
from plexus.live.identity.authority import Authority
from plexus.live.identity.keys import public_text, short
from plexus.live.identity.session_file import SESSION_FILE, found_session, read_session, session_digest
from plexus.protocol.messages import KINDS, OLDEST_WIRE, SINCE, WIRE_VERSION, Message, ViewRequest
from plexus.protocol.roster import key_of

SPEC = {
    "name": "s",
    "seed": 1,
    "nodes": 4,
    "protocol": {"x": 1},
    "task": {"y": 2},
    "aggregation": "mean",
    "hours": 1.0,
}


def test_a_session_file_is_believed_only_if_its_digest_fits(tmp_path: Path) -> None:
    founded = found_session(tmp_path, SPEC)
    table = {"authority": public_text(founded.authority), "digest": founded.digest.hex()}
    path = tmp_path / SESSION_FILE
    said = {**SPEC, "session": table}
    assert read_session(path, said, SPEC) == founded
    assert read_session(path, said, {**SPEC, "hours": 9.0}) == founded, "only for rehearsals"
    with pytest.raises(PlexusError, match="changed after"):
        read_session(path, said, {**SPEC, "task": {"y": 3}})
    with pytest.raises(PlexusError, match=r"\[session\] has no authority: `plexus session init`"):
        read_session(path, SPEC, SPEC)
    with pytest.raises(PlexusError, match=r"\[session\] has no digest"):
        read_session(path, {**SPEC, "session": {"authority": table["authority"]}}, SPEC)
    with pytest.raises(PlexusError, match="a session in this directory already"):
        found_session(tmp_path, SPEC)


def test_the_digest_covers_what_peers_agree_on() -> None:
    digest = session_digest(SPEC, bytes(32))
    for key in ("name", "seed", "nodes", "protocol", "task", "aggregation"):
        assert session_digest({**SPEC, key: "other"}, bytes(32)) != digest
    assert session_digest(SPEC, bytes(31) + b"\1") != digest


def test_a_parameter_that_a_later_version_adds_does_not_void_a_session(tmp_path: Path) -> None:
    founded = found_session(tmp_path, SPEC)
    said = tomllib.loads((tmp_path / SESSION_FILE).read_text())
    later = {**SPEC, "protocol": {"x": 1, "new": 7}, "aggregation": {"name": "mean", "new": 1}, "more": 2}
    assert read_session(tmp_path / SESSION_FILE, said, later) == founded
    said["protocol"]["new"] = 7
    with pytest.raises(PlexusError, match="changed after"):
        read_session(tmp_path / SESSION_FILE, said, later)


def test_when_a_session_begins_and_ends_is_agreed_on(tmp_path: Path) -> None:
    founded = found_session(tmp_path, {**SPEC, "session": {"rounds": 20}})
    said = tomllib.loads((tmp_path / SESSION_FILE).read_text())
    assert said["session"]["rounds"] == 20
    assert read_session(tmp_path / SESSION_FILE, said, {**SPEC, "session": {"rounds": 20}}) == founded
    said["session"]["rounds"] = 21
    with pytest.raises(PlexusError, match="changed after"):
        read_session(tmp_path / SESSION_FILE, said, {**SPEC, "session": {"rounds": 21}})


def test_only_who_was_invited_can_be_revoked(tmp_path: Path) -> None:
    found_session(tmp_path, SPEC)
    with pytest.raises(PlexusError, match="no certificate was issued"):
        Authority.load(tmp_path).revoke(bytes(16))


def test_a_node_to_be_revoked_is_found_by_the_digits_that_a_status_shows(tmp_path: Path) -> None:
    session = found_session(tmp_path, SPEC)
    authority = Authority.load(tmp_path)
    keys = [bytes([n]) * 32 for n in range(40)]
    for public in keys:
        authority.invite(public, session.digest, timedelta(days=1))
    ids = sorted(key_of(public) for public in keys)
    for id in ids:
        assert authority.find(short(id)) == id
        assert authority.find(id.hex()) == id
    with pytest.raises(PlexusError, match="no certificate was issued to a node 123456789abc"):
        authority.find("123456789abc")
    first = next(digit for digit in "0123456789abcdef" if sum(i.hex()[0] == digit for i in ids) > 1)
    with pytest.raises(PlexusError, match=f"{first} is how .* ids begin .*: give more digits"):
        authority.find(first)


def test_messages_of_other_fields_are_another_version_of_the_wire() -> None:
    """If one of the older kinds changes, peers of both versions cannot work together: add a kind instead,
    raise WIRE_VERSION, and say in SINCE that older peers are not sent it."""
    older = [kind for kind in KINDS if SINCE.get(kind, 0) <= OLDEST_WIRE]
    assert (OLDEST_WIRE, fingerprint(older)) == (4, "282525bc82fc6274")
    assert (WIRE_VERSION, fingerprint(KINDS)) == (6, "ce6c2936b64e9505")


def fingerprint(kinds: Sequence[type[Message]]) -> str:
    """Without what those who speak an older version are not sent of a message."""
    shapes = [
        (each.__struct_config__.tag, each.__struct_fields__) for each in kinds if each is not ViewRequest
    ]
    shapes.insert([*kinds].index(ViewRequest), (ViewRequest.__struct_config__.tag, ()))
    fields = repr(shapes).encode()
    return hashlib.blake2b(fields, digest_size=8).hexdigest()
