"""Groups of commands that cost nothing until one of them is used, listed by what one wants to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import click
from click.shell_completion import get_completion_class

from plexus import loading

# An example for every command: shown by its --help, printed in the reference, executed by a test.

QUICK = "experiments/quickstart.toml"
LIVE = "examples/digits-session.toml"

EXAMPLES: dict[str, tuple[str, ...]] = {
    "run": (
        "plexus run quickstart",
        f"plexus run {QUICK} --set protocol.sample_size=5 --seed 7 --json",
        "plexus run --resume runs/quickstart",
    ),
    "new": ("plexus new mytask", "plexus new wine --csv wine.csv --target cultivar --owner estate"),
    "data": ("plexus data list",),
    "data list": ("plexus data list", "plexus data list --json"),
    "data info": ("plexus data info movielens-small",),
    "data fetch": ("plexus data fetch movielens-small",),
    "data import": ("plexus data import movielens-small ml-latest-small.zip",),
    "traces": (f"plexus traces describe {QUICK}",),
    "traces describe": (f"plexus traces describe {QUICK} --nodes 500 --plot traces.png",),
    "traces bench": ("plexus traces bench --nodes 10000",),
    "session": (f"plexus session init authority --from {LIVE}",),
    "session init": (f"plexus session init authority --from {LIVE}",),
    "session invite": ("plexus session invite authority ed25519:5f0c… --days 30 --out peer7.crt",),
    "session revoke": ("plexus session revoke authority 5f0c1b22a9d4",),
    "node": ("plexus node status --home peer7",),
    "node key": ("plexus node key --home peer7",),
    "node start": ("plexus node start session.toml --home peer7 --data 7 --join peer1.example.org:7000",),
    "node status": ("plexus node status --home peer7 --json",),
    "node stop": ("plexus node stop --home peer7",),
    "export": ("plexus export model.safetensors --home peer7",),
    "fleet": (f"plexus fleet run {LIVE} --nodes 4 --seconds 20",),
    "fleet run": (
        f"plexus fleet run {LIVE} --nodes 4 --rounds 3",
        f"plexus fleet run {LIVE} --nodes 12 --shape",
    ),
    "bench": ("plexus bench protocol --nodes 100 --hours 1",),
    "bench protocol": ("plexus bench protocol --nodes 1000 --hours 1 --churn --json",),
    "bench training": ("plexus bench training --task digits --engine stacked --clients 16",),
    "bench transport": ("plexus bench transport --megabytes 20",),
    "report": ("plexus report runs/quickstart",),
    "compare": ("plexus compare runs/quickstart runs/other",),
    "dashboard": ("plexus dashboard runs",),
    "reproduce": ("plexus reproduce table2 --size tiny",),
    "storm": ("plexus storm --seeds 1..200", "plexus storm --minutes 10", "plexus storm --seed 7 --trace"),
    "doctor": ("plexus doctor", "plexus doctor --json"),
    "completion": ("source <(plexus completion bash)",),
}
"""By the words after `plexus`. Paths are those of a clone of the repository."""


def with_examples(command: click.Command, path: str) -> None:
    """Let the help of a command, and of those below it, end with its examples."""
    lines = EXAMPLES.get(path, ())
    if lines and not command.epilog:
        heading = "Example:" if len(lines) == 1 else "Examples:"
        # Backspace: what follows keeps its lines.
        command.epilog = "\b\n" + "\n".join([heading, *(f"  {line}" for line in lines)])
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            with_examples(below, f"{path} {name}")


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
            from plexus.checked import suggest

            ctx.fail(f"No such command '{name}'{suggest(name, known)}.")
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


# `plexus completion`: what a shell needs to complete the commands and options of `plexus`.

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print what makes SHELL complete `plexus` commands and options.

    \b
    bash:  add to ~/.bashrc   source <(plexus completion bash)
    zsh:   add to ~/.zshrc    source <(plexus completion zsh)
    fish:  run once           plexus completion fish > ~/.config/fish/completions/plexus.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None, "click knows all of these"
    root = click.get_current_context().find_root().command
    completer = kind(root, {}, "plexus", "_PLEXUS_COMPLETE")
    # Not `source()`: that would run bash to learn its version, also where there is none.
    click.echo(completer.source_template % completer.source_vars())
