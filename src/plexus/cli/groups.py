"""Groups of commands that cost nothing until one of them is used, listed by what one wants to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from importlib.util import find_spec
from typing import Any

import click

from plexus import loading
from plexus.cli.examples import with_examples

OTHERS = "Commands"


class LazyGroup(click.Group):
    """Imports a command only when it is used, and lists it without importing it.

    A command whose module is not part of this installation is neither listed nor known.
    """

    def __init__(
        self,
        *args: Any,
        elsewhere: Mapping[str, tuple[str, str]],
        sections: Mapping[str, Sequence[str]] | None = None,
        **kwargs: Any,
    ) -> None:
        """`elsewhere` says by name where a command is (`module:object`) and what it does.

        `sections` says under which heading of the help a command stands; others come last.
        """
        super().__init__(*args, **kwargs)
        self.elsewhere = elsewhere
        self.sections = sections or {}

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
        here = super().get_command(ctx, cmd_name)
        command: click.Command | None = here if reference is None else loading.load(reference)
        if command is not None:
            _, *groups = ctx.command_path.split()
            with_examples(command, " ".join([*groups, cmd_name]))
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        known = self.list_commands(ctx)
        if name not in known and not name.startswith("-") and not ctx.resilient_parsing:
            near = get_close_matches(name, known, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            ctx.fail(f"No such command '{name}'.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        listed = {
            name: command.get_short_help_str(72)
            for name, command in self.commands.items()
            if not command.hidden
        }
        listed |= {name: meaning for name, (_, meaning) in self._found().items()}
        for heading, names in self.sections.items():
            rows = [(name, listed.pop(name)) for name in names if name in listed]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)
        if listed:
            with formatter.section(OTHERS):
                formatter.write_dl(sorted(listed.items()))
