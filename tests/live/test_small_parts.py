"""The small parts of a live peer: addresses, bandwidth, windows, progress, homes, session files."""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plexus.cli.node import describe
from plexus.errors import PlexusError
from plexus.live.identity.authority import Authority
from plexus.live.identity.keys import (
    create_key,
    exposure,
    load_key,
    make_home,
    node_key,
    parse_public,
    public_text,
    raw_public,
    short,
)
from plexus.live.identity.session_file import SESSION_FILE, found_session, read_session, session_digest
from plexus.live.operator.control import lock_home, socket_path
from plexus.live.transport import addresses
from plexus.live.transport.addresses import LiveRoster
from plexus.live.transport.limits import KEPT, Meter
from plexus.live.transport.sending import INITIAL_BYTES, MIN_BYTES, Window
from plexus.protocol.messages import NO_ADDRESS
from plexus.protocol.wire import WireError

# Addresses


@pytest.mark.parametrize("text", ["192.0.2.7:7000", "[2001:db8::1]:443", "[::1]:1"])
def test_an_address_survives_packing(text: str) -> None:
    address = addresses.parse(text)
    assert addresses.unpack(addresses.pack(address)) == address
    assert addresses.show(address) == text


@given(st.ip_addresses(), st.integers(1, 65535))
def test_any_address_takes_18_bytes(ip: Any, port: int) -> None:
    assert len(addresses.pack((str(ip), port))) == len(NO_ADDRESS)


@pytest.mark.parametrize("text", ["192.0.2.7", "host:", ":7000", "::1:7000", "host:99999", "a:b:c"])
def test_what_is_no_address_is_said_to_be_none(text: str) -> None:
    with pytest.raises(PlexusError, match=r"address|IPv6"):
        addresses.parse(text)


def test_all_addresses_of_a_name_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(0, 0, 0, "", (host, 7)) for host in ("2001:db8::1", "192.0.2.7", "192.0.2.7")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    assert addresses.resolve_all("a.name:7") == [("2001:db8::1", 7), ("192.0.2.7", 7)]
    assert addresses.resolve("a.name:7") == ("2001:db8::1", 7)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "224.0.0.1", "ff02::1"])
def test_nobody_is_dialled_at_an_address_that_is_not_one_hosts(host: str) -> None:
    assert addresses.unpack(addresses.pack((host, 7000))) is None


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
    assert addresses.origin(host) == addresses.origin(origin)
    assert addresses.origin(host) != addresses.origin("2001:db8:1:3::4")


def test_a_roster_knows_which_hosts_members_are_at() -> None:
    roster = LiveRoster(b"session", b"m" * 16, 10)
    roster.learn_address(1, 1, addresses.pack(("192.0.2.7", 7000)))
    roster.learn_address(2, 1, addresses.pack(("2001:db8:1:2::7", 7000)))
    known = ("192.0.2.7", "::ffff:192.0.2.7", "2001:db8:1:2:ffff::")
    assert all(roster.is_at(addresses.origin(host)) for host in known)
    strangers = ("192.0.2.8", "2001:db8:1:3::7", "::1")
    assert not any(roster.is_at(addresses.origin(host)) for host in strangers)


# Bandwidth


def test_bandwidth_is_the_lesser_of_the_best_both_ways() -> None:
    meter = Meter()
    assert meter.bytes_per_s == 0
    meter.note(1_000_000, 1.0, sent=True)
    assert meter.bytes_per_s == 0, "half known is not known"
    meter.note(3_000_000, 1.0, sent=False)
    meter.note(500_000, 1.0, sent=True)
    assert meter.bytes_per_s == 1_000_000


def test_small_transfers_say_nothing_and_old_ones_are_forgotten() -> None:
    meter = Meter(known_bytes_per_s=77)
    meter.note(1000, 0.000001, sent=True)
    meter.note(1000, 0.000001, sent=False)
    assert meter.bytes_per_s == 77
    for rate in (9_000_000, *[1_000_000] * KEPT):
        meter.note(rate, 1.0, sent=True)
        meter.note(rate, 1.0, sent=False)
    assert meter.bytes_per_s == 1_000_000


# Windows


def carried(rate: float, idle_s: float, seconds: float) -> tuple[Window, float]:
    """A window after some time on a link of this rate: it, and the longest that a chunk took."""
    window, now, free_at = Window(), 0.0, 0.0
    arrivals: list[float] = []
    longest = 0.0
    while now < seconds:
        while window.is_open:
            size = window.chunk_bytes
            free_at = max(free_at, now) + size / rate
            window.sent(size, now)
            arrivals.append(free_at + idle_s)
        previous, now = now, arrivals.pop(0)
        window.acknowledged(now)
        if previous > seconds / 2:
            longest = max(longest, window.bytes / rate)
    return window, longest


@pytest.mark.parametrize("rate", [1e5, 1e6, 1e7, 1e8])
@pytest.mark.parametrize("idle_s", [0.001, 0.05, 0.3])
def test_a_window_fills_the_link_and_queues_little_more(rate: float, idle_s: float) -> None:
    window, queue_s = carried(rate, idle_s, seconds=100.0 if rate < 1e7 else 20.0)
    assert window.bytes >= min(rate * idle_s, 60_000_000), "the link stands idle"
    assert queue_s <= 2 * idle_s + 0.03 + 2 * MIN_BYTES / rate, "others wait too long"


