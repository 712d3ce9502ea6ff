"""Rules from our names of weights to another library's; both directions follow from them.

A family's file defines `LAYOUTS`, a tuple of `Layout`. Where its weights depend on the size of images, it
also defines `resize(name, value, wanted, model)`, which brings a tensor of a file to another size or gives
None; where weight sets are known that need a preprocessing of their own, `PREPROCESSING`.
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
    r"""What a weight of ours is called elsewhere.

    Attributes:
        pattern: A regular expression that our whole name matches.
        there: The name there, with `\1` and so on for the pattern's groups, or a function of the match.
            Several names stand for equal parts of ours along the first axis, as query, key and value are of
            one matrix.
        shape: From our shape and the model to the shape there, where it is another; the order of the numbers
            is the same.
    """

    pattern: str
    there: Names | Callable[[re.Match[str]], Names]
    shape: Callable[[Shape, nn.Module], Shape] | None = None

    def apply(self, name: str) -> tuple[str, ...] | None:
        """The names there, or None if this rule is for others."""
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
        rules: The first that matches counts; a weight of ours that none matches is not known there.
        ignored: Patterns of names there that hold nothing to load, such as tables that are computed.
        optional: Patterns of our names that a file may lack, such as those of auxiliary heads.
        added: What their files hold beside our weights, made from the model.
    """

    name: str
    rules: tuple[Rule, ...]
    ignored: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    added: Callable[[nn.Module], Mapping[str, Tensor]] | None = None

    def there(self, name: str) -> tuple[tuple[str, ...], Rule] | None:
        """The names of one of our weights there, and the rule that says so."""
        for rule in self.rules:
            names = rule.apply(name)
            if names is not None:
                return names, rule
        return None


OWN = Layout("apoint", (Rule("(.*)", r"\1"),))


@dataclass
class Translation:
    """A file's weights under our names, as far as they have one.

    Attributes:
        values: By our name; in our shape where the numbers suffice, and otherwise as they are in the file.
        missing: Names that the layout has and the file lacks, by our name.
        extra: Names of the file that the layout does not have.
        ignored: Names of the file that hold nothing to load.
        unnamed: Our names that the layout does not know.
    """

    values: dict[str, Tensor] = field(default_factory=dict)
    missing: dict[str, tuple[str, ...]] = field(default_factory=dict)
    extra: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    unnamed: list[str] = field(default_factory=list)


def to_ours(model: nn.Module, weights: Mapping[str, Tensor], layout: Layout) -> Translation:
    """A file's weights, in a layout, under a model's names."""
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
    """The shape there of a weight that has this one here."""
    return tuple(shape) if rule.shape is None else rule.shape(tuple(shape), model)


def _ours(parts: Sequence[Tensor], shape: Shape, form: Shape) -> Tensor:
    if len({part.shape[1:] for part in parts}) > 1 or (len(parts) > 1 and parts[0].dim() == 0):
        return parts[0]  # what cannot be joined is told as a wrong shape
    whole = parts[0] if len(parts) == 1 else torch.cat(list(parts))
    return whole.reshape(shape) if tuple(whole.shape) == form else whole


def to_theirs(model: nn.Module, layout: Layout) -> tuple[dict[str, Tensor], list[str]]:
    """A model's weights in a layout, and our names that it does not know."""
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
    """The layouts in which a model's weights are known, by name; ours is the first."""
    module = family_module(model)
    known: tuple[Layout, ...] = getattr(module, "LAYOUTS", ())
    return {layout.name: layout for layout in (OWN, *known)}


def resized(model: nn.Module, name: str, value: Tensor, wanted: torch.Size) -> Tensor | None:
    """A tensor of a file for another size of images, brought to the model's; None if it cannot be."""
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
