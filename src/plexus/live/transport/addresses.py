"""Addresses as people write them (host:port) and as views carry them (18 bytes)."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TypeAlias

from plexus.errors import PlexusError
from plexus.protocol.messages import ADDRESS_BYTES

Address: TypeAlias = tuple[str, int]
"""An IP address in text and a port; where it was given by people, the host may be a name."""

OWN_EVENT = 2**62
"""Of this node's own address: it knows better than any view where it is."""
_MAPPED = bytes(10) + b"\xff\xff"


def parse(text: str) -> Address:
    """`host:port` or `[IPv6]:port`; the host may be a name."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise PlexusError("write an IPv6 address in brackets, as in [::1]:7000")
    if not colon or not host or not port.isdecimal() or not 0 <= int(port) <= 65535:
        raise PlexusError("not an address: expected host:port, as in 192.0.2.7:7000")
    return host, int(port)


def resolve(text: str) -> Address:
    """`host:port` with the host as an IP address, the preferred one if it is a name with several."""
    host, port = parse(text)
    try:
        return str(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][4][0]), port
    except (OSError, UnicodeError) as error:
        raise PlexusError(f"host {host} cannot be found: {getattr(error, 'strerror', error)}") from None


def dialled(text: str) -> Address:
    """An address for others to dial."""
    address = resolve(text)
    if unpack(pack(address)) is None:
        raise PlexusError("nobody can dial that; give the address that others see, or leave the option out")
    return address


async def look_up(address: Address) -> list[Address]:
    """With every IP address of the host: it may listen at only one of them, or each be another member's."""
    with suppress(ValueError):
        return [(str(ip_address(address[0])), address[1])]
    found = await asyncio.get_running_loop().getaddrinfo(*address, type=socket.SOCK_STREAM)
    return list(dict.fromkeys((str(entry[4][0]), address[1]) for entry in found))


def pack(address: Address) -> bytes:
    host, port = address
    ip = ip_address(host.partition("%")[0])
    packed = _MAPPED + ip.packed if isinstance(ip, IPv4Address) else ip.packed
    return packed + port.to_bytes(2, "big")


def unpack(packed: bytes) -> Address | None:
    """The address in 18 bytes, if it is one that can be dialled."""
    assert len(packed) == ADDRESS_BYTES
    port = int.from_bytes(packed[16:], "big")
    full = IPv6Address(packed[:16])
    ip = full.ipv4_mapped or full
    if port == 0 or ip.is_unspecified or ip.is_multicast:
        return None
    return str(ip), port


def normal(address: Address) -> Address:
    """The same address in its plainest form: a mapped IPv4 address as IPv4, and without a zone."""
    return unpack(pack(address)) or address


def show(address: Address | None) -> str:
    if address is None:
        return "nowhere"
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def origin(packed: bytes) -> bytes:
    """The part of an address that stands for a host: an IPv4 address, or an IPv6 network of 64 bits, which is
    what one host can have."""
    return packed[:16] if packed.startswith(_MAPPED) else packed[:8]
