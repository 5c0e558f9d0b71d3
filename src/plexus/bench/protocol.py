"""`plexus bench protocol`: what the protocol and the simulator cost, without any learning."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise, takewhile
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from plexus.checked import Source, convert, suggest
from plexus.errors import PlexusError
from plexus.files import named
from plexus.machine import peak_mb
from plexus.protocol.facts import AggregationCompleted, ModelUpdated
from plexus.rng import array_stream
from plexus.runs.result import ProtocolBench, Traffic
from plexus.sim.lineage import TracedModels
from plexus.sim.protocols import PROTOCOLS
from plexus.sim.session import Setting, SymbolicModels, assemble
from plexus.spec import toml
from plexus.style import BLUE, VERMILION, figure, styled
from plexus.traces.build import TracesSpec, build_world
from plexus.traces.world import Availability, World, always_online, training_time_s

MODEL_BYTES = 346_000
LOCAL_STEPS, BATCH = 5, 20
SESSION_MEAN_S, ONLINE_SHARE = 1600.0, 0.08


def bench_protocol(
    nodes: int,
    hours: float,
    churn: bool,
    seed: int = 1,
    protocol: str = "plexus",
    overrides: Sequence[str] = (),
    liar: str | None = None,
) -> ProtocolBench:
    """Simulate `hours` of a protocol on generated devices and measure the CPU time after set-up.

    `overrides` are `key=value` of the protocol's parameters; node 0 is a `liar`, if that is a behaviour.
    Views travel as in sessions of today, not as in the paper.
    """
    began_s = time.process_time()
    if liar and protocol != "plexus":
        raise PlexusError(f"--liar {liar}: nodes that lie are of plexus, not of {protocol}")
    world = _world(nodes, churn, seed)
    durations = [training_time_s(device, LOCAL_STEPS, BATCH) for device in world.devices]
    rounds = 0

    def observe(now_s: float, node: int, fact: Any) -> None:
        nonlocal rounds
        if type(fact) is AggregationCompleted:
            rounds = max(rounds, fact.ordinal)
        elif type(fact) is ModelUpdated:
            rounds = max(rounds, fact.round)
        if traced is not None:
            traced.on_fact(now_s, node, fact)

    parameters = _parameters(protocol, overrides)
    entry, models = PROTOCOLS[protocol], SymbolicModels(MODEL_BYTES)
    traced = TracedModels(models) if entry.judged_by == "global model" else None
    setting = Setting(
        world,
        traced or models,
        models.initial(),
        durations.__getitem__,
        seed,
        liars={0: liar} if liar else {},
    )
    members = entry.build(setting, parameters)
    runtime = assemble(setting, members, observe)
    runtime.run(0.0)
    setup_cpu_s = time.process_time() - began_s
    began_s = time.process_time()
    runtime.run(3600 * hours)
    cpu_s = time.process_time() - began_s
    whose = traced.whose(runtime.accounts.trainings[:nodes], durations) if traced else None
    table = runtime.accounts.table()
    toggles, mean_online = _churn_facts(world.availability, 3600 * hours)
    return ProtocolBench(
        protocol=protocol,
        nodes=nodes,
        hours=hours,
        churn=churn,
        cpu_s_per_simulated_hour=cpu_s / hours,
        messages_per_s=sum(entry["count"] for entry in table.values()) / cpu_s,
        peak_mb=peak_mb(),
        setup_cpu_s=setup_cpu_s,
        rounds=rounds,
        digest=runtime.kernel.digest(),
        events=runtime.kernel.delivered,
        messages={name: Traffic(**entry) for name, entry in table.items()},
        joins_and_leaves_per_hour=toggles / hours,
        mean_online=mean_online,
        tuning=members.tuning,
        used=whose.used if whose else None,
        lineage=whose.lineage if whose else None,
    )


def _world(nodes: int, churn: bool, seed: int) -> World:
    generated = build_world(TracesSpec(availability="none"), nodes, seed, Path())
    availability = exponential_churn(nodes, seed) if churn else always_online(nodes)
    return World(generated.devices, availability, generated.latency)


def bench_growth(sizes: Sequence[int], **options: Any) -> list[ProtocolBench]:
    """The same of several sizes, each in a process of its own: memory is what one alone takes."""
    found = []
    for nodes in sizes:
        with get_context("spawn").Pool(1) as pool:
            found.append(pool.apply(bench_protocol, (nodes,), options))
    return found


def picture(benches: Sequence[ProtocolBench], path_png: Path) -> None:
    """Write a PNG: time, memory and bytes by the number of nodes, on logarithmic scales."""
    nodes = [bench.nodes for bench in benches]
    panels: dict[str, dict[str, list[float]]] = {
        "Processor seconds per simulated hour": {"": [bench.cpu_s_per_simulated_hour for bench in benches]},
        "Memory, MB": {"": [bench.peak_mb for bench in benches]},
        "Bytes sent": {
            kind: [max(1, bench.messages[kind].bytes) for bench in benches] for kind in ("model", "view")
        },
    }
    with styled():
        drawn = figure(11, 4, pad=0.14)
        for axes, (title, lines) in zip(drawn.subplots(1, len(panels)), panels.items(), strict=True):
            for (label, values), colour in zip(lines.items(), (BLUE, VERMILION), strict=False):
                axes.loglog(nodes, values, marker="o", color=colour, label=label or None)
            if len(lines) > 1:
                axes.legend()
            axes.set_title(title, loc="left")
            axes.set_xlabel("nodes")
    with named(path_png):
        drawn.savefig(path_png, dpi=110)


def _parameters(protocol: str, overrides: Sequence[str]) -> Struct:
    values: dict[str, Any] = {"views": "lacking"} if protocol == "plexus" else {}
    options: dict[tuple[str | int, ...], str] = {}
    for override in overrides:
        path, value = toml.parse_assignment(override)
        values[".".join(path)] = value
        options[("protocol", *path)] = f"--set {override}"
    if protocol not in PROTOCOLS:
        known = ", ".join(PROTOCOLS)
        raise PlexusError(f"--protocol {protocol}: not one of {known}{suggest(protocol, PROTOCOLS)}")
    return convert(values, PROTOCOLS[protocol].parameters, ("protocol",), Source("--protocol", options))


def exponential_churn(nodes: int, seed: int) -> Availability:
    """Memoryless sessions and gaps over two days: the plainest churn of a given intensity."""
    period_s = 48 * 3600.0
    rng = array_stream(seed, "bench", "churn")
    gap_mean_s = SESSION_MEAN_S * (1 - ONLINE_SHARE) / ONLINE_SHARE
    sessions = []
    for _ in range(nodes):
        count = int(3 * period_s / (SESSION_MEAN_S + gap_mean_s)) + 8
        online_s = rng.exponential(SESSION_MEAN_S, count)
        gap_s = rng.exponential(gap_mean_s, count)
        if rng.random() < ONLINE_SHARE:
            gap_s[0] = 0.0
        starts = np.cumsum(gap_s) + np.concatenate([[0.0], np.cumsum(online_s)[:-1]])
        rows = np.stack([starts, starts + online_s], axis=1)
        rows = rows[rows[:, 0] < period_s - 1]
        rows[:, 1] = np.minimum(rows[:, 1], period_s - 1)
        sessions.append(rows)
    return Availability(sessions, period_s)


def _churn_facts(availability: Availability, until_s: float) -> tuple[int, float]:
    """How often somebody joined or left, and how many were online on average."""
    toggles, online_s = 0, 0.0
    for device in range(len(availability.sessions)):
        changes = list(takewhile(lambda change: change[0] <= until_s, availability.toggles(device)))
        toggles += sum(time_s > 0 for time_s, _ in changes)
        for (time_s, online), (end_s, _) in pairwise([*changes, (until_s, False)]):
            online_s += (end_s - time_s) * online
    return toggles, online_s / until_s
