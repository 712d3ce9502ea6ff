"""Small networks on the digits, healthy and with one fault each, for tests of the doctor."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn

import apoint
from apoint.inspection import Report


@functools.cache
def digits() -> tuple[Tensor, Tensor]:
    """Inputs of unit size and labels, in an order of their own."""
    x, y = load_digits(return_X_y=True)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    inputs = torch.tensor(x, dtype=torch.float32)[order]
    return (inputs - inputs.mean()) / inputs.std(), torch.tensor(y)[order]


def perceptron(
    activation: Callable[[], nn.Module] = nn.ReLU, depth: int = 3, width: int = 32
) -> nn.Sequential:
    """A perceptron with He's initialisation."""
    torch.manual_seed(0)
    sizes = [64, *([width] * depth)]
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(sizes):
        layers += [nn.Linear(before, after), activation()]
    model = nn.Sequential(*layers, nn.Linear(width, 10))
    for module in model:
        if isinstance(module, nn.Linear):
            nn.init.kaiming_normal_(module.weight)
            nn.init.zeros_(module.bias)
    nn.init.normal_(model[-1].weight, std=0.05)  # type: ignore[arg-type]
    return model


def convolutional(batch_norm: bool = True) -> nn.Sequential:
    """A small network of convolutions for 8×8 images that come as rows."""
    torch.manual_seed(0)
    norms: list[nn.Module] = [nn.BatchNorm2d(8), nn.BatchNorm2d(16)] if batch_norm else [nn.Identity()] * 2
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 8, 3, padding=1), norms[0], nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1), norms[1], nn.ReLU(), nn.Flatten(), nn.Linear(256, 10),
    )  # fmt: skip


class Functional(nn.Module):
    """Activations that are no modules; what happens between the layers can be replaced."""

    def __init__(self, between: Callable[[Tensor], Tensor] = F.relu) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.head = nn.Linear(64, 32), nn.Linear(32, 32), nn.Linear(32, 10)
        self.between = between

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(F.relu(self.second(self.between(self.first(x)))))
        return out


def inspected(model: nn.Module, **changes: Any) -> Report:
    """A quick inspection of a model on the digits, with Adam at 1e-3 unless said otherwise."""
    x, y = changes.pop("data", digits())
    rate = changes.pop("lr", 1e-3)
    kind = changes.pop("optimizer", torch.optim.Adam)
    optimizer = kind(model.parameters(), lr=rate) if isinstance(kind, type) else kind
    settings = {"test": (x[1400:], y[1400:]), "quick": True, "loss": nn.CrossEntropyLoss(), **changes}
    return apoint.inspect(model, (x[:1400], y[:1400]), optimizer=optimizer, **settings)


def codes(report: Report) -> list[str]:
    """The codes of what is seriously wrong, the most probable first."""
    return [finding.code for finding in report.serious]
