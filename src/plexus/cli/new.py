"""`plexus new`: a project with a task of the user's own, which works as it is."""

from __future__ import annotations

import json
import keyword
import re
import shutil
import sys
import sysconfig
from collections.abc import Callable, Sequence
from functools import partial
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from plexus.cli.groups import PATH, option
from plexus.errors import PlexusError, needing
from plexus.files import named, write_text
from plexus.spec.experiment import load_spec

if TYPE_CHECKING:
    from plexus.learn.tabular import Schema

TEMPLATES = Path(__file__).with_name("templates")
MADE_UP = TEMPLATES / "made-up"
"""Readings of three kinds of machine, each around its own centre, and texts of three owners."""

MANY_INPUTS = 10
"""More words of a column than this are worth a look: dates, say, or numbers that are written otherwise."""


@click.command()
@click.argument("name")
@option(
    "--into",
    help="Where the project's folder is made.",
    type=PATH,
    default=Path(),
    show_default="the current folder",
)
@option("--csv", "FILE", "Your own table, with a header; without it, data is made up.")
@option("--target", "COLUMN", "The column to predict: a class or a number.  [default: the last]")
@option("--owner", "COLUMN", "The column that says whose a row is.  [default: dealt by chance]")
@option(
    "--template",
    help="A table, pictures in folders per owner, texts per owner, or a table and a training loop.",
    type=click.Choice(["csv", "images", "text", "own-loop"]),
    default="csv",
)
@option(
    "--data",
    "FOLDER",
    "Your own pictures, OWNER/CLASS/*.png, or texts, OWNER.txt; without it, data is made up.",
)
def new(name: str, into: Path, template: str, data: Path | None, **table: Any) -> None:
    """Write the beginnings of a task of your own: a small project that works as it is.

    NAME becomes a folder and a Python package: lower-case letters, digits and underscores.
    """
    is_own = table["csv"] is not None
    if not is_own and (table["target"] or table["owner"]):
        raise click.UsageError("--target and --owner are columns of a table: give it with --csv")
    if is_own and template in OTHERS:
        raise click.UsageError(f"--csv is a table; the template {template} has data of another kind")
    if data is not None and template not in OTHERS:
        raise click.UsageError(f"--data is a folder of pictures or texts: add --template {'|'.join(OTHERS)}")
    notes = write_project(name, into, OwnTable(**table) if is_own else READINGS, template, data)
    folder, session = into / name, into / name / "session.toml"
    peers = min(3, load_spec(session).nodes)
    steps = (
        f"plexus run {session}    # simulate a session",
        f"plexus fleet run {session} --nodes {peers} --rounds 20    # for real: {peers} processes",
        f"edit {folder / name / 'task.py'}    # put in your model",
        f"pytest {folder}    # check the task (pip install pytest)",
    )
    click.echo("\n  ".join([f"Wrote {folder}.", *notes]))
    click.echo("\n  ".join(["Now:", *steps]))


class OwnTable(NamedTuple):
    csv: Path
    target: str | None = None
    """None: the last column."""
    owner: str | None = None
    """None: rows are dealt to nodes by chance."""


READINGS = OwnTable(MADE_UP / "readings.csv", "kind")


