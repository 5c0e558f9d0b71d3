"""`plexus bench transport`: what the live peers' network can do, over loopback, in two processes.

The near side sends and measures. The far side is a process that receives, answers or aggregates: it says its
port, then what it finds, and ends with the near side.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from functools import partial
from itertools import count
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import safetensors.numpy
from msgspec import Struct

from plexus.learn.rules import MeanRule
from plexus.live.identity.admission import CERTIFICATE_FILE, KEY_FILE, Admission
from plexus.live.identity.authority import Authority
from plexus.live.identity.keys import create_key
from plexus.live.identity.session_file import Session, found_session
from plexus.live.models import LiveModel, ModelLayout, fits, seal
from plexus.live.operator.log import Log
from plexus.live.runtime import Callbacks, LiveRuntime
from plexus.live.state import Store
from plexus.live.transport.hub import Hub
from plexus.live.transport.limits import Limits, LiveRoster
from plexus.live.transport.link import Inbox
from plexus.live.transport.receiving import Buffers, Ticket
from plexus.machine import peak_mb
from plexus.protocol import wire
from plexus.protocol.facts import AggregationCompleted
from plexus.protocol.messages import AggregateRequest, Ping
from plexus.protocol.parameters import PlexusParameters
from plexus.protocol.plexus import PlexusNode
from plexus.protocol.view import View
from plexus.rng import array_stream

MEGABYTE = 1_000_000
REPEATS = 20
PINGS = 1000
LOAD_LINKS, LOAD_S, LOAD_MODEL_BYTES = 8, 6.0, 16 * MEGABYTE
CHUNK_BYTES = 256 * 1024
LOOPBACK = "127.0.0.1"
MODELS = 13
STREAM_LIMIT = 2**20

FarSide = Callable[[Path, Session, int, Connection], Coroutine[Any, Any, None]]
"""(home, session, bytes of a model, near side)."""


class TransportBench(Struct, frozen=True):
    throughput_ratio_to_plain_tcp: float
    """A model with TLS, admission, frames and seal, to the same bytes over asyncio's plain TCP streams; best
    of several each, taken in turn."""
    throughput_mb_per_s: float
    plain_tcp_mb_per_s: float
    ping_p50_us: float
    """Ping to pong on an idle link."""
    ping_p99_under_load_ms: float
    """On links that are each saturated by a transfer."""
    aggregator_peak_mb: float
    """Resident memory of a process that aggregates 13 models."""
    model_mb: float


def bench(megabytes: int) -> TransportBench:
    with tempfile.TemporaryDirectory() as directory:
        return asyncio.run(_bench(Path(directory), megabytes * MEGABYTE))


async def _bench(directory: Path, size: int) -> TransportBench:
    homes = Homes(directory)
    model = made_up_model(size)
    plain_s, ours_s, ping_s = await _throughput(homes, model)
    loaded_s = await _under_load(homes)
    peak_mb = await _aggregator_peak_mb(homes, model, size)
    size = len(model.data)
    return TransportBench(
        throughput_ratio_to_plain_tcp=plain_s / ours_s,
        throughput_mb_per_s=size / MEGABYTE / ours_s,
        plain_tcp_mb_per_s=size / MEGABYTE / plain_s,
        ping_p50_us=1e6 * statistics.median(ping_s),
        ping_p99_under_load_ms=1e3 * statistics.quantiles(loaded_s, n=100)[-1],
        aggregator_peak_mb=peak_mb,
        model_mb=size / MEGABYTE,
    )


class Homes:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        spec = {"name": "bench", "seed": 1, "nodes": 20, "aggregation": "mean", "protocol": {}, "task": {}}
        self.session: Session = found_session(directory / "session", spec)
        self.authority = Authority.load(directory / "session")
        self._numbers = count(1)

    def new(self) -> Path:
        home = self._directory / str(next(self._numbers))
        home.mkdir()
        public = create_key(home / KEY_FILE).public_key().public_bytes_raw()
        text = self.authority.invite(public, self.session.digest, timedelta(days=1))
        (home / CERTIFICATE_FILE).write_text(text)
        return home

    @asynccontextmanager
    async def far_side(self, side: FarSide, size: int) -> AsyncIterator[tuple[int, Connection]]:
        """The port of a process that is this, and how it says more."""
        context = get_context("spawn")
        here, there = context.Pipe()
        process = context.Process(target=run, args=(side, self.new(), self.session, size, there), daemon=True)
        process.start()
        there.close()
        try:
            yield await asyncio.to_thread(here.recv), here
        finally:
            process.kill()
            process.join()

    @asynccontextmanager
    async def near_sides(self, port: int, count: int) -> AsyncIterator[list[Near]]:
        """Nodes in this process with a link each to the process at that port."""
        sides = [Near(Admission(self.new(), self.session)) for _ in range(count)]
        for near in sides:
            reason = await near.hub.dialler.introduce((LOOPBACK, port))
            assert reason is None, reason
            (near.far_key,) = near.hub.links
        yield sides
        for near in sides:
            await near.hub.close("done")


class Echo:
    """Answers every message with itself, and checks the seals of models but nothing else."""

    hub: Hub

    def __init__(self, model_bytes: int) -> None:
        self.buffers = Buffers(model_bytes, Limits().memory_bytes)
        # One thread, as the aggregator of a peer has.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="seals")

    def message(self, src: bytes, payload: bytes) -> None:
        self.hub.send(src, len(payload).to_bytes(4, "big") + payload)

    def offered(self, src: bytes, payload: bytes) -> bool:
        return True

    def model(self, src: bytes, body: Any, model: LiveModel, ticket: Ticket) -> None:
        def checked(job: asyncio.Future[bool]) -> None:
            assert job.result(), "a model does not fit its seal"
            self.buffers.give_back(ticket)

        loop = asyncio.get_running_loop()
        loop.run_in_executor(self._thread, fits, model.seal, model.data).add_done_callback(checked)

    def ignored(self, *_: Any, **__: Any) -> None: ...

    not_coming = overdue = outcome = link_down = measured = list_offered = ignored


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


class Near(Echo):
    def __init__(self, admission: Admission) -> None:
        super().__init__(model_bytes=1)
        self.hub = connect(admission, self)
        self.far_key = b""
        self.roster = LiveRoster(admission.session.digest, admission.key, 100)
        self._answers: asyncio.Queue[bytes] = asyncio.Queue()
        self._done: asyncio.Queue[str | None] = asyncio.Queue()

    async def send(self, model: LiveModel, samples: int = 1) -> float:
        """Send a model as if to an aggregator; the seconds until the other side has checked it."""
        body = AggregateRequest(2, 1, 2, MODELS, samples, View.of(1).snapshot(), None)
        frame = wire.encode(body, self.roster, len(model.data))
        began = time.perf_counter()
        self.hub.send(self.far_key, frame[wire.LENGTH_BYTES :], "model", model)
        reason = await self._done.get()
        assert reason is None, reason
        return time.perf_counter() - began

    async def ping(self) -> float:
        began = time.perf_counter()
        self.hub.send(self.far_key, wire.encode(Ping(1, 1), self.roster))
        await self._answers.get()
        return time.perf_counter() - began

    def message(self, src: bytes, payload: bytes) -> None:
        self._answers.put_nowait(payload)

    def outcome(self, dst: bytes, tag: Any, reason: str | None) -> None:
        self._done.put_nowait(reason)


async def _throughput(homes: Homes, model: LiveModel) -> tuple[float, float, list[float]]:
    """Best times of plain TCP and of a link, taken in turn, and round trips on the idle link."""
    size = len(model.data)
    plain_s, ours_s = [], []
    async with (
        homes.far_side(plain, size) as (plain_port, _),
        homes.far_side(echo, size) as (port, _),
        homes.near_sides(port, 1) as [near],
    ):
        for _ in range(REPEATS):
            plain_s.append(await _send_plain(plain_port, model.data))
            ours_s.append(await near.send(model))
        pings_s = [await near.ping() for _ in range(PINGS)]
    return min(plain_s), min(ours_s), pings_s


async def _send_plain(port: int, data: memoryview) -> float:
    began = time.perf_counter()
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    for at in range(0, len(data), CHUNK_BYTES):
        writer.write(data[at : at + CHUNK_BYTES])
        await writer.drain()
    await reader.read(4)
    writer.close()
    return time.perf_counter() - began


async def _under_load(homes: Homes) -> list[float]:
    """Round trips on links that carry models as fast as they can."""
    model = made_up_model(LOAD_MODEL_BYTES)
    times: list[float] = []
    until = 0.0

    async def saturate(side: Near) -> None:
        while time.perf_counter() < until:
            await side.send(model)

    async def ping(side: Near) -> None:
        await asyncio.sleep(0.5)  # by now all transfers are under way
        while time.perf_counter() < until:
            times.append(await side.ping())
            await asyncio.sleep(0.005)

    size = len(model.data)
    async with homes.far_side(echo, size) as (port, _), homes.near_sides(port, LOAD_LINKS) as sides:
        until = time.perf_counter() + LOAD_S
        await asyncio.gather(*(job(side) for side in sides for job in (saturate, ping)))
    return times


async def _aggregator_peak_mb(homes: Homes, model: LiveModel, size: int) -> float:
    async with homes.far_side(aggregate, size) as (port, far), homes.near_sides(port, MODELS) as sides:
        await asyncio.gather(*(side.send(model) for side in sides))
        found_mb: float = await asyncio.to_thread(far.recv)
    return found_mb


async def plain(home: Path, session: Session, size: int, near: Connection) -> None:
    """Receives `size` bytes over asyncio's plain TCP streams, into one buffer, and says so."""
    free: list[memoryview] = []  # memory is new to a machine once, to a peer and here alike

    async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        space, filled = free.pop() if free else np.empty(size, np.uint8).data, 0
        while filled < size:
            piece = await reader.read(CHUNK_BYTES)
            space[filled : filled + len(piece)] = piece
            filled += len(piece)
        free.append(space)
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

    def ignore(*_: Any) -> None: ...

    runtime = LiveRuntime(
        roster,
        layout,
        Buffers(layout.size_bytes, Limits().memory_bytes),
        MeanRule(),
        Store(home, roster, on_error=lambda _: None),
        None,
        Log(level="warning"),
        partial(connect, admission),
        Callbacks(observe, ignore, ignore, ignore),
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
    asyncio.run(side(*arguments))


async def gone(near: Connection) -> None:
    with suppress(EOFError):
        await asyncio.to_thread(near.recv)
