"""The typed recipe: reading, checking, writing, fingerprint, schema for editors."""

from apoint.recipe.document import Document, parse_overrides, read_document
from apoint.recipe.emit import changes_in_words, shown, to_yaml, with_origins
from apoint.recipe.recipe import Average, EarlyStop, Recipe, load_recipe
from apoint.recipe.resolve import RecipeError
from apoint.recipe.schema import json_schema

__all__ = [
    "Average",
    "Document",
    "EarlyStop",
    "Recipe",
    "RecipeError",
    "changes_in_words",
    "json_schema",
    "load_recipe",
    "parse_overrides",
    "read_document",
    "shown",
    "to_yaml",
    "with_origins",
]
