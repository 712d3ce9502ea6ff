"""`apoint data`: list, fetch and check datasets."""

from __future__ import annotations

import sys

import click

from apoint.cli.terminal import rewrite, say, say_json

_ROOT = click.option("--data-root", type=click.Path(), help="The folder to search for datasets first.")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print as JSON.")


@click.group()
def command() -> None:
    """List, fetch and check datasets."""


@command.command("list")
@_ROOT
@_JSON
def list_datasets(data_root: str | None, as_json: bool) -> None:
    """List datasets, and whether they are on this machine."""
    from apoint.data import catalogue

    rows = catalogue(data_root)
    if as_json:
        say_json({"schema_version": 1, "datasets": [vars(row) for row in rows]})
        return
    name_width, where_width = (max(len(getattr(row, key)) for row in rows) + 2 for key in ("name", "where"))
    for row in rows:
        say(f"{row.name:<{name_width}}{row.where:<{where_width}}{row.summary}")


@command.command("fetch")
@click.argument("name")
@click.option(
    "--data-root", type=click.Path(), help="The folder to put it in; $APOINT_DATA or the cache by default."
)
@click.option("--force", is_flag=True, help="Fetch it again even if it is already there.")
@_JSON
def fetch_dataset(name: str, data_root: str | None, force: bool, as_json: bool) -> None:
    """Download a public dataset, verified by its hash; an interrupted download resumes."""
    from apoint.data import fetch

    moving = sys.stderr.isatty()

    def progress(file: str, done: int, total: int) -> None:
        if moving:
            rewrite(f"{file}: {done / 2**20:.1f} of {total / 2**20:.1f} MiB", sys.stderr, 80)
            say(err=True, nl=done >= total)

    folder = fetch(name, data_root, force=force, progress=progress)
    if as_json:
        say_json({"schema_version": 1, "folder": str(folder)})
    else:
        say(folder)


@command.command("check")
@click.argument("name")
@click.argument("settings", nargs=-1)
@_ROOT
@_JSON
def check_dataset(name: str, settings: tuple[str, ...], data_root: str | None, as_json: bool) -> None:
    """Load a dataset and report its sizes and anything odd.

    \b
    apoint data check digits
    apoint data check houses.csv
    apoint data check csv path=houses.csv target=price
    """
    from apoint.data import check
    from apoint.recipe import parse_overrides

    report = check(name, root=data_root, **parse_overrides(settings))
    if not as_json:
        say(str(report))
        return
    data = report.data
    values = {
        "name": name,
        "kind": data.facts.kind,
        "task": data.facts.task,
        "input_shape": list(data.facts.input_shape),
        "num_outputs": data.facts.num_outputs,
        "examples": {split: len(rows) for split, rows in data.splits.items()},
        "class_counts": report.class_counts,
        "fingerprint": data.fingerprint,
        "notes": data.notes,
    }
    say_json({"schema_version": 1, **values})
