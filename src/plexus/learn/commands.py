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
def new(name: str, into: Path) -> None:
    """Write the beginnings of a task of your own: a small project that works as it is.

    NAME becomes a folder and a Python package: lower-case letters, digits and underscores.
    """
    from plexus.learn.scaffold import write_project

    folder = write_project(name, into)
    click.echo(f"Wrote {folder}. Now:")
    click.echo(f"  plexus run {folder / 'session.toml'}    # simulate a session")
    click.echo(f"  pytest {folder}    # check the task")
    click.echo(f"  edit {folder / name / 'task.py'}    # put in your model and data")


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

    from plexus.learn import bench

    found = bench.bench_training(
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
