"""Commands about learning: `plexus new` and `plexus bench training`."""

from __future__ import annotations

import json
import keyword
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np

from plexus.errors import PlexusError
from plexus.learn import partition
from plexus.learn.engines import ENGINES
from plexus.learn.tabular import Table, has_many_words, read_columns, read_csv
from plexus.learn.tasks import BUILDERS
from plexus.rng import array_stream

# What `plexus new` writes: a project with a task of the user's own, which works as it is.

TASK = '''\
"""What is learned. Plexus calls `build` with the number of nodes, the seed and the keys of [task]."""

from functools import partial
from pathlib import Path

from torch import nn
from torch.nn import functional

from plexus.learn import partition
from plexus.learn.task import {measure}
from plexus.learn.tabular import read_csv
from plexus.learn.task import Sgd, Task
from plexus.rng import array_stream

CSV = Path(__file__).parents[1] / "data" / {file}


class Model(nn.Module):
    """Any torch module will do."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(inputs, 16), nn.ReLU(), nn.Linear(16, outputs))

    def forward(self, inputs):
        return self.layers(inputs){squeeze}


def build(nodes, seed, learning_rate=0.1):
    """The task for this many nodes. Keys of [task] other than `name` arrive as arguments."""
    # Data that is no table: plexus.learn.tasks.own.examples_from takes any torch data set.
    table = read_csv({reading})
    # One seeded split: what is tested on is never trained on. Plexus checks it by the ids.
    train, test = partition.split(len(table), 0.25, array_stream(seed, "split"))
    return Task(
        name="{name}",
        seed=seed,
        train=table.examples(train),
{parts}
        test=table.examples(test),
        build_model=partial(Model, table.width, {outputs}),
        loss=functional.{loss},
        measure={measure},
        sgd=Sgd(learning_rate),
        local_steps=5,
        batch=20,
    )
'''

BY_CHANCE = """\
        # Who has which examples: also by_user, dirichlet and shards, or rows of your own choice.
        parts=partition.iid(len(train), nodes, array_stream(seed, "partition")),"""
BY_OWNER = """\
        # Every node has the examples of one owner.
        parts=partition.by_user(table.owners[train], nodes, array_stream(seed, "partition")),"""

SESSION = """\
# A session of {name}.
#   plexus run {name}/session.toml                            simulates it
#   plexus fleet run {name}/session.toml --nodes 3            runs it for real, on this machine
name = "{name}"
seed = 1
nodes = {nodes}
hours = 2.0

[protocol]
name = "plexus"
sample_size = {sample_size}
start_delay_s = 3.0           # live: how long the first round waits for others

[task]
name = "{name}.task:build"    # package.module:factory, found beside this file
learning_rate = 0.1           # passed on to the factory

[traces]
availability = "none"         # everybody is always online

[evaluation]
every_rounds = 5              # the global model; of baselines, whose nodes have models of their own:
every_hours = 0.1
"""

TEST = '''\
"""Checks of the task: pytest {name}"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from plexus.learn.engines.inline import InlineEngine
from plexus.learn.graph import LazyModels

from {name}.task import build


def test_it_learns():
    models = LazyModels(task := build(nodes=5, seed=1), InlineEngine(task))
    model = models.initial()
    for round in range(1, 31):
        trained = [models.train(model, node, round) for node in range(5)]
        model = models.mean(trained, [models.samples(node) for node in range(5)])
    assert models.evaluate(model).loss < 0.9 * models.evaluate(models.initial()).loss


def test_the_same_seed_gives_the_same_data():
    first, again, other = (build(nodes=4, seed=seed) for seed in (1, 1, 2))
    assert [part.tolist() for part in first.parts] == [part.tolist() for part in again.parts]
    assert [part.tolist() for part in first.parts] != [part.tolist() for part in other.parts]
'''


@dataclass(frozen=True)
class Source:
    """The user's table, and what of it is for what."""

    csv: Path
    target: str | None = None
    """None: the last column."""
    owner: str | None = None
    """None: rows are dealt to nodes by chance."""


