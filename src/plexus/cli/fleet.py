"""`plexus fleet`: run many live peers on this machine."""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace
from rich.console import Console
from rich.table import Table

from plexus import quantities
from plexus.cli import groups
from plexus.cli.groups import COUNT, JSON, PATH, POSITIVE, Group, flag, option, print_json, set_option
from plexus.cli.session import check_deployable
from plexus.errors import Interrupted, PlexusError
from plexus.experiment.progress import Tick, stoppable
from plexus.live.fleet.fleet import INTERRUPTED, FleetConfig, FleetResult, run_fleet
from plexus.live.fleet.members import NodeResult
from plexus.live.operator.log import LOG_FILE
from plexus.live.worker.client import Ready
from plexus.protocol.registry import SERVERS
from plexus.spec.attackers import parsed
from plexus.spec.experiment import load_spec
from plexus.spec.toml import located, read_text, read_toml

fleet = Group("fleet")


@fleet.command()
@click.argument("spec_file", metavar="SESSION.toml", type=PATH)
@option("--nodes", "N", "[default: the file's]", type=COUNT)
@option("--seconds", "S", "[default: 60, or until --rounds or [session] ends it]", type=groups.Numbers(min=1))
@option("--rounds", "N", "Stop after this round.", type=COUNT)
@option("--protocol", "NAME", "Run another protocol than the file's, with its defaults.")
@set_option("a key of the file, e.g. protocol.sample_size=5")
@option("--out", "DIR", "[default: runs/fleet-NAME]")
@flag("--force", "Replace an earlier fleet in --out.")
@flag("--shape", "Give nodes the latency and bandwidth of their devices in the file's [traces].")
@option("--churn", "SPEED", "Nodes come and go by [traces], this many times as fast.", type=POSITIVE)
@option("--attackers", "N:BEHAVIOUR", "Let so many nodes attack, e.g. 2:flip.", multiple=True)
@JSON
def run(
    spec_file: Path,
    nodes: int | None,
    protocol: str | None,
    overrides: tuple[str, ...],
    attackers: tuple[str, ...],
    as_json: bool,
    **options: Any,
) -> None:
    """Run the session of SESSION.toml with a process per node, over TLS on loopback.

    Makes an authority and keys of its own. Keys, logs and states of the nodes stay in --out.
    """

    def tell(ready: Ready) -> None:
        if ready.shared_out < ready.examples:
            click.echo(share_of_data(spec.nodes, ready), err=True)

    if protocol is not None:
        overrides = (f'protocol={{name="{protocol}"}}', *overrides)
    has_session = "session" in read_toml(read_text(located(spec_file)), str(spec_file))
    is_left_out = has_session and protocol not in (None, "plexus")
    if is_left_out:
        overrides = ("session={}", *overrides)
    if nodes is not None:
        overrides += (f"nodes={nodes}",)
    spec = load_spec(spec_file, overrides)
    check_deployable(spec_file, replace(spec, attackers=()))
    if is_left_out:
        click.echo(f"{spec_file}: [session] is left out: {protocol} runs until it is stopped", err=True)
    config = FleetConfig(**options)
    if spec.protocol.name in SERVERS and (config.shape or config.churn):
        neither = f"the server of {spec.protocol.name} is in no trace, so a fleet of it has neither"
        raise PlexusError(f"--shape and --churn: {neither}")
    drawn = parsed(attackers, spec.nodes, spec.seed)
    spec = replace(spec, attackers=drawn + spec.attackers)
    with stoppable(lambda _: None) as go_on:
        look = partial(go_on, Tick(0.0, 0, 0))
        result = asyncio.run(run_fleet(spec, spec_file.parent, config, tell, look))
    print_json(result) if as_json else fleet_table(result)
    if result.failed:
        sys.exit(1)
    out = Path(result.out)
    if out.is_relative_to(Path.cwd()):
        out = out.relative_to(Path.cwd())
    if result.stopped:
        stopped = f"stopped in round {result.rounds}, {result.stopped}; what there is, is in {out}"
        if result.stopped == INTERRUPTED:
            raise Interrupted(stopped)
        click.echo(f"plexus: {stopped}", err=True)
    click.echo(f"Next:\n  plexus export {out} -o model.safetensors\n  plexus dashboard {out}", err=True)


def fleet_table(result: FleetResult) -> None:
    name = result.metric_name
    metric, best = (quantities.metric(name, value) for value in (result.metric, result.best_metric))
    title = f"{result.name}: {len(result.nodes)} peers, {result.rounds} rounds in {result.seconds:.0f} s"
    table = Table(title=f"{title}, {name} {metric} (best {best})", title_justify="left")
    counts = ("round", "trained", "aggregated", "sent", "received", "starts", "errors", "exit")
    for column in ("node", "id", *counts):
        table.add_column(column, justify="left" if column == "id" else "right")
    for each in result.nodes:
        sent, received = quantities.size(each.sent_bytes), quantities.size(each.received_bytes)
        cells = [each.number, each.id, each.round, each.trained, each.aggregated, sent, received]
        table.add_row(*map(str, [*cells, each.starts, each.errors, each.exit_status]))
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 120
    console.print(table)
    # Why processes ended that should not have, or could not train; what many share is said once.
    ended: dict[tuple[str, str], list[NodeResult]] = {}
    for each in result.nodes:
        if each.exit_status:
            what = f"ended with {each.exit_status}"
            ended.setdefault((what, each.last_words), []).append(each)
        elif each.failure:  # the same in other words: each is about its own training
            ended.setdefault(("could not train or evaluate", ""), []).append(each)
    for (what, reason), (first, *more) in ended.items():
        others = f" and {len(more)} more" if more else ""
        log = Path(result.out) / f"node-{first.number:02}" / LOG_FILE
        line = f"node {first.number}{others} {what}: {reason or first.failure or f'see {log}'}"
        console.print(line, markup=False, soft_wrap=True)


def share_of_data(nodes: int, ready: Ready) -> str:
    return f"{nodes:,} nodes have {ready.shared_out:,} of {ready.examples:,} examples; the rest takes no part"
