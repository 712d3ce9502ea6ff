"""The JSON schema of recipes, with which editors complete and check YAML as it is typed.

It is built from the registry: each ingredient is one alternative, identified by its name.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from apoint.checking import ingredient_kind, is_schedulable, settings_model
from apoint.recipe.recipe import DataHandling, DeficitWindow, Recipe
from apoint.registry import HOMES, Ingredient, registry
from apoint.units import Duration

_SECTIONS = {
    "data": "dataset",
    "model": "model",
    "init": "init",
    "loss": "loss",
    "optimizer": "optimizer",
    "schedule": "schedule",
    "clip": "clip",
}


def json_schema() -> dict[str, Any]:
    """The schema of a recipe file (JSON Schema, draft 2020-12)."""
    whole = Recipe.model_json_schema()
    definitions = whole.setdefault("$defs", {})
    for kind in HOMES:
        definitions[_key(kind)] = _choice(kind, definitions)
    properties = whole["properties"]
    for section, kind in _SECTIONS.items():
        properties[section] = {**_reference(kind), "description": properties[section].get("description", "")}
    for section, kind in (("augment", "augmentation"), ("deficits", "deficit")):
        properties[section]["items"] = _reference(kind)
    whole["required"] = ["data", "model"]
    whole["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    whole["title"] = "apoint recipe"
    written: dict[str, Any] = _as_written(whole)
    return written


def _as_written(node: Any) -> Any:
    """The schema with lengths written as `1 epoch` instead of pydantic's `{value: 1, unit: epochs}`."""
    if isinstance(node, dict):
        if node.keys() == {"value", "unit"}:
            return str(Duration(node["value"], node["unit"]))
        return {key: _as_written(item) for key, item in node.items()}
    return [_as_written(item) for item in node] if isinstance(node, list) else node


def _key(kind: str) -> str:
    return f"ingredient-{kind}"


def _reference(kind: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{_key(kind)}"}


def _choice(kind: str, definitions: dict[str, Any]) -> dict[str, Any]:
    entries = [registry(kind)[name] for name in registry(kind)]
    alternatives = [_mapping(entry, definitions) for entry in entries]
    if kind in ("model", "dataset"):
        alternatives.append(
            {"type": "object", "required": ["file"], "properties": {"file": {"type": "string"}}}
        )
    # If a setting is required, the bare name is not enough; reading the recipe reports that.
    return {"anyOf": [{"enum": [entry.name for entry in entries]}, *alternatives]}


def _mapping(entry: Ingredient, definitions: dict[str, Any]) -> dict[str, Any]:
    schema = settings_model(entry).model_json_schema(
        ref_template=f"#/$defs/{entry.kind}-{entry.name}-{{model}}"
    )
    for name, definition in schema.pop("$defs", {}).items():
        definitions[f"{entry.kind}-{entry.name}-{name}"] = definition
    properties = schema.setdefault("properties", {})
    for name, (annotation, _, _) in entry.setting_parameters.items():
        nested = ingredient_kind(annotation)
        if nested:
            properties[name] = {**_reference(nested), "description": properties[name].get("description", "")}
        elif is_schedulable(annotation):
            properties[name] = {"anyOf": [properties[name], _reference("schedule")]}
    sections: dict[str, type[BaseModel]] = {"dataset": DataHandling, "deficit": DeficitWindow}
    extra = sections.get(entry.kind)
    if extra:
        properties.update(extra.model_json_schema()["properties"])
    properties["name"] = {"const": entry.name}
    schema["required"] = ["name", *schema.get("required", [])]
    schema["description"] = entry.summary
    return schema
