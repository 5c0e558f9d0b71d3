"""`plexus bench`: measure what simulating, training and sending cost on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import click
from msgspec.structs import asdict
from rich.console import Console

from plexus.cli import groups
from plexus.cli.groups import COUNT, JSON, NATURAL, POSITIVE, Group, flag, option
from plexus.cli.summary import print_bench, print_growth
from plexus.learn.engines import ENGINES, Precision
from plexus.learn.tasks.specs import TASKS
from plexus.spec.attackers import Lying

bench = Group("bench")


def _sizes(context: click.Context, option: click.Parameter, value: str) -> list[int]:
    """One number of nodes, or several with commas between them."""
    return [COUNT(size, option, context) for size in value.split(",")]


@bench.command()
@option("--nodes", "N[,N...]", "Of several: how it grows.", callback=_sizes, default="1000")
@option("--hours", "H", "Simulated hours.", type=POSITIVE, default=1.0)
@flag("--churn", "Nodes come and go; about 8 % are online.")
@option("--protocol", "NAME", default="plexus")
@groups.set_option("a parameter of the protocol, e.g. topology=regular")
@option("--liar", help="Node 0 lies so. Of plexus.", type=click.Choice(get_args(Lying)))
@option("--seed", "N", type=NATURAL, default=1)
@option("--plot", "OUT.png", "Of several sizes, draw a picture.")
@JSON
def protocol(nodes: list[int], plot: Path | None, as_json: bool, **options: Any) -> None:
    """A protocol alone: messages, views, timers and transfers, without training."""
    from plexus.bench.protocol import bench_growth, bench_protocol, picture

    console = Console(highlight=False)
    if len(nodes) == 1:
        result = bench_protocol(nodes[0], **options)
        groups.print_json(result) if as_json else print_bench(result, console)
        return
    found = bench_growth(nodes, **options)
    groups.print_json(found) if as_json else print_growth(found, console)
    if plot is not None:
        picture(found, plot)
        click.echo(f"picture: {plot}", err=as_json)


@bench.command()
@option("--task", type=click.Choice(sorted(TASKS.keys() - {"untrained"})), default="digits")
@option("--engine", type=click.Choice(ENGINES), default="auto")
@option("--clients", type=COUNT, default=16)
@option("--repeats", type=COUNT, default=5)
@option("--seed", type=int, default=1)
@option("--workers", help="Of the engines processes and ray.", type=COUNT)
@option("--device", help="cpu, cuda or cuda:N.  [default: a GPU if there is one]")
@option("--precision", help="Of a GPU.", type=click.Choice(get_args(Precision)), default="tf32")
@flag("--random-data", "For cifar10: no files needed, as fast as real.")
@JSON
def training(task: str, engine: str, clients: int, as_json: bool, **options: Any) -> None:
    """Time one local training, beside a bare PyTorch loop over the same clients."""
    from plexus.bench.training import bench_training

    found = bench_training(task, engine, clients, **options)
    groups.answer(
        found,
        as_json,
        f"engine     {found.engine} on {found.device}: {found.reason}",
        f"model      {found.task}, {found.parameters:,} parameters, {found.clients} clients",
        f"training   {found.ms_per_client:.3f} ms per client",
        f"bare loop  {found.bare_loop_ms_per_client:.3f} ms per client",
        f"ratio      {(ratio := found.ratio_to_bare_loop):.3f} ({1 / ratio:.2f} times as fast as the loop)",
    )


@bench.command()
@option("--task", type=click.Choice(sorted(TASKS.keys() - {"untrained"})), default="digits")
@option("--engine", type=click.Choice(ENGINES), default="auto")
@option("--clients", type=COUNT, default=10)
@option("--rounds", type=COUNT, default=50)
@option("--repeats", type=COUNT, default=3)
@option("--seed", type=int, default=1)
@JSON
def rounds(as_json: bool, **options: Any) -> None:
    """CPU time of whole rounds, what is set up included, beside a bare PyTorch loop."""
    from plexus.bench.training import bench_rounds

    found = bench_rounds(**options)
    groups.answer(
        found,
        as_json,
        f"engine     {found.engine}: {found.reason}",
        f"rounds     {found.rounds} of {found.clients} clients of {found.task}",
        f"CPU time   {found.cpu_s:.2f} s",
        f"bare loop  {found.bare_loop_cpu_s:.2f} s",
        f"ratio      {found.ratio_to_bare_loop:.3f}",
    )


@bench.command()
@option("--megabytes", type=COUNT, default=100)
@JSON
def transport(megabytes: int, as_json: bool) -> None:
    """The network of live peers on loopback: throughput, round trips, an aggregator's memory."""
    from plexus.bench.transport import bench

    result = bench(megabytes)
    groups.answer(result, as_json, *(f"{name:32} {value:.6g}" for name, value in asdict(result).items()))


@bench.command()
@option("--nodes", "N", type=COUNT, default=1000)
@option("--fleet", "DIR", "And what part of its CPU time this fleet, which has ended, spent on them.")
@JSON
def signatures(nodes: int, fleet: Path | None, as_json: bool) -> None:
    """Signed events: the time to check a first view, the same view again, and the authority's list."""
    from plexus.bench.signatures import bench_signatures

    found = bench_signatures(nodes, fleet)
    lines = [
        f"first view  {1000 * found.first_view_s:.1f} ms for {nodes} nodes, {found.view_bytes:,} bytes",
        f"the next    {1000 * found.next_view_s:.1f} ms, as nothing of it is news",
        f"list        {1000 * found.list_s:.1f} ms, {found.list_bytes:,} bytes",
    ]
    if found.fleet_share is not None:
        lines.append(f"fleet       {100 * found.fleet_share:.2f} % of its peers' CPU time")
    groups.answer(found, as_json, *lines)
