"""Addresses as people write them and as views carry them, and the roster of those who are at them."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plexus.errors import PlexusError
from plexus.live.transport import addresses
from plexus.live.transport.limits import LiveRoster
from plexus.protocol.messages import NO_ADDRESS
from plexus.protocol.wire import WireError


@pytest.mark.parametrize("text", ["192.0.2.7:7000", "[2001:db8::1]:443", "[::1]:1"])
def test_an_address_survives_packing(text: str) -> None:
    address = addresses.parse(text)
    assert addresses.unpack(addresses.pack(address)) == address
    assert addresses.show(address) == text


@given(st.ip_addresses(), st.integers(1, 65535))
def test_any_address_takes_18_bytes(ip: Any, port: int) -> None:
    assert len(addresses.pack((str(ip), port))) == len(NO_ADDRESS)


@pytest.mark.parametrize("text", ["192.0.2.7", "host:", ":7000", "::1:7000", "host:99999", "host:²", "a:b:c"])
def test_what_is_no_address_is_said_to_be_none(text: str) -> None:
    with pytest.raises(PlexusError, match=r"address|IPv6"):
        addresses.parse(text)


def test_all_addresses_of_a_name_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(0, 0, 0, "", (host, 7)) for host in ("2001:db8::1", "192.0.2.7", "192.0.2.7")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    places = asyncio.run(addresses.look_up(("a.name", 7)))
    assert places == [("2001:db8::1", 7), ("192.0.2.7", 7)]
    assert addresses.resolve("a.name:7") == ("2001:db8::1", 7)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "224.0.0.1", "ff02::1"])
def test_nobody_is_dialled_at_an_address_that_is_not_one_hosts(host: str) -> None:
    assert addresses.unpack(addresses.pack((host, 7000))) is None


def origin_of(host: str) -> bytes:
    return addresses.origin(addresses.pack((host, 0)))


def test_a_mapped_address_and_a_zone_are_taken_off() -> None:
    assert addresses.normal(("::ffff:192.0.2.7", 5)) == ("192.0.2.7", 5)
    assert addresses.normal(("fe80::1%eth0", 5)) == ("fe80::1", 5)


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::"),
        ("fe80::1%eth0", "fe80::"),
    ],
)
def test_connections_are_counted_by_what_one_host_can_have(host: str, origin: str) -> None:
    assert origin_of(host) == origin_of(origin)
    assert origin_of(host) != origin_of("2001:db8:1:3::4")


def test_a_roster_knows_which_hosts_members_are_at() -> None:
    roster = LiveRoster(b"session", b"m" * 16, 10)
    roster.learn_address(1, 1, addresses.pack(("192.0.2.7", 7000)))
    roster.learn_address(2, 1, addresses.pack(("2001:db8:1:2::7", 7000)))
    known = ("192.0.2.7", "::ffff:192.0.2.7", "2001:db8:1:2:ffff::")
    assert all(roster.is_at(origin_of(host)) for host in known)
    strangers = ("192.0.2.8", "2001:db8:1:3::7", "::1")
    assert not any(roster.is_at(origin_of(host)) for host in strangers)


def test_a_live_roster_is_bounded() -> None:
    roster = LiveRoster(b"session", b"k" * 16, max_nodes=2)
    assert roster.number(b"a" * 16) == 1
    assert roster.number(b"k" * 16) == 0
    with pytest.raises(WireError, match="more than 2 nodes"):
        roster.number(b"b" * 16)
    assert roster.where(b"a" * 16) is None
