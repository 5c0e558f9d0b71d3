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
from typing import Any

from plexus.errors import PlexusError

MOST_BYTES = 4 * 2**30
"""What the data of one pickle may take in memory, roughly."""
MOST_ITEMS = 10_000_000
"""How many things there may be where lists or dictionaries are in several places."""

_OPCODES = {
    "short": "NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 BINFLOAT FLOAT MARK APPEND APPENDS"
    " SETITEM SETITEMS POP POP_MARK PROTO FRAME",
    "container": "EMPTY_LIST LIST EMPTY_DICT DICT",
    "text": "STRING BINSTRING SHORT_BINSTRING UNICODE SHORT_BINUNICODE BINUNICODE BINUNICODE8",
    "integer": "INT LONG LONG1",
    "put": "PUT BINPUT LONG_BINPUT MEMOIZE",
    "get": "GET BINGET LONG_BINGET",
    # Nothing after these is run: all but the first are refused then, with the name that they ask for.
    "end": "STOP GLOBAL STACK_GLOBAL INST PERSID BINPERSID",
}
"""All that plain data needs, by what the check has to do about it."""
_KINDS = {name: kind for kind, names in _OPCODES.items() for name in names.split()}


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
    is_shared, left, before = False, MOST_BYTES, ""
    argument: Any
    for opcode, argument, _ in pickletools.genops(data):
        kind = _KINDS.get(opcode.name)
        left -= 64
        if kind == "put":
            index = len(memo) if argument is None else argument
            if index > len(memo) + 1:  # some begin to count at 1
                raise PlexusError(f"this pickle numbers what it holds by {index}, out of turn")
            memo += [True] * (index + 1 - len(memo))
            memo[index] = before != "text"
        elif kind == "get":
            is_shared |= memo[argument]
        elif kind == "container":
            left -= 256
        elif kind == "text":
            left -= 4 * len(argument)  # one wide character makes all of a text wide
        elif kind == "integer" and not -(2**63) <= argument < 2**63:
            # Of larger ones, as many as one likes have the same hash.
            raise PlexusError("this pickle has a number of more than 64 bits")
        elif kind == "end":
            break
        elif kind is None:
            raise PlexusError(f"this pickle has {opcode.name} in it: only plain data is read")
        if left < 0:
            raise PlexusError(f"this pickle holds more than {MOST_BYTES / 2**30:g} GiB")
        before = kind
    return is_shared


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
