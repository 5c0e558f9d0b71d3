"""For whoever wants to see every transfer, training and departure of a simulated session."""

from __future__ import annotations

from typing import Protocol

from plexus.protocol.messages import NodeId
from plexus.sim.sharing import Flow


class Watch(Protocol):
    """Told of things as they happen. It must change nothing; without one nothing is spent on it."""

    def presence(self, now: float, node: NodeId, online: bool) -> None:
        """A node came online or went offline."""

    def training_began(self, now: float, node: NodeId, round: int) -> None: ...

    def training_ended(self, now: float, node: NodeId, completed: bool) -> None:
        """The device is done, or a newer round or the end of its presence interrupted it."""

    def transfer_began(self, now: float, flow: Flow) -> None:
        """A model leaves `flow.src` for `flow.dst`; `flow.tag` is what will be received."""

    def transfer_ended(self, now: float, flow: Flow, arrival_s: float | None) -> None:
        """The last byte was sent now and arrives then; None: the transfer was cut now."""
