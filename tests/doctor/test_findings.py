"""Each fault is named, first among what is found; without it nothing is."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from apoint.doctor import ranges
from tests.doctor.cases import Functional, codes, convolutional, digits, inspected, perceptron


def no_zero_grad(model: nn.Module, batch: Any, loss: Any, optimizer: Any) -> Tensor:
    x, y = batch
    value: Tensor = loss(model(x), y)
    value.backward()
    optimizer.step()
    return value


def good(model: nn.Module, batch: Any, loss: Any, optimizer: Any, clip: float | None = None) -> Tensor:
    x, y = batch
    model.train()
    optimizer.zero_grad()
    value: Tensor = loss(model(x), y)
    value.backward()
    if clip is not None:
        nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    return value


def in_eval_mode(model: nn.Module, batch: Any, loss: Any, optimizer: Any) -> Tensor:
    x, y = batch
    model.eval()
    optimizer.zero_grad()
    value: Tensor = loss(model(x), y)
    value.backward()
    optimizer.step()
    return value


def initialised(model: nn.Module, standard: float) -> nn.Module:
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=standard)
    return model


def changed(model: nn.Module, change: Callable[[Any], Any]) -> nn.Module:
    with torch.no_grad():
        change(model)
    return model


def same_weights(model: nn.Sequential) -> None:
    for layer in model[::2]:
        layer.weight.fill_(0.05)  # type: ignore[operator, union-attr]


def shuffled() -> tuple[Tensor, Tensor]:
    x, y = digits()
    return x, y[torch.randperm(len(y), generator=torch.Generator().manual_seed(1))]


def noisy() -> tuple[Tensor, Tensor]:
    x, y = digits()
    make = torch.Generator().manual_seed(1)
    wrong = torch.rand(len(y), generator=make) < 0.4
    return x, torch.where(wrong, torch.randint(10, y.shape, generator=make), y)


def with_nan() -> tuple[Tensor, Tensor]:
    x, y = digits()
    x = x.clone()
    x[3, 5] = torch.nan
    return x, y


def imbalanced() -> tuple[Tensor, Tensor]:
    x, y = digits()
    keep = (y == 0) | (torch.arange(len(y)) % 60 == 0)
    return x[keep].repeat(9, 1), y[keep].repeat(9)


def telling() -> tuple[Tensor, Tensor]:
    x, y = digits()
    x = x.clone()
    x[:, 0] = y / 5.0 - 1
    return x, y


def lone(optimizer: Callable[..., Any], model: nn.Module, **settings: Any) -> dict[str, Any]:
    return {"model": model, "optimizer": optimizer(model.parameters(), **settings)}


def frozen() -> nn.Module:
    model = perceptron()
    model[0].requires_grad_(False)
    return model


def without_head() -> dict[str, Any]:
    model = perceptron()
    return {"model": model, "optimizer": torch.optim.Adam(model[:-1].parameters(), lr=1e-3)}


def slow_statistics() -> nn.Module:
    model = convolutional()
    for module in model:
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 1e-4
    return model


def few() -> tuple[Tensor, Tensor]:
    x, y = digits()
    return torch.cat([x[:24].repeat(59, 1)[:1400], x[1400:]]), torch.cat([y[:24].repeat(59)[:1400], y[1400:]])


FAULTS: dict[str, Callable[[], dict[str, Any]]] = {
    "non-finite-input": lambda: {"model": perceptron(), "data": with_nan()},
    "unnormalised-input": lambda: {"model": perceptron(), "data": (digits()[0] * 255, digits()[1])},
    "shuffled-labels": lambda: {"model": perceptron(), "data": shuffled()},
    "label-noise": lambda: {"model": perceptron(), "data": noisy()},
    "class-imbalance": lambda: {"model": perceptron(), "data": imbalanced(), "test": None},
    "leakage": lambda: {"model": perceptron(), "test": (digits()[0][:300], digits()[1][:300])},
    "double-softmax": lambda: {"model": nn.Sequential(perceptron(), nn.Softmax(-1))},
    "wrong-reduction": lambda: {"model": perceptron(), "loss": nn.CrossEntropyLoss(reduction="sum")},
    "bad-initial-loss": lambda: {
        "model": changed(perceptron(), lambda m: m[-1].weight.mul_(60))
    },
    "frozen-parameters": lambda: {"model": frozen()},
    "no-gradient": lambda: {"model": Functional(lambda x: F.relu(x).detach())},
    "not-in-optimizer": without_head,
    "symmetric-init": lambda: {"model": changed(perceptron(), same_weights)},
    "uncontrolled-seed": lambda: {"model": Functional(lambda x: F.relu(x) * (1 + 0.3 * random.random()))},
    "dropout-in-eval": lambda: {"model": Functional(lambda x: F.dropout(F.relu(x), 0.5))},
    "no-zero-grad": lambda: {"model": perceptron(), "step": no_zero_grad},
    "train-eval-mode": lambda: {"model": convolutional(), "step": in_eval_mode},
    "always-clipping": lambda: {
        "model": perceptron(),
        "step": lambda *a: good(*a, clip=1e-3),
        "optimizer": torch.optim.SGD,
        "lr": 0.1,
    },
    "schedule-never-peaks": lambda: {"model": perceptron(), "scheduler": lambda p: p / 9, "total_steps": 500},
    "schedule-dead": lambda: {"model": perceptron(), "scheduler": lambda p: 0.1 ** (99 * p)},
    "l2-with-adaptive": lambda: lone(torch.optim.Adam, perceptron(), lr=1e-3, weight_decay=0.1),
    "batchnorm-small-batch": lambda: {"model": convolutional(), "batch_size": 2},
    "vanishing-signal": lambda: {"model": initialised(perceptron(depth=12), 0.01)},
    "exploding-signal": lambda: {"model": initialised(perceptron(depth=12), 0.6)},
    "vanishing-gradient": lambda: {"model": initialised(perceptron(nn.Sigmoid, depth=10), 0.2)},
    "dead-units": lambda: {"model": changed(perceptron(), lambda m: m[2].bias.fill_(-30))},
    "dead-units, functional": lambda: {"model": changed(Functional(), lambda m: m.first.bias.fill_(-30))},
    "saturation": lambda: {"model": initialised(perceptron(nn.Tanh), 3.0)},
    "lr-too-high": lambda: {"model": perceptron(), "lr": 1.0},
    "lr-too-low": lambda: {"model": perceptron(), "lr": 1e-7},
    "non-finite": lambda: {"model": Functional(lambda x: torch.log(x))},
    "underfitting": lambda: {"model": perceptron(width=1), "quick": False},
    "batchnorm-statistics": lambda: {"model": slow_statistics(), "quick": False},
    "overfitting": lambda: {"model": perceptron(width=128), "data": few(), "quick": False, "lr": 3e-3},
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_first(name: str) -> None:
    settings = FAULTS[name]()
    report = inspected(settings.pop("model"), **settings)
    assert codes(report)[:1] == [name.partition(",")[0]], str(report)


HEALTHY: dict[str, Callable[[], dict[str, Any]]] = {
    "perceptron": lambda: {"model": perceptron()},
    "deep": lambda: {"model": perceptron(depth=10)},
    "tanh": lambda: {"model": perceptron(nn.Tanh)},
    "functional": lambda: {"model": Functional()},
    "convolutional": lambda: {"model": convolutional()},
    "dropout": lambda: {"model": nn.Sequential(nn.Dropout(0.1), perceptron())},
    "sgd": lambda: {"model": perceptron(), "optimizer": torch.optim.SGD, "lr": 0.1},
    "own step": lambda: {"model": convolutional(), "step": lambda *a: good(*a, clip=5.0)},
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


def test_a_feature_that_tells_the_label() -> None:
    report = inspected(perceptron(), data=(telling()))
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
