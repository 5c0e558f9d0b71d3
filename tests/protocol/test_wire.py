"""The wire format: nothing is lost on the way, sizes are known beforehand, and bad bytes are refused."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from plexus.protocol.api import Change
from plexus.protocol.messages import (
    ADDRESS_BYTES,
    EXCERPTS_SINCE,
    MODEL_KINDS,
    MOST_NAMES,
    NAME_BYTES,
    NAMES,
    NO_ADDRESS,
    PROOF_BYTES,
    Ack,
    Joined,
    LateModel,
    Left,
    Message,
    Ping,
    TrainRequest,
    ViewReply,
)
from plexus.protocol.roster import KEY_BYTES, Roster, key_of
from plexus.protocol.view import EXPELLED, JOINED, MAX_COUNTER, Excerpt, Snapshot, View, event_number
from plexus.protocol.wire import (
    LENGTH_BYTES,
    LIMITS,
    MAX_INT,
    MESSAGE_TYPES,
    UNLISTED,
    WireError,
    decode,
    encode,
    frame_bytes,
    name_of,
    view_bytes,
)

N = 20

# Numbers around every change of their encoded length.
edges = [0, 1, 127, 128, 255, 256, 2**16 - 1, 2**16, 2**31 - 1, 2**32 - 1, 2**32, MAX_INT]
numbers = st.sampled_from(edges) | st.integers(0, MAX_INT)


def numbers_to(limit: int) -> st.SearchStrategy[int]:
    return st.sampled_from([n for n in edges if n <= limit] + [limit]) | st.integers(0, limit)


counters = st.integers(0, MAX_COUNTER) | st.sampled_from([n for n in edges if n <= MAX_COUNTER])
words = st.integers(0, 2**32 - 1)
events = st.integers(0, event_number(MAX_COUNTER, JOINED))


def snapshot(entries: dict[int, tuple[int, int]], is_signed: bool = False) -> Snapshot:
    view = View.of(N, is_signed=is_signed)
    for node, (event, bandwidth) in entries.items():
        view.learn(node, event, bandwidth)
    return view.snapshot()


entries = st.dictionaries(st.integers(0, N - 1), st.tuples(events, words), max_size=N)
views = st.builds(snapshot, entries, st.booleans())
names = st.binary(min_size=NAME_BYTES, max_size=NAME_BYTES)
excerpts = st.builds(Excerpt, views, st.just(b"") | names)
STRATEGIES = {
    **{field: numbers_to(limit) for field, limit in LIMITS.items()},
    "counter": counters,
    "proof": st.just(b"") | st.binary(min_size=PROOF_BYTES, max_size=PROOF_BYTES),
    "address": st.binary(min_size=ADDRESS_BYTES, max_size=ADDRESS_BYTES),
    "view": views | excerpts,
    "asks": st.just(b"") | st.lists(names, min_size=2, max_size=MOST_NAMES).map(b"".join),
    "model": st.none(),
}


def bodies(kind: type[Message]) -> st.SearchStrategy[Message]:
    return st.builds(kind, *(STRATEGIES.get(field, numbers) for field in kind.__struct_fields__)).map(
        consistent
    )


def consistent(body: Message) -> Message:
    """Where a goodbye comes from is said along with its proof."""
    is_bare = isinstance(body, Left) and not body.proof
    return msgspec.structs.replace(body, address=NO_ADDRESS) if is_bare else body


messages = st.one_of(*map(bodies, MESSAGE_TYPES.values()))
"""Of all kinds there are, those added tomorrow included."""


def roster(size: int = N) -> Roster:
    return Roster.simulated(b"wire", size)


def known(view: Snapshot, of: Roster) -> dict[bytes, tuple[int, int]]:
    """What a view says, by key: numbers are local."""
    return {
        of.keys[node]: (int(view.events[node]), int(view.bandwidths[node]))
        for node in np.flatnonzero(view.events).tolist()
    }


def fields(body: Message, of: Roster) -> dict[str, Any]:
    values = {field: getattr(body, field) for field in body.__struct_fields__}
    if "view" in values:
        view = values["view"]
        values |= {"view": known(view, of), "is_signed": view.is_signed, "base": getattr(view, "base", None)}
    return {"type": type(body), **values}


def payload_of(body: Message, model_bytes: int = 0) -> bytes:
    return encode(body, roster(), model_bytes)[LENGTH_BYTES:]


@given(messages, numbers)
def test_what_is_encoded_is_decoded(body: Message, model_bytes: int) -> None:
    sender, receiver = roster(), roster()
    frame = encode(body, sender, model_bytes)
    decoded, following = decode(frame[LENGTH_BYTES:], receiver)
    assert fields(decoded, receiver) == fields(body, sender)
    assert following == (model_bytes if hasattr(body, "model") else 0)


@given(messages, numbers)
def test_the_frame_is_as_long_as_its_prefix_and_frame_bytes_say(body: Message, model_bytes: int) -> None:
    frame = encode(body, roster(), model_bytes)
    assert int.from_bytes(frame[:LENGTH_BYTES], "big") == len(frame) - LENGTH_BYTES
    assert frame_bytes(body, model_bytes) == len(frame)


@pytest.mark.parametrize("event", [EXPELLED, 2**32 - 1])
def test_what_no_counter_can_say_is_not_believed(event: int) -> None:
    """Otherwise any member could expel another, or bring one back that the authority expelled."""
    view = snapshot({3: (event, 7), 4: (event_number(MAX_COUNTER, JOINED), 7)})
    decoded, _ = decode(payload_of(TrainRequest(1, 1, 1, 2, view, None)), roster())
    assert known(decoded.view, roster()) == {roster().keys[4]: (event_number(MAX_COUNTER, JOINED), 7)}


@pytest.mark.parametrize("size", [0, 1, 15, 16, 63, 64, 100, 4095, 4096, 16383, 16384])
def test_the_length_of_views_of_all_sizes_is_known_beforehand(size: int) -> None:
    """Sizes around every change of the length of byte string's head."""
    view = View.of(size, [(node, 7) for node in range(size)]).snapshot()
    body = TrainRequest(1, 1, 1, 2, view, None)
    bare = TrainRequest(1, 1, 1, 2, View.of(0).snapshot(), None)
    sender = roster(size)
    assert len(encode(body, sender)) == frame_bytes(body)
    assert view_bytes(view) - view_bytes(bare.view) == frame_bytes(body) - frame_bytes(bare)


