"""TLS without sockets: bytes from the network in, plaintext out, and the other way round."""

from __future__ import annotations

import ssl
from contextlib import suppress

from plexus.live.identity.admission import RefusedError, explain


class Tls:
    """One side of a connection.

    asyncio's own TLS drops a failed handshake without a word. Here both sides learn why, and what comes is
    decrypted into memory of the caller's.
    """

    def __init__(self, context: ssl.SSLContext, server_side: bool) -> None:
        self._incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, outgoing, server_side=server_side)
        self.write, self.to_send = self._object.write, outgoing.read
        """The one encrypts, the other gives what is to go to the network."""
        self._has_ended = self.ready = False
        """Ready: the handshake is over. In TLS 1.3 the client is here before the server has judged it."""

    def feed(self, data: bytes | memoryview) -> None:
        self._incoming.write(data)

    def handshake(self) -> None:
        """Take the handshake as far as the bytes allow; `RefusedError` if it failed."""
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return
        except ssl.SSLError as error:
            raise RefusedError(explain(error)) from None
        self.ready = True

    def read_into(self, space: memoryview) -> int:
        """Decrypt into `space` as much as fits and is there; 0 when more must come from the network,
        `EOFError` when the other side has said that nothing more will."""
        if not (self._incoming.pending or self._object.pending() or self._has_ended):
            return 0  # to ask TLS and be told so by an exception takes ten times as long
        filled, size = 0, len(space)
        read = self._object.read
        try:
            while filled < size:  # TLS hands out one record of 16 KB at a time
                count: int = read(size - filled, space[filled:])  # type: ignore[assignment]
                if count == 0:  # a close_notify: it is found again when asked for more
                    self._has_ended = True
                    break
                filled += count
        except ssl.SSLWantReadError:
            return filled
        except ssl.SSLError as error:
            raise RefusedError(explain(error)) from None
        if not filled:
            raise EOFError("the other side closed the connection")
        return filled

    def peer_certificate(self) -> bytes | None:
        """The other side's certificate (DER); it holds the key of it."""
        return self._object.getpeercert(binary_form=True)

    def forget(self) -> None:
        """Nothing is said or heard any more. Connection and link are a circle, which may stay in memory for
        long: what TLS has of them need not."""
        del self._object, self._incoming, self.write, self.to_send

    def close(self, last_words: bytes = b"") -> None:
        """Say goodbye; does not wait for an answer."""
        with suppress(ssl.SSLError, OSError):
            if last_words:
                self._object.write(last_words)
            self._object.unwrap()
