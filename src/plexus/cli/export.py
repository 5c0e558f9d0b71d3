"""`plexus export`: the model of a run, a peer or a fleet as a file."""

from __future__ import annotations

from pathlib import Path

import click

from plexus.cli.groups import PATH, flag, option
from plexus.errors import PlexusError
from plexus.files import write_bytes
from plexus.live.state import STATE_FILE, newest_of, taken_home
from plexus.runs.model_files import BEST_MODEL, FINAL_MODEL, MODEL_SUFFIX, metadata_of


@click.command()
@click.argument("source", metavar="RUN|HOME|FLEET", type=PATH)
@option("-o --out", "FILE.safetensors", required=True)
@flag("--best", "The best model that was measured, instead of the newest.")
def export(source: Path, out: Path, best: bool) -> None:
    """Write the model of a run directory, of a peer's home or of a fleet, whether it runs or not.

    The file says which task, round, metric and classes it is of, and how its columns are scaled.
    """
    if out.suffix != MODEL_SUFFIX:
        raise PlexusError(f"{out}: models are written as safetensors: use {out.stem}{MODEL_SUFFIX}")
    if not out.parent.is_dir():
        raise PlexusError(f"{out.parent}: no such folder")
    write_bytes(out, *model_of(source, best))
    click.echo(f"the model of round {metadata_of(out)['round']} is in {out}")


def model_of(source: Path, best: bool) -> list[bytes | memoryview]:
    kept = source / (BEST_MODEL if best else FINAL_MODEL)
    if kept.exists():
        return [kept.read_bytes()]
    homes = sorted(each.parent for each in source.glob(f"*/{STATE_FILE}"))
    if best and homes:
        raise PlexusError(f"{source}: the best is known when the fleet has ended; a peer's is in {homes[0]}")
    held = newest_of(homes or [source])
    if best or held is None:
        none = "no model was measured yet" if best else "this node holds no model but the initial one yet"
        raise PlexusError(f"{source}: {none}")
    return taken_home(held.home, held.data, {"round": str(held.ordinal)})
