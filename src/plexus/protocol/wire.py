"""Messages as bytes, and how many bytes that is.

A frame is a 4-byte length and a MessagePack array: the message's tag, then its fields in the order of
their declaration. A view becomes four byte strings (keys, addresses, events, bandwidths) of the nodes
it knows. A model is not in the frame: its length is, and its bytes follow the frame as they are. So the
simulator can account for a message without encoding it (`frame_bytes`), and agree with `encode` to the
byte.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import numpy as np

from plexus.protocol.messages import ADDRESS_BYTES, KINDS, Message, NodeId
from plexus.protocol.roster import KEY_BYTES, Roster
from plexus.protocol.view import EXPELLED, LAST, MAX_COUNTER, Events, Snapshot

LENGTH_BYTES = 4
MAX_INT = 2**63 - 1
_NUMBER_BYTES = 4
_VIEW_COLUMNS = 4


class WireError(ValueError):
    """Bytes that are no message of this protocol."""


MESSAGE_TYPES: dict[object, type[Message]] = {kind.__struct_config__.tag: kind for kind in KINDS}
_TAGS = {kind: tag for tag, kind in MESSAGE_TYPES.items()}


class _Layout(NamedTuple):
    fixed_bytes: int
    integers: tuple[str, ...]
    has_view: bool
    has_model: bool


def _layout(kind: type[Message]) -> _Layout:
    """The bytes that all frames of this kind have, its integers, and whether it has a view and a model.
    Also of a kind that no frame is ever made of (a protocol of the user's own, in the simulator)."""
    fields = kind.__struct_fields__
    fixed = LENGTH_BYTES + 2 + _binary_bytes(ADDRESS_BYTES) * ("address" in fields)
    integers = tuple(field for field in fields if field not in ("view", "model", "address"))
    return _Layout(fixed, integers, "view" in fields, "model" in fields)


_LAYOUTS: dict[type[Message], _Layout] = {}
_INTEGER_BYTES = [1] * 8 + [2] + [3] * 8 + [5] * 16 + [9] * 32
"""Of an integer, by the number of its bits."""


def view_bytes(view: Snapshot) -> int:
    """What a view adds to its message."""
    known = view.known
    numbers = 2 * _binary_bytes(_NUMBER_BYTES * known)
    return numbers + _binary_bytes(KEY_BYTES * known) + _binary_bytes(ADDRESS_BYTES * known)


def frame_bytes(body: Message, model_bytes: int = 0) -> int:
    """The length of the frame that `encode` makes of `body`, computed without making it."""
    layout = _LAYOUTS.get(type(body))
    if layout is None:
        layout = _LAYOUTS[type(body)] = _layout(type(body))
    size, integers, has_view, has_model = layout
    for field in integers:
        size += _INTEGER_BYTES[getattr(body, field).bit_length()]
    if has_view:
        size += view_bytes(body.view)  # type: ignore[attr-defined]
    if has_model:
        size += _INTEGER_BYTES[model_bytes.bit_length()]
    return size


def encode(body: Message, roster: Roster, model_bytes: int = 0) -> bytes:
    """The frame of `body`; `model_bytes` is the length of the model that follows it, if one does."""
    fields: list[Any] = [_TAGS[type(body)]]
    for field in body.__struct_fields__:
        if field == "view":
            fields += _encode_view(body.view, roster)  # type: ignore[attr-defined]
        else:
            fields.append(model_bytes if field == "model" else getattr(body, field))
    payload = msgspec.msgpack.encode(fields)
    return len(payload).to_bytes(LENGTH_BYTES, "big") + payload


def decode(payload: bytes, roster: Roster) -> tuple[Message, int]:
    """The message in a frame's payload and the length of the model that follows.

    The model field is None until the model has arrived. Bytes that are no message raise `WireError`
    and leave the roster as it was.
    """
    fields = _decode_array(payload)
    tag = fields.pop(0) if fields else None
    kind = MESSAGE_TYPES.get(tag) if type(tag) is int else None
    if kind is None:
        raise WireError(f"no message has the tag {tag!r}")
    expected = len(kind.__struct_fields__) + (_VIEW_COLUMNS - 1) * ("view" in kind.__struct_fields__)
    if len(fields) != expected:
        raise WireError(f"{kind.__name__} takes {expected} fields, not {len(fields)}")
    values: dict[str, Any] = {}
    model_bytes = 0
    columns: list[Any] = []
    for field in kind.__struct_fields__:
        if field == "view":
            columns, fields = fields[:_VIEW_COLUMNS], fields[_VIEW_COLUMNS:]
            values[field] = None
        elif field == "address":
            values[field] = _checked_address(kind, fields.pop(0))
        elif field == "model":
            model_bytes = _checked_int(kind, field, fields.pop(0))
            values[field] = None
        else:
            values[field] = _checked_int(kind, field, fields.pop(0))
    if columns:  # last, so that a bad field leaves the roster as it was
        values["view"] = _decode_view(columns, roster)
    return kind(**values), model_bytes


def _decode_array(payload: bytes) -> list[Any]:
    try:
        fields = msgspec.msgpack.decode(payload)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise WireError(f"not MessagePack: {error}") from None
    if not isinstance(fields, list):
        raise WireError("a message is an array")
    return fields


def _checked_int(kind: type[Message], field: str, value: object) -> int:
    # Events and bandwidths live in 32-bit columns of the view.
    limits = {"counter": MAX_COUNTER, "event": EXPELLED, "bandwidth_bytes_per_s": 2**32 - 1, "used": 1}
    limit = limits.get(field, MAX_INT)
    if type(value) is not int or not 0 <= value <= limit:
        raise WireError(f"{field} of {kind.__name__} must be an integer from 0 to {limit}")
    return value


def _checked_address(kind: type[Message], value: object) -> bytes:
    if type(value) is not bytes or len(value) != ADDRESS_BYTES:
        raise WireError(f"address of {kind.__name__} must be {ADDRESS_BYTES} bytes")
    return value


def _encode_view(view: Snapshot, roster: Roster) -> list[bytes]:
    known: list[NodeId] = np.flatnonzero(view.events).tolist()
    return [
        b"".join(roster.keys[node] for node in known),
        b"".join(roster.address_of(node) for node in known),
        view.events[known].astype(">u4").tobytes(),
        view.bandwidths[known].astype(">u4").tobytes(),
    ]


def _decode_view(columns: list[Any], roster: Roster) -> Snapshot:
    keys, addresses, events, bandwidths = columns
    if not all(type(column) is bytes for column in columns):
        raise WireError(f"a view is {_VIEW_COLUMNS} byte strings")
    known, rest = divmod(len(keys), KEY_BYTES)
    widths = (ADDRESS_BYTES, _NUMBER_BYTES, _NUMBER_BYTES)
    if rest or [len(column) for column in columns[1:]] != [width * known for width in widths]:
        raise WireError("the columns of a view have different lengths")
    names = _rows(keys, KEY_BYTES)
    if len(set(names)) != known:
        raise WireError("a view names a node twice")
    numbers = [roster.number(name) for name in names]
    told = _scatter(events, numbers, len(roster))
    told[told > LAST] = 0  # nobody is expelled by hearsay
    snapshot = Snapshot(told, _scatter(bandwidths, numbers, len(roster)))
    for node, address in zip(numbers, _rows(addresses, ADDRESS_BYTES), strict=True):
        roster.learn_address(node, int(snapshot.events[node]), address)
    return snapshot


def _rows(column: bytes, width: int) -> list[bytes]:
    return [column[at : at + width] for at in range(0, len(column), width)]


def _scatter(column: bytes, numbers: list[NodeId], size: int) -> Events:
    values = np.zeros(size, np.uint32)
    values[numbers] = np.frombuffer(column, ">u4")
    return values


def _binary_bytes(length: int) -> int:
    if length < 2**8:
        return 2 + length
    return (3 if length < 2**16 else 5) + length
