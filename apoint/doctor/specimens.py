"""Small networks on the digits for the examples of cards: sound ones, and ways to break them.

An example gives arguments of an inspection; the rest comes from a sound training run on `digits`, with Adam
at a learning rate of 1e-3 and the last examples held out. Besides the arguments of `apoint.inspect` it may
give `lr`, and a class as `optimizer`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset


@functools.cache
def digits() -> tuple[Tensor, Tensor]:
    """Inputs of unit size and labels, in a fixed random order."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    inputs = torch.tensor(x, dtype=torch.float32)[order]
    return (inputs - inputs.mean()) / inputs.std(), torch.tensor(y)[order]


def perceptron(
    activation: Callable[[], nn.Module] = nn.ReLU,
    depth: int = 3,
    width: int = 32,
    norm: Callable[[int], nn.Module] | None = None,
) -> nn.Sequential:
    """A multilayer perceptron with He initialisation and a smaller last layer."""
    torch.manual_seed(0)
    sizes = [64, *([width] * depth)]
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(sizes):
        layers += [nn.Linear(before, after), *([norm(after)] if norm else []), activation()]
    model = nn.Sequential(*layers, nn.Linear(width, 10))
    for module in model:
        if isinstance(module, nn.Linear):
            nn.init.kaiming_normal_(module.weight)
            nn.init.zeros_(module.bias)
    nn.init.normal_(model[-1].weight, std=0.05)  # type: ignore[arg-type]
    return model


def convolutional(batch_norm: bool = True, momentum: float = 0.1) -> nn.Sequential:
    """A small convolutional network for 8×8 images given as flat rows."""
    torch.manual_seed(0)
    norms: list[nn.Module] = [
        nn.BatchNorm2d(width, momentum=momentum) if batch_norm else nn.Identity() for width in (8, 16)
    ]
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 8, 3, padding=1), norms[0], nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1), norms[1], nn.ReLU(), nn.Flatten(), nn.Linear(256, 10),
    )  # fmt: skip


class Functional(nn.Module):
    """A network whose activations are not modules; the function between its layers can be replaced."""

    def __init__(self, between: Callable[[Tensor], Tensor] = F.relu) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.head = nn.Linear(64, 32), nn.Linear(32, 32), nn.Linear(32, 10)
        self.between = between

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(F.relu(self.second(self.between(self.first(x)))))
        return out


class Applied(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class FailingDataset(Dataset[tuple[Tensor, Tensor]]):
    """Digits, one of which cannot be read."""

    def __len__(self) -> int:
        return 200

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if index == 3:
            raise OSError("cannot identify image file 'scan-3.png'")
        x, y = digits()
        return x[index], y[index]


# -- breaking --------------------------------------------------------------------------------------------


def with_weights(model: nn.Module, std: float) -> nn.Module:
    """Redraw all weight matrices with a given standard deviation; biases stay."""
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=std)
    return model


def changed(model: nn.Module, change: Callable[[Any], Any]) -> nn.Module:
    """The model with a change applied to its weights."""
    with torch.no_grad():
        change(model)
    return model


def altered(change: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """The digits with a change applied to a copy of them."""
    x, y = digits()
    return change(x.clone(), y.clone())


def randomly(size: int) -> Tensor:
    """Random numbers from 0 to 1, the same on every call."""
    return torch.rand(size, generator=torch.Generator().manual_seed(1))


def step(
    model: nn.Module,
    batch: Any,
    loss: Any,
    optimizer: torch.optim.Optimizer,
    *,
    zero_grad: bool = True,
    training: bool = True,
    clip: float | None = None,
) -> Tensor:
    """A user's training step, with one thing added or left out."""
    x, y = batch
    model.train(training)
    if zero_grad:
        optimizer.zero_grad()
    value: Tensor = loss(model(x), y)
    value.backward()  # type: ignore[no-untyped-call]
    if clip is not None:
        nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    return value
