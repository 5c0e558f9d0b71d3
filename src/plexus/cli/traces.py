"""`plexus traces`: look into the traces of a spec or a file."""

from __future__ import annotations

import time
from pathlib import Path

import click

from plexus.cli.groups import COUNT, JSON, NATURAL, Group, answer, flag, option
from plexus.machine import peak_mb
from plexus.spec.experiment import load_spec
from plexus.spec.toml import located
from plexus.traces.build import TracesSpec, build_world
from plexus.traces.describe.text import Opened, facts_of, lines, open_file
from plexus.traces.readers.files import find
from plexus.traces.readers.latency import LatencyKind

traces = Group("traces", help="Look into traces of devices, availability and latency.")


@traces.command()
@click.argument("source", metavar="SPEC|FILE")
@option("--plot", "OUT.png", "Draw a picture.")
@JSON
@option("--nodes", "N", "Of a spec: as many nodes instead.", type=COUNT)
@option("--seed", "N", "Of a spec: another seed.", type=NATURAL)
@flag("--round-trip", "Of a latency file: its values are there and back.")
def describe(
    source: str, plot: Path | None, as_json: bool, nodes: int | None, seed: int | None, round_trip: bool
) -> None:
    """What a trace says: quantiles of compute, bandwidth, latency, of sessions and gaps, and the
    share of devices online by hour.

    The source is the spec of an experiment, a trace file of any kind (see docs/traces.md), or
    data:PATH, a file in the data directory.
    """
    opened = _open(source, nodes, seed, "round-trip" if round_trip else "one-way")
    facts = facts_of(opened)
    answer(facts, as_json, *lines(facts))
    if plot is not None:
        from plexus.traces.describe.plot import picture

        picture(opened, plot)
        click.echo(f"picture: {plot}", err=as_json)


def _open(source: str, nodes: int | None, seed: int | None, kind: LatencyKind) -> Opened:
    path = find(str(located(Path(source))), Path())
    if path.suffix != ".toml":
        if nodes is not None or seed is not None:
            raise click.UsageError("--nodes and --seed are for a spec; this is a trace file")
        return open_file(path, kind)
    spec = load_spec(path, (), seed)
    count = spec.nodes if nodes is None else nodes
    world = build_world(spec.traces, count, spec.seed, path.parent)
    title = f"{spec.name}: {count:,} nodes, seed {spec.seed}"
    return Opened(title, list(world.devices), world.availability, world.latency.matrix_s)


@traces.command()
@option("--nodes", "N", type=COUNT, default=100_000)
@option("--availability", type=click.Choice(["none", "strict", "fedscale"]), default="fedscale")
@JSON
def bench(nodes: int, availability: str, as_json: bool) -> None:
    """What it costs to generate the traces of so many devices."""
    before_mb, wall, processor = peak_mb(), time.perf_counter(), time.process_time()
    world = build_world(TracesSpec(availability=availability), nodes, 1, Path())
    result = {
        "nodes": len(world),
        "sessions": len(world.availability.sessions.rows),
        "seconds": round(time.perf_counter() - wall, 3),
        "cpu_s": round(time.process_time() - processor, 3),
        "peak_mb": round(peak_mb(), 1),
        "before_mb": round(before_mb, 1),
    }
    took = "{nodes:,} devices with {sessions:,} sessions in {seconds} s ({cpu_s} s of processor time)"
    answer(result, as_json, f"{took}; {{peak_mb}} MB at most, {{before_mb}} MB before".format(**result))
