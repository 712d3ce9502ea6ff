"""`apoint completion bash`: the script that a shell sources to complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from apoint.cli.terminal import say


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script of a shell.

    \b
    source <(apoint completion bash)
    """
    from apoint.cli import command as root

    kind = get_completion_class(shell)
    assert kind is not None
    say(kind(root, {}, "apoint", "_APOINT_COMPLETE").source())
