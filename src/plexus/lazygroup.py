"""Groups of commands that cost nothing until one of them is used."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import click

from plexus import lazy


class LazyGroup(click.Group):
    """Imports a command only when it is used, and lists it without importing it.

    A command whose module is not part of this installation is neither listed nor known.
    """

    def __init__(self, *args: Any, elsewhere: Mapping[str, tuple[str, str]], **kwargs: Any) -> None:
        """`elsewhere` says by name where a command is (`module:object`) and what it does."""
        super().__init__(*args, **kwargs)
        self.elsewhere = elsewhere

    def _found(self) -> dict[str, tuple[str, str]]:
        return {
            name: (reference, meaning)
            for name, (reference, meaning) in self.elsewhere.items()
            if find_spec(reference.partition(":")[0]) is not None
        }

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*self.commands, *self._found()])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        reference, _ = self._found().get(cmd_name, (None, ""))
        if reference is None:
            return super().get_command(ctx, cmd_name)
        command: click.Command = lazy.load(reference)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        here = ((name, command.get_short_help_str(72)) for name, command in self.commands.items())
        elsewhere = ((name, meaning) for name, (_, meaning) in self._found().items())
        with formatter.section("Commands"):
            formatter.write_dl(sorted([*here, *elsewhere]))
