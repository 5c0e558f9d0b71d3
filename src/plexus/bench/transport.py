"""`plexus bench transport`: what the live peers' network can do, over loopback, in two processes."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from msgspec import Struct

from plexus.bench import transport_peer
from plexus.bench.transport_peer import (
    LOOPBACK,
    MODELS,
    Echo,
    FarSide,
    aggregate,
    connect,
    echo,
    made_up_model,
    plain,
)
from plexus.live.identity.admission import CERTIFICATE_FILE, KEY_FILE, Admission
from plexus.live.identity.authority import Authority, Session, found_session
from plexus.live.identity.keys import create_key, raw_public
from plexus.live.models import LiveModel
from plexus.live.transport.addresses import LiveRoster
from plexus.live.transport.hub import Hub
from plexus.protocol import wire
from plexus.protocol.messages import AggregateRequest, Ping
from plexus.protocol.view import View

MEGABYTE = 1_000_000
REPEATS = 20
PINGS = 1000
LOAD_LINKS, LOAD_S, LOAD_MODEL_BYTES = 8, 6.0, 16 * MEGABYTE
CHUNK_BYTES = 256 * 1024


class TransportBench(Struct, frozen=True):
    """What one run of the benchmark measured."""

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
    """Measure everything in one run."""
    with tempfile.TemporaryDirectory() as directory:
        return asyncio.run(_bench(Path(directory), megabytes * MEGABYTE))


async def _bench(directory: Path, size: int) -> TransportBench:
    party = Homes(directory)
    model = made_up_model(size)
    plain_s, ours_s, ping_s = await _throughput(party, model)
    loaded_s = await _under_load(party)
    peak_mb = await _aggregate(party, model, size)
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
    """A session and a home for every node of the benchmark."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        spec: dict[str, Any] = {"name": "bench", "seed": 1, "nodes": 20, "aggregation": "mean"}
        spec |= {"protocol": {}, "task": {}}
        self.session: Session = found_session(directory / "session", spec)
        self._authority = Authority.load(directory / "session")
        self._count = 0

    def new(self) -> Path:
        self._count += 1
        home = self._directory / str(self._count)
        home.mkdir()
        public = raw_public(create_key(home / KEY_FILE).public_key())
        text = self._authority.invite(public, self.session.digest, timedelta(days=1))
        (home / CERTIFICATE_FILE).write_text(text)
        return home

    @asynccontextmanager
    async def far_side(self, side: FarSide, size: int) -> AsyncIterator[tuple[int, Connection]]:
        """The port of a process that is this, and how it says more."""
        context = get_context("spawn")
        here, there = context.Pipe()
        arguments = (side, self.new(), self.session, size, there)
        process = context.Process(target=transport_peer.run, args=arguments, daemon=True)
        process.start()
        there.close()
        try:
            yield await asyncio.to_thread(here.recv), here
        finally:
            process.kill()
            process.join()

    async def near_side(self, port: int) -> Near:
        near = Near(Admission(self.new(), self.session))
        reason = await near.hub.dialler.introduce((LOOPBACK, port))
        assert reason is None, reason
        (near.far_key,) = near.hub.links
        return near


class Near(Echo):
    """A node in this process with one link to the other."""

    def __init__(self, admission: Admission) -> None:
        super().__init__(model_bytes=1)
        self.hub: Hub = connect(admission, self)
        self.far_key = b""
        self.roster = LiveRoster(admission.session.digest, admission.key, 100)
        self._answers: asyncio.Queue[bytes] = asyncio.Queue()
        self._done: asyncio.Queue[str] = asyncio.Queue()

    async def send(self, model: LiveModel, samples: int = 1) -> float:
        """Send a model as if to an aggregator; the seconds until the other side has checked it."""
        body = AggregateRequest(2, MODELS, samples, View.of(1).snapshot(), None)
        frame = wire.encode(body, self.roster, len(model.data))
        began = time.perf_counter()
        self.hub.send_model(self.far_key, frame[wire.LENGTH_BYTES :], model, "model")
        outcome = await self._done.get()
        assert outcome == "sent", outcome
        return time.perf_counter() - began

    async def ping(self) -> float:
        began = time.perf_counter()
        self.hub.send(self.far_key, wire.encode(Ping(1, 1), self.roster))
        await self._answers.get()
        return time.perf_counter() - began

    def message(self, src: bytes, payload: bytes) -> None:
        self._answers.put_nowait(payload)

    def sent(self, dst: bytes, tag: Any) -> None:
        self._done.put_nowait("sent")

    def not_sent(self, dst: bytes, tag: Any, reason: str) -> None:
        self._done.put_nowait(reason)


async def _throughput(party: Homes, model: LiveModel) -> tuple[float, float, list[float]]:
    """Best times of plain TCP and of a link, taken in turn, and round trips on the idle link."""
    size = len(model.data)
    plain_s, ours_s = [], []
    async with party.far_side(plain, size) as (plain_port, _), party.far_side(echo, size) as (port, _):
        near = await party.near_side(port)
        for _ in range(REPEATS):
            plain_s.append(await _send_plain(plain_port, model.data))
            ours_s.append(await near.send(model))
        pings_s = [await near.ping() for _ in range(PINGS)]
        await near.hub.close("done")
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


async def _under_load(party: Homes) -> list[float]:
    """Round trips on links that carry models as fast as they can."""
    model = made_up_model(LOAD_MODEL_BYTES)
    times: list[float] = []
    async with party.far_side(echo, len(model.data)) as (port, _):
        sides = [await party.near_side(port) for _ in range(LOAD_LINKS)]
        until = time.perf_counter() + LOAD_S

        async def saturate(side: Near) -> None:
            while time.perf_counter() < until:
                await side.send(model)

        async def ping(side: Near) -> None:
            await asyncio.sleep(0.5)  # by now all transfers are under way
            while time.perf_counter() < until:
                times.append(await side.ping())
                await asyncio.sleep(0.005)

        await asyncio.gather(*(job(side) for side in sides for job in (saturate, ping)))
        for side in sides:
            await side.hub.close("done")
    return times


async def _aggregate(party: Homes, model: LiveModel, size: int) -> float:
    async with party.far_side(aggregate, size) as (port, far):
        sides = [await party.near_side(port) for _ in range(MODELS)]
        await asyncio.gather(*(side.send(model) for side in sides))
        peak_mb: float = await asyncio.to_thread(far.recv)
        for side in sides:
            await side.hub.close("done")
    return peak_mb
