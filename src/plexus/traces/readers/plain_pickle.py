"""Read pickles that hold plain data, and nothing else.

A pickle is a program: loading one can run anything. The published traces need none of that: their
pickles hold dictionaries, lists, strings and numbers, which are built without naming a single class
or function. So every name is refused, and with it every way to run code.

A short program can also ask for much memory, or for work without end. So it is read before it is run: every
opcode must be one that plain data needs, and what they make together is bounded. Where a list or dictionary
is in several places, what came out is counted: a few of those within each other look like billions.
"""

from __future__ import annotations

import io
import pickle
import pickletools

from plexus.errors import PlexusError

MOST_BYTES = 4 * 2**30
"""What the data of one pickle may take in memory, roughly."""
MOST_ITEMS = 10_000_000
"""How many things there may be where lists or dictionaries are in several places."""

_CONTAINERS = ("EMPTY_LIST", "LIST", "EMPTY_DICT", "DICT")
_NUMBERS = {"INT": 22, "LONG": 22, "LONG1": 8, "FLOAT": 32}
"""And how long they may be. Of larger ones, as many as one likes have the same hash."""
_PUTS, _GETS = ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"), ("GET", "BINGET", "LONG_BINGET")
_ENDS = ("STOP", "GLOBAL", "STACK_GLOBAL", "INST", "PERSID", "BINPERSID")
"""Nothing after these is run: all but the first are refused then, with the name that they ask for."""
_SHORT = ("NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "BINFLOAT", "MARK")
_TEXTS = ("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "SHORT_BINUNICODE", "BINUNICODE")
_VERBS = ("APPEND", "APPENDS", "SETITEM", "SETITEMS", "POP", "POP_MARK", "PROTO", "FRAME")
_PLAIN = {*_CONTAINERS, *_NUMBERS, *_PUTS, *_GETS, *_ENDS, *_SHORT, *_TEXTS, "BINUNICODE8", *_VERBS}
_LENGTH_BYTES = {
    pickletools.TAKEN_FROM_ARGUMENT1: 1,
    pickletools.TAKEN_FROM_ARGUMENT4: 4,
    pickletools.TAKEN_FROM_ARGUMENT4U: 4,
    pickletools.TAKEN_FROM_ARGUMENT8U: 8,
}


class _Opcode:
    """What the check needs to know of an opcode."""

    def __init__(self, info: pickletools.OpcodeInfo) -> None:
        self.name = info.name
        self.is_plain = info.name in _PLAIN
        self.argument = 0 if info.arg is None else info.arg.n
        """Its length; below 0 if it has to be looked up."""
        self.is_line = self.argument == pickletools.UP_TO_NEWLINE
        self.most = _NUMBERS.get(info.name)
        """How long its argument may be."""
        self.is_text = info.name in _TEXTS
        self.ends = info.name in _ENDS
        self.puts, self.gets = info.name in _PUTS, info.name in _GETS
        self.made_bytes = 320 if info.name in _CONTAINERS else 64


_OPCODES = {ord(each.code): _Opcode(each) for each in pickletools.opcodes}


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        raise PlexusError(f"this pickle asks for {module}.{name}: only plain data is read")

    def persistent_load(self, pid: object) -> object:
        raise PlexusError("this pickle refers to outside objects: only plain data is read")


def loads_plain(data: bytes) -> object:
    """The dictionaries, lists, strings and numbers in `data`."""
    try:
        is_shared = _check(data)
        loaded: object = _PlainUnpickler(io.BytesIO(data)).load()
    except PlexusError:
        raise
    except Exception as error:  # a damaged pickle raises whatever its last opcode ran into
        raise PlexusError(f"this is not a readable pickle ({error})") from error
    if is_shared:
        _count(loaded)
    return loaded


def _check(data: bytes) -> bool:
    """Raise unless it makes plain data of bounded size; says whether a list or dictionary is shared."""
    memo: list[bool] = []
    """Of all that may be referred to again, whether it may be a list or dictionary."""
    is_shared, left, at, before = False, MOST_BYTES, 0, _OPCODES[pickle.STOP[0]]
    while True:
        opcode = _OPCODES[data[at]]
        if not opcode.is_plain:
            raise PlexusError(f"this pickle has {opcode.name} in it: only plain data is read")
        at, size = at + 1, opcode.argument
        if size < 0:
            at, size = _variable(data, at, opcode)
            left -= 4 * size  # one wide character makes all of a text wide
        left -= opcode.made_bytes
        if left < 0:
            raise PlexusError(f"this pickle holds more than {MOST_BYTES / 2**30:g} GiB")
        if opcode.gets:
            is_shared |= memo[_index(opcode, data[at : at + size])]
        elif opcode.puts:
            index = _index(opcode, data[at : at + size]) if size else len(memo)
            _note(memo, index, not before.is_text)
        elif opcode.ends:
            return is_shared
        at += size
        before = opcode


def _variable(data: bytes, at: int, opcode: _Opcode) -> tuple[int, int]:
    """Where an argument begins, and its length."""
    begin = at if opcode.is_line else at + _LENGTH_BYTES[opcode.argument]
    size = data.index(b"\n", at) + 1 - at if opcode.is_line else int.from_bytes(data[at:begin], "little")
    if opcode.most is not None and size > opcode.most:
        raise PlexusError("this pickle has a number of more than 64 bits")
    if begin + size > len(data):
        raise EOFError("it ends within a text")
    return begin, size


def _index(opcode: _Opcode, argument: bytes) -> int:
    return int(argument) if opcode.is_line else int.from_bytes(argument, "little")


def _note(memo: list[bool], index: int, may_hold: bool) -> None:
    if index > len(memo) + 1:  # some begin to count at 1
        raise PlexusError(f"this pickle numbers what it holds by {index}, out of turn")
    memo += [True] * (index + 1 - len(memo))
    memo[index] = may_hold


def _count(loaded: object) -> None:
    """Raise if there is too much to look at, as in a list that holds itself."""
    found, waiting = 0, [loaded]
    while waiting:
        each = waiting.pop()
        inside = each if isinstance(each, list) else each.values() if isinstance(each, dict) else ()
        found += len(inside)
        if found > MOST_ITEMS:
            raise PlexusError("this pickle has lists within lists without end")
        waiting.extend(inside)
