"""The typed recipe: reading, checking, writing, fingerprint, schema for editors."""

from apoint.recipe.document import Document, parse_overrides, read_document
from apoint.recipe.emit import describe_overrides, format_value, to_yaml, with_origins
from apoint.recipe.recipe import Average, EarlyStop, Recipe, load_recipe
from apoint.recipe.resolve import RecipeError
from apoint.recipe.schema import json_schema

__all__ = [
    "Average",
    "Document",
    "EarlyStop",
    "Recipe",
    "RecipeError",
    "describe_overrides",
    "format_value",
    "json_schema",
    "load_recipe",
    "parse_overrides",
    "read_document",
    "to_yaml",
    "with_origins",
]
