"""`apoint recipe`: the text of a packaged recipe."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

from apoint.cli.terminal import say


def _complete(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from apoint.packaged_recipes import packaged

    return [CompletionItem(name) for name in packaged() if name.startswith(incomplete)]


@click.command()
@click.argument("name", shell_complete=_complete)
def command(name: str) -> None:
    """Print the recipe NAME, with its comments, to copy and change.

    \b
    apoint list recipes
    apoint recipe digits-mlp > mine.yaml
    apoint train mine.yaml
    """
    from apoint.packaged_recipes import packaged_text

    say(packaged_text(name), nl=False)
