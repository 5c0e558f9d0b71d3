"""Seals: how a receiver knows that a model arrived as it was sent.

TLS already protects bytes on their way. A seal covers the rest of the path, from the sender's memory to the
receiver's: chunks mixed up, memory overwritten, a disk that lies. It is a Poly1305 tag under a key drawn
for this one model, which travels with it: five times as fast as SHA-256.
"""

from __future__ import annotations

import os
import time

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.poly1305 import Poly1305

KEY_BYTES, TAG_BYTES = 32, 16
SEAL_BYTES = KEY_BYTES + TAG_BYTES
PIECE_BYTES = 256 * 1024


def seal(data: bytes | memoryview) -> bytes:
    """A seal for `data`: key, then tag."""
    key = os.urandom(KEY_BYTES)
    return key + Poly1305.generate_tag(key, data)


def fits(seal: bytes, data: bytes | memoryview) -> bool:
    """Whether `data` is what was sealed."""
    assert len(seal) == SEAL_BYTES
    check = Poly1305(seal[:KEY_BYTES])
    for at in range(0, len(data), PIECE_BYTES):
        check.update(data[at : at + PIECE_BYTES])
        time.sleep(0)  # Poly1305 holds the interpreter's lock: let the event loop have its turn
    try:
        check.verify(seal[KEY_BYTES:])
    except InvalidSignature:
        return False
    return True
