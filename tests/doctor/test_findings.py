"""Each fault is named, first among what is found; without it nothing is."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from apoint.doctor import ranges
from apoint.doctor.card import cards
from apoint.doctor.specimens import altered, changed, step
from tests.doctor.cases import Functional, codes, convolutional, digits, inspected, perceptron


@pytest.mark.parametrize("code", cards())
def test_every_code_is_raised_first_on_its_example(code: str) -> None:
    example = cards()[code].example
    assert example is not None, "a card needs an example that raises it"
    settings = dict(example())
    report = inspected(settings.pop("model"), **settings)
    first = next((finding for finding in report.findings if finding.code == code), None)
    assert first is not None, str(report)
    if first.level != "note":
        assert codes(report)[0] == code, str(report)


def test_dead_units_are_found_where_activations_are_no_modules() -> None:
    model = changed(Functional(), lambda m: m.first.bias.fill_(-30))
    assert codes(inspected(model))[:1] == ["dead-units"]


HEALTHY: dict[str, Callable[[], dict[str, Any]]] = {
    "perceptron": lambda: {"model": perceptron()},
    "deep": lambda: {"model": perceptron(depth=10)},
    "tanh": lambda: {"model": perceptron(nn.Tanh)},
    "functional": lambda: {"model": Functional()},
    "convolutional": lambda: {"model": convolutional()},
    "dropout": lambda: {"model": nn.Sequential(nn.Dropout(0.1), perceptron())},
    "sgd": lambda: {"model": perceptron(), "optimizer": torch.optim.SGD, "lr": 0.1},
    "own step": lambda: {"model": convolutional(), "step": functools.partial(step, clip=5.0)},
    "schedule": lambda: {
        "model": perceptron(),
        "scheduler": lambda p: min(1.0, p / 0.05),
        "total_steps": 400,
    },
}


@pytest.mark.parametrize("name", HEALTHY)
def test_nothing_is_found_where_nothing_is_wrong(name: str) -> None:
    settings = HEALTHY[name]()
    report = inspected(settings.pop("model"), **settings)
    assert codes(report) == [], str(report)
    assert "Nothing wrong" in report.sentence


def test_a_target_shape_that_is_broadcast() -> None:
    x, _ = digits()
    y = x[:, :3].sum(1)
    model = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 1))

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs - targets).square().mean()

    assert codes(inspected(model, data=(x, y), loss=loss))[0] == "target-shape"
    assert "target-shape" not in codes(inspected(model, data=(x, y[:, None]), loss=loss))


def _telling(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    x[:, 0] = y / 5.0 - 1
    return x, y


def test_a_feature_that_tells_the_label() -> None:
    report = inspected(perceptron(), data=altered(_telling))
    assert "leakage" in codes(report)
    assert "feature 0" in str(report)


def test_trust_is_a_share_that_is_never_certain(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = {"always": {"raised": 8, "right": 8}, "seldom": {"raised": 4, "right": 4}}
    monkeypatch.setattr(ranges, "_learnt", lambda: {"raised": counted})
    assert ranges.trust("always") == 9 / 10
    assert ranges.trust("seldom") is None
    assert ranges.trust("never raised") is None


def test_the_loss_at_the_start_is_that_of_training_where_there_is_batch_norm() -> None:
    model = convolutional()
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_var.fill_(1e-4)  # enlarges everything a hundredfold, but not in training
    assert "bad-initial-loss" not in codes(inspected(model))
