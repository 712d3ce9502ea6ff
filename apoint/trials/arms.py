"""The arms of a comparison: recipes that may be compared, and how they differ.

A verdict is about one number of two recipes on the same data. Anything that would make that number mean
two things (other data, another loss behind `test_loss`) is rejected here, before anything is trained.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apoint.errors import UsageError
from apoint.recipe import Document, Recipe, load_recipe
from apoint.recipe.recipe import STREAMS

Source = str | Path | Mapping[str, Any] | Document | Recipe
LENGTH = ("epochs", "steps", "evaluate_every")  # what the training budget is made of
_FREE_OF_DATA = ("limit", "normalise")  # they change what is learned from, not what is measured on


@dataclass(frozen=True)
class Arm:
    """A recipe inside a comparison.

    Attributes:
        name: `baseline`, `candidate`, or another label.
        recipe: What is trained.
        document: The recipe as it was written.
        metric: The metric of this arm, if not the comparison's metric: an arm whose change is a moving
            average of the weights is measured by that average.
    """

    name: str
    recipe: Recipe
    document: Document
    metric: str = ""

    @property
    def budget(self) -> dict[str, float]:
        """How long the arm trains."""
        recipe = self.recipe
        return {"steps": recipe.steps} if recipe.steps is not None else {"epochs": float(recipe.epochs or 0)}


def make_arm(
    name: str,
    source: Source,
    changes: Mapping[str, Any] | None = None,
    vary: Sequence[str] | None = None,
    metric: str = "",
) -> Arm:
    """An arm from a recipe and changes to it.

    Args:
        name: `baseline`, `candidate`, or another label.
        source: The recipe.
        changes: Dotted paths and their new values.
        vary: What the seed changes; by default what a recipe file or mapping says, and if it says nothing, or
            is a `Recipe`, everything.
        metric: The metric of this arm, if not the comparison's metric.
    """
    _, document = load_recipe(source, changes)
    if vary is not None:
        document = document.override({"vary": list(vary)})
    elif "vary" not in document.values or isinstance(source, Recipe):
        document = document.override({"vary": list(STREAMS)}, "comparison")
    recipe, document = load_recipe(document)
    return Arm(name, recipe, document, metric)


def check_comparable(baseline: Arm, candidate: Arm, metric: str) -> None:
    """Reject two recipes whose numbers would not mean the same thing, or that are the same."""
    if baseline.recipe.fingerprint == candidate.recipe.fingerprint:
        raise UsageError(
            f"these recipes are the same: {candidate.name} and {baseline.name} agree in every value "
            f"(fingerprint {baseline.recipe.fingerprint}); change something that is not already so"
        )
    before, after = baseline.recipe.canonical(), candidate.recipe.canonical()
    for change in differences(before["data"], after["data"]):
        if change["path"].split(".")[0] not in _FREE_OF_DATA:
            raise UsageError(
                f"the recipes are measured on different data: data.{change['path']} is "
                f"{change['baseline']!r} and {change['candidate']!r}; compare recipes on the same data"
            )
    if metric.endswith("loss") and before["loss"] != after["loss"]:
        raise UsageError(
            f"{metric} is measured by each recipe's own loss, and these differ "
            f"({_told(before['loss'])} and {_told(after['loss'])}); choose another metric, such as "
            "--metric test_accuracy"
        )
    if before["vary"] != after["vary"]:
        raise UsageError(
            f"the seed varies {', '.join(before['vary'])} in one recipe and {', '.join(after['vary'])} in "
            "the other, so that they cannot be paired; give both with --vary"
        )


def check_averaged(arms: Sequence[Arm], metric: str) -> None:
    """Reject a metric of averaged weights if a recipe does not average its weights."""
    lacking = [arm.name for arm in arms if arm.recipe.average is None]
    if lacking and "_average_" in metric:
        raise UsageError(
            f"{metric} is measured on averaged weights, and there is no average in {' and '.join(lacking)}; "
            f"set average.decay=0.99 or the like there, or choose {metric.replace('average_', '')}"
        )


def _told(spec: Mapping[str, Any]) -> str:
    settings = ", ".join(f"{key}={value}" for key, value in spec.items() if key != "name")
    return f"{spec['name']}({settings})" if settings else str(spec["name"])


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The places in which two nested mappings differ: path, value before, value after; absent is None."""
    first, second = flattened(before), flattened(after)
    return [
        {"path": path, "baseline": first.get(path), "candidate": second.get(path)}
        for path in dict.fromkeys([*first, *second])
        if first.get(path) != second.get(path) or (path in first) != (path in second)
    ]


def flattened(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as dotted paths; lists and scalars are values."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            flat |= flattened(value, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def identity(arms: Sequence[Arm]) -> dict[str, Any]:
    """What makes two comparisons the same question: the recipes, except for the length of training."""
    return {
        arm.name: {key: value for key, value in arm.recipe.canonical().items() if key not in LENGTH}
        for arm in arms
    }
