"""A peer's home: of one peer at a time, of its owner alone, and with room for a socket."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest

from plexus.errors import PlexusError
from plexus.live.fleet.members import ForkServer
from plexus.live.identity.keys import exposure, make_home
from plexus.live.operator.control import lock_home, socket_path


def test_a_home_is_one_peers(tmp_path: Path) -> None:
    held = lock_home(tmp_path)
    with pytest.raises(PlexusError, match="another peer is running here"):
        lock_home(tmp_path)
    os.close(held)
    os.close(lock_home(tmp_path))


def test_a_path_too_long_for_a_socket_is_said_to_be_so(tmp_path: Path) -> None:
    with pytest.raises(PlexusError, match="too long for a socket"):
        socket_path(tmp_path / ("x" * 100))
    with pytest.raises(PlexusError, match="too long for a socket file; use a shorter --out"):
        asyncio.run(ForkServer(tmp_path / ("x" * 100)).start())
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(socket_path(tmp_path)))


def test_homes_are_for_their_owner_alone(tmp_path: Path) -> None:
    make_home(tmp_path / "new")
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    assert exposure(tmp_path / "new") is None
    (tmp_path / "new").chmod(0o755)
    make_home(tmp_path / "new")
    assert exposure(tmp_path / "new") == (
        f"{tmp_path / 'new'}: its mode is 755, so others can look into it; run chmod 700 {tmp_path / 'new'}"
    )
