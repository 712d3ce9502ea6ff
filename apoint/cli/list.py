"""`apoint list`: what a recipe can choose from."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from apoint.cli.terminal import say, say_json
from apoint.errors import UnknownNameError
from apoint.registry import HOMES, Ingredient, registry

if TYPE_CHECKING:
    from apoint.doctor.card import Card


def plural(kind: str) -> str:
    """The word that `apoint list` uses for a kind."""
    irregular = {"loss": "losses", "feed-forward": "feed-forwards"}
    return irregular.get(kind, f"{kind}s")


KINDS = {plural(kind): kind for kind in HOMES}


@click.command()
@click.argument("what", required=False)
@click.argument("name", required=False)
@click.option("--folder", help="List the recipes in this folder instead of those that come with apoint.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(what: str | None, name: str | None, folder: str | None, as_json: bool) -> None:
    """List ingredients, datasets, recipes and findings, or explain one of them.

    \b
    apoint list
    apoint list optimizers
    apoint list optimizers lion
    apoint list recipes
    apoint list findings dead-units
    """
    if what is None:
        _overview(as_json)
    elif what == "recipes":
        _recipes(folder, as_json)
    elif what == "findings":
        _findings(name, as_json)
    else:
        kind = KINDS.get(what) or (what if what in HOMES else None)
        if kind is None:
            raise UnknownNameError("kind of ingredient", what, [*KINDS, "recipes", "findings"])
        entries = [registry(kind)[entry] for entry in ([name] if name else registry(kind))]
        if as_json:
            say_json({"schema_version": 1, what: [_as_json(entry) for entry in entries]})
        elif name:
            _explain(entries[0])
        else:
            _table([(entry.name, entry.summary) for entry in entries])


def _overview(as_json: bool) -> None:
    counts = {word: len(registry(kind)) for word, kind in KINDS.items()}
    if as_json:
        say_json({"schema_version": 1, "kinds": counts})
        return
    _table([(word, ", ".join(registry(KINDS[word]))) for word in KINDS])
    say("\napoint list <kind> describes each; apoint list <kind> <name> explains one and its settings.")


def _table(rows: list[tuple[str, str]]) -> None:
    width = max((len(left) for left, _ in rows), default=0) + 2
    for left, right in rows:
        say(click.wrap_text(right, 110, f"{left:<{width}}", " " * width))


def _as_json(entry: Ingredient) -> dict[str, Any]:
    from apoint.checking import settings_model

    schema = settings_model(entry).model_json_schema()
    return {
        "name": entry.name,
        "summary": entry.summary,
        "course": list(entry.course),
        "settings": schema.get("properties", {}),
    }


def _explain(entry: Ingredient) -> None:
    course = f"  (course: {', '.join(entry.course)})" if entry.course else ""
    say(f"{entry.kind} {entry.name}{course}\n")
    say(inspect.getdoc(entry.build) or "")
    if entry.setting_parameters:
        from apoint.recipe.resolve import plain

        say("\nSettings and defaults:")
        for name, (_, default, _) in entry.setting_parameters.items():
            shown = "required" if default is inspect.Parameter.empty else plain(default)
            say(f"  {name}: {json.dumps(shown, default=str)}")


def _recipes(folder: str | None, as_json: bool) -> None:
    from apoint.packaged_recipes import packaged
    from apoint.recipe import read_document

    if folder is None:
        files = packaged()
    else:
        place = Path(folder)
        files = {str(file): file for file in sorted([*place.glob("*.yaml"), *place.glob("*.yml")])}
    described = {name: str(read_document(file).values.get("description", "")) for name, file in files.items()}
    if as_json:
        found = [
            {"name": name, "file": str(files[name]), "description": text} for name, text in described.items()
        ]
        say_json({"schema_version": 1, "recipes": found})
    elif described:
        _table(list(described.items()))
        if folder is None:
            say("\napoint train <name> trains one; apoint recipe <name> > mine.yaml copies it.")
    else:
        say(f"there are no recipes in {folder}")


def _findings(code: str | None, as_json: bool) -> None:
    """Print what an inspection can find, or the full card of one code."""
    from apoint.doctor.card import cards

    known = cards()
    if code is not None and code not in known:
        raise UnknownNameError("finding", code, known)
    chosen = [known[code]] if code else list(known.values())
    if as_json:
        say_json({"schema_version": 1, "findings": [one.to_dict() for one in chosen]})
    elif code:
        _explain_finding(chosen[0])
    else:
        _table([(one.code, one.sees) for one in chosen])


def _explain_finding(known: Card) -> None:
    course = f"  (course: {', '.join(known.course)})" if known.course else ""
    say(f"{known.code}, {known.level}, at the stage {known.stage}{course}\n")
    rows = [
        ("what", known.sees),
        ("healthy", known.healthy_words.removeprefix("healthy: ")),
        ("cause", known.cause),
    ]
    if known.treatment is not None:
        rows += [("try", known.treatment.words)]
    _table([(label, words) for label, words in rows if words])
    if known.treatment is not None and known.treatment.code:
        say("")
        for line in known.treatment.code.splitlines():
            say(f"    {line}")
    if known.explains:
        say(click.wrap_text(f"\nIt also explains: {', '.join(sorted(known.explains - {known.code}))}.", 110))
