"""The roster of a live node: bounded, because keys come from other peers."""

from __future__ import annotations

from plexus.live.transport import addresses
from plexus.live.transport.addresses import Address
from plexus.protocol.messages import NodeId
from plexus.protocol.roster import Roster
from plexus.protocol.wire import WireError


class LiveRoster(Roster):
    """Numbers nodes as they are heard of; this node is number 0."""

    def __init__(self, session: bytes, me: bytes, max_nodes: int) -> None:
        self._max_nodes = max_nodes
        super().__init__(session, [me])

    def number(self, key: bytes) -> NodeId:
        if len(self.keys) >= self._max_nodes and key not in self._numbers:
            raise WireError(f"more than {self._max_nodes} nodes")
        return super().number(key)

    def where(self, key: bytes) -> Address | None:
        """Where to dial the node with this key."""
        return addresses.unpack(self.address_of(self.number(key)))

    def is_at(self, origin: bytes) -> bool:
        """Whether somebody can be dialled at this host (see `addresses.origin`)."""
        return any(addresses.origin_of(each) == origin for _, each in self._addresses.values())
