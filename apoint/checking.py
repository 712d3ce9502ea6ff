"""Check settings against a builder's signature, with one form of error message.

`settings_model` turns the keyword-only part of a signature into a pydantic class that forbids unknown
names; `checked_settings` applies it and raises a `UsageError` such as

    optimizer 'lion': lr must be greater than 0, got -0.1
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic_core import ErrorDetails

from apoint.errors import UnknownNameError, UsageError, suggestion
from apoint.registry import Ingredient, registry, split_spec
from apoint.settings import IngredientOf, Schedulable


def markers(annotation: Any) -> tuple[Any, ...]:
    """The metadata of an `Annotated` type, such as `Schedulable()`; also that of the members of a union."""
    if get_origin(annotation) is Annotated:
        inner, *marks = get_args(annotation)
        return (*marks, *markers(inner))
    return tuple(mark for member in get_args(annotation) for mark in markers(member))


def is_schedulable(annotation: Any) -> bool:
    """Whether a recipe may put this setting on a schedule."""
    return any(isinstance(mark, Schedulable) for mark in markers(annotation))


def named_ingredient(annotation: Any) -> IngredientOf | None:
    """The `IngredientOf` marker of a setting that names an ingredient, else None."""
    return next((mark for mark in markers(annotation) if isinstance(mark, IngredientOf)), None)


def ingredient_kind(annotation: Any) -> str | None:
    """The kind of ingredient that this setting names, else None."""
    mark = named_ingredient(annotation)
    return mark.kind if mark else None


@functools.cache
def settings_model(entry: Ingredient) -> type[BaseModel]:
    """The pydantic model of an ingredient's settings, made from its builder's signature."""
    fields: dict[str, Any] = {}
    for name, (annotation, default, note) in entry.setting_parameters.items():
        value = ... if default is inspect.Parameter.empty else default
        fields[name] = (annotation, Field(default=value, description=note))
    title = "".join(part.capitalize() for part in f"{entry.name}-{entry.kind}".split("-"))
    config = ConfigDict(extra="forbid", arbitrary_types_allowed=True, validate_default=True, strict=False)
    model: type[BaseModel] = create_model(title, __config__=config, **fields)
    return model


def checked_settings(entry: Ingredient, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return all settings of an ingredient, defaults filled in, or raise a one-sentence `UsageError`."""
    who = f"{entry.kind} {entry.name!r}"
    try:
        checked = settings_model(entry)(**settings)
    except ValidationError as error:
        raise UsageError(f"{who}: {describe(error.errors()[0], entry.setting_parameters)}") from None
    values = {name: getattr(checked, name) for name in entry.setting_parameters}
    for name, (annotation, _, _) in entry.setting_parameters.items():
        kind = ingredient_kind(annotation)
        if kind and values[name] is not None:
            check_spec(values[name], kind, where=f"{who}: {name}")
    return values


def check_spec(spec: str | Mapping[str, Any], kind: str, where: str = "") -> None:
    """Raise if a spec names an unknown ingredient or gives it invalid settings."""
    name, settings = split_spec(spec, kind)
    known = registry(kind)
    if name not in known:
        raise UnknownNameError(kind, name, known, where)
    checked_settings(known[name], settings)


_RULES = {
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "finite_number": "must be a finite number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "string_type": "must be text",
    "literal_error": "must be one of {expected}",
    "list_type": "must be a list",
    "dict_type": "must be a mapping of names to values",
    "model_type": "must be a mapping of names to values",
    "string_pattern_mismatch": "must have the form {pattern}",
}


def describe(error: ErrorDetails, known: Mapping[str, Any] | None = None) -> str:
    """Describe one pydantic error in half a sentence: which setting, the rule, the value."""
    path = ".".join(str(part) for part in error["loc"] if not _is_branch(part))
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    if kind == "extra_forbidden":
        return f"unknown setting {path!r}; {suggestion(str(error['loc'][-1]), known or [])}"
    if kind == "missing":
        return f"{path} is missing, and has no default"
    if kind == "value_error":
        return (
            f"{path}: {context.get('error', error['msg'])}"
            if path
            else str(context.get("error", error["msg"]))
        )
    rule = _RULES.get(kind)
    if rule is None:
        return f"{path}: {error['msg']}, got {value!r}"
    bounds = {name: f"{bound:g}" if isinstance(bound, float) else bound for name, bound in context.items()}
    return f"{path} {rule.format(**bounds)}, got {value!r}"


def _is_branch(part: str | int) -> bool:
    """Whether pydantic added this part of the path to name a union branch, which users need not see."""
    return isinstance(part, str) and any(mark in part for mark in "[(-")
