"""Groups of commands that cost nothing until one of them is used, and what many commands have in common."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import click

PATH = click.Path(path_type=Path)


def option(
    names: str, metavar: str | None = None, help: str | None = None, **more: Any
) -> Callable[[Any], Any]:
    """An option: its names, the last being that of the parameter where it has another; what stands for its
    value in the help, `DIR` and `FILE` for a path; and what it means."""
    if metavar is not None and metavar.partition(".")[0] in ("DIR", "FILE", "FOLDER", "OUT", "SPEC"):
        more.setdefault("type", PATH)
    return click.option(*names.split(), metavar=metavar, help=help, **more)


def flag(names: str, help: str) -> Callable[[Any], Any]:
    return click.option(*names.split(), is_flag=True, help=help)


class Numbers(click.FloatRange):
    """Without `nan`, which is in every range, as it is not beyond its ends."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = float(super().convert(value, param, ctx))
        return self.fail(f"{value!r} is not a number.", param, ctx) if math.isnan(found) else found


NATURAL, COUNT, POSITIVE = click.IntRange(min=0), click.IntRange(min=1), Numbers(0, min_open=True)
JSON = flag("--json as_json", "Print the result as one JSON object.")
HOME = option("--home", "DIR", "Its directory: key, certificate, state.", default="plexus-node")
TAGS = option("--tag tags", "WORD", "A word to find it by; may be repeated.", multiple=True)
NOTE = option("--note", "TEXT", "To be remembered.", default="", show_default=False)


def about(tags: Sequence[str], note: str) -> dict[str, Any]:
    """What these two say, for the versions of a run."""
    return {name: value for name, value in (("tags", list(tags)), ("note", note)) if value}


def set_option(changes: str) -> Callable[[Any], Any]:
    meaning = f"Change {changes}. May be given several times."
    return option("--set overrides", "KEY=VALUE", meaning, multiple=True)


def print_json(value: Any) -> None:
    import msgspec

    click.echo(msgspec.json.encode(value))


def answer(value: Any, as_json: bool, *lines: str) -> None:
    """The outcome of a command on standard output: as one JSON object, or in words."""
    if as_json:
        print_json(value)
    else:
        click.echo("\n".join(lines))


def told(name: str) -> dict[str, Any]:
    """What the file `name`.toml beside this one says about commands."""
    return tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text(encoding="utf-8"))


COMMANDS = told("commands")
"""By what one wants to do: the commands, and what each does."""
WHAT_THEY_DO = {name: text for commands in COMMANDS.values() for name, text in commands.items()}


@cache
def examples() -> dict[str, list[str]]:
    """By the words after `plexus`: command lines that the help shows and a test executes.

    Paths are those of a clone of the repository.
    """
    return told("examples")


def with_examples(command: click.Command, path: str) -> None:
    """Let the help of a command, and of those below it, end with its examples."""
    lines = examples().get(path, ())
    if lines and not command.epilog:
        heading = "Example:" if len(lines) == 1 else "Examples:"
        # Backspace: what follows keeps its lines.
        command.epilog = "\b\n" + "\n".join([heading, *(f"  {line}" for line in lines)])
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            with_examples(below, f"{path} {name}")


class Group(click.Group):
    """Guesses what a misspelt command was meant to be."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, known = args[0], self.list_commands(ctx)
        if name not in known and not name.startswith("-") and not ctx.resilient_parsing:
            from plexus.checked import suggest

            ctx.fail(f"No such command '{name}'{suggest(name, known)}.")
        return super().resolve_command(ctx, args)


class LazyGroup(Group):
    """Imports the command NAME from `plexus.cli.NAME` only when it is used, and lists it without.

    Commands that are added to it as to any group are there already.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(WHAT_THEY_DO)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in WHAT_THEY_DO:
            return None
        command = self.commands.get(cmd_name) or getattr(import_module(f"plexus.cli.{cmd_name}"), cmd_name)
        command.help = command.help or WHAT_THEY_DO[cmd_name]
        with_examples(command, cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for heading, commands in COMMANDS.items():
            with formatter.section(heading):
                formatter.write_dl(list(commands.items()))
