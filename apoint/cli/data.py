"""`apoint data`: which datasets there are, fetching them, checking them."""

from __future__ import annotations

import json
from typing import Any

import click


@click.group()
def command() -> None:
    """List, fetch and check datasets."""


@command.command("list")
@click.option("--data-root", type=click.Path(), help="Where datasets are looked for first.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def list_datasets(data_root: str | None, as_json: bool) -> None:
    """List datasets, and whether they are here."""
    from apoint.data import catalogue

    rows = catalogue(data_root)
    if as_json:
        click.echo(json.dumps({"schema_version": 1, "datasets": [vars(row) for row in rows]}, default=str))
        return
    width = max(len(row.name) for row in rows) + 2
    for row in rows:
        click.echo(f"{row.name:<{width}}{row.summary}")


@command.command("fetch")
@click.argument("name")
@click.option(
    "--data-root", type=click.Path(), help="Where to put it; $APOINT_DATA or the cache folder by default."
)
def fetch_dataset(name: str, data_root: str | None) -> None:
    """Download a public dataset, verified by its hash; an interrupted download goes on."""
    from apoint.data import fetch

    click.echo(fetch(name, data_root))


@command.command("check")
@click.argument("name")
@click.argument("settings", nargs=-1)
@click.option("--data-root", type=click.Path(), help="Where datasets are looked for first.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def check_dataset(name: str, settings: tuple[str, ...], data_root: str | None, as_json: bool) -> None:
    """Load a dataset and report its sizes and anything odd.

    \b
    apoint data check digits
    apoint data check csv path=houses.csv target=price
    """
    from apoint.data import load
    from apoint.recipe import parse_overrides

    data = load(name, root=data_root, **parse_overrides(settings))
    facts = data.facts
    report: dict[str, Any] = {
        "name": name,
        "kind": facts.kind,
        "task": facts.task,
        "input_shape": list(facts.input_shape),
        "num_outputs": facts.num_outputs,
        "examples": {split: len(rows) for split, rows in data.splits.items()},
        "fingerprint": data.fingerprint,
        "notes": data.notes,
    }
    if as_json:
        click.echo(json.dumps({"schema_version": 1, **report}, ensure_ascii=False))
        return
    for key, value in report.items():
        if key != "notes":
            click.echo(f"{key:<13}{value}")
    for note in data.notes or ["nothing odd found"]:
        click.echo(f"note         {note}")
