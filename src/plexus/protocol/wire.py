"""Messages as bytes, and how many bytes that is.

A frame is a 4-byte length and a MessagePack array: the message's tag, then its fields in the order of
their declaration. A view becomes four byte strings (keys, addresses, events, bandwidths) of the nodes
it knows, and a fifth with their proofs where events are signed; where they are not, a joined or left ends
before its proof. An excerpt of one becomes six: the names of a list of nodes and of the view that it refers
to, the steps from place to place on that list, events, bandwidths, and addresses, if there are any; and a
seventh with proofs. A model is not in the frame: its length is, and its bytes follow the frame as they are.
So the simulator can account for a message without encoding it, to the byte (`frame_bytes`).
"""

from __future__ import annotations

import hashlib
from functools import cache
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from plexus.protocol.messages import (
    ADDRESS_BYTES,
    EXCERPTS_SINCE,
    KINDS,
    MOST_NAMES,
    NAME_BYTES,
    NO_ADDRESS,
    PROOF_BYTES,
    WIRE_VERSION,
    Joined,
    Left,
    Message,
    NodeId,
)
from plexus.protocol.packing import pack, unpack
from plexus.protocol.roster import KEY_BYTES, Entry, Roster
from plexus.protocol.view import EXPELLED, JOINED, LAST, LEFT, MAX_COUNTER, Excerpt, Snapshot, event_number

LENGTH_BYTES, _NUMBER_BYTES = 4, 4
MAX_INT = 2**63 - 1
_VIEW_COLUMNS, _EXCERPT_COLUMNS = 4, 6
UNEVEN = "the columns of a view have different lengths"
UNLISTED = b"\xff" * NAME_BYTES
"""Nobody's name: of what a view says by a list that the receiver does not have."""
_ROUND, _MANY = 2**53 - 1, 2**40
LIMITS = {
    **dict.fromkeys(("round", "held", "trained_in", "late"), _ROUND),
    **dict.fromkeys(("step", "samples"), _MANY),
    **dict.fromkeys(("ordinal", "age"), _MANY - 1),
    "participants": 2**20,
    # Events and bandwidths live in 32-bit columns of the view.
    "counter": MAX_COUNTER,
    "event": EXPELLED,
    "bandwidth_bytes_per_s": 2**32 - 1,
    "used": 1,
    "score": 2**32 - 1,
}
"""The largest value of each integer; of others it is `MAX_INT`. No session gets near them, and whatever a
node adds to what it was told still fits where it keeps it."""


class WireError(ValueError):
    """Bytes that are no message of this protocol."""


FIRST_OWN_TAG = 64
MESSAGE_TYPES: dict[object, type[Message]] = {kind.__struct_config__.tag: kind for kind in KINDS}
_TAGS = {kind: tag for tag, kind in MESSAGE_TYPES.items()}


def own_kinds() -> list[type[Message]]:
    """The messages of a user's own protocol, which is loaded by now: behind all others, in the order of their
    names."""
    own = sorted(
        set(Message.__subclasses__()) - set(KINDS), key=lambda kind: (kind.__name__, kind.__module__)
    )
    for tag, kind in enumerate(own, FIRST_OWN_TAG):
        MESSAGE_TYPES[tag], _TAGS[kind] = kind, tag
    return own


def _layout(kind: type[Message]) -> tuple[int, tuple[str, ...], bool, bool, str, int]:
    """The bytes that all frames of this kind have, its integers, whether it has a view and a model; what else
    it may have, and the bytes that come with that. Also of a kind that no frame is ever made of (a protocol
    of the user's own, in the simulator)."""
    fields = kind.__struct_fields__
    plain = _fields(kind, is_full=False)
    fixed = LENGTH_BYTES + 2 + _binary_bytes(ADDRESS_BYTES) * ("address" in plain)
    more = _binary_bytes(ADDRESS_BYTES) * ("address" in fields[len(plain) :])
    integers = tuple(field for field in plain if field not in ("view", "model", "address"))
    optional = fields[len(plain)] if plain != fields else ""
    return fixed, integers, "view" in fields, "model" in fields, optional, more


def _fields(kind: type[Message], is_full: bool) -> tuple[str, ...]:
    fields = kind.__struct_fields__
    at = [fields.index(name) for name in _OPTIONAL if name in fields]
    return fields if is_full or not at else fields[: at[0]]


