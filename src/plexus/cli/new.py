"""`plexus new`: a project with a task of the user's own, which works as it is."""

from __future__ import annotations

import json
import keyword
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from plexus.cli.groups import PATH
from plexus.errors import PlexusError
from plexus.files import named

if TYPE_CHECKING:
    from plexus.learn.tabular import CsvTable, Schema

TEMPLATES = Path(__file__).with_name("templates")


@click.command()
@click.argument("name")
@click.option(
    "--into",
    type=PATH,
    default=Path(),
    show_default="the current folder",
    help="Where the project's folder is made.",
)
@click.option(
    "--csv", type=PATH, metavar="FILE", help="Your own table, with a header; without it, data is made up."
)
@click.option(
    "--target", metavar="COLUMN", help="The column to predict: a class or a number.  [default: the last]"
)
@click.option(
    "--owner", metavar="COLUMN", help="The column that says whose a row is.  [default: dealt by chance]"
)
def new(name: str, into: Path, csv: Path | None, target: str | None, owner: str | None) -> None:
    """Write the beginnings of a task of your own: a small project that works as it is.

    NAME becomes a folder and a Python package: lower-case letters, digits and underscores.
    """
    if csv is None and (target or owner):
        raise click.UsageError("--target and --owner are columns of a table: give it with --csv")
    notes = write_project(name, into, None if csv is None else OwnTable(csv, target, owner))
    folder = into / name
    session = folder / "session.toml"
    click.echo(f"Wrote {folder}.")
    for note in notes:
        click.echo(f"  {note}")
    click.echo("Now:")
    click.echo(f"  plexus run {session}    # simulate a session")
    click.echo(f"  plexus fleet run {session} --nodes 3 --rounds 20    # for real: three processes")
    click.echo(f"  edit {folder / name / 'task.py'}    # put in your model")
    click.echo(f"  pytest {folder}    # check the task")


class OwnTable(NamedTuple):
    """A table, and what of it is for what."""

    csv: Path
    target: str | None = None
    """None: the last column."""
    owner: str | None = None
    """None: rows are dealt to nodes by chance."""


def write_project(name: str, into: Path, source: OwnTable | None = None) -> list[str]:
    """Make the folder `name` in `into`, with a task, data, a session file and a test.

    The data is the user's table, or made up. Returns what somebody should know about it.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise PlexusError(
            f"{name!r} cannot name a Python package: use lower-case letters, digits and underscores,"
            " beginning with a letter"
        )
    folder = into / name
    if folder.exists():
        raise PlexusError(f"{folder} is already there: choose another name or remove it")
    plan = None if source is None else look_at(source)  # before anything is written
    with named(folder):
        (folder / name).mkdir(parents=True)
        (folder / "data").mkdir()
        if source is None:
            source = OwnTable(folder / "data" / "readings.csv", "kind")
            _write_readings(source.csv)
        else:
            shutil.copyfile(source.csv, folder / "data" / source.csv.name)
    words, schema, notes = plan or look_at(source)
    (folder / name / "__init__.py").write_text("")
    schema.save(folder / name / "schema.json")
    for template, file in (
        ("task", f"{name}/task.py"),
        ("session", "session.toml"),
        ("test_task", "test_task.py"),
    ):
        (folder / file).write_text(_filled(template, name=name, **words))
    return notes


def look_at(source: OwnTable) -> tuple[dict[str, Any], Schema, list[str]]:
    """What the templates are filled with, the schema, and what somebody should know about the table."""
    import numpy as np

    from plexus.learn.tabular import has_many_words, read_columns, read_csv

    columns = read_columns(source.csv)
    target = source.target or list(columns)[-1]
    used = (target, source.owner)
    ignored = [n for n, cells in columns.items() if n not in used and has_many_words(cells)]
    table = read_csv(source.csv, target, owner=source.owner, ignore=ignored, train_only=True)
    train, _ = table.split()
    nodes = min(30, len(train) // 5 or 1)
    if table.owners is not None:
        nodes = min(100, len(np.unique(table.owners[train])))
    words = {
        "file": _quoted(source.csv.name),
        "schema": table.schema.hash,
        "classes": bool(table.classes),
        "owners": table.owners is not None,
        "nodes": nodes,
    }
    return words, table.schema, _notes(table, target, ignored)


def _filled(template: str, **words: Any) -> str:
    from jinja2 import StrictUndefined, Template

    text = (TEMPLATES / f"{template}.txt").read_text(encoding="utf-8")
    return str(Template(text, keep_trailing_newline=True, undefined=StrictUndefined).render(words))


def _quoted(text: str) -> str:
    """As people write text in Python; JSON's escapes are Python's."""
    return json.dumps(text, ensure_ascii=False)


def _notes(table: CsvTable, target: str, ignored: list[str]) -> list[str]:
    goal = "a number, in standard deviations from its mean"
    if table.classes:
        shown = ", ".join(table.classes[:5]) + (", …" if len(table.classes) > 5 else "")
        goal = f"one of {len(table.classes)} classes ({shown})"
    notes = [f"{len(table)} rows; {table.width} inputs; predicts {target!r}, {goal}"]
    if table.owners is not None:
        notes.append(f"{len(set(table.owners.tolist()))} owners, one a node")
    notes += table.notes
    notes += [f"left out, as its words are nearly all different: {name!r}" for name in ignored]
    return notes


def _write_readings(path: Path) -> None:
    """Made-up readings of three kinds of machine, each around its own centre."""
    import numpy as np

    rng = np.random.default_rng(1)
    kinds = rng.integers(0, 3, 600)
    centres = np.array([[20, 1.0, 0.2, 5], [22, 1.4, 0.5, 4], [25, 0.9, 0.6, 6]])
    values = centres[kinds] + rng.normal(0, [1.0, 0.15, 0.1, 0.5], (600, 4))
    lines = ["temperature,vibration,noise,current,kind"]
    for row, kind in zip(values, kinds, strict=True):
        lines.append(",".join([*(f"{value:.3f}" for value in row), ("fan", "mill", "pump")[kind]]))
    path.write_text("\n".join(lines) + "\n")
