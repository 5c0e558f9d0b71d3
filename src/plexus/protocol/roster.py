"""Who exists: the keys of all nodes ever heard of, their addresses, and the order of each round.

Inside a process nodes are small numbers, because views are arrays. Between processes a node is its
key: the fingerprint of its public key. The order of a round is derived from keys and the session
alone, so it is the same wherever it is computed, in the simulator as in a deployment.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from plexus.protocol.messages import NO_ADDRESS, PROOF_BYTES, NodeId
from plexus.protocol.view import JOINED, SUSPECTED, Snapshot, View

KEY_BYTES = 16
_ORDERS_KEPT = 16


def key_of(name: bytes) -> bytes:
    """The key of the node with this public key (or, in a simulation, this name)."""
    return hashlib.blake2b(name, digest_size=KEY_BYTES).digest()


class Entry(NamedTuple):
    """What a view says of a node, as it travels."""

    event: int
    bandwidth_bytes_per_s: int
    address: bytes = NO_ADDRESS
    proof: bytes = b""

    @property
    def own(self) -> Entry:
        """What the node itself has said: that others suspect it to be gone is not its own word."""
        doubted = self.event & 3 == SUSPECTED
        return self._replace(event=self.event + JOINED - SUSPECTED) if doubted else self


class Roster:
    """Numbers for keys, the hash order of each round, and whether events are their nodes' own.

    Where events are signed, nobody but its owner makes one: `sign` proves an event, the proof travels along,
    and `admits` checks it before a message is believed. The simulator knows who made what, so there a proof
    is nothing but its length, and `forged` finds what its owner did not make.
    """

    def __init__(self, session: bytes, keys: list[bytes] | None = None) -> None:
        self.session = session
        self._listing = b""
        self._made: dict[tuple[NodeId, int], set[int]] | None = None
        """Events that their owners made, and with which bandwidths (who lost its disk may make one twice);
        None where nobody asks."""
        self.keys: list[bytes] = []
        self._numbers: dict[bytes, NodeId] = {}
        self._addresses: dict[NodeId, tuple[int, bytes]] = {}
        self._seeds = np.empty(0, np.uint64)
        self.order = lru_cache(_ORDERS_KEPT)(self._order)
        for key in keys or []:
            self.number(key)

    @classmethod
    def simulated(cls, session: bytes, size: int, present: Snapshot | None = None) -> Roster:
        """A roster of `size` nodes that have no real keys; those `present` at first are there by an event of
        their own."""
        roster = cls(session, [key_of(b"simulated node %d" % node) for node in range(size)])
        roster._listing = key_of(b"%d simulated nodes" % size)
        if present is not None and present.is_signed:
            made = enumerate(zip(present.events.tolist(), present.bandwidths.tolist(), strict=True))
            roster._made = {(node, event): {bandwidth} for node, (event, bandwidth) in made}
        return roster

    def __len__(self) -> int:
        return len(self.keys)

    def number(self, key: bytes) -> NodeId:
        """The number of the node with this key; a new key gets the next number."""
        known = self._numbers.get(key)
        if known is not None:
            return known
        if len(key) != KEY_BYTES:
            raise ValueError(f"a node key has {KEY_BYTES} bytes, this one has {len(key)}")
        self._numbers[key] = len(self.keys)
        self.keys.append(key)
        self.order.cache_clear()
        return len(self.keys) - 1

    @property
    def listing(self) -> bytes:
        """The name of the list of all nodes, by whose places excerpts of views name them; or empty."""
        return self._listing

    @property
    def on_list(self) -> Sequence[bytes]:
        """The keys of all nodes on the list."""
        return self.keys if self.listing else ()

    def places(self, nodes: NDArray[np.intp]) -> NDArray[np.intp] | None:
        """Where they are on it; None if one of them is not."""
        return nodes if self.listing else None

    def address_of(self, node: NodeId) -> bytes:
        """Where `node` can be reached, as far as is known."""
        return self._addresses.get(node, (0, NO_ADDRESS))[1]

    def learn_address(self, node: NodeId, event: int, address: bytes) -> None:
        """`node` was at `address` as of its event `event`: the newest one counts."""
        if address != NO_ADDRESS and event > self._addresses.get(node, (0, NO_ADDRESS))[0]:
            self._addresses[node] = (event, address)

    def learn(self, key: bytes, entry: Entry) -> NodeId:
        """The node with this key has made this event: it can be passed on, with its proof."""
        node = self.number(key)
        self.learn_address(node, entry.event, entry.address)
        return node

    # Whose an event is

    def sign(self, node: NodeId, event: int, bandwidth_bytes_per_s: int, address: bytes) -> bytes:
        """The proof that `node`, which is this one, has made an event; empty where none is needed."""
        if self._made is None:
            return b""
        self._made.setdefault((node, event), set()).add(bandwidth_bytes_per_s)
        return bytes(PROOF_BYTES)

    def admits(self, key: bytes, entry: Entry) -> bool:
        """Whether to believe that the node with this key has made this event; False if it is nobody's
        business, `WireError` if it is a lie."""
        return True

    def entry(self, node: NodeId, event: int, bandwidth_bytes_per_s: int) -> Entry | None:
        """How to tell others of an event, if it can be proved."""
        return Entry(event, bandwidth_bytes_per_s, self.address_of(node), bytes(PROOF_BYTES))

    def is_own(self, node: NodeId, event: int) -> bool:
        """Whether `node`, which is this one, has made this event and forgotten it (its disk is gone)."""
        return self._made is None or (node, Entry(event, 0).own.event) in self._made

    def forged(self, view: View, told: Snapshot) -> NodeId | None:
        """Somebody of whom `told` has an event newer than `view` that it did not make. Where proofs are
        checked nothing of that kind gets here."""
        if self._made is None:
            return None
        known = np.zeros(len(told.events), np.uint32)
        events = view.snapshot().events[: len(known)]
        known[: len(events)] = events
        for node in np.flatnonzero(told.events > known).tolist():
            said = Entry(int(told.events[node]), int(told.bandwidths[node])).own
            if said.bandwidth_bytes_per_s not in self._made.get((node, said.event), ()):
                return int(node)
        return None

    def _order(self, round: int) -> NDArray[np.intp]:
        """All nodes in the hash order of `round`: the same sequence of keys for everyone. No two hashes are
        equal, so no sort need be stable."""
        return np.argsort(self._hashes(round))

    def candidates(self, view: View, round: int, known: Snapshot | None = None) -> Sequence[NodeId]:
        """The nodes that `view` believes online, in the order in which `round` contacts them: of those that
        `known` has online too, if there are any."""
        if len(view) < len(self.keys):
            view.grow(len(self.keys))
        candidates = view.online_in(self.order(round), known)
        if not view.doubted:
            return candidates
        return sorted(candidates, key=view.doubted.__contains__)

    def in_order(self, view: View, round: int) -> list[NodeId]:
        """All that `view` believes online, in hash order, whatever others doubt."""
        return self._in_order(round, view.online())

    def suspects(self, view: View, round: int) -> list[NodeId]:
        """Those that `view` suspects to be gone, in the same order."""
        return self._in_order(round, view.suspected())

    def _in_order(self, round: int, mask: NDArray[np.bool_]) -> list[NodeId]:
        order = self.order(round)
        order = order[order < len(mask)]  # of others the view has not heard
        chosen: list[NodeId] = order[mask[order]].tolist()
        return chosen

    def _hashes(self, round: int) -> NDArray[np.uint64]:
        """hash(session, round, key) for every node, 64 bits wide."""
        fresh = [self._seed(key) for key in self.keys[len(self._seeds) :]]
        if fresh:
            self._seeds = np.concatenate([self._seeds, np.array(fresh, np.uint64)])
        return _mix(self._seeds ^ _mix(np.full(1, round, np.uint64)))

    def _seed(self, key: bytes) -> int:
        digest = hashlib.blake2b(self.session + key, digest_size=8, person=b"plexus order").digest()
        return int.from_bytes(digest, "big")


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The splitmix64 finaliser: a bijection whose every output bit depends on every input bit."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