def test_a_crowded_way_closes_the_window_at_once() -> None:
    """Others came onto the link: what it carried without them is no measure any more."""
    window, now = Window(), 0.0
    for took_s in [0.001] * 20 + [0.3]:
        window.sent(100_000, now)
        now += took_s
        window.acknowledged(now)
        if took_s < 0.1:
            fast_bytes = window.bytes
    assert fast_bytes == pytest.approx(100e6 * 0.022, rel=0.01)
    assert window.bytes == MIN_BYTES


def test_an_acknowledgement_of_nothing_is_noticed() -> None:
    window = Window()
    assert not window.acknowledged(0.0)
    assert window.bytes == INITIAL_BYTES


# A peer's home


def test_a_home_is_one_peers(tmp_path: Path) -> None:
    held = lock_home(tmp_path)
    with pytest.raises(PlexusError, match="another peer is running here"):
        lock_home(tmp_path)
    os.close(held)
    os.close(lock_home(tmp_path))


def test_a_path_too_long_for_a_socket_is_said_to_be_so(tmp_path: Path) -> None:
    with pytest.raises(PlexusError, match="too long for a socket"):
        socket_path(tmp_path / ("x" * 100))
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(socket_path(tmp_path)))


# Keys, sessions, rosters


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
    assert read_session(path, table, SPEC) == founded
    assert read_session(path, table, {**SPEC, "hours": 9.0}) == founded, "only for rehearsals"
    with pytest.raises(PlexusError, match="changed after"):
        read_session(path, table, {**SPEC, "task": {"y": 3}})
    with pytest.raises(PlexusError, match=r"no \[session\] table"):
        read_session(path, None, SPEC)
    with pytest.raises(PlexusError, match="exactly the keys"):
        read_session(path, {**table, "more": 1}, SPEC)
    with pytest.raises(PlexusError, match="a session in this directory already"):
        found_session(tmp_path, SPEC)


def test_the_digest_covers_what_peers_agree_on() -> None:
    digest = session_digest(SPEC, bytes(32))
    for key in ("name", "seed", "nodes", "protocol", "task", "aggregation"):
        assert session_digest({**SPEC, key: "other"}, bytes(32)) != digest
    assert session_digest(SPEC, bytes(31) + b"\1") != digest


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
    ids = sorted(node_key(public) for public in keys)
    for id in ids:
        assert authority.find(short(id)) == id
        assert authority.find(id.hex()) == id
    with pytest.raises(PlexusError, match="no certificate was issued to a node 123456789abc"):
        authority.find("123456789abc")
    first = next(digit for digit in "0123456789abcdef" if sum(i.hex()[0] == digit for i in ids) > 1)
    with pytest.raises(PlexusError, match=f"{first} is how .* ids begin .*: give more digits"):
        authority.find(first)


def test_homes_are_for_their_owner_alone(tmp_path: Path) -> None:
    make_home(tmp_path / "new")
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
    assert exposure(tmp_path / "new") is None
    (tmp_path / "new").chmod(0o755)
    make_home(tmp_path / "new")
    assert exposure(tmp_path / "new") == (
        f"{tmp_path / 'new'}: its mode is 755, so others can look into it; run chmod 700 {tmp_path / 'new'}"
    )


def test_a_live_roster_is_bounded() -> None:
    roster = LiveRoster(b"session", b"k" * 16, max_nodes=2)
    assert roster.number(b"a" * 16) == 1
    assert roster.number(b"k" * 16) == 0
    with pytest.raises(WireError, match="more than 2 nodes"):
        roster.number(b"b" * 16)
    assert roster.where(b"a" * 16) is None


# What the operator sees


def test_a_peer_that_starts_says_what_it_waits_for() -> None:
    wait = {"what": "its training worker", "since_s": 1.5}
    picture = {"session": "s", "node": "0a1b", "phase": "starting", "phase_since_s": 2}
    assert describe({**picture, "waiting_for": [wait]}).splitlines()[1:] == [
        "waits for its training worker since 1.5 s"
    ]


def test_a_status_leaves_out_what_is_old() -> None:
    picture = {
        "session": "s", "node": "0a1b", "phase": "online", "phase_since_s": 2, "address": "[::1]:7000",
        "round": 127, "peers": {"known": 3, "linked": 2}, "bandwidth_bytes_per_s": 1000,
        "sample": {"round": 122, "nodes": ["0a1b"]}, "aggregator": {"round": 126, "node": "77"},
        "training": None, "waiting_for": [], "timers": [{"what": "progress", "since_s": 1}],
        "transfers": [], "metric": None, "certificate_days_left": 7,
    }  # fmt: skip
    assert describe(picture).splitlines()[2:-1] == ["aggregator of round 126: 77", "waits to be sampled"]
    picture["sample"]["round"] = 128
    assert "sample of round 128: 0a1b" in describe(picture)
    wait = {"what": "answers to pings", "since_s": 0.5, "at_most_s": 1.5}
    told = describe({**picture, "waiting_for": [wait]})
    assert "waits for answers to pings since 0.5 s, at most 1.5 s more" in told
    assert "to be sampled" not in told
