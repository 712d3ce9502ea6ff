"""Load weights: find a file's layout, what fits, what is resized or left; all or nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from apoint.errors import UnknownNameError, UsageError
from apoint.models.layouts.core import Layout, Translation, layouts_of, resized, to_ours
from apoint.models.weights import files
from apoint.models.weights.heads import is_head, is_other_head
from apoint.models.weights.preprocessing import Preprocessing, of_weights

_SHOWN = 5


def count_parameters(model: nn.Module, *, trainable_only: bool = False) -> int:
    """Return the number of parameters; tied ones are counted once."""
    chosen = (p for p in model.parameters() if p.requires_grad or not trainable_only)
    return sum(parameter.numel() for parameter in chosen)


@dataclass
class Loaded:
    """A report on what was loaded.

    Attributes:
        layout: The layout of the file's names and shapes.
        matched: Our names of the weights that were loaded unchanged.
        resized: Those that were resized to fit the model, with both shapes.
        left: Those that keep their values, because the file lacks them or has another number of classes.
        ignored: Names in the file with nothing to load.
        preprocessing: How images must be prepared, if known.
        notes: What else to know, such as values that are not finite.
    """

    layout: str
    matched: list[str] = field(default_factory=list)
    resized: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    preprocessing: Preprocessing | None = None
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        parts = [f"{len(self.matched)} tensors in the layout of {self.layout}"]
        for name, (before, after) in self.resized.items():
            parts.append(f"{name} resized from {_written(before)} to {_written(after)}")
        if self.left:
            parts.append(_some("left as built:", self.left))
        return "; ".join([*parts, *self.notes])


def load_weights(
    model: nn.Module, path: str | Path, *, layout: str | None = None, strict: bool = False
) -> Loaded:
    """Load all weights of a model from a file, in any known layout.

    Values are converted to the dtype of the model's tensors. For tied weights, one name in the file is
    enough. Position embeddings and tables of relative positions for another image size are interpolated; if
    the file has no head, or one for another number of classes, the model's head is left unchanged. The report
    says what was done. Nothing is loaded unless everything else fits.

    Args:
        model: The model, changed in place.
        path: A safetensors file, a state dict saved by PyTorch, or a folder with `model.safetensors`.
        layout: The layout of the file's names; by default, the layout that fits best.
        strict: Raise rather than resize anything or leave a head.
    """
    place = files.file_of(path)
    weights, metadata = files.read(place)
    state = model.state_dict()
    known = layouts_of(model)
    if layout is not None and layout not in known:
        raise UnknownNameError("layout", layout, tuple(known), where=type(model).__name__)
    tried = [known[layout]] if layout is not None else list(known.values())
    fits = [_fit(model, state, weights, one, strict) for one in tried]
    best = min(fits, key=lambda fit: fit.number_of_problems)
    if best.problems:
        sentence = f"{place.name} does not fit {type(model).__name__}: {'; '.join(best.problems)}"
        raise UsageError(sentence + _hint(model, weights))
    best.report.preprocessing = of_weights(model, place, best.report.layout, metadata)
    with torch.no_grad():
        for name, values in best.values.items():
            state[name].copy_(values)
    return best.report


def _hint(model: nn.Module, weights: Mapping[str, Tensor]) -> str:
    """The model that the weights would fit, if it is one of ours."""
    from apoint.models.weights.suggesting import what_fits  # it builds models, which load weights

    fitting = what_fits(weights) if weights and hasattr(model, "family") else None
    return f"; what the file fits is {fitting}" if fitting else ""


@dataclass
class _Fit:
    """How well a file in one layout fits a model."""

    report: Loaded
    values: dict[str, Tensor]
    problems: list[str]
    number_of_problems: int


def _fit(
    model: nn.Module, state: Mapping[str, Tensor], weights: Mapping[str, Tensor], layout: Layout, strict: bool
) -> _Fit:
    found = to_ours(model, weights, layout)
    report, values = Loaded(layout.name, ignored=found.ignored), {}
    shapes: list[str] = []
    for name, value in found.values.items():
        wanted = state[name].shape
        if value.shape == wanted:
            values[name] = value
            report.matched.append(name)
        elif not strict and is_other_head(name, value.shape, wanted):
            report.left.append(name)
        elif not strict and (made := resized(model, name, value, wanted)) is not None:
            values[name] = made
            report.resized[name] = (tuple(value.shape), tuple(wanted))
        else:
            shapes.append(
                f"{name} is {_written(value.shape)} in the file and {_written(wanted)} in the model"
            )
    missing = _missing(found, state, values, layout, strict, report)
    report.notes = _notes(values)
    problems = _problems(layout, missing, found, shapes)
    number = sum(map(len, missing.values())) + len(found.extra) + len(shapes) + len(found.unnamed)
    return _Fit(report, values, problems, number)


def _missing(
    found: Translation,
    state: Mapping[str, Tensor],
    values: Mapping[str, Tensor],
    layout: Layout,
    strict: bool,
    report: Loaded,
) -> dict[str, tuple[str, ...]]:
    """What the file lacks and should have; the rest is reported as left."""
    given = {state[name].data_ptr() for name in values if state[name].numel()}
    missing: dict[str, tuple[str, ...]] = {}
    for name, names in found.missing.items():
        if state[name].numel() and state[name].data_ptr() in given:
            continue  # tied to one that is present
        may_lack = name.endswith(".num_batches_tracked") or any(
            re.fullmatch(pattern, name) for pattern in layout.optional
        )
        if may_lack or (is_head(name) and layout.name != "apoint" and not strict):
            report.left.append(name)
        else:
            missing[name] = names
    return missing


def _notes(values: Mapping[str, Tensor]) -> list[str]:
    broken = [
        name for name, value in values.items() if value.is_floating_point() and not value.isfinite().all()
    ]
    return [_some("values that are not finite in", broken)] if broken else []


def _problems(
    layout: Layout, missing: Mapping[str, tuple[str, ...]], found: Translation, shapes: Iterable[str]
) -> list[str]:
    """The differences between a file and a model, as phrases."""
    lacking = [name for names in missing.values() for name in names]
    problems = [
        _some("the file lacks", lacking),
        _some("the model has no", found.extra),
        _some(f"{layout.name} has no place for the model's", found.unnamed),
        _some("", shapes),
    ]
    return [problem for problem in problems if problem]


def _some(verb: str, names: Iterable[str]) -> str:
    names = list(names)
    if not names:
        return ""
    rest = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{verb} {', '.join(names[:_SHOWN])}{rest}".strip()


def _written(shape: Iterable[int]) -> str:
    return "×".join(map(str, shape)) or "a scalar"
