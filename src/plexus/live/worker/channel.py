"""How a peer and its training worker talk: over a socket, a small header and then raw bytes.

Headers are MessagePack, bodies are models in safetensors: nothing is ever unpickled.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import TypeAlias

import msgspec
from msgspec import Struct

from plexus.errors import MissingModuleError, PlexusError, TaskError

_HEAD = struct.Struct(">IQ")


class SetUp(Struct, frozen=True, tag=True):
    """To the worker, first: what to learn, and from which data."""

    spec: str
    """The session file's text."""
    data: str
    """The number of a part of the session's data, or a file."""
    folder: str = ""
    """Where a task of the user's own and relative paths in the session file are searched."""
    try_out: bool = False
    """Be ready only when a step of training and a batch of evaluation have worked."""


class Ready(Struct, frozen=True, tag=True):
    """From the worker; the initial model follows."""

    metric: str
    higher_is_better: bool
    samples: int
    """How many examples this node has."""
    shared_out: int = 0
    """How many examples all nodes have together, each counted once."""
    examples: int = 0
    """How many there are to train on."""


class TrainJob(Struct, frozen=True, tag=True):
    """To the worker; the model follows. Interrupts all earlier jobs; numbers grow."""

    job: int
    round: int


class EvaluateJob(Struct, frozen=True, tag=True):
    """To the worker; the model follows."""

    job: int


class Interrupt(Struct, frozen=True, tag=True):
    """To the worker: stop all jobs with a smaller number, within one step."""

    before: int


class Finished(Struct, frozen=True, tag=True):
    """From the worker; the trained model follows."""

    job: int
    seal: bytes


class Evaluated(Struct, frozen=True, tag=True):
    """From the worker: the metric and the loss on the test set."""

    job: int
    value: float
    loss: float


class Stopped(Struct, frozen=True, tag=True):
    """From the worker: the job was interrupted, or failed for a reason."""

    job: int
    reason: str
    kind: str = ""
    """Of error, if it is one."""

    @property
    def error(self) -> PlexusError:
        """What the worker ran into, to be raised here."""
        kinds = {kind.__name__: kind for kind in (MissingModuleError, TaskError)}
        return kinds.get(self.kind, PlexusError)(self.reason)


Header: TypeAlias = SetUp | TrainJob | EvaluateJob | Interrupt | Ready | Finished | Evaluated | Stopped

_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(Header)


def send(sock: socket.socket, header: Header, body: bytes | memoryview = b"") -> None:
    """Blocking; for the worker."""
    text = _encode(header)
    sock.sendall(_HEAD.pack(len(text), len(body)) + text)
    if len(body):
        sock.sendall(body)


def receive(sock: socket.socket) -> tuple[Header, memoryview]:
    """Blocking; EOFError when the other side is gone."""
    header_bytes, body_bytes = _HEAD.unpack(_exactly(sock, _HEAD.size))
    header = _decoder.decode(_exactly(sock, header_bytes))
    return header, _exactly(sock, body_bytes)


def _exactly(sock: socket.socket, count: int) -> memoryview:
    space = memoryview(bytearray(count))
    filled = 0
    while filled < count:
        got = sock.recv_into(space[filled:])
        if not got:
            raise EOFError("the other side is gone")
        filled += got
    return space


async def send_async(writer: asyncio.StreamWriter, header: Header, body: bytes | memoryview = b"") -> None:
    """For the peer."""
    text = _encode(header)
    writer.write(_HEAD.pack(len(text), len(body)) + text)
    step = 2**18
    for at in range(0, len(body), step):
        writer.write(body[at : at + step])
        await writer.drain()
    await writer.drain()


async def receive_async(reader: asyncio.StreamReader) -> tuple[Header, bytes]:
    """For the peer; asyncio.IncompleteReadError when the worker is gone."""
    header_bytes, body_bytes = _HEAD.unpack(await reader.readexactly(_HEAD.size))
    header = _decoder.decode(await reader.readexactly(header_bytes))
    return header, await reader.readexactly(body_bytes)


async def set_up(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, setup: SetUp
) -> tuple[Ready, bytes]:
    """For the peer: what a new worker says, and the initial model. Its complaint is raised."""
    await send_async(writer, setup)
    answer, initial = await receive_async(reader)
    if isinstance(answer, Stopped):
        raise answer.error
    assert isinstance(answer, Ready)
    return answer, initial
