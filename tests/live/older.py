"""A peer of an older version: `plexus` that says nothing of versions in its greeting, knows no kind of
message, view or frame that has come since, and ends a link where it meets one."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

import plexus.live.transport.connection
import plexus.live.transport.hub
from plexus.cli import main
from plexus.live.transport import frames
from plexus.protocol import wire
from plexus.protocol.messages import OLDEST_WIRE, SINCE
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


def _hello(*, wire: int, **fields: Any) -> OlderHello:
    return OlderHello(**fields)


def _unread(columns: list[bytes], roster: Roster) -> Excerpt:
    raise wire.WireError("an excerpt of a view, of which this version knows nothing")


if __name__ == "__main__":
    wire._decode_excerpt = _unread
    for kind in SINCE:
        del wire.MESSAGE_TYPES[kind.__struct_config__.tag]
    frames.KINDS = frames.KINDS.difference(frames.OF_STREAMS)
    plexus.live.transport.connection.Hello = OlderHello  # type: ignore[assignment,misc,attr-defined]
    plexus.live.transport.hub.Hello = _hello  # type: ignore[assignment,misc,attr-defined]
    Course.live = lambda *_: ENDLESS  # type: ignore[method-assign]
    main()
