"""The far side of `plexus bench transport`: a process that receives, answers or aggregates.

It says its port, then what it finds, and ends with the near side.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import safetensors.numpy

from plexus.live.identity.admission import Admission
from plexus.live.identity.authority import Session
from plexus.live.models import LiveModel, ModelLayout, fits, seal
from plexus.live.operator.log import Log
from plexus.live.runtime import Callbacks, LiveRuntime
from plexus.live.state import Store
from plexus.live.transport.addresses import LiveRoster
from plexus.live.transport.connection import RECEIVE_BYTES
from plexus.live.transport.hub import Hub
from plexus.live.transport.limits import Limits
from plexus.live.transport.link import Inbox
from plexus.live.transport.receiving import Buffers, Ticket
from plexus.machine import peak_mb
from plexus.protocol.facts import AggregationCompleted
from plexus.protocol.parameters import PlexusParameters
from plexus.protocol.plexus import PlexusNode
from plexus.protocol.view import View
from plexus.rng import array_stream

LOOPBACK = "127.0.0.1"
MODELS = 13
STREAM_LIMIT = 2**20

FarSide = Callable[[Path, Session, int, Connection], Coroutine[Any, Any, None]]
"""(home, session, bytes of a model, near side)."""


class Echo:
    """Answers every message with itself, and checks the seals of models but nothing else."""

    def __init__(self, model_bytes: int) -> None:
        self.buffers = Buffers(model_bytes, Limits().memory_bytes)
        self.hub: Hub | None = None
        # One thread, as the aggregator of a peer has.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="seals")

    def message(self, src: bytes, payload: bytes) -> None:
        assert self.hub is not None
        self.hub.send(src, len(payload).to_bytes(4, "big") + payload)

    def offered(self, src: bytes, payload: bytes) -> bool:
        return True

    def model(self, src: bytes, body: Any, model: LiveModel, ticket: Ticket) -> None:
        def checked(job: asyncio.Future[bool]) -> None:
            assert job.result(), "a model does not fit its seal"
            self.buffers.give_back(ticket)

        loop = asyncio.get_running_loop()
        loop.run_in_executor(self._thread, fits, model.seal, model.data).add_done_callback(checked)

    def not_coming(self, src: bytes, body: Any) -> None: ...
    def sent(self, dst: bytes, tag: Any) -> None: ...
    def not_sent(self, dst: bytes, tag: Any, reason: str) -> None: ...
    def measured(self, size_bytes: int, seconds: float, sent: bool) -> None: ...
    def revocations(self, src: bytes, list_der: bytes) -> None: ...
    def link_down(self, key: bytes, reason: str) -> None: ...


def connect(admission: Admission, inbox: Inbox) -> Hub:
    """A hub that dials nobody by itself."""
    roster = LiveRoster(admission.session.digest, admission.key, 100)
    return Hub(admission, Limits(), roster, lambda _: 0, Log(level="warning"), inbox)


def made_up_model(size_bytes: int) -> LiveModel:
    """A safetensors file of one tensor of random numbers, of about this size."""
    # The same numbers over and over: what they are does not matter, drawing them takes time.
    some = array_stream(1, "bench", "transport").standard_normal(2**16).astype(np.float32)
    data = safetensors.numpy.save({"weights": np.resize(some, size_bytes // 4)})
    return LiveModel(memoryview(data), seal(data))


async def plain(home: Path, session: Session, size: int, near: Connection) -> None:
    """Receives `size` bytes over asyncio's plain TCP streams, into one buffer, and says so."""

    async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        space, filled = np.empty(size, np.uint8).data, 0
        while filled < size:
            piece = await reader.read(RECEIVE_BYTES)
            space[filled : filled + len(piece)] = piece
            filled += len(piece)
        writer.write(b"done")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(receive, LOOPBACK, 0, limit=STREAM_LIMIT)
    near.send(server.sockets[0].getsockname()[1])
    await gone(near)


async def echo(home: Path, session: Session, size: int, near: Connection) -> None:
    side = Echo(size)
    side.hub = connect(Admission(home, session), side)
    near.send((await side.hub.listen((LOOPBACK, 0)))[1])
    await gone(near)


async def aggregate(home: Path, session: Session, size: int, near: Connection) -> None:
    """A real node that aggregates `MODELS` models; says its peak memory in megabytes."""
    admission = Admission(home, session)
    initial = made_up_model(size)
    layout = ModelLayout(initial.data)
    roster = LiveRoster(session.digest, admission.key, 100)
    done = asyncio.Event()

    def observe(fact: object) -> None:
        if isinstance(fact, AggregationCompleted):
            assert fact.models == MODELS
            done.set()

    runtime = LiveRuntime(
        roster,
        layout,
        Buffers(layout.size_bytes, Limits().memory_bytes),
        "mean",
        Store(home, roster, on_error=lambda _: None),
        None,
        Log(level="warning"),
        partial(connect, admission),
        Callbacks(observe, *[lambda *_: None] * 3),
    )
    runtime.node = PlexusNode(
        me=0,
        parameters=PlexusParameters(success_fraction=1.0),
        roster=roster,
        view=View.of(1),
        bandwidth_bytes_per_s=1,
        initial_model=initial,
        rng=Random(1),
    )
    near.send((await runtime.hub.listen((LOOPBACK, 0)))[1])
    await done.wait()
    near.send(peak_mb())
    await gone(near)


def run(side: FarSide, *arguments: Any) -> None:
    """What the process does."""
    asyncio.run(side(*arguments))


async def gone(near: Connection) -> None:
    """Nobody needs this process any more."""
    with suppress(EOFError):
        await asyncio.to_thread(near.recv)
