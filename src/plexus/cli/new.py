"""Commands about learning: `plexus new` and `plexus bench training`."""

from __future__ import annotations

from pathlib import Path

import click

from plexus.learn.engines.choice import ENGINES
from plexus.learn.tasks import TASKS


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
    from plexus.cli.scaffold import Source, write_project

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
@click.option("--task", type=click.Choice(list(TASKS)), default="digits", show_default=True)
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
    click.echo(
        f"ratio      {found.ratio_to_bare_loop:.3f} ({faster:.2f} times as fast as the loop)"
    )
