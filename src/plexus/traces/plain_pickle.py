"""Read pickles that hold plain data, and nothing else.

A pickle is a program: loading one can run anything. The published traces need none of that: their
pickles hold dictionaries, lists, strings and numbers, which are built without naming a single class
or function. So every name is refused, and with it every way to run code.
"""

from __future__ import annotations

import io
import pickle

from plexus.errors import PlexusError


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        raise PlexusError(f"this pickle asks for {module}.{name}: only plain data is read")

    def persistent_load(self, pid: object) -> object:
        raise PlexusError("this pickle refers to outside objects: only plain data is read")


def loads_plain(data: bytes) -> object:
    """The dictionaries, lists, strings and numbers in `data`."""
    try:
        return _PlainUnpickler(io.BytesIO(data)).load()
    except PlexusError:
        raise
    except Exception as error:  # a damaged pickle raises whatever its last opcode ran into
        raise PlexusError(f"this is not a readable pickle ({error})") from error
