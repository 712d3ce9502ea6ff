"""Twelve small models of every kind that probes must work on, each with a batch and its loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from apoint.models import create

BATCH, CLASSES = 8, 4


@dataclass(frozen=True)
class Case:
    """A model in train mode, a batch, and a loss or None for the model's own."""

    model: nn.Module
    batch: Any
    loss: Callable[[Tensor, Tensor], Tensor] | None


class FunctionalMLP(nn.Module):
    """Activations that are no modules."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(6, 16), nn.Linear(16, 16), nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.first(x))
        x = x + torch.tanh(self.second(x))
        last: Tensor = self.last(x.clamp(min=0))
        return last


class Encoder(nn.Module):
    """PyTorch's own encoder layer, with dropout on."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(5, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        head: Tensor = self.head(self.layer(self.embed(x)).mean(1))
        return head


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(5, 8, batch_first=True)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        head: Tensor = self.head(self.lstm(x)[0][:, -1])
        return head


class TiedLM(nn.Module):
    """The embedding is the output layer as well; logits [B, T, C]."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.mix, self.norm = nn.Embedding(11, 8), nn.Linear(8, 8), nn.LayerNorm(8)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        head: Tensor = self.head(self.norm(x + F.gelu(self.mix(x).cumsum(1))))
        return head


class Raw(nn.Module):
    """Parameters held by the model itself, beside a child; one of them takes no part."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 12) * 0.4)
        self.scale = nn.Parameter(torch.ones(12))
        self.unused = nn.Parameter(torch.ones(3))
        self.head = nn.Linear(12, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        head: Tensor = self.head(torch.relu(x @ self.weight) * self.scale)
        return head


class OwnLoss(nn.Module):
    """As Hugging Face's models: takes labels by name, returns an object with loss and logits."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Dropout(0.1), nn.Linear(12, CLASSES))

    def forward(self, features: Tensor, labels: Tensor | None = None) -> SimpleNamespace:
        logits = self.body(features)
        loss = None if labels is None else F.cross_entropy(logits, labels)
        return SimpleNamespace(loss=loss, logits=logits)


class DictInput(nn.Module):
    """Takes one dictionary; regression."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.head = nn.Linear(3, 8), nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        head: Tensor = self.head(torch.tanh(self.left(inputs["left"]) + self.right(inputs["right"])))
        return head


def _mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16), nn.Sigmoid(), nn.LayerNorm(16), nn.Linear(16, CLASSES)
    )


def _cnn(norm: Callable[[int], nn.Module]) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1, bias=False), norm(6), nn.ReLU(inplace=True),
        nn.Conv2d(6, 6, 3, padding=1), norm(6), nn.SiLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        nn.Linear(24, CLASSES),
    )  # fmt: skip


def _labels() -> Tensor:
    return torch.arange(BATCH) % CLASSES


MAKERS: dict[str, Callable[[], Case]] = {
    "mlp": lambda: Case(_mlp(), (torch.randn(BATCH, 6), _labels()), F.cross_entropy),
    "functional-mlp": lambda: Case(
        FunctionalMLP(), (torch.randn(BATCH, 6), _labels()), nn.CrossEntropyLoss()
    ),
    "cnn-batch-norm": lambda: Case(
        _cnn(nn.BatchNorm2d), (torch.randn(BATCH, 1, 8, 8), _labels()), F.cross_entropy
    ),
    "cnn-group-norm": lambda: Case(
        _cnn(lambda width: nn.GroupNorm(2, width)), (torch.randn(BATCH, 1, 8, 8), _labels()), F.cross_entropy
    ),
    "resnet": lambda: Case(
        create("resnet20", num_classes=CLASSES, in_channels=1, input_size=(8, 8), width=4),
        (torch.randn(BATCH, 1, 8, 8), _labels()),
        F.cross_entropy,
    ),
    "vit": lambda: Case(
        create(
            "vit",
            num_classes=CLASSES,
            in_channels=1,
            input_size=(8, 8),
            patch_size=4,
            depth=2,
            width=8,
            num_heads=2,
        ),
        (torch.randn(BATCH, 1, 8, 8), _labels()),
        F.cross_entropy,
    ),
    "encoder-layer": lambda: Case(Encoder(), (torch.randn(BATCH, 3, 5), _labels()), F.cross_entropy),
    "lstm": lambda: Case(Recurrent(), (torch.randn(BATCH, 3, 5), _labels()), F.cross_entropy),
    "tied-lm": lambda: Case(
        TiedLM(),
        (torch.randint(11, (BATCH, 5)), torch.randint(11, (BATCH, 5))),
        lambda logits, tokens: F.cross_entropy(logits.flatten(0, 1), tokens.flatten()),
    ),
    "raw-parameters": lambda: Case(Raw(), (torch.randn(BATCH, 6), _labels()), F.cross_entropy),
    "own-loss": lambda: Case(OwnLoss(), {"features": torch.randn(BATCH, 6), "labels": _labels()}, None),
    "dict-input": lambda: Case(
        DictInput(),
        ({"left": torch.randn(BATCH, 3), "right": torch.randn(BATCH, 4)}, torch.randn(BATCH, 2)),
        F.mse_loss,
    ),
}


def case(name: str, seed: int = 0, double: bool = False) -> Case:
    """A case from nothing, the same each time."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        made = MAKERS[name]()
    if not double:
        return made

    def wider(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.double() if value.is_floating_point() else value
        if isinstance(value, dict):
            return {key: wider(item) for key, item in value.items()}
        return tuple(wider(item) for item in value) if isinstance(value, tuple) else value

    return Case(made.model.double(), wider(made.batch), made.loss)
