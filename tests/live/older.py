"""A peer of an older version: `plexus` that knows no kind of message, view or frame that has come since, and
ends a link where it meets one. The oldest one says nothing of versions in its greeting."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

import plexus.live.transport.connection
import plexus.live.transport.hub
from plexus.cli import main
from plexus.live.transport import frames
from plexus.protocol import wire
from plexus.protocol.messages import EXCERPTS_SINCE, OLDEST_WIRE, SINCE, WIRE_VERSION, Ended
from plexus.protocol.parameters import ENDLESS, Course
from plexus.protocol.roster import Roster
from plexus.protocol.view import Excerpt


class OlderHello(Struct, frozen=True, array_like=True):
    """What a greeting had then. What a newer peer says beyond that is not looked at."""

    digest: bytes
    incarnation: bytes
    address: bytes
    list_number: int
    observed: bytes

    @property
    def wire(self) -> int:
        return OLDEST_WIRE


class PreviousHello(OlderHello, frozen=True, array_like=True):
    """With the version that its sender speaks: to a newer one this peer speaks its own."""

    says: int = OLDEST_WIRE

    @property
    def wire(self) -> int:
        return min(self.says, WIRE_VERSION - 1)


def _oldest(*, wire: int, **fields: Any) -> OlderHello:
    return OlderHello(**fields)


def _previous(*, wire: int, **fields: Any) -> OlderHello:
    return PreviousHello(**fields, says=WIRE_VERSION - 1)


def _unread(columns: list[bytes], roster: Roster) -> Excerpt:
    raise wire.WireError("an excerpt of a view, of which this version knows nothing")


def run(version: int) -> None:
    """Be a peer that speaks this version of the wire, the oldest or the one before the newest."""
    if version < EXCERPTS_SINCE:
        wire._decode_excerpt = _unread
    for kind, since in SINCE.items():
        if version < since:
            del wire.MESSAGE_TYPES[kind.__struct_config__.tag]
    if version < frames.RELAYS_SINCE:
        frames.KINDS = frames.KINDS.difference(frames.OF_STREAMS)
    if version < SINCE[Ended]:
        Course.live = lambda *_: ENDLESS  # type: ignore[method-assign]
    is_oldest = version == OLDEST_WIRE
    kind, hello = (OlderHello, _oldest) if is_oldest else (PreviousHello, _previous)
    plexus.live.transport.connection.Hello = kind  # type: ignore[assignment,misc,attr-defined]
    plexus.live.transport.hub.Hello = hello  # type: ignore[assignment,misc,attr-defined]
    main()


if __name__ == "__main__":
    run(OLDEST_WIRE)
