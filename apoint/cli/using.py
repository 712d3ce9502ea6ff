"""User files that commands run: those named by `--use`, and with `--allow-code` those in records."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click


def _allow(ctx: click.Context, parameter: click.Parameter, allow: bool) -> None:
    if allow:
        from apoint.engine.custom import allowing_code

        ctx.with_resource(allowing_code())


allow_code_option = click.option(
    "--allow-code",
    is_flag=True,
    expose_value=False,
    callback=_allow,
    help="Run and read the files named by a recipe in a run, comparison or improvement folder.",
)


def use(files: Iterable[str], recipes: Iterable[str | None] = ()) -> None:
    """Run the files, in the order given, before anything is looked up.

    Args:
        files: The files that `--use` names.
        recipes: The recipes of the command; those in a record may not run code unless it is allowed.
    """
    from apoint.engine import custom

    for recipe in recipes:
        if recipe is not None:
            custom.check_recipe(Path(recipe))
    for file in files:
        custom.run_file(custom.locate(file, Path.cwd()))
