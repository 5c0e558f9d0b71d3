"""`plexus export`: a peer's newest model as a file."""

from __future__ import annotations

from pathlib import Path

import click

from plexus.cli.groups import HOME, PATH
from plexus.errors import PlexusError
from plexus.files import write_bytes
from plexus.live.state import MODEL_SUFFIX, newest_model


@click.command()
@click.argument("out", metavar="FILE.safetensors", type=PATH)
@HOME
def export(out: Path, home: Path) -> None:
    """Write the newest model that the peer in --home holds, whether it runs or not."""
    if out.suffix != MODEL_SUFFIX:
        raise PlexusError(f"{out}: models are written as safetensors: use {out.stem}{MODEL_SUFFIX}")
    if not out.parent.is_dir():
        raise PlexusError(f"{out.parent}: no such folder")
    held = newest_model(home)
    if held is None:
        raise PlexusError(f"{home}: this node holds no model but the initial one yet")
    write_bytes(out, held.data)
    click.echo(f"the model of round {held.ordinal} is in {out}")
