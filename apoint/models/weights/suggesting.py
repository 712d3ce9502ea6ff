"""Which model a weight file belongs to, for the error message when it does not fit another."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

import torch
from torch import Tensor, nn

from apoint.models.creation import create
from apoint.models.layouts.core import Layout, layouts_of, resized, to_ours
from apoint.models.weights.heads import is_other_head
from apoint.registry import registry

_ALIKE = 0.3  # share of the names needed to examine a family more closely


def what_fits(weights: Mapping[str, Tensor]) -> str | None:
    """The model whose names and shapes a file has, with its layout; None if there is none.

    Models are built on the meta device, without memory; first one of each family.
    """
    families: dict[str, list[str]] = {}
    for name in registry("model"):
        entry = registry("model")[name]
        file = entry.build.__module__.rpartition(".")[2]
        if find_spec(f"apoint.models.layouts.{file}") is not None:
            families.setdefault(entry.traits.get("member_of", name), []).append(name)
    alike = {family: _likeness(_on_meta(names[-1]), weights) for family, names in families.items()}
    for family in sorted(alike, key=lambda family: -alike[family]):
        if alike[family] >= _ALIKE:
            for name in families[family]:
                layout = _fitting(_on_meta(name), weights)
                if layout is not None:
                    return f"{name}, in the layout of {layout}"
    return None


def _on_meta(name: str) -> nn.Module:
    with torch.device("meta"):
        return create(name)


def _likeness(model: nn.Module, weights: Mapping[str, Tensor]) -> float:
    """The largest share of a file's names that a layout of the model's family has."""
    shares = [1 - len(to_ours(model, weights, layout).extra) / len(weights) for layout in _layouts(model)]
    return max(shares, default=0.0)


def _layouts(model: nn.Module) -> list[Layout]:
    return list(layouts_of(model).values())


def _fitting(model: nn.Module, weights: Mapping[str, Tensor]) -> str | None:
    state = model.state_dict()
    for layout in _layouts(model):
        found = to_ours(model, weights, layout)
        if not (found.missing or found.extra or found.unnamed) and all(
            value.shape == state[name].shape
            or is_other_head(name, value.shape, state[name].shape)
            or resized(model, name, value, state[name].shape) is not None
            for name, value in found.values.items()
        ):
            return layout.name
    return None
