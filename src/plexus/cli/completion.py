"""`plexus completion`: what a shell needs to complete the commands and options of `plexus`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
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
