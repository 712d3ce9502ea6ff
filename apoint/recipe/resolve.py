"""Resolve an ingredient as written in a recipe to all of its settings, checked.

`relu` and `{name: relu}` and `{name: relu, …every default…}` all resolve to the same plain mapping,
so a fingerprint does not depend on spelling. Settings marked `Schedulable` may hold a schedule
instead of a number; settings that name an ingredient are resolved in turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from apoint.checking import describe, is_schedulable, named_ingredient, settings_model
from apoint.errors import UsageError, suggestion
from apoint.plain_yaml import Place
from apoint.registry import Ingredient, registry
from apoint.units import Duration


class RecipeError(UsageError):
    """An error at one place in a recipe; the document adds the file and line."""

    def __init__(self, place: Place, sentence: str) -> None:
        self.place, self.sentence = place, sentence
        shown = ".".join(str(part) for part in place)
        super().__init__(f"{shown}: {sentence}" if shown else sentence)


def resolve(kind: str, raw: Any, place: Place = (), default: str | None = None) -> dict[str, Any]:
    """Resolve an ingredient to `{name, every setting}` in plain values; raises `RecipeError`.

    Args:
        kind: The kind of ingredient.
        raw: Its name, or a mapping of its name and settings.
        place: Where it is in the recipe.
        default: The name used for a mapping that has none.
    """
    if default and isinstance(raw, Mapping):
        raw = {"name": default, **raw}
    name, given = _name_and_settings(kind, raw, place)
    known = registry(kind)
    if name not in known:
        where = (*place, "name") if isinstance(raw, Mapping) else place
        raise RecipeError(where, f"unknown {kind} {name!r}; {suggestion(name, known)}")
    return {"name": name, **resolve_settings(known[name], given, place)}


def _one(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeio' else 'a'} {kind}"


def _name_and_settings(kind: str, raw: Any, place: Place) -> tuple[str, dict[str, Any]]:
    if isinstance(raw, str):
        return raw, {}
    if not isinstance(raw, Mapping):
        example = next(iter(registry(kind)), "…")
        raise RecipeError(place, f"must name {_one(kind)}, such as {example!r}, got {raw!r}")
    name = raw.get("name")
    if not isinstance(name, str):
        raise RecipeError(
            place, f"must have a 'name' that names {_one(kind)}; {suggestion('', registry(kind))}"
        )
    return name, {key: value for key, value in raw.items() if key != "name"}


def resolve_settings(entry: Ingredient, given: Mapping[str, Any], place: Place) -> dict[str, Any]:
    """Every setting of an ingredient as plain values, defaults included."""
    parameters = entry.setting_parameters
    annotations = {name: annotation for name, (annotation, _, _) in parameters.items()}
    scheduled = {
        name: resolve("schedule", value, (*place, name))
        for name, value in given.items()
        if name in annotations and isinstance(value, Mapping) and is_schedulable(annotations[name])
    }
    fixed = {name: value for name, value in given.items() if name not in scheduled}
    try:
        checked = settings_model(entry)(**fixed)
    except ValidationError as error:
        first = error.errors()[0]
        if first["type"] == "missing" and first["loc"] and first["loc"][0] in scheduled:
            raise AssertionError("a schedulable setting must have a default") from None
        where = (*place, str(first["loc"][0])) if first["loc"] else place
        known = {**parameters, "name": None}
        raise RecipeError(where, f"{entry.kind} {entry.name!r}: {describe(first, known)}") from None
    settings = {}
    for name, annotation in annotations.items():
        nested = named_ingredient(annotation)
        value = getattr(checked, name)
        if name in scheduled:
            settings[name] = scheduled[name]
        elif nested and value is not None:
            inside = resolve(nested.kind, value, (*place, name))
            written = value if isinstance(value, Mapping) else {}
            left_out = [key for key in nested.beside if key not in written]
            settings[name] = {key: item for key, item in inside.items() if key not in left_out}
        else:
            settings[name] = plain(value)
    return settings


def plain(value: Any) -> Any:
    """A checked setting as plain values that YAML and JSON can hold."""
    if isinstance(value, Duration):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value
