"""`plexus predict`: what a model that was taken home says about new rows of a table."""

from __future__ import annotations

import csv as tables
import sys
from pathlib import Path

import click
import msgspec

from plexus.cli.groups import PATH, option
from plexus.errors import MissingModuleError, PlexusError, blaming
from plexus.files import named
from plexus.runs.model_files import metadata_of


@click.command()
@click.argument("file", metavar="FILE.safetensors", type=PATH)
@option("--csv", "FILE", "The rows, with a header.", required=True)
@option("--out", "FILE", "[default: standard output]")
@option("--task-dir", "DIR", "Where the code of the model is found.", default=Path())
def predict(file: Path, csv: Path, out: Path | None, task_dir: Path) -> None:
    """Print the rows of a table with a column more: what the model in FILE predicts.

    FILE is of a task on tables and says how columns are scaled. The column to predict may be missing.
    """
    about = metadata_of(file)
    how = "plexus.load(RUN).best_model() or model()"
    remedy = f"ask it in Python, {how}, as docs/own-task.md#a-model-to-take-home shows"
    if "schema" not in about:
        of = about.get("task", "unknown")
        raise PlexusError(f"{file}: the model is not of a table (task {of}): {remedy}")
    if "prepare" in about:
        wanted = f"what its task's {about['prepare']} makes of rows"
        raise PlexusError(f"{file}: the model takes {wanted}: {remedy}")
    from plexus.learn.saved import load_model
    from plexus.learn.saved import predict as outputs_of
    from plexus.learn.tabular import Schema, read_columns

    schema = msgspec.json.decode(about["schema"], type=Schema)
    cells, notes = read_columns(csv, least=1), list[str]()
    inputs = schema.inputs(csv, cells, notes)
    try:
        model = load_model(file, task_dir)
    except MissingModuleError as error:
        raise MissingModuleError(f"{error}; say with --task-dir which folder it is in") from None
    with blaming(f"{file}: asking the model"):
        found = schema.words(outputs_of(model, inputs))
    for note in notes:
        click.echo(note, err=True)
    columns = {**cells, f"predicted {schema.target}": found}
    with named(out or csv), click.open_file(str(out or "-"), "w", lazy=False) as stream:
        tables.writer(stream, lineterminator="\n").writerows([columns, *zip(*columns.values(), strict=True)])
    if out is not None:
        click.echo(f"{len(found)} rows are in {out}", file=sys.stderr)
