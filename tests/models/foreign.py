"""What must hold of the weights of every family in every layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from apoint.models import load_weights, save_weights
from apoint.models.layouts import layouts_of, to_ours, to_theirs
from tests.models.keys import key_digest


def assert_keys(model: nn.Module, layout: str, expected: dict[str, Any]) -> None:
    """Names, shapes and types are those of the library."""
    weights, unnamed = to_theirs(model, layouts_of(model)[layout])
    assert unnamed == []
    assert key_digest(weights) == expected


def assert_undone(model: nn.Module) -> None:
    """Translating into a layout and back gives the same bits, in all of the family's."""
    for layout in layouts_of(model).values():
        weights, _ = to_theirs(model, layout)
        back = to_ours(model, weights, layout)
        assert (back.missing, back.extra, back.unnamed) == ({}, [], [])
        assert all(torch.equal(back.values[name], value) for name, value in model.state_dict().items())


def assert_there_and_back(
    model: nn.Module, other: nn.Module, layout: str, folder: Path, images: Tensor, found: str | None = None
) -> None:
    """What was saved of a model in a layout makes another one the same, and the report says so.

    Args:
        model: What is saved.
        other: A model of the same settings with other weights.
        layout: In which layout.
        folder: Where to.
        images: For which both must give the same, to the bit.
        found: The layout that is recognised, where two are the same.
    """
    save_weights(model, folder / "w.safetensors", layout)
    report = load_weights(other, folder / "w.safetensors")
    assert report.layout == (found or layout)
    assert report.matched == list(model.state_dict())
    for name, value in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], value), name
    assert torch.equal(model(images), other(images))
