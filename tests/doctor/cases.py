"""Inspections of the networks of `apoint.doctor.specimens`, for tests of the doctor."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import apoint
from apoint.doctor.specimens import Functional, convolutional, digits, perceptron
from apoint.inspection import Report

__all__ = ["Functional", "codes", "convolutional", "digits", "inspected", "perceptron"]


def inspected(model: nn.Module, **changes: Any) -> Report:
    """A quick inspection of a model on the digits, with Adam at 1e-3 unless said otherwise."""
    data = changes.pop("data", digits())
    rate = changes.pop("lr", 1e-3)
    kind = changes.pop("optimizer", torch.optim.Adam)
    optimizer = kind(model.parameters(), lr=rate) if callable(kind) else kind
    held_out = None
    if isinstance(data, tuple):
        x, y = data
        data, held_out = (x[:1400], y[:1400]), (x[1400:], y[1400:])
    settings = {"test": held_out, "quick": True, "loss": nn.CrossEntropyLoss(), **changes}
    return apoint.inspect(model, data, optimizer=optimizer, **settings)


def codes(report: Report) -> list[str]:
    """The codes of what is seriously wrong, the most probable first."""
    return [finding.code for finding in report.serious]
