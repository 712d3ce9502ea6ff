"""`apoint inspect`: why does my network not train?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from apoint.cli.terminal import say, say_json
from apoint.cli.using import allow_code_option, use
from apoint.cli.writing import check_vacant, force_option


@click.command()
@click.argument("what", type=click.Path())
@click.argument("changes", nargs=-1)
@click.option("--data", help="The dataset, for a class in a Python file.")
@click.option("--seed", type=int, default=0, show_default=True, help="The seed.")
@click.option("--quick", is_flag=True, help="Short trials of a second or two; none for slow models.")
@click.option("--thorough", is_flag=True, help="Run every trial, even when the cause is already clear.")
@click.option("--html", "page", type=click.Path(), help="Write an HTML page with figures to this file.")
@force_option
@click.option("--data-root", type=click.Path(), help="The folder to search for datasets first.")
@click.option(
    "--use", "files", multiple=True, type=click.Path(), help="A Python file that registers ingredients."
)
@allow_code_option
@click.option(
    "--expect-healthy", is_flag=True, help="Exit with code 4 if something is wrong or could not be checked."
)
@click.option("--quiet", is_flag=True, help="Show no progress.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def command(
    what: str,
    changes: tuple[str, ...],
    data: str | None,
    page: str | None,
    force: bool,
    files: tuple[str, ...],
    expect_healthy: bool,
    quiet: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Inspect WHAT: a recipe, a run folder, or a class in a Python file, with key=value CHANGES.

    \b
    apoint inspect digits-mlp
    apoint inspect digits-mlp init=as-built optimizer.lr=10
    apoint inspect runs/digits-mlp-1a2b3c4d5e6f-s0 --html report.html
    apoint inspect net.py:Net --data digits optimizer.lr=3e-4

    Exit codes: 0 done, 1 failure, 2 wrong input, 4 something is wrong, or a stage could not run, and
    --expect-healthy was given.
    """
    from apoint.recipe import parse_overrides

    check_vacant(page, force)
    use(files)
    options["say"] = None if quiet or as_json else lambda text: say(f"looking at: {text}", err=True)
    report = _inspected(what, data, parse_overrides(changes), options)
    if page:
        _write_page(report, page, force)
    if as_json:
        say_json(report.to_dict())
    else:
        say(str(report))
        if page:
            say(f"\nPictures: {page}", err=True)
    if expect_healthy and not report.healthy:
        for stage, why in report.not_run.items():
            say(f"the stage {stage} did not run: {why}", err=True)
        sys.exit(4)


def _write_page(report: Any, page: str, force: bool) -> None:
    from apoint.inspection.page import inspection_html
    from apoint.store.files import new_file

    with new_file(Path(page), force) as stream:
        stream.write(inspection_html(report.to_dict()).encode())


def _inspected(what: str, data: str | None, changes: dict[str, Any], options: dict[str, Any]) -> Any:
    from apoint.engine.custom import allowing_code, check_recipe
    from apoint.errors import UsageError
    from apoint.inspection import sources

    file, _, name = what.rpartition(":")
    if file.endswith(".py"):
        if data is None:
            raise UsageError(
                f"{what} needs data to be inspected with; say --data digits, or a file of your own"
            )
        with allowing_code():  # the user names the file directly, wherever it is
            return sources.inspect_class(file, name, data, changes, **options)
    if what.endswith(".py"):
        raise UsageError(f"{what} is a Python file; say which class in it, as {what}:Net")
    if Path(what).is_dir():
        if changes:
            raise UsageError("a run is inspected as it is; changes go with a recipe")
        options.pop("seed")
        return sources.inspect_run(what, **options)
    check_recipe(Path(what))
    return sources.inspect_recipe(what, changes, **options)
