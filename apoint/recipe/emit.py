"""Write a recipe as YAML that reads back to the same recipe, with the origin of each value if needed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from apoint.plain_yaml import NUMBER, WORDS, Place
from apoint.recipe.document import OVERRIDE, Document
from apoint.recipe.recipe import Recipe

_PLAIN = re.compile(r"^[A-Za-z_./][A-Za-z0-9_./ -]*$")
_EXPONENT_BELOW, _EXPONENT_FROM = 0.01, 1e6


def to_yaml(recipe: Recipe, note: Callable[[Place], str] | None = None) -> str:
    """The whole recipe as YAML; `note` returns the comment after a value, such as its origin."""
    lines: list[str] = []
    for name, value in recipe.model_dump(mode="json").items():
        _write(name, value, (name,), 0, lines, note)
    return "\n".join(lines) + "\n"


def with_origins(recipe: Recipe, document: Document) -> str:
    """The whole recipe as YAML, each value with its origin: a line of the file, an override, or default."""
    written = document.origins

    def origin(place: Place) -> str:
        # A bare name may replace its mapping (`optimizer: adam`); lists and overrides cover their contents.
        if place in written:
            return written[place]
        if place[-1] == "name" and place[:-1] in written and not _has_children(place[:-1], written):
            return written[place[:-1]]
        covering = [place[:n] for n in range(1, len(place)) if written.get(place[:n]) == OVERRIDE]
        inside = covering and _holds(document.values, place)
        return OVERRIDE if inside else "default"

    return to_yaml(recipe, origin)


def describe_overrides(document: Document) -> str:
    """The overrides of the recipe in its file, as typed on the command line; empty if there are none."""
    places = (place for place, origin in document.origins.items() if origin == OVERRIDE)
    return " ".join(
        f"{'.'.join(map(str, place))}={format_value(_at(document.values, place))}" for place in places
    )


def _at(values: Any, place: Place) -> Any:
    for part in place:
        values = values[part]
    return values


def format_value(value: Any) -> str:
    """A value on one line of a recipe, with numbers as people write them: 0.05, 3e-4, 64."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {format_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(format_value, value)) + "]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return _number(value) if isinstance(value, float) else str(value)


def _number(value: float) -> str:
    """All significant digits and no others; an exponent below a hundredth or above a million."""
    exact = Decimal(repr(value))
    if not exact.is_finite():
        return str(value)
    if value and not _EXPONENT_BELOW <= abs(value) < _EXPONENT_FROM:
        mantissa, _, exponent = f"{exact.normalize():e}".partition("e")
        return f"{mantissa}e{int(exponent)}"
    return f"{exact.normalize() + 0:f}"


def _has_children(place: Place, written: dict[Place, str]) -> bool:
    return any(len(other) > len(place) and other[: len(place)] == place for other in written)


def _holds(values: Any, place: Place) -> bool:
    for part in place:
        try:
            values = values[part]
        except (KeyError, IndexError, TypeError):
            return isinstance(values, str) and part == "name"
    return True


def _write(
    name: str, value: Any, place: Place, depth: int, lines: list[str], note: Callable[[Place], str] | None
) -> None:
    pad = "  " * depth
    if isinstance(value, dict) and value:
        lines.append(f"{pad}{name}:")
        for key, item in value.items():
            _write(key, item, (*place, key), depth + 1, lines, note)
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        lines.append(f"{pad}{name}:")
        for position, item in enumerate(value):
            before = len(lines)
            for key, inner in item.items():
                _write(key, inner, (*place, position, key), depth + 2, lines, note)
            lines[before] = f"{pad}  - {lines[before].lstrip()}"
    else:
        comment = f"  # {note(place)}" if note else ""
        lines.append(f"{pad}{name}: {_inline(value)}{comment}")


def _inline(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_inline(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_inline(item)}" for key, item in value.items()) + "}"
    if isinstance(value, str):
        bare = (
            _PLAIN.match(value) and value not in WORDS and not NUMBER.match(value) and value == value.strip()
        )
        return value if bare else json.dumps(value, ensure_ascii=False)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value)