def write_project(
    name: str, into: Path, source: OwnTable = READINGS, template: str = "csv", data: Path | None = None
) -> list[str]:
    """Make the folder `name` in `into`, with a task, data, a session file and a test.

    The data is the user's table or folder, or made up. Returns what somebody should know about it.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        letters = "lower-case letters, digits and underscores, beginning with a letter"
        raise PlexusError(f"{name!r} cannot name a Python package: use {letters}")
    if name in ("data", "test_task"):
        raise PlexusError(f"{name!r} is what a part of the project is called: choose another")
    libraries = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    if name in (*sys.stdlib_module_names, "plexus") or PathFinder.find_spec(name, libraries):
        raise PlexusError(f"{name!r} is the name of a module that is installed: choose another")
    folder = into / name
    if folder.exists():
        raise PlexusError(f"{folder} is already there: choose another name or remove it")
    if template in OTHERS:
        return _write_other(folder, template, data)
    words, schema, notes = look_at(source)  # before anything is written
    with named(folder):
        (folder / name).mkdir(parents=True)
        (folder / "data").mkdir()
        shutil.copyfile(source.csv, folder / "data" / source.csv.name)
    is_loop = template == "own-loop"
    words |= {"names": "", "loop": is_loop, "rate": 0.003 if is_loop else 0.1, "hours": 2.0}
    _write_files(folder, "task", words)
    schema.save(folder / name / "schema.json")
    return notes


def _write_other(folder: Path, template: str, own: Path | None) -> list[str]:
    """A project whose data is no table."""
    make_up, look = OTHERS[template]
    if own is not None:
        if not own.is_dir():
            raise PlexusError(f"{own}: no such folder")
        look(own)  # before anything is written
    data = folder / "data"
    with named(folder):
        (folder / folder.name).mkdir(parents=True)
        if own is None:
            data.mkdir()
            make_up(data)
        else:
            shutil.copytree(own, data, ignore=shutil.ignore_patterns(".*"))
    words = look(data)
    _write_files(folder, template, {"schema": "", "loop": False, **words})
    return [f"made up: {words['note']} (your own: --data FOLDER)" if own is None else words["note"]]


def _write_files(folder: Path, task: str, words: dict[str, Any]) -> None:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    name = folder.name
    write_text(folder / name / "__init__.py", "")
    files = {task: f"{name}/task.py", "session": "session.toml", "test_task": "test_task.py"}
    loader = FileSystemLoader(TEMPLATES)
    templates = Environment(loader=loader, keep_trailing_newline=True, undefined=StrictUndefined)
    for template, file in files.items():
        write_text(folder / file, templates.get_template(f"{template}.txt").render(name=name, **words))


def look_at(source: OwnTable) -> tuple[dict[str, Any], Schema, list[str]]:
    """What the templates are filled with, the schema, and what somebody should know about the table."""
    import numpy as np

    from plexus.learn.tabular import has_many_words, numbers, read_columns, read_csv

    columns = read_columns(source.csv)
    target = source.target or list(columns)[-1]
    used = (target, source.owner)
    ignored = [n for n, cells in columns.items() if n not in used and has_many_words(cells)]
    if ignored and not columns.keys() - {*used, *ignored}:
        gone = f"{_listed(ignored)} left out, as the words are nearly all different"
        other = "for texts there is --template text, or a task of your own (docs/own-task.md)"
        raise PlexusError(f"{source.csv}: no column is left to learn from: {gone}; {other}")
    table = read_csv(source.csv, target, owner=source.owner, ignore=ignored, train_only=True)
    train, _ = table.split()
    nodes = min(30, len(train) // 5 or 1)
    if table.owners is not None:
        nodes = min(100, len(np.unique(table.owners[train])))
    # As people write text in Python; JSON's escapes are Python's.
    words: dict[str, Any] = {"file": json.dumps(source.csv.name, ensure_ascii=False), "nodes": nodes}
    words |= {"schema": table.schema.hash, "classes": bool(table.classes), "owners": table.owners is not None}
    goal = "a number, in standard deviations from its mean"
    if table.classes:
        shown = ", ".join(table.classes[:5]) + (", …" if len(table.classes) > 5 else "")
        goal = f"one of {len(table.classes)} classes ({shown})"
    notes = [f"{len(table)} rows; {table.width} inputs; predicts {target!r}, {goal}"]
    notes += [f"{len(set(table.owners.tolist()))} owners, one a node"] if table.owners is not None else []
    notes += table.notes
    notes += [f"left out, as its words are nearly all different: {name!r}" for name in ignored]
    many = {each.name: len(each.words) for each in table.schema.columns if len(each.words) > MANY_INPUTS}
    notes += [
        f"{name!r} is taken for words, {count} different: an input each" for name, count in many.items()
    ]
    pointed = {name: [cell.replace(",", ".") for cell in columns[name]] for name in (*many, *ignored)}
    commas = [name for name, cells in pointed.items() if numbers(cells) is not None]
    if commas:
        notes.append(f"numbers of {_listed(commas)} have a decimal comma: with a point they are numbers")
    return words, table.schema, notes


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))


def _write_pictures(folder: Path) -> None:
    """Made-up pictures of three owners: circles, crosses and stripes, each in its owner's colour."""
    import numpy as np

    with needing("a project with pictures"):
        from PIL import Image
    rng = np.random.default_rng(1)
    down, across = np.mgrid[-16:16, -16:16]
    shapes: dict[str, Callable[[int, int], Any]] = {
        "circle": lambda x, y: np.abs(np.hypot(down - y, across - x) - 9) < 2,
        "cross": lambda x, y: (np.abs(down - y) < 2) | (np.abs(across - x) < 2),
        "stripe": lambda x, y: np.abs(down - y + across - x) < 3,
    }
    for owner, colour in (("ann", 0), ("ben", 1), ("cleo", 2)):
        for name, shape in shapes.items():
            (folder / owner / name).mkdir(parents=True)
            for number in range(24):
                picture = rng.integers(0, 90, (32, 32, 3))
                picture[shape(*rng.integers(-5, 6, 2)), colour] = 250
                Image.fromarray(picture.astype(np.uint8)).save(folder / owner / name / f"{number:02}.png")


def _look_at_pictures(folder: Path) -> dict[str, Any]:
    counts = {owner: len(_seen(owner, "*/*.*")) for owner in _seen(folder, "*/")}
    owners = [owner for owner, count in counts.items() if count]
    empty = [owner.name for owner, count in counts.items() if not count]
    if not owners:
        raise PlexusError(f"{folder}: no pictures in folders OWNER/CLASS")
    classes = sorted({each.name for owner in owners for each in _seen(owner, "*/")})
    note = f"{sum(counts.values())} pictures of {len(owners)} owners, one a node; {len(classes)} classes"
    note += f"; no pictures, so no node: {', '.join(empty)}" if empty else ""
    names = json.dumps(classes, ensure_ascii=False)
    return {"nodes": len(owners), "names": names, "rate": 0.1, "hours": 0.3, "note": note}


def _look_at_texts(folder: Path) -> dict[str, Any]:
    files = _seen(folder, "*.txt")
    if not files:
        raise PlexusError(f"{folder}: no texts OWNER.txt")
    letters = sum(file.stat().st_size for file in files)
    note = f"{letters} bytes of {len(files)} owners, one a node"
    return {"nodes": len(files), "names": "", "rate": 0.003, "hours": 2.0, "note": note}


def _seen(folder: Path, pattern: str) -> list[Path]:
    return sorted(each for each in folder.glob(pattern) if not each.name.startswith("."))


OTHERS: dict[str, tuple[Callable[[Path], Any], Callable[[Path], dict[str, Any]]]] = {
    "images": (_write_pictures, _look_at_pictures),
    "text": (partial(shutil.copytree, MADE_UP / "letters", dirs_exist_ok=True), _look_at_texts),
}
"""Templates whose data is no table: what makes some up, and what says of it what the templates need."""
