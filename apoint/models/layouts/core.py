"""Rules from our weight names to another library's; both directions follow from them.

A family's file defines `LAYOUTS`, a tuple of `Layout`. If its weights depend on the image size, it also
defines `resize(name, value, wanted, model)`, which resizes a tensor of a file or returns None; if known
weight sets need their own preprocessing, it defines `PREPROCESSING`.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType

import torch
from torch import Tensor, nn

Shape = tuple[int, ...]
Names = str | tuple[str, ...]


@dataclass(frozen=True)
class Rule:
    r"""The name of one of our weights in another library.

    Attributes:
        pattern: A regular expression that our whole name matches.
        there: The name there, with `\1` and so on for the pattern's groups, or a function of the match.
            Several names mean equal parts of our tensor along the first axis, such as query, key and value
            of one matrix.
        shape: Maps our shape and the model to the shape there, if it differs; the order of the numbers is
            the same.
    """

    pattern: str
    there: Names | Callable[[re.Match[str]], Names]
    shape: Callable[[Shape, nn.Module], Shape] | None = None

    def apply(self, name: str) -> tuple[str, ...] | None:
        """The names there, or None if the rule does not match."""
        match = re.fullmatch(self.pattern, name)
        if match is None:
            return None
        there = self.there(match) if callable(self.there) else self.there
        names = (there,) if isinstance(there, str) else there
        return names if callable(self.there) else tuple(match.expand(name) for name in names)


@dataclass(frozen=True)
class Layout:
    """The names and shapes of one library for one family.

    Attributes:
        name: The library.
        rules: The first that matches applies; a weight of ours that none matches does not exist there.
        ignored: Patterns of names there with nothing to load, such as computed tables.
        optional: Patterns of our names that a file may lack, such as those of auxiliary heads.
        added: Makes, from the model, what their files hold in addition to our weights.
    """

    name: str
    rules: tuple[Rule, ...]
    ignored: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    added: Callable[[nn.Module], Mapping[str, Tensor]] | None = None

    def there(self, name: str) -> tuple[tuple[str, ...], Rule] | None:
        """The names of one of our weights there, and the rule that gives them."""
        for rule in self.rules:
            names = rule.apply(name)
            if names is not None:
                return names, rule
        return None


OWN = Layout("apoint", (Rule("(.*)", r"\1"),))


@dataclass
class Translation:
    """A file's weights under our names, if they have one.

    Attributes:
        values: By our name; in our shape if the shapes are compatible, otherwise as in the file.
        missing: Names that the layout has and the file lacks, by our name.
        extra: Names in the file that the layout does not have.
        ignored: Names in the file with nothing to load.
        unnamed: Our names that the layout does not have.
    """

    values: dict[str, Tensor] = field(default_factory=dict)
    missing: dict[str, tuple[str, ...]] = field(default_factory=dict)
    extra: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    unnamed: list[str] = field(default_factory=list)


def to_ours(model: nn.Module, weights: Mapping[str, Tensor], layout: Layout) -> Translation:
    """Translate a file's weights in a layout to a model's names."""
    found = Translation()
    used: set[str] = set()
    for name, wanted in model.state_dict().items():
        place = layout.there(name)
        if place is None:
            found.unnamed.append(name)
            continue
        absent = tuple(there for there in place[0] if there not in weights)
        if absent:
            found.missing[name] = absent
        used.update(place[0])
        if not absent:
            form = _form(place[1], wanted.shape, model)
            found.values[name] = _ours([weights[there] for there in place[0]], wanted.shape, form)
    ignored = re.compile("|".join(f"(?:{pattern})" for pattern in layout.ignored) or r"(?!)")
    for name in weights:
        if name not in used:
            (found.ignored if ignored.fullmatch(name) else found.extra).append(name)
    return found


def _form(rule: Rule, shape: Shape, model: nn.Module) -> Shape:
    """The shape there of a weight that has this shape here."""
    return tuple(shape) if rule.shape is None else rule.shape(tuple(shape), model)


def _ours(parts: Sequence[Tensor], shape: Shape, form: Shape) -> Tensor:
    if len({part.shape[1:] for part in parts}) > 1 or (len(parts) > 1 and parts[0].dim() == 0):
        return parts[0]  # reported as a wrong shape, as the parts cannot be joined
    whole = parts[0] if len(parts) == 1 else torch.cat(list(parts))
    return whole.reshape(shape) if tuple(whole.shape) == form else whole


def to_theirs(model: nn.Module, layout: Layout) -> tuple[dict[str, Tensor], list[str]]:
    """A model's weights in a layout, and our names that the layout does not have."""
    weights: dict[str, Tensor] = {}
    unnamed = []
    for name, value in model.state_dict().items():
        place = layout.there(name)
        if place is None:
            unnamed.append(name)
            continue
        names, rule = place
        form = value.reshape(_form(rule, value.shape, model))
        parts = (form,) if len(names) == 1 else form.chunk(len(names))
        weights |= {there: part.contiguous() for there, part in zip(names, parts, strict=True)}
    if layout.added is not None:
        weights |= layout.added(model)
    return weights, unnamed


def layouts_of(model: nn.Module) -> dict[str, Layout]:
    """The layouts known for a model's weights, by name; ours is the first."""
    module = family_module(model)
    known: tuple[Layout, ...] = getattr(module, "LAYOUTS", ())
    return {layout.name: layout for layout in (OWN, *known)}


def resized(model: nn.Module, name: str, value: Tensor, wanted: torch.Size) -> Tensor | None:
    """A tensor from a file for another image size, resized for the model; None if it cannot be resized."""
    resize = getattr(family_module(model), "resize", None)
    made: Tensor | None = resize(name, value, tuple(wanted), model) if resize is not None else None
    return made


def family_module(model: nn.Module) -> ModuleType | None:
    """The file with the layouts of a model's family, if there is one."""
    family = getattr(model, "family", None)
    if not isinstance(family, str):
        return None
    place = f"apoint.models.layouts.{family}"
    return importlib.import_module(place) if importlib.util.find_spec(place) is not None else None
