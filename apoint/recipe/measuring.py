"""The `probes` section of a recipe: what is measured, how often, and how much time it may take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apoint.errors import UsageError, suggestion
from apoint.recipe.resolve import RecipeError, resolve_settings
from apoint.registry import Ingredient, registry
from apoint.units import Duration


def resolve_probes(raw: Any) -> dict[str, Any]:
    """Check `{signal: every 100 steps}` and resolve it to `{signal: {every: 100 steps, every setting}}`."""
    if not isinstance(raw, Mapping):
        raise RecipeError(
            ("probes",), f"must map probes to how often, such as {{signal: 100 steps}}, got {raw!r}"
        )
    resolved: dict[str, Any] = {}
    for name, wish in raw.items():
        place = ("probes", name)
        resolved[name] = _budget(wish) if name == "budget" else _probe(name, wish, place)
    return resolved


def _probe(name: Any, wish: Any, place: tuple[str | int, ...]) -> dict[str, Any]:
    from apoint.probes.observer import parsed

    entry = known_probe(name, place)
    try:
        every, settings = parsed(name, wish)
    except UsageError as error:
        raise RecipeError(place, str(error)) from None
    return {"every": str(every), **resolve_settings(entry, settings, place)}


def known_probe(name: Any, place: tuple[str | int, ...]) -> Ingredient:
    """The probe or track with this name."""
    for kind in ("probe", "track"):
        if name in registry(kind):
            return registry(kind)[name]
    known = [*registry("probe"), *registry("track")]
    raise RecipeError(place, f"unknown probe {name!r}; {suggestion(str(name), known)}")


def _budget(raw: Any) -> float:
    try:
        share = Duration.parse(raw)
    except UsageError:
        share = Duration(0.0, "steps")
    if share.unit != "share" or not 0 < share.value <= 1:
        raise RecipeError(
            ("probes", "budget"), f"must be a share of the training time such as 5%, got {raw!r}"
        )
    return share.value