@given(messages)
def test_a_receiver_that_knows_nobody_learns_the_nodes_of_the_view(body: Message) -> None:
    """In what peers of an older version are sent, too."""
    stranger = Roster(b"wire")
    decoded, _ = decode(encode(body, roster(), version=EXCERPTS_SINCE - 1)[LENGTH_BYTES:], stranger)
    expected = fields(body, roster()) | ({"asks": b""} if hasattr(body, "asks") else {})
    assert fields(decoded, stranger) == expected | ({"base": None} if hasattr(body, "view") else {})


def test_places_on_another_list_say_nothing_and_refer_to_what_nobody_has() -> None:
    view = snapshot({3: (5, 7)})
    decoded, _ = decode(payload_of(ViewReply(Excerpt(view))), Roster(b"wire"))
    assert decoded.view.base == UNLISTED
    assert decoded.view.known == 0


@pytest.mark.parametrize("is_signed", [False, True])
def test_what_is_passed_on_is_what_came(is_signed: bool) -> None:
    """Else it would not be what others know by its name; this node may know newer events by now."""
    sender, receiver = roster(), roster()
    sender.learn_address(3, 4, b"a" * ADDRESS_BYTES)
    body = ViewReply(Excerpt(snapshot({3: (5, 7), 9: (300, 2**31)}, is_signed)))
    frame = encode(body, sender)
    decoded, _ = decode(frame[LENGTH_BYTES:], receiver)
    receiver.learn_address(3, 8, b"b" * ADDRESS_BYTES)
    assert encode(ViewReply(Excerpt(decoded.view.whole)), receiver) == frame
    assert frame_bytes(decoded) == len(frame)
    assert name_of(decoded.view.whole, receiver) == name_of(body.view.whole, sender)


def test_an_entry_of_an_excerpt_takes_a_few_bytes() -> None:
    """Ten bytes at most, in a session of which every tenth node is known."""
    view = View.of(10_000, [(node, 10**6) for node in range(0, 10_000, 10)]).snapshot()
    assert view_bytes(Excerpt(view)) <= 6 * view.known < 10 * view.known


