"""A peer of the version before this one, which relays and is relayed to."""

from __future__ import annotations

from plexus.protocol.messages import WIRE_VERSION
from tests.live.older import run

if __name__ == "__main__":
    run(WIRE_VERSION - 1)
