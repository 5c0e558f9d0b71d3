"""`plexus bench signatures`: what it costs that events are signed."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import Struct

from plexus.bench.transport import Homes
from plexus.errors import PlexusError
from plexus.live.identity.admission import Admission
from plexus.live.identity.events import SignedRoster, statement
from plexus.protocol import wire
from plexus.protocol.messages import ViewReply
from plexus.protocol.roster import Entry, key_of
from plexus.protocol.view import JOINED, View, event_number


class SignaturesBench(Struct, frozen=True, kw_only=True):
    """In CPU seconds of this machine."""

    nodes: int
    list_bytes: int
    list_s: float
    """To read the authority's list of these nodes."""
    view_bytes: int
    first_view_s: float
    """To believe a view of nodes that were all unknown."""
    next_view_s: float
    """The same view again: nothing of it is news."""
    fleet_share: float | None = None
    """Of the CPU time of a fleet's peers, without their training."""


def bench_signatures(nodes: int, fleet: Path | None = None) -> SignaturesBench:
    share = None if fleet is None else fleet_share(fleet)
    with TemporaryDirectory() as name:
        homes = Homes(Path(name))
        keys = [Ed25519PrivateKey.generate() for _ in range(nodes)]
        publics = [key.public_key().public_bytes_raw() for key in keys]
        homes.authority.invite_all(publics, homes.session.digest, timedelta(days=1))
        admission = Admission(homes.new(), homes.session)
        sender, receiver = SignedRoster(admission, nodes + 1), SignedRoster(admission, nodes + 1)
        view = View.of(1, is_signed=True)
        said = Entry(event_number(1, JOINED), 10**6)
        for key, public in zip(keys, publics, strict=True):
            proof = key.sign(statement(homes.session.digest, key_of(public), said))
            number = sender.learn(key_of(public), said._replace(proof=proof))
            view.learn(number, said.event, said.bandwidth_bytes_per_s)
        payload = wire.encode(ViewReply(view.snapshot()), sender)[wire.LENGTH_BYTES :]
        return SignaturesBench(
            nodes=nodes,
            list_bytes=len(admission.list.der),
            list_s=cpu_s(lambda: admission.read(admission.list.der)),
            view_bytes=len(payload),
            first_view_s=cpu_s(lambda: wire.decode(payload, receiver)),
            next_view_s=cpu_s(lambda: wire.decode(payload, receiver)),
            fleet_share=share,
        )


def cpu_s(work: Callable[[], object]) -> float:
    began_s = time.process_time()
    work()
    return time.process_time() - began_s


def fleet_share(out: Path) -> float:
    """What part of their CPU time the peers of a fleet spent on signatures, by their logs."""
    logs = [path.read_bytes().splitlines() for path in sorted(out.glob("node-*/log.jsonl"))]
    lines = [msgspec.json.decode(line) for log in logs for line in log if b'"stopped"' in line]
    if not lines:
        raise PlexusError(f"{out}: no fleet that has ended")
    return float(sum(line["signatures_s"] for line in lines) / sum(line["cpu_s"] for line in lines))
