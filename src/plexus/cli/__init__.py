"""The command `plexus`: `cli/NAME.py` holds the command NAME, and is imported when somebody uses it.

Only the completion of commands, which is about all of them, is here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from plexus import __version__
from plexus.cli.groups import LazyGroup
from plexus.errors import Interrupted, PlexusError, missing

BAD_INPUT, INTERRUPTED = PlexusError.exit_code, 130

ENDINGS = """\b
Exit status: 0 done · 1 it ran, and something in it failed · 2 bad input, in one line that
names it · 130 stopped early by Ctrl-C or SIGTERM, what there is was kept.
NO_COLOR=1 turns colours off; without a terminal there are none. `plexus COMMAND --help` has examples.
"""


@click.group(
    cls=LazyGroup,
    epilog=ENDINGS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True},
)
@click.version_option(__version__, "-V", "--version", prog_name="plexus")
@click.pass_context
def cli(context: click.Context) -> None:
    """Train one model across many unreliable devices, with no server.

    Start with: plexus run quickstart
    """
    if os.environ.get("NO_COLOR"):  # rich looks by itself, click does not
        context.color = False


@cli.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what makes SHELL complete `plexus` commands and options.

    \b
    bash:  add to ~/.bashrc   source <(plexus completion bash)
    zsh:   add to ~/.zshrc    source <(plexus completion zsh)
    fish:  run once           plexus completion fish > ~/.config/fish/completions/plexus.fish
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None, "click knows all of these"
    completer = kind(cli, {}, "plexus", "_PLEXUS_COMPLETE")
    # Not `source()`: that would run bash to learn its version, also where there is none.
    click.echo(completer.source_template % completer.source_vars())


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command, and end the process with a line for the user and a status for scripts."""
    try:
        status = cli.main(arguments, prog_name="plexus", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except PlexusError as error:
        _say(" ".join(str(error).split()))
        sys.exit(error.exit_code)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("plexus"):
            raise  # ours is there, or something is wrong with it
        _say(missing(error.name, "this"))
        sys.exit(BAD_INPUT)
    except (Interrupted, KeyboardInterrupt, click.Abort) as stop:
        _say(str(stop) or "interrupted")
        sys.exit(INTERRUPTED)
    sys.exit(status if isinstance(status, int) else 0)


def _say(text: str) -> None:
    click.echo(f"plexus: {text}", err=True)
