"""Messages as bytes, and how many bytes that is.

A frame is a 4-byte length and a MessagePack array: the message's tag, then its fields in the order of
their declaration. A view becomes four byte strings (keys, addresses, events, bandwidths) of the nodes
it knows, and a fifth with their proofs where events are signed; where they are not, a joined or left ends
before its proof. A model is not in the frame: its length is, and its bytes follow the frame as they are.
So the simulator can account for a message without encoding it (`frame_bytes`), and agree with `encode` to
the byte.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import msgspec
import numpy as np

from plexus.protocol.messages import ADDRESS_BYTES, KINDS, PROOF_BYTES, Joined, Left, Message, NodeId
from plexus.protocol.roster import KEY_BYTES, Entry, Roster
from plexus.protocol.view import EXPELLED, JOINED, LAST, LEFT, MAX_COUNTER, Snapshot, event_number

LENGTH_BYTES = 4
MAX_INT = 2**63 - 1
_NUMBER_BYTES = 4
_VIEW_COLUMNS = 4
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


class _Layout(NamedTuple):
    fixed_bytes: int
    integers: tuple[str, ...]
    has_view: bool
    has_model: bool
    proof_bytes: int
    """More, if it has a proof."""


def _layout(kind: type[Message]) -> _Layout:
    """The bytes that all frames of this kind have, its integers, and whether it has a view and a model.
    Also of a kind that no frame is ever made of (a protocol of the user's own, in the simulator)."""
    fields = kind.__struct_fields__
    plain = _fields(kind, is_proved=False)
    fixed = LENGTH_BYTES + 2 + _binary_bytes(ADDRESS_BYTES) * ("address" in plain)
    proof = _binary_bytes(PROOF_BYTES) + _binary_bytes(ADDRESS_BYTES) * ("address" in fields[len(plain) :])
    integers = tuple(field for field in plain if field not in ("view", "model", "address"))
    return _Layout(fixed, integers, "view" in fields, "model" in fields, proof if plain != fields else 0)


def _fields(kind: type[Message], is_proved: bool) -> tuple[str, ...]:
    fields = kind.__struct_fields__
    return fields if is_proved or "proof" not in fields else fields[: fields.index("proof")]


_LAYOUTS: dict[type[Message], _Layout] = {}
_PLAIN = frozenset(kind for kind in KINDS if not {"view", "model", "address"} & {*kind.__struct_fields__})
"""Nothing but integers, as most of what is sent."""
_ENCODER = msgspec.msgpack.Encoder()
_BINARY_BYTES = {"address": ADDRESS_BYTES, "proof": PROOF_BYTES}
_INTEGER_BYTES = [1] * 8 + [2] + [3] * 8 + [5] * 16 + [9] * 32
"""Of an integer, by the number of its bits."""


def view_bytes(view: Snapshot) -> int:
    """What a view adds to its message."""
    known = view.known
    numbers = 2 * _binary_bytes(_NUMBER_BYTES * known)
    proofs = proofs_bytes(known) if view.is_signed else 0
    return numbers + _binary_bytes(KEY_BYTES * known) + _binary_bytes(ADDRESS_BYTES * known) + proofs


def proofs_bytes(known: int) -> int:
    """What the proofs of so many events add to a view."""
    return _binary_bytes(PROOF_BYTES * known)


def frame_bytes(body: Message, model_bytes: int = 0) -> int:
    """The length of the frame that `encode` makes of `body`, computed without making it."""
    if type(body) in _PLAIN:  # to encode it is faster than to look at each of its numbers
        return LENGTH_BYTES + len(_ENCODER.encode(body))
    layout = _LAYOUTS.get(type(body))
    if layout is None:
        layout = _LAYOUTS[type(body)] = _layout(type(body))
    size, integers, has_view, has_model, proof_bytes = layout
    for field in integers:
        size += _INTEGER_BYTES[getattr(body, field).bit_length()]
    if has_view:
        size += view_bytes(body.view)  # type: ignore[attr-defined]
    if has_model:
        size += _INTEGER_BYTES[model_bytes.bit_length()]
    if proof_bytes and body.proof:  # type: ignore[attr-defined]
        size += proof_bytes
    return size


def encode(body: Message, roster: Roster, model_bytes: int = 0) -> bytes:
    """The frame of `body`; `model_bytes` is the length of the model that follows it, if one does."""
    fields: list[Any] = [_TAGS[type(body)]]
    for field in _fields(type(body), bool(getattr(body, "proof", True))):
        if field == "view":
            fields += _encode_view(body.view, roster)  # type: ignore[attr-defined]
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
    if columns:  # last, so that a bad field leaves the roster as it was
        values["view"] = _decode_view(columns, roster)
    body = kind(**values)
    if src and isinstance(body, Joined | Left):
        _decode_event(body, roster, src)
    return body, model_bytes


@cache
def _shapes(kind: type[Message]) -> dict[int, tuple[tuple[str, ...], int]]:
    """By how many fields it comes in: their names, and how many of them are columns of its view."""
    shapes = {}
    for is_proved, columns in ((False, _VIEW_COLUMNS), (True, _VIEW_COLUMNS + 1)):
        names = _fields(kind, is_proved)
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
    if type(value) is not bytes or len(value) != _BINARY_BYTES[field]:
        raise WireError(f"{field} of {kind.__name__} must be {_BINARY_BYTES[field]} bytes")
    return value


def _encode_view(view: Snapshot, roster: Roster) -> list[bytes]:
    known: list[NodeId] = np.flatnonzero(view.events).tolist()
    if view.is_signed:
        return _encode_signed(view, known, roster)
    return [
        b"".join(roster.keys[node] for node in known),
        b"".join(roster.address_of(node) for node in known),
        view.events[known].astype(">u4").tobytes(),
        view.bandwidths[known].astype(">u4").tobytes(),
    ]


def _encode_signed(view: Snapshot, known: list[NodeId], roster: Roster) -> list[bytes]:
    """The events that can be proved: not that somebody was expelled, which is the authority's word."""
    columns = view.events[known].tolist(), view.bandwidths[known].tolist()
    told = [(node, roster.entry(node, *row)) for node, *row in zip(known, *columns, strict=True)]
    proved = [(roster.keys[node], entry) for node, entry in told if entry is not None]
    return [
        b"".join(key for key, _ in proved),
        b"".join(entry.address for _, entry in proved),
        np.array([entry.event for _, entry in proved], ">u4").tobytes(),
        np.array([entry.bandwidth_bytes_per_s for _, entry in proved], ">u4").tobytes(),
        b"".join(entry.proof for _, entry in proved),
    ]


def _decode_view(columns: list[Any], roster: Roster) -> Snapshot:
    if not all(type(column) is bytes for column in columns):
        raise WireError(f"a view is {_VIEW_COLUMNS} byte strings, or {_VIEW_COLUMNS + 1}")
    keys, addresses, events, bandwidths, *proofs = columns
    known, rest = divmod(len(keys), KEY_BYTES)
    widths = (ADDRESS_BYTES, _NUMBER_BYTES, _NUMBER_BYTES, PROOF_BYTES)[: len(columns) - 1]
    if rest or [len(column) for column in columns[1:]] != [width * known for width in widths]:
        raise WireError("the columns of a view have different lengths")
    names = _rows(keys, KEY_BYTES)
    if len(set(names)) != known:
        raise WireError("a view names a node twice")
    proved = _rows(proofs[0], PROOF_BYTES) if proofs else [b""] * known
    rows = zip(_numbers(events), _numbers(bandwidths), _rows(addresses, ADDRESS_BYTES), proved, strict=True)
    # Nobody is expelled by hearsay; and who is not admitted gets no number.
    told = [
        (name, entry)
        for name, entry in zip(names, map(Entry._make, rows), strict=True)
        if 0 < entry.event <= LAST and roster.admits(name, entry)
    ]
    numbers = [roster.learn(name, entry) for name, entry in told]
    snapshot = Snapshot(np.zeros(len(roster), np.uint32), np.zeros(len(roster), np.uint32), bool(proofs))
    snapshot.events[numbers] = [entry.event for _, entry in told]
    snapshot.bandwidths[numbers] = [entry.bandwidth_bytes_per_s for _, entry in told]
    return snapshot


def _rows(column: bytes, width: int) -> list[bytes]:
    return [column[at : at + width] for at in range(0, len(column), width)]


def _numbers(column: bytes) -> list[int]:
    numbers: list[int] = np.frombuffer(column, ">u4").tolist()
    return numbers


def _binary_bytes(length: int) -> int:
    if length < 2**8:
        return 2 + length
    return (3 if length < 2**16 else 5) + length
