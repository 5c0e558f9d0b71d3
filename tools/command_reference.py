"""The reference page of all commands, made from the commands themselves; used by tools/site.py."""

from __future__ import annotations

from collections.abc import Iterator

import click

from plexus.cli import cli
from plexus.cli.groups import COMMANDS, examples

_HEAD = """\
# Commands

`plexus --help` and `plexus COMMAND --help` print what stands here. A misspelt command, option or key is
answered with what was probably meant. `plexus completion bash` (or `zsh`, `fish`) prints what lets the shell
complete them.

| exit status | meaning |
|---|---|
| 0 | done |
| 1 | it ran, and something in it failed: a peer of a fleet, a check of `plexus doctor` |
| 2 | bad input: one line on standard error names the option, key or file at fault |
| 130 | stopped early by Ctrl-C or SIGTERM; what there is was kept |

Results go to standard output, progress and notes to standard error. Where a command has `--json`, standard
output is one JSON object and nothing else. Colours are for terminals only, and `NO_COLOR=1` turns them off
there.
"""


def page() -> str:
    """The whole page."""
    context = click.Context(cli, info_name="plexus", **cli.context_settings)
    parts = [_HEAD]
    for heading, names in COMMANDS.items():
        parts.append(f"## {heading}\n")
        parts += [part for name in names for part in _command(cli, context, name)]
    return "\n".join(parts)


def _command(group: click.Group, parent: click.Context, name: str) -> Iterator[str]:
    command = group.get_command(parent, name)
    assert command is not None, "it is listed"
    context = click.Context(command, info_name=name, parent=parent)
    path = context.command_path
    if not isinstance(command, click.Group):
        yield f"### {path}\n"
        yield _usage(command, context)
        yield f"{_prose(command)}\n"
        yield from _options(command, context)
        shown = examples().get(path.removeprefix("plexus "), ())
        yield "\n".join(["```text", *shown, "```\n"]) if shown else ""
        return
    for below in command.list_commands(context):
        yield from _command(command, context, below)


def _usage(command: click.Command, context: click.Context) -> str:
    return f"`{context.command_path} {' '.join(command.collect_usage_pieces(context))}`\n"


def _prose(command: click.Command) -> str:
    """The docstring; what must keep its lines (after a backspace) becomes a block."""
    parts = []
    for paragraph in (command.help or "").split("\n\n"):
        if paragraph.startswith("\b"):
            parts.append(f"```text\n{paragraph[2:]}\n```")
        else:
            parts.append(" ".join(paragraph.split()))
    return "\n\n".join(parts)


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    options = [each for each in command.params if isinstance(each, click.Option) and not each.hidden]
    if not options:
        return
    yield "| option | meaning |\n|---|---|"
    for option in options:
        names, meaning = option.get_help_record(context) or ("", "")
        yield f"| `{names}` | {_cell(meaning)} |"
    yield ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