@dataclass(frozen=True)
class Project:
    """What was written, and what somebody should know about it."""

    folder: Path
    notes: list[str]


def write_project(name: str, into: Path, source: Source | None = None) -> Project:
    """Make the folder `name` in `into`, with a task, data, a session file and a test.

    The data is the user's table, or made up.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise PlexusError(
            f"{name!r} cannot name a Python package: use lower-case letters, digits and underscores,"
            " beginning with a letter"
        )
    folder = into / name
    if folder.exists():
        raise PlexusError(f"{folder} is already there: choose another name or remove it")
    plan = None if source is None else Plan.of(source)  # before anything is written
    try:
        (folder / name).mkdir(parents=True)
        (folder / "data").mkdir()
        if source is None:
            source = Source(folder / "data" / "readings.csv", "kind")
            _write_readings(source.csv)
        else:
            shutil.copyfile(source.csv, folder / "data" / source.csv.name)
    except OSError as error:
        raise PlexusError(f"{folder} cannot be made: {error.strerror}") from None
    plan = plan or Plan.of(source)
    (folder / name / "__init__.py").write_text("")
    (folder / name / "task.py").write_text(plan.fill(TASK, name))
    (folder / "session.toml").write_text(plan.fill(SESSION, name))
    (folder / "test_task.py").write_text(TEST.replace("{name}", name))
    return Project(folder, plan.notes)


@dataclass(frozen=True)
class Plan:
    """What a look at the table decided."""

    words: dict[str, str]
    """What stands for `{word}` in the templates."""
    notes: list[str]

    @staticmethod
    def of(source: Source) -> Plan:
        columns = read_columns(source.csv)
        target = source.target or list(columns)[-1]
        used = (target, source.owner)
        ignored = [n for n, cells in columns.items() if n not in used and has_many_words(cells)]
        table = read_csv(source.csv, target, owner=source.owner, ignore=ignored)
        reading = ["CSV", f"target={_quoted(target)}"]
        reading += [f"owner={_quoted(source.owner)}"] if source.owner else []
        reading += [f"ignore=[{', '.join(map(_quoted, ignored))}]"] if ignored else []
        train, _ = partition.split(len(table), 0.25, array_stream(1, "split"))
        nodes = min(30, len(train) // 5 or 1)
        if table.owners is not None:
            nodes = min(100, len(np.unique(table.owners[train])))
        return Plan(
            {
                "file": _quoted(source.csv.name),
                "reading": ", ".join(reading),
                "measure": "TOP1" if table.classes else "MSE",
                "loss": "cross_entropy" if table.classes else "mse_loss",
                "squeeze": "" if table.classes else ".squeeze(-1)",
                "outputs": "len(table.classes)" if table.classes else "1",
                "parts": BY_CHANCE if table.owners is None else BY_OWNER,
                "nodes": str(nodes),
                "sample_size": str(min(5, nodes)),
            },
            _notes(table, target, ignored),
        )

    def fill(self, template: str, name: str) -> str:
        for word, text in {**self.words, "name": name}.items():
            template = template.replace(f"{{{word}}}", text)
        return template


def _quoted(text: str) -> str:
    """As people write text in Python; JSON's escapes are Python's."""
    return json.dumps(text, ensure_ascii=False)


def _notes(table: Table, target: str, ignored: list[str]) -> list[str]:
    goal = "a number, in standard deviations from its mean"
    if table.classes:
        shown = ", ".join(table.classes[:5]) + (", …" if len(table.classes) > 5 else "")
        goal = f"one of {len(table.classes)} classes ({shown})"
    notes = [f"{len(table)} rows; {table.width} inputs; predicts {target!r}, {goal}"]
    if table.owners is not None:
        notes.append(f"{len(np.unique(table.owners))} owners, one a node")
    notes += table.notes
    notes += [f"left out, as its words are nearly all different: {name!r}" for name in ignored]
    return notes


def _write_readings(path: Path) -> None:
    """Made-up readings of three kinds of machine, each around its own centre."""
    rng = np.random.default_rng(1)
    kinds = rng.integers(0, 3, 600)
    centres = np.array([[20, 1.0, 0.2, 5], [22, 1.4, 0.5, 4], [25, 0.9, 0.6, 6]])
    values = centres[kinds] + rng.normal(0, [1.0, 0.15, 0.1, 0.5], (600, 4))
    lines = ["temperature,vibration,noise,current,kind"]
    for row, kind in zip(values, kinds, strict=True):
        lines.append(",".join([*(f"{value:.3f}" for value in row), ("fan", "mill", "pump")[kind]]))
    path.write_text("\n".join(lines) + "\n")


@click.command()
@click.argument("name")
@click.option(
    "--into",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    show_default="the current folder",
    help="The folder in which the project's folder is made.",
)
@click.option(
    "--csv",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Your own table, with a header. Without it, made-up data to begin with.",
)
@click.option(
    "--target",
    metavar="COLUMN",
    help="The column of the table to predict: a class or a number.  [default: the last]",
)
@click.option(
    "--owner",
    metavar="COLUMN",
    help="The column that says whose a row is: one owner a node.  [default: dealt by chance]",
)
def new(name: str, into: Path, csv: Path | None, target: str | None, owner: str | None) -> None:
    """Write the beginnings of a task of your own: a small project that works as it is.

    NAME becomes a folder and a Python package: lower-case letters, digits and underscores.
    """
    from plexus.cli.new import Source, write_project

    if csv is None and (target or owner):
        raise click.UsageError("--target and --owner are columns of a table: give it with --csv")
    project = write_project(name, into, None if csv is None else Source(csv, target, owner))
    session = project.folder / "session.toml"
    click.echo(f"Wrote {project.folder}.")
    for note in project.notes:
        click.echo(f"  {note}")
    click.echo("Now:")
    click.echo(f"  plexus run {session}    # simulate a session")
    click.echo(f"  plexus fleet run {session} --nodes 3 --rounds 20    # for real: three processes")
    click.echo(f"  edit {project.folder / name / 'task.py'}    # put in your model")
    click.echo(f"  pytest {project.folder}    # check the task")


@click.command("training")
@click.option("--task", type=click.Choice(list(BUILDERS)), default="digits", show_default=True)
@click.option("--engine", type=click.Choice(ENGINES), default="auto", show_default=True)
@click.option("--clients", type=click.IntRange(min=1), default=16, show_default=True)
@click.option("--repeats", type=click.IntRange(min=1), default=5, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--workers", type=click.IntRange(min=1), help="Of the engines processes and ray.")
@click.option("--device", help="cpu, cuda or cuda:N.  [default: a GPU if there is one]")
@click.option("--random-data", is_flag=True, help="For cifar10: no files needed, as fast as real.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
def bench_training(
    task: str,
    engine: str,
    clients: int,
    repeats: int,
    seed: int,
    workers: int | None,
    device: str | None,
    random_data: bool,
    as_json: bool,
) -> None:
    """Time one local training, beside a bare PyTorch loop over the same clients."""
    import msgspec

    from plexus.bench import training

    found = training.bench_training(
        task,
        engine,
        clients,
        repeats=repeats,
        seed=seed,
        workers=workers,
        device=device,
        random_data=random_data,
    )
    if as_json:
        click.echo(msgspec.json.encode(found).decode())
        return
    click.echo(f"engine     {found.engine} on {found.device}: {found.reason}")
    click.echo(f"model      {found.task}, {found.parameters:,} parameters, {found.clients} clients")
    click.echo(f"training   {found.ms_per_client:.3f} ms per client")
    click.echo(f"bare loop  {found.bare_loop_ms_per_client:.3f} ms per client")
    faster = 1 / found.ratio_to_bare_loop
    click.echo(f"ratio      {found.ratio_to_bare_loop:.3f} ({faster:.2f} times as fast as the loop)")
