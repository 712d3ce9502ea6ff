"""`apoint schema`: the JSON schema of recipes, for editors that complete and check YAML."""

from __future__ import annotations

import click

from apoint.cli.terminal import say_json


@click.command()
def command() -> None:
    """Print the JSON schema of recipes.

    \b
    apoint schema > recipe.schema.json
    # then, as the first line of a recipe:
    # yaml-language-server: $schema=recipe.schema.json
    """
    from apoint.recipe import json_schema

    say_json(json_schema(), indented=True)
