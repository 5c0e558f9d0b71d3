"""Keys of nodes: in files that nobody else can read, and as people pass them on."""

from __future__ import annotations

from pathlib import Path

import pytest

from plexus.errors import PlexusError
from plexus.live.identity.keys import create_key, load_key, parse_public, public_text, raw_public


def test_a_key_is_readable_by_its_owner_alone_and_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "key"
    key = create_key(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert raw_public(load_key(path).public_key()) == raw_public(key.public_key())
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
