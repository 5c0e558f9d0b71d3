"""The real codec between simulated nodes: every byte a deployment would send, and damage to them."""

from __future__ import annotations

from random import Random

import msgspec

from plexus.protocol.messages import Message
from plexus.protocol.roster import Roster
from plexus.protocol.wire import LENGTH_BYTES, WireError, decode, encode


class CodecError(Exception):
    """The codec did what it must never do. Not a mistake of whoever sent the bytes."""


class Codec:
    """Encodes and decodes with `protocol.wire`."""

    def __init__(self, roster: Roster, model_bytes: int, rng: Random) -> None:
        self._roster = roster
        self._model_bytes = model_bytes
        self._rng = rng

    def carry(self, body: Message) -> Message:
        """The message as its receiver decodes it."""
        frame = encode(body, self._roster, self._model_bytes)
        arrived, model_bytes = decode(frame[LENGTH_BYTES:], self._roster)
        if hasattr(body, "model"):
            if model_bytes != self._model_bytes:
                raise CodecError(f"a model of {model_bytes} bytes instead of {self._model_bytes}")
            arrived = msgspec.structs.replace(arrived, model=body.model)
        return arrived

    def damage(self, body: Message) -> None:
        """Cut the message short or change it, and see that the codec stays in control.

        Whoever carries messages notices damage by itself (TLS does) and drops them, so nothing is
        delivered. But should damage ever get through, the codec must name it or read another message:
        it must not fail in any other way, nor accept a message that lacks its end.
        """
        payload = encode(body, self._roster, self._model_bytes)[LENGTH_BYTES:]
        damaged, is_short = self._damaged(payload)
        known = len(self._roster)
        try:
            decode(damaged, self._copy())
        except WireError:
            pass
        except Exception as error:
            raise CodecError(f"{error!r} while decoding {damaged.hex()}") from error
        else:
            if is_short:
                raise CodecError(f"half a message was accepted: {damaged.hex()}")
        if len(self._roster) != known:
            raise CodecError("damaged bytes changed the roster")

    def _copy(self) -> Roster:
        return Roster(self._roster.session, list(self._roster.keys))

    def _damaged(self, payload: bytes) -> tuple[bytes, bool]:
        rng = self._rng
        at = rng.randrange(len(payload))
        if rng.random() < 0.5:
            return payload[:at], True
        damaged = bytearray(payload)
        for _ in range(rng.choice([1, 1, 4])):
            damaged[rng.randrange(len(payload))] ^= 1 << rng.randrange(8)
        if rng.random() < 0.2:
            damaged[at:at] = rng.randbytes(3)
        return bytes(damaged), False