@settings(max_examples=200)
@given(st.binary(max_size=200))
@example(b"")
@example(b"\xc0")
@example(b"\x90")
@example(b"\x91\x05")
@example(b"\x94\x05\xc3\x01\x00")
@example(b"\x94\x05\xcb" + bytes(8) + b"\x01\x00")
@example(b"\x94\x05\xd3" + b"\xff" * 8 + b"\x01\x00")
@example(b"\x92\xc3\x01")
@example(b"\x81\x81\x01\x02\x03")
@example(b"\x81\x91\x81\x01\x02\x03")
@example(b"\x94\x05\xd6\xff\xff\xff\xff\xff" + b"\x01\x00")
@example(b"\x94\x05\xc7\x0c\xff" + b"\xff" * 12 + b"\x01\x00")
@example(b"\x81\xd4\x05\x00\x01")
@example(b"\x94\x05\xa2\xff\xfe" + b"\x01\x00")
@example(b"\x91" * 100_000)
@example(b"\xdd\xff\xff\xff\xff")
def test_arbitrary_bytes_are_refused_with_a_wire_error_or_are_a_message(payload: bytes) -> None:
    refuse_or_understand(payload)


@settings(max_examples=200)
@given(messages, numbers, st.data())
def test_a_mutated_frame_is_refused_with_a_wire_error_or_is_a_message(
    body: Message, model_bytes: int, data: st.DataObject
) -> None:
    payload = bytearray(payload_of(body, model_bytes))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(payload) - 1)) if payload else 0
        kind = data.draw(st.sampled_from(["change", "cut", "drop", "insert"]))
        if kind == "change" and payload:
            payload[at] = data.draw(st.integers(0, 255))
        elif kind == "cut":
            del payload[at:]
        elif kind == "drop":
            del payload[at : at + 1]
        else:
            payload[at:at] = data.draw(st.binary(min_size=1, max_size=4))
    refuse_or_understand(bytes(payload))


# Nearly right: arrays of the right shape with something wrong in them.
scalars = st.one_of(
    st.integers(-5, 7),
    st.sampled_from([-(2**63), 2**63, 2**64 - 1, 2**32, MAX_COUNTER + 1]),
    st.booleans(),
    st.none(),
    st.floats(),
    st.text(max_size=3),
    st.sampled_from([0, 4, 8, 16, 32]).flatmap(lambda n: st.binary(min_size=n, max_size=n)),
    st.lists(st.integers(0, 9), max_size=2),
)


@settings(max_examples=200)
@given(st.integers(0, 13) | scalars, st.lists(scalars, max_size=8))
def test_arrays_of_wrong_things_are_refused_with_a_wire_error_or_are_a_message(
    tag: object, values: list[object]
) -> None:
    refuse_or_understand(msgspec.msgpack.encode([tag, *values]))


def refuse_or_understand(payload: bytes) -> None:
    """What is refused leaves no trace; what is understood can be handed on."""
    receiver = roster(3)
    before = [(key, receiver.address_of(node)) for node, key in enumerate(receiver.keys)]
    try:
        body, model_bytes = decode(payload, receiver)
    except WireError:
        after = [(key, receiver.address_of(node)) for node, key in enumerate(receiver.keys)]
        assert after == before
        return
    again, following = decode(encode(body, receiver, model_bytes)[LENGTH_BYTES:], receiver)
    assert fields(again, receiver) == fields(body, receiver)
    assert following == model_bytes


def encoded(*values: object) -> bytes:
    return msgspec.msgpack.encode(list(values))


KEYS = key_of(b"one") + key_of(b"two")
LIST = roster(2).listing
NOWHERE = 2 * NO_ADDRESS


