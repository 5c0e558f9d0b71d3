"""How fast this node's connection is, measured from what it really sends and receives, and how much."""

from __future__ import annotations

from collections import deque

from plexus.protocol.view import MAX_BANDWIDTH_BYTES_PER_S

MESSAGE, MODEL, PROBE = "message", "model", "probe"
KEPT = 16
MIN_BYTES = 24 * 1024
"""Less says more about latency than about bandwidth."""


class Meter:
    """The best of the last transfers each way: a slow one may be the other side's fault."""

    def __init__(self, known_bytes_per_s: int = 0) -> None:
        self._known = known_bytes_per_s
        self._up: deque[float] = deque(maxlen=KEPT)
        self._down: deque[float] = deque(maxlen=KEPT)

    def note(self, size_bytes: int, seconds: float, sent: bool) -> None:
        if size_bytes >= MIN_BYTES and seconds > 0:
            (self._up if sent else self._down).append(size_bytes / seconds)

    @property
    def is_measured(self) -> bool:
        return bool(self._up and self._down)

    @property
    def bytes_per_s(self) -> int:
        """An aggregator receives and sends, so the lesser of the two; of what is known."""
        if not self.is_measured:
            return self._known
        slower = min(max(self._up), max(self._down))
        return min(round(slower), MAX_BANDWIDTH_BYTES_PER_S)


class Traffic:
    """Bytes by what they are: messages, models with theirs, probes. What links carry beyond that is TLS,
    acknowledgements and heartbeats."""

    def __init__(self) -> None:
        self.counts = {
            f"{what}_{way}_bytes": 0
            for what in (MESSAGE, MODEL, PROBE)
            for way in ("sent", "received")
        }

    def note(self, what: str, size_bytes: int, sent: bool) -> None:
        self.counts[f"{what}_{'sent' if sent else 'received'}_bytes"] += size_bytes
