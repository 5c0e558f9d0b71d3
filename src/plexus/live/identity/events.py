"""Events are their nodes' own: signed by whom they are about, checked before they are believed.

A node signs that it is online, since which event, with which bandwidth and at which address, and that it has
left. The signature is the proof that travels with the event, from view to view. It is checked once, when the
event is news: a node never passes on what it could not check, so whoever sends something else has made it up.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from numpy.typing import NDArray

from plexus.live.identity.admission import Admission
from plexus.live.identity.keys import short
from plexus.live.transport.limits import LiveRoster
from plexus.protocol.messages import NodeId
from plexus.protocol.roster import Entry
from plexus.protocol.view import JOINED, LAST, LEFT, SUSPECTED, counter_of
from plexus.protocol.wire import WireError

DOMAIN = b"plexus event\0"
"""What is signed begins so, that no signature is taken for one of something else."""
_NUMBERS = struct.Struct(">II")
OLD_KEPT = 4096
"""Checks remembered of events that are not the newest of their nodes."""


class SignedRoster(LiveRoster):
    """The roster of a peer: knows the newest event of each node with its proof."""

    def __init__(self, admission: Admission, max_nodes: int) -> None:
        super().__init__(admission.session.digest, admission.key, max_nodes)
        self._admission = admission
        self._proved: dict[bytes, Entry] = {}
        self._is_signed = lru_cache(OLD_KEPT)(self._check)
        self.spent_s = 0.0
        """On signing and on checking signatures."""

    def sign(self, node: NodeId, event: int, bandwidth_bytes_per_s: int, address: bytes) -> bytes:
        began_s = time.perf_counter()
        said = Entry(event, bandwidth_bytes_per_s, address)
        proof = self._admission.sign(statement(self.session, self.keys[node], said))
        self.spent_s += time.perf_counter() - began_s
        self.learn(self.keys[node], said._replace(proof=proof))
        return proof

    def learn(self, key: bytes, entry: Entry) -> NodeId:
        node = super().learn(key, entry)
        before = self._proved.get(key)
        if before is None or before.event < entry.own.event:
            self._proved[key] = entry.own
        return node

    def admits(self, key: bytes, entry: Entry) -> bool:
        said = entry.own
        admitted = self._admission.admitted(key)
        if admitted is None:
            self.strangers += 1
            return False
        is_left = said.event & 3 == LEFT
        if key in self._admission.list.revoked_nodes or (admitted.until_s <= time.time() and not is_left):
            return False
        if self._proved.get(key) == said:
            return True
        if said.event & 3 not in (JOINED, LEFT) or not self._is_signed(admitted.public, key, said):
            raise WireError(f"an event of node {short(key)} that it has not signed")
        return True

    def entry(self, node: NodeId, event: int, bandwidth_bytes_per_s: int) -> Entry | None:
        newest = self._proved.get(self.keys[node])
        if newest is None or event > LAST:
            return None
        # What is known by now is as good as what was known when the view was taken, and can be proved.
        is_doubted = event & 3 == SUSPECTED and counter_of(event) == counter_of(newest.event)
        return newest._replace(event=event) if is_doubted and newest.event & 3 == JOINED else newest

    @property
    def listing(self) -> bytes:
        """The authority's list that is in force here."""
        return self._admission.list.name

    @property
    def on_list(self) -> Sequence[bytes]:
        return self._admission.list.order

    def places(self, nodes: NDArray[np.intp]) -> NDArray[np.intp] | None:
        places = [self._admission.list.places.get(self.keys[node], -1) for node in nodes.tolist()]
        return None if -1 in places else np.array(places, np.intp)

    def is_own(self, node: NodeId, event: int) -> bool:
        newest = self._proved.get(self.keys[node])
        return newest is not None and counter_of(event) <= counter_of(newest.event)

    def _check(self, public: bytes, key: bytes, said: Entry) -> bool:
        began_s = time.perf_counter()
        try:
            Ed25519PublicKey.from_public_bytes(public).verify(said.proof, statement(self.session, key, said))
        except InvalidSignature:
            return False
        finally:
            self.spent_s += time.perf_counter() - began_s
        return True


def statement(session: bytes, key: bytes, said: Entry) -> bytes:
    """What the node with this key signs."""
    return DOMAIN + session + key + _NUMBERS.pack(said.event, said.bandwidth_bytes_per_s) + said.address
