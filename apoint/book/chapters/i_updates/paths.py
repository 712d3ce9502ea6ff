"""Paths of update rules on small functions, shared by the pages of this chapter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from apoint.book.picture import Field, Series
from apoint.optim import Rule

Gradient = Callable[[Tensor], Tensor]


def gradient_of(function: Callable[[Tensor], Tensor]) -> Gradient:
    """The gradient of a function of a vector, by automatic differentiation."""

    def gradient(place: Tensor) -> Tensor:
        point = place.detach().clone().requires_grad_()
        (found,) = torch.autograd.grad(function(point), point)
        return found

    return gradient


def path(rule: Rule, gradient: Gradient, start: Sequence[float], steps: int, **hyper: Any) -> np.ndarray:
    """The places that a rule visits, [steps + 1, coordinates], in float64."""
    place = torch.tensor(list(start), dtype=torch.float64)
    state, settings = rule.init(place), {**rule.defaults, **hyper}
    places = [place.numpy().copy()]
    for step in range(1, steps + 1):
        delta, state = rule.step(gradient(place), state, place, step, settings)
        place = place + delta
        places.append(place.numpy().copy())
    return np.array(places)


def torch_path(
    make: Callable[[list[Tensor]], torch.optim.Optimizer],
    gradient: Gradient,
    start: Sequence[float],
    steps: int,
) -> np.ndarray:
    """The same by an optimizer of PyTorch."""
    place = torch.tensor(list(start), dtype=torch.float64, requires_grad=True)
    optimizer = make([place])
    places = [place.detach().numpy().copy()]
    for _ in range(steps):
        place.grad = gradient(place.detach())
        optimizer.step()
        places.append(place.detach().numpy().copy())
    return np.array(places)


def difference(first: np.ndarray, second: np.ndarray) -> float:
    """The largest difference of two paths."""
    return float(np.abs(first - second).max())


def track(label: str, places: np.ndarray) -> Series:
    """A path in the plane as a series."""
    return Series(label, places[:, 0].tolist(), places[:, 1].tolist())


def heights(function: Callable[[Tensor], Tensor], half: float, label: str) -> Field:
    """A function on a square around 0, for a map under paths."""
    grid = np.linspace(-half, half, 41)
    rows = [[float(function(torch.tensor([x, y], dtype=torch.float64))) for x in grid] for y in grid]
    return Field(grid.tolist(), grid.tolist(), rows, label)