_LAYOUTS: dict[type[Message], tuple[int, tuple[str, ...], bool, bool, str, int]] = {}
_PLAIN = frozenset(
    kind for kind in KINDS if not {"view", "model", "address", "asks"} & {*kind.__struct_fields__}
)
"""Nothing but integers, as most of what is sent."""
_ENCODER = msgspec.msgpack.Encoder()
_SEVENS = np.array([2**7, 2**14, 2**21, 2**28])  # from each of these on a number has a byte more
_PACKED_BYTES = [1, *(1 + bits // 7 for bits in range(35))]
"""Of a number in a view, by the number of its bits."""
_FEW = 16
"""So many numbers are looked at faster one by one."""
_OPTIONAL = ("proof", "asks")
"""With these a frame goes on, if they are not empty; the last is younger than others."""
_BINARY_BYTES: dict[str, tuple[int, ...]] = {
    "address": (ADDRESS_BYTES,),
    "proof": (PROOF_BYTES,),
    "asks": tuple(NAME_BYTES * names for names in range(2, MOST_NAMES + 1)),
}
_INTEGER_BYTES = [1] * 8 + [2] + [3] * 8 + [5] * 16 + [9] * 32
"""Of an integer, by the number of its bits."""


def view_bytes(view: Snapshot) -> int:
    """What a view adds to its message. Simulated nodes are on one list, and have no addresses."""
    if isinstance(view, Excerpt):
        view.size_bytes = view.size_bytes or _excerpt_bytes(view)
        return view.size_bytes
    known = view.known
    widths = (KEY_BYTES, ADDRESS_BYTES, _NUMBER_BYTES, _NUMBER_BYTES, PROOF_BYTES)
    return sum(_binary_bytes(width * known) for width in widths[: 4 + view.is_signed])


def _excerpt_bytes(view: Excerpt) -> int:
    nodes, whole, columns = view.told, view.whole, [0, 0, 0]
    if len(nodes) > _FEW:
        numbers = np.array((nodes, whole.events_at(nodes), whole.bandwidths_at(nodes)), np.int64)
        numbers[0, 1:] -= nodes[:-1] + 1
        columns = (len(nodes) + _SEVENS.searchsorted(numbers, "right").sum(axis=1)).tolist()
    elif len(nodes):
        places = nodes.tolist()
        steps = [place - before - 1 for before, place in pairwise([-1, *places])]
        told = (steps, whole.events_at(nodes).tolist(), whole.bandwidths_at(nodes).tolist())
        columns = [sum([_PACKED_BYTES[number.bit_length()] for number in column]) for column in told]
    named = 2 + NAME_BYTES + 2 + len(view.base)
    proofs = _binary_bytes(PROOF_BYTES * len(nodes)) if view.is_signed else 0
    return named + sum([_binary_bytes(length) for length in columns]) + _binary_bytes(0) + proofs


def frame_bytes(body: Message, model_bytes: int = 0) -> int:
    """The length of the frame that `encode` makes of `body`, computed without making it."""
    if type(body) in _PLAIN:  # to encode it is faster than to look at each of its numbers
        return LENGTH_BYTES + len(_ENCODER.encode(body))
    layout = _LAYOUTS.get(type(body))
    if layout is None:
        layout = _LAYOUTS[type(body)] = _layout(type(body))
    size, integers, has_view, has_model, optional, more_bytes = layout
    for field in integers:
        size += _INTEGER_BYTES[getattr(body, field).bit_length()]
    if has_view:
        size += view_bytes(body.view)  # type: ignore[attr-defined]
    if has_model:
        size += _INTEGER_BYTES[model_bytes.bit_length()]
    if optional and (given := getattr(body, optional)):
        size += _binary_bytes(len(given)) + more_bytes
    return size


def encode(body: Message, roster: Roster, model_bytes: int = 0, version: int = WIRE_VERSION) -> bytes:
    """The frame of `body` for somebody who speaks this version; `model_bytes` is the length of the model that
    follows it, if one does."""
    fields: list[Any] = [_TAGS[type(body)]]
    optional = _OPTIONAL if version >= EXCERPTS_SINCE else _OPTIONAL[:1]
    for field in _fields(type(body), any(getattr(body, name, b"") for name in optional)):
        if field == "view":
            fields += _encode_view(body.view, roster, version)  # type: ignore[attr-defined]
        else:
            fields.append(model_bytes if field == "model" else getattr(body, field))
    payload = msgspec.msgpack.encode(fields)
    return len(payload).to_bytes(LENGTH_BYTES, "big") + payload


def decode(payload: bytes, roster: Roster, src: bytes = b"") -> tuple[Message, int]:
    """The message in a frame's payload and the length of the model that follows; `src` is the key of its
    sender.

    The model field is None until the model has arrived. Bytes that are no message raise `WireError`
    and leave the roster as it was.
    """
    fields = _decode_array(payload)
    tag = fields.pop(0) if fields else None
    kind = MESSAGE_TYPES.get(tag) if type(tag) is int else None
    if kind is None:
        raise WireError(f"no message has the tag {tag!r}")
    shapes = _shapes(kind)
    if len(fields) not in shapes:
        counts = " or ".join(map(str, sorted(shapes)))
        raise WireError(f"{kind.__name__} takes {counts} fields, not {len(fields)}")
    names, view_columns = shapes[len(fields)]
    values: dict[str, Any] = {}
    model_bytes = 0
    columns: list[Any] = []
    for field in names:
        if field == "view":
            columns, fields = fields[:view_columns], fields[view_columns:]
            values[field] = None
        elif field in _BINARY_BYTES:
            values[field] = _checked_binary(kind, field, fields.pop(0))
        elif field == "model":
            model_bytes = _checked_int(kind, field, fields.pop(0))
            values[field] = None
        else:
            values[field] = _checked_int(kind, field, fields.pop(0))
    if not all(type(column) is bytes for column in columns):
        raise WireError("a view is byte strings")
    if columns:  # last, so that a bad field leaves the roster as it was
        values["view"] = (_decode_excerpt if len(columns) > 5 else _decode_view)(columns, roster)
    body = kind(**values)
    if src and isinstance(body, Joined | Left):
        _decode_event(body, roster, src)
    return body, model_bytes


@cache
def _shapes(kind: type[Message]) -> dict[int, tuple[tuple[str, ...], int]]:
    """By how many fields it comes in: their names, and how many of them are columns of its view."""
    shapes = {}
    for columns in (_VIEW_COLUMNS, _VIEW_COLUMNS + 1, _EXCERPT_COLUMNS, _EXCERPT_COLUMNS + 1):
        names = _fields(kind, is_full=columns > _VIEW_COLUMNS)
        shapes[len(names) + (columns - 1) * ("view" in names)] = names, columns
    return shapes


def _decode_event(body: Joined | Left, roster: Roster, src: bytes) -> None:
    """Who says that it comes or goes has to prove it: others will be told so."""
    joined = isinstance(body, Joined)
    bandwidth = body.bandwidth_bytes_per_s if isinstance(body, Joined) else 0
    event = event_number(body.counter, JOINED if joined else LEFT)
    entry = Entry(event, bandwidth, body.address, body.proof)
    if not roster.admits(src, entry):
        raise WireError("the sender is not admitted any more")
    roster.learn(src, entry)


def _decode_array(payload: bytes) -> list[Any]:
    try:
        fields = msgspec.msgpack.decode(payload)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise WireError(f"not MessagePack: {error}") from None
    if not isinstance(fields, list):
        raise WireError("a message is an array")
    return fields


def _checked_int(kind: type[Message], field: str, value: object) -> int:
    limit = LIMITS.get(field, MAX_INT)
    if type(value) is not int or not 0 <= value <= limit:
        raise WireError(f"{field} of {kind.__name__} must be an integer from 0 to {limit}")
    return value


def _checked_binary(kind: type[Message], field: str, value: object) -> bytes:
    if type(value) is not bytes or len(value) not in _BINARY_BYTES[field]:
        lengths = " or ".join(map(str, _BINARY_BYTES[field]))
        raise WireError(f"{field} of {kind.__name__} must be {lengths} bytes")
    return value


def _encode_view(view: Any, roster: Roster, version: int) -> list[bytes]:
    is_excerpt = isinstance(view, Excerpt) and version >= EXCERPTS_SINCE
    if is_excerpt and view.whole.columns[:1] == [roster.listing] and not view.base:
        return list(view.whole.columns)
    if is_excerpt and (places := roster.places(view.told)) is not None:
        return _encode_excerpt(view, dict(zip(view.told.tolist(), places.tolist(), strict=True)), roster)
    told = _told(view, np.flatnonzero(view.events), roster)
    return [
        b"".join(roster.keys[node] for node, _ in told),
        b"".join(entry.address for _, entry in told),
        np.array([entry.event for _, entry in told], ">u4").tobytes(),
        np.array([entry.bandwidth_bytes_per_s for _, entry in told], ">u4").tobytes(),
        *([b"".join(entry.proof for _, entry in told)] if view.is_signed else []),
    ]


def _told(view: Snapshot, nodes: NDArray[np.intp], roster: Roster) -> list[tuple[NodeId, Entry]]:
    """What to say of these nodes. Signed, it is what can be proved: not that somebody was expelled, which is
    the authority's word."""
    rows = zip(nodes.tolist(), view.events[nodes].tolist(), view.bandwidths[nodes].tolist(), strict=True)
    if not view.is_signed:
        return [(node, Entry(event, speed, roster.address_of(node))) for node, event, speed in rows]
    told = [(node, roster.entry(node, *row)) for node, *row in rows]
    return [(node, entry) for node, entry in told if entry is not None]


def _encode_excerpt(view: Excerpt, places: dict[NodeId, int], roster: Roster) -> list[bytes]:
    told = sorted((places[node], entry) for node, entry in _told(view, view.told, roster))
    addresses = b"".join(entry.address for _, entry in told)
    return [
        roster.listing,
        view.base,
        pack(np.diff(np.array([place for place, _ in told], np.int64), prepend=-1) - 1),
        pack(np.array([entry.event for _, entry in told])),
        pack(np.array([entry.bandwidth_bytes_per_s for _, entry in told])),
        addresses if any(addresses) else b"",
        *([b"".join(entry.proof for _, entry in told)] if view.is_signed else []),
    ]


def _decode_excerpt(columns: list[bytes], roster: Roster) -> Excerpt:
    listing, base, steps, events, bandwidths, addresses, *proofs = columns
    if len(listing) != NAME_BYTES or len(base) not in (0, NAME_BYTES):
        raise WireError(f"names of lists and views have {NAME_BYTES} bytes")
    if listing != roster.listing:
        return Excerpt(Snapshot(np.zeros(0, np.uint32), np.zeros(0, np.uint32), bool(proofs)), UNLISTED)
    most = len(roster.on_list)
    if max(map(len, (steps, events, bandwidths))) > 5 * most:  # before much is made of it
        raise WireError("a view names more nodes than the list")
    places = (np.cumsum(_unpacked(steps) + 1) - 1).tolist()
    if places and places[-1] >= most:
        raise WireError("a view names a node beyond the list")
    names = [roster.on_list[place] for place in places]
    numbers = [_unpacked(column).tolist() for column in (events, bandwidths)]
    excerpt = Excerpt(_learnt(names, numbers, addresses or NO_ADDRESS * len(names), proofs, roster), base)
    excerpt.size_bytes = sum(_binary_bytes(len(column)) for column in columns)
    if not base:
        excerpt.whole.columns = columns
    return excerpt


def name_of(view: Snapshot, roster: Roster) -> bytes:
    """What others call this view: the hash of what it says of the nodes on the list."""
    if not view.name:
        nodes = np.flatnonzero(view.events)
        places = roster.places(nodes)
        if places is None:
            return UNLISTED
        order = np.argsort(places)
        columns = (places[order], view.events[nodes[order]], view.bandwidths[nodes[order]])
        said = roster.listing + np.array(columns, ">u4").tobytes()
        view.name = hashlib.blake2b(said, digest_size=NAME_BYTES).digest()
    return view.name


def _decode_view(columns: list[bytes], roster: Roster) -> Snapshot:
    keys, addresses, events, bandwidths, *proofs = columns
    if len(keys) % KEY_BYTES or len(events) % _NUMBER_BYTES or len(bandwidths) % _NUMBER_BYTES:
        raise WireError(UNEVEN)
    numbers = [np.frombuffer(column, ">u4").tolist() for column in (events, bandwidths)]
    return _learnt(_rows(keys, KEY_BYTES), numbers, addresses, proofs, roster)


def _learnt(
    names: list[bytes], numbers: list[list[int]], addresses: bytes, proofs: list[bytes], roster: Roster
) -> Snapshot:
    known = len(names)
    lengths = [*map(len, numbers), len(addresses), *map(len, proofs)]
    if lengths != [known, known, ADDRESS_BYTES * known, *[PROOF_BYTES * known] * len(proofs)]:
        raise WireError(UNEVEN)
    if len(set(names)) != known:
        raise WireError("a view names a node twice")
    proved = _rows(proofs[0], PROOF_BYTES) if proofs else [b""] * known
    entries = map(Entry._make, zip(*numbers, _rows(addresses, ADDRESS_BYTES), proved, strict=True))
    # Nobody is expelled by hearsay; and who is not admitted gets no number.
    told = [
        (name, entry)
        for name, entry in zip(names, entries, strict=True)
        if 0 < entry.event <= LAST and roster.admits(name, entry)
    ]
    places = [roster.learn(name, entry) for name, entry in told]
    snapshot = Snapshot(np.zeros(len(roster), np.uint32), np.zeros(len(roster), np.uint32), bool(proofs))
    snapshot.events[places] = [entry.event for _, entry in told]
    snapshot.bandwidths[places] = [entry.bandwidth_bytes_per_s for _, entry in told]
    return snapshot


def _rows(column: bytes, width: int) -> list[bytes]:
    return [column[at : at + width] for at in range(0, len(column), width)]


def _unpacked(column: bytes) -> NDArray[np.int64]:
    try:
        return unpack(column)
    except ValueError as error:
        raise WireError(f"a number of a view {error}") from None


def _binary_bytes(length: int) -> int:
    if length < 2**8:
        return 2 + length
    return (3 if length < 2**16 else 5) + length