@pytest.mark.parametrize(
    ("payload", "complaint"),
    [
        (b"\xc1", "not MessagePack"),
        (b"", "not MessagePack"),
        (encoded(5, 1, 1) + b"\x00", "not MessagePack"),
        (msgspec.msgpack.encode({"round": 1}), "a message is an array"),
        (encoded(), "no message has the tag None"),
        (encoded(99, 1), "no message has the tag 99"),
        (encoded("5", 1), "no message has the tag '5'"),
        (encoded(True, 1, 2), "no message has the tag True"),
        (encoded(5), "Ack takes 3 fields, not 0"),
        (encoded(1, 2, 3, 4), "Ping takes 2 fields, not 3"),
        (encoded(5, -1, 1, 0), "round of Ack must be an integer from 0 to 9007199254740991"),
        (encoded(5, 2**53, 1, 0), "round of Ack must be"),
        (encoded(2, 1, 1, 2**53, 5, 0), "held of Pong must be"),
        (encoded(6, 1, 2**40 + 1, 1, 2, b"", b"", b"", b"", 0), "step of TrainRequest must be"),
        (encoded(6, 1, 1, 2**40, 2, b"", b"", b"", b"", 0), "ordinal of TrainRequest must be"),
        (encoded(6, 1, 1, 1, 2**20 + 1, b"", b"", b"", b"", 0), "participants of TrainRequest must be"),
        (encoded(7, 2, 1, 1, 1, 2**40 + 1, b"", b"", b"", b"", 0), "samples of AggregateRequest must be"),
        (encoded(3, 1, 1, NO_ADDRESS, bytes(63)), "proof of Joined must be 64 bytes"),
        (encoded(4, 1, bytes(64)), "Left takes 1 or 3 fields, not 2"),
        (encoded(6, 1, 1, 1, 2, KEYS, NOWHERE, bytes(8), bytes(8), bytes(127), 0), "columns of a view"),
        (encoded(5, True, 1, 0), "round of Ack must be"),
        (encoded(5, 1.0, 1, 0), "round of Ack must be"),
        (encoded(4, 2**31), "counter of Left must be an integer from 0 to 1073741822"),
        (encoded(2, 1, 1, 1, 2**32, 0), "event of Pong must be an integer from 0 to 4294967295"),
        (encoded(3, 1, 2**32, NO_ADDRESS), "bandwidth_bytes_per_s of Joined must be"),
        (encoded(3, 1, 1, NO_ADDRESS[1:]), "address of Joined must be 18 bytes"),
        (encoded(3, 1, 1, "x" * ADDRESS_BYTES), "address of Joined must be 18 bytes"),
        (encoded(6, 1, 1, 1, 2, b"", b"", b"", b"", -1), "model of TrainRequest must be"),
        (encoded(6, 1, 1, 1, 2, "", b"", b"", b"", 0), "a view is byte strings"),
        (encoded(6, 1, 1, 1, 2, KEYS, NOWHERE, bytes(4), bytes(4), 0), "columns of a view"),
        (encoded(6, 1, 1, 1, 2, KEYS, NOWHERE, bytes(8), bytes(4), 0), "columns of a view"),
        (encoded(6, 1, 1, 1, 2, KEYS, NOWHERE[1:], bytes(8), bytes(8), 0), "columns of a view"),
        (encoded(6, 1, 1, 1, 2, KEYS[:-1], NOWHERE, bytes(8), bytes(8), 0), "columns of a view"),
        (encoded(14, b"", b"", b"", b"", b"", b""), "names of lists and views have 16 bytes"),
        (encoded(14, LIST, b"x", b"", b"", b"", b""), "names of lists and views have 16 bytes"),
        (encoded(14, LIST, b"", b"\0", b"", b"", b""), "columns of a view"),
        (encoded(14, LIST, b"", b"\0", b"\5", b"", b""), "columns of a view"),
        (encoded(14, LIST, b"", b"\0", b"\5", b"\0", bytes(17)), "columns of a view"),
        (encoded(14, LIST, b"", b"\0", b"\5", b"\0", b"", bytes(63)), "columns of a view"),
        (encoded(14, LIST, b"", b"\2", b"\5", b"\0", b""), "a node beyond the list"),
        (encoded(14, LIST, b"", b"\0\1", b"\5\5", b"\0\0", b""), "a node beyond the list"),
        (encoded(14, LIST, b"", bytes(11), b"\5", b"\0", b""), "more nodes than the list"),
        (encoded(14, LIST, b"", b"\0", b"\5", bytes(11), b""), "more nodes than the list"),
        (encoded(14, LIST, b"", b"\x80", b"\5", b"\0", b""), "has no end"),
        (encoded(14, LIST, b"", b"\x80\0", b"\5", b"\0", b""), "is too long"),
        (encoded(14, LIST, b"", b"\xff" * 5 + b"\1", b"\5", b"\0", b""), "is too long"),
        (encoded(14, LIST, b"", b"\0", b"\xff\xff\xff\xff\x10", b"\0", b""), "is too large"),
        (encoded(14, LIST, b"", 0, b"", b"", b""), "a view is byte strings"),
        (encoded(13, b""), "asks of ViewRequest must be 32 or 48"),
        (encoded(13, bytes(NAME_BYTES * (MOST_NAMES + 1))), "asks of ViewRequest must be 32 or 48"),
        (encoded(6, 1, 1, 1, 2, KEYS[:KEY_BYTES] * 2, NOWHERE, bytes(8), bytes(8), 0), "names a node twice"),
    ],
)
def test_what_is_wrong_is_said_and_the_roster_stays_as_it_was(payload: bytes, complaint: str) -> None:
    receiver = roster(2)
    with pytest.raises(WireError, match=complaint):
        decode(payload, receiver)
    assert len(receiver) == 2


