"""Keys of nodes: in files that nobody else can read, and as people pass them on."""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from plexus.errors import PlexusError
from plexus.live.identity.authority import KEY_FILE, Authority
from plexus.live.identity.keys import create_key, load_key, parse_public, public_text
from plexus.live.identity.session_file import SESSION_FILE, found_session
from plexus.protocol.roster import key_of
from tests.live.disks import fill, small_disk

SPEC = {"name": "x", "nodes": 2, "protocol": {}, "task": {"name": "digits"}}


def test_a_key_is_readable_by_its_owner_alone_and_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "key"
    key = create_key(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert load_key(path).public_key().public_bytes_raw() == key.public_key().public_bytes_raw()
    with pytest.raises(PlexusError, match="File exists"):
        create_key(path)
    path.chmod(0o640)
    with pytest.raises(PlexusError, match="chmod 600"):
        load_key(path)
    path.write_text("rubbish")
    path.chmod(0o600)
    with pytest.raises(PlexusError, match="not a private key"):
        load_key(path)


def test_public_keys_are_read_as_they_are_written() -> None:
    raw = bytes(range(32))
    assert parse_public(public_text(raw)) == raw
    for wrong in ("", "ed25519:", "ed25519:" + "zz" * 32, raw.hex()):
        with pytest.raises(PlexusError, match="not a public key"):
            parse_public(wrong)


def test_a_full_disk_leaves_no_key_and_no_session_that_is_in_the_way_later(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 64) as disk:
        fill(disk)
        with pytest.raises(PlexusError, match=r"node\.key: No space left"):
            create_key(disk / "node.key")
        assert not (disk / "node.key").exists()
        failures, left = 0, (disk / "filler").stat().st_size
        while left > 0:
            with suppress(PlexusError):
                found_session(disk / "session", SPEC)
                break
            failures, left = failures + 1, left - 4096
            os.truncate(disk / "filler", left)
        assert failures > 2
        authority = Authority.load(disk / "session")
        (disk / "filler").unlink()
        authority.invite_all([bytes(31) + b"1"], bytes(16), timedelta(days=1))


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("invited", [True, False])
def test_a_session_whose_file_was_moved_away_is_not_founded_again(tmp_path: Path, invited: bool) -> None:
    """Nobody could be revoked or renewed with another certificate of the authority."""
    home, model = tmp_path / "session", tmp_path / "model"
    model.write_bytes(b"one")
    session, public = found_session(home, SPEC, model), bytes(31) + b"1"
    if invited:
        Authority.load(home).invite(public, session.digest, timedelta(days=3), "berlin")
    (home / SESSION_FILE).rename(tmp_path / SESSION_FILE)
    before = contents(home)
    model.write_bytes(b"another")
    with pytest.raises(PlexusError, match=r"session\.toml: missing, .*; restore it .*, or found another one"):
        found_session(home, {**SPEC, "name": "y"}, model)
    assert contents(home) == before
    if invited:
        (home / KEY_FILE).rename(tmp_path / KEY_FILE)  # as where it is kept elsewhere
        with pytest.raises(PlexusError, match="missing"):
            found_session(home, SPEC)
        (tmp_path / KEY_FILE).rename(home / KEY_FILE)
        assert Authority.load(home).revoke(key_of(public)) == 1


def test_a_session_that_cannot_be_founded_leaves_nothing_that_looks_like_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    for step in ("_sign_list", "create"):
        with monkeypatch.context() as patch:
            patch.setattr(Authority, step, stopped)
            with pytest.raises(KeyboardInterrupt):
                found_session(tmp_path, SPEC)
        assert contents(tmp_path) == {}
    found_session(tmp_path, SPEC)
