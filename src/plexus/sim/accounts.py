"""Who sent how much of what: the message and byte accounts of a simulated session."""

from __future__ import annotations

from array import array

from plexus.protocol.messages import NAMES, VIEW, Message


class Accounts:
    """Counts what leaves each node, and what arrives there or is lost."""

    def __init__(self, nodes: int) -> None:
        self.messages: dict[str, list[int]] = {
            name: [0, 0] for name in (*dict.fromkeys(NAMES.values()), VIEW)
        }
        """By type: [count, bytes sent]."""
        self._entries = {kind: self.messages[name] for kind, name in NAMES.items()}
        self.sent_bytes = array("q", bytes(8 * nodes))
        self.received_bytes = array("q", bytes(8 * nodes))
        self.lost_bytes = 0
        """Sent in full, but the receiver was offline when it was sent or arrived."""
        self.cut_bytes = 0
        """Sent of transfers that were cut: one end went offline, or the sender stopped."""
        self.lost_messages = 0
        self.training_s = array("d", bytes(8 * nodes))

    def send_control(self, src: int, kind: type[Message], count: int, size_bytes: int) -> None:
        entry = self._entry(kind)
        entry[0] += count
        entry[1] += count * size_bytes
        self.sent_bytes[src] += count * size_bytes

    def begin_transfers(self, kind: type[Message], count: int, has_view: bool) -> None:
        self._entry(kind)[0] += count
        self.messages[VIEW][0] += count * has_view

    def send_transfer(self, src: int, kind: type[Message], sent: int, view_bytes: int) -> None:
        """The frame with the view goes first: of a cut transfer, the model is what is missing."""
        of_view = min(sent, view_bytes)
        self.messages[VIEW][1] += of_view
        self._entry(kind)[1] += sent - of_view
        self.sent_bytes[src] += sent

    def _entry(self, kind: type[Message]) -> list[int]:
        entry = self._entries.get(kind)
        if entry is None:  # of a protocol of the user's own
            name = "model" if "model" in kind.__struct_fields__ else kind.__name__
            entry = self._entries[kind] = self.messages.setdefault(name, [0, 0])
        return entry

    def lose(self, count: int, size_bytes: int) -> None:
        self.lost_messages += count
        self.lost_bytes += count * size_bytes

    def table(self) -> dict[str, dict[str, int]]:
        return {name: {"count": c, "bytes": b} for name, (c, b) in self.messages.items()}
