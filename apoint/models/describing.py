"""A registered model in numbers: parts, parameters, multiply-adds, memory, receptive fields, patches."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from apoint.errors import UsageError
from apoint.models.counting import (
    PUBLISHED,
    Counts,
    Part,
    PatchCount,
    Published,
    count,
    patch_count,
    patch_size_of,
)
from apoint.models.creation import create, our_name
from apoint.models.receptive import Field, receptive_fields
from apoint.models.shapes import KINDS_OF_FACT, space_of
from apoint.registry import Ingredient, registry

USUAL = {"in_channels": 3, "input_size": 32, "num_classes": 10, "vocab_size": 65, "context": 128}
"""Facts about data for models without their own defaults."""
MOST_PIXELS = 2048**2
"""Receptive fields of larger images are left out: they would take memory and add no information."""


@dataclass(frozen=True)
class Description:
    """A model in numbers.

    Attributes:
        name: Our name for it.
        summary: What it is, in one line.
        facts: What it was built for: channels, size, classes; or vocabulary and context.
        input_shape: The shape of an example.
        counts: Parameters, multiply-adds and memory, whole and by part.
        fields: The receptive fields of its parts, and under "" of the whole; empty for tokens.
        patch_size: The side of the patches that it cuts an image into, if it does.
        published: Figures that others report for it.
        note: Why something is missing.
    """

    name: str
    summary: str
    facts: dict[str, Any]
    input_shape: tuple[int, ...]
    counts: Counts
    fields: dict[str, tuple[Field, ...]]
    patch_size: int | None
    published: Published | None
    note: str = ""

    @property
    def patches(self) -> PatchCount | None:
        """The number of patches, and the number of values in each."""
        if self.patch_size is None or any(length % self.patch_size for length in self.input_shape[1:]):
            return None
        return patch_count(self.input_shape[1:], self.patch_size, self.input_shape[0])

    def to_plain(self) -> dict[str, Any]:
        """Values for JSON; a receptive field of all pixels is "all"."""
        published = self.published
        return {
            "model": self.name,
            "facts": {key: _plain(value) for key, value in self.facts.items()},
            "input_shape": list(self.input_shape),
            **self._part(self.counts.whole),
            "patches": self.patches and {"side": self.patch_size, **self.patches._asdict()},
            "parts": [{"name": part.name, **self._part(part)} for part in self.counts.parts],
            "published": published and vars(published),
            "note": self.note,
        }

    def _part(self, part: Part) -> dict[str, Any]:
        fields = self.fields.get(part.name)
        return {
            "parameters": part.parameters,
            "multiply_adds": part.multiply_adds,
            "activation_bytes": part.activation_bytes,
            "output_shape": list(part.output),
            "receptive_field": fields and [_whole(field.size) for field in fields],
            "stride": fields and [field.stride for field in fields],
        }

    def __str__(self) -> str:
        size = "×".join(map(str, self.input_shape)) + " tokens" * ("vocab_size" in self.facts)
        of = {"num_classes": "classes", "vocab_size": "in the vocabulary"}
        ends = [f"{self.facts[key]} {word}" for key, word in of.items() if key in self.facts]
        head = f"{self.name}: {self.summary}\nfor one example of {', '.join([size, *ends])}"
        return "\n".join([head, "", *_table(self), *_notes(self)])


def describe(name: str, **arguments: Any) -> Description:
    """Describe a registered model in numbers; it is built on the meta device, so it takes no memory.

    Args:
        name: The model, under our name or that of another library.
        **arguments: Facts about the data and settings, as for `create`; facts that are not given take the
            model's defaults, or those of a small image.

    Example:
        >>> describe("convnext_tiny").counts.whole.parameters
        28589128
    """
    ours, said = our_name(name)
    entry = registry("model")[ours]
    arguments = {**said, **arguments}
    facts = _facts(entry, arguments)
    settings = {key: value for key, value in arguments.items() if key not in KINDS_OF_FACT}
    with torch.device("meta"):
        model = create(ours, **facts, **settings)
    shape, dtype = _example(entry, facts)
    counts = count(model, shape, dtype)
    fields, note = _fields(model, shape, dtype)
    side = patch_size_of(model) if len(shape) == 3 else None
    return Description(ours, entry.summary, facts, shape, counts, fields, side, PUBLISHED.get(ours), note)


def _facts(entry: Ingredient, arguments: dict[str, Any]) -> dict[str, Any]:
    """The facts that the model is built from: those given, its defaults, or the usual ones."""
    parameters = inspect.signature(entry.build).parameters
    kinds = entry.traits.get("inputs", ())
    wanted = ("vocab_size", "context") if "tokens" in kinds else ("in_channels", "input_size", "num_classes")
    facts = {key: value for key, value in arguments.items() if key in KINDS_OF_FACT}
    if "in_features" in facts:
        return {"num_classes": USUAL["num_classes"], **facts}
    for fact in wanted:
        default = parameters[fact].default if fact in parameters else inspect.Parameter.empty
        facts.setdefault(fact, USUAL[fact] if default in (inspect.Parameter.empty, None) else default)
    return facts


def _example(entry: Ingredient, facts: dict[str, Any]) -> tuple[tuple[int, ...], torch.dtype]:
    """The shape of an example, and its dtype."""
    if "vocab_size" in facts:
        return (facts["context"],), torch.int64
    if "in_features" in facts:
        return (facts["in_features"],), torch.float32
    return (facts["in_channels"], *space_of(facts["input_size"])), torch.float32


def _fields(
    model: nn.Module, shape: tuple[int, ...], dtype: torch.dtype
) -> tuple[dict[str, tuple[Field, ...]], str]:
    """Receptive fields, or the reason why there are none."""
    if dtype == torch.int64 or len(shape) < 2:
        return {}, ""
    if math.prod(shape[1:]) > MOST_PIXELS:
        return {}, f"receptive fields are left out for more than {MOST_PIXELS:,} pixels"
    try:
        return receptive_fields(model, shape), ""
    except UsageError as error:
        return {}, f"no receptive fields: {error}"


# -- as text --------------------------------------------------------------------------------------------


def _table(described: Description) -> list[str]:
    head = ["part", "parameters", "multiply-adds", "activations", "field", "stride", "output"]
    rows = [_row(described, part, part.name) for part in described.counts.parts]
    rows = [head, *rows, _row(described, described.counts.whole, "whole")]
    if not described.fields:
        rows = [[*row[:4], row[6]] for row in rows]
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return ["  ".join(_set(row, widths)).rstrip() for row in rows]


def _set(row: Sequence[str], widths: Sequence[int]) -> list[str]:
    """Align words to the left, numbers to the right."""
    last = len(row) - 1
    return [
        f"{cell:<{width}}" if place in (0, last) else f"{cell:>{width}}"
        for place, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]


def _row(described: Description, part: Part, name: str) -> list[str]:
    fields = described.fields.get(part.name, ())
    strides = [field.stride for field in fields]
    return [
        name,
        f"{part.parameters:,}",
        short(part.multiply_adds),
        f"{part.activation_bytes / 2**20:.1f} MiB",
        _sides([_whole(field.size) for field in fields]),
        _sides(["–" if stride is None else f"{stride:g}" for stride in strides]),
        "×".join(map(str, part.output)) or "–",
    ]


def _notes(described: Description) -> list[str]:
    """Patches, and the figures of the course and of others."""
    lines = []
    if described.patches:
        side, (number, values) = described.patch_size, described.patches
        lines.append(f"patches: {number} of {side}×{side}×{described.input_shape[0]} = {values} values")
    told = described.published
    if told is not None:
        size = f"{told.input_size}×{told.input_size}"
        said = f"{told.parameters:g} M parameters"
        if told.multiply_adds is not None:
            said += f", {told.multiply_adds:g} G multiply-adds for {size}"
        lines.append(f"published: {said}, 1000 classes ({told.source})")
        if told.course is not None:
            lines.append(f"the course's table: {told.course:g} M parameters")
    if described.note:
        lines.append(described.note)
    return ["", *lines] if lines else []


def short(number: int) -> str:
    """A large number with three or four digits and a letter: 4.456 G."""
    for size, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if number >= size:
            return f"{number / size:.4g}{letter}"
    return str(number)


def _sides(values: Sequence[Any]) -> str:
    """One value for both axes if they are equal."""
    words = [str(value) for value in values]
    return words[0] if len(set(words)) == 1 else "×".join(words) or "–"


def _whole(size: float) -> int | str:
    return "all" if math.isinf(size) else round(size)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