def test_the_bytes_are_fixed_for_ever() -> None:
    """Peers of different releases must understand each other."""
    sender = Roster(b"wire", [key_of(b"one"), key_of(b"two")])
    view = View.of(2, [(1, 258)]).snapshot()
    assert encode(Ping(7, 300), sender) == b"\x00\x00\x00\x06\x93\x01\x07\xcd\x01\x2c"
    assert encode(TrainRequest(5, 4, 3, 2, view, None), sender, 1000) == (
        b"\x00\x00\x00\x3b\x9a\x06\x05\x04\x03\x02"
        + (b"\xc4\x10" + key_of(b"two"))
        + (b"\xc4\x12" + NO_ADDRESS)
        + b"\xc4\x04\x00\x00\x00\x05"
        + b"\xc4\x04\x00\x00\x01\x02"
        + b"\xcd\x03\xe8"
    )


def test_addresses_ride_on_views() -> None:
    sender, receiver = roster(2), Roster(b"wire")
    sender.learn_address(1, 3, b"a" * ADDRESS_BYTES)
    view = View.of(2, [(0, 5), (1, 5)]).snapshot()
    decode(encode(TrainRequest(1, 1, 1, 2, view, None), sender)[LENGTH_BYTES:], receiver)
    where = {key: receiver.address_of(receiver.number(key)) for key in sender.keys}
    assert where == {sender.keys[0]: NO_ADDRESS, sender.keys[1]: b"a" * ADDRESS_BYTES}


def test_the_address_of_the_newest_event_counts() -> None:
    book = roster(1)
    new, old = b"n" * ADDRESS_BYTES, b"o" * ADDRESS_BYTES
    book.learn_address(0, 5, new)
    book.learn_address(0, 3, old)
    book.learn_address(0, 5, old)
    book.learn_address(0, 7, NO_ADDRESS)
    assert book.address_of(0) == new


def test_an_entry_of_a_view_takes_at_most_45_bytes() -> None:
    """A view of 1000 nodes must be at most half of the paper's 88.0 KB."""
    view = View.of(1000, [(node, 7) for node in range(1000)]).snapshot()
    assert view_bytes(view) <= 45_000 - 1000
    assert frame_bytes(Joined(1, 2)) <= 195


@pytest.mark.parametrize("used", [2, 255, -1, None, True, 1.0])
def test_a_model_is_used_or_not(used: object) -> None:
    assert [decode(payload_of(Ack(7, value)), roster()) for value in (0, 1)] == [(Ack(7, 0), 0), (Ack(7), 0)]
    with pytest.raises(WireError, match="used of Ack must be an integer from 0 to 1"):
        decode(msgspec.msgpack.encode([5, 7, used, 0]), roster())


def test_a_late_model_is_a_model_whatever_its_sender_holds() -> None:
    """The simulator accounts for what the node sends; on the wire its difference follows."""
    body = LateModel(round=300, trained_in=290, ordinal=29, samples=40, model=Change("after", "before"))
    frame = encode(body, roster(), 70_000)
    assert frame_bytes(body, 70_000) == len(frame)
    assert decode(frame[LENGTH_BYTES:], roster()) == (msgspec.structs.replace(body, model=None), 70_000)
    assert LateModel in MODEL_KINDS
    assert NAMES[LateModel] == "model"
