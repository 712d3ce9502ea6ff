"""Gradient norms by layer, their slope over depth, and the next step of any optimizer, against PyTorch."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor, nn

import apoint.optim
from apoint.probes import Subject, preserve_state
from apoint.probes.gradients import fitted_slope, gradient_norms
from tests.probes.zoo import MAKERS, Case, case


def trained(make: Callable[[Any], torch.optim.Optimizer]) -> tuple[Case, torch.optim.Optimizer]:
    """A case and an optimizer with some steps behind it."""
    made = case("mlp", double=True)
    optimizer = make(made.model.parameters())
    for _ in range(3):
        backward(made)
        optimizer.step()
    return made, optimizer


def backward(made: Case) -> None:
    made.model.zero_grad()
    assert made.loss is not None
    made.loss(made.model(made.batch[0]), made.batch[1]).backward()


@pytest.mark.parametrize("name", MAKERS)
def test_norms_are_those_of_backward(name: str) -> None:
    made = case(name, double=True)
    made.model.eval()
    reading = gradient_norms(made.model, made.batch, made.loss)
    subject = Subject(made.model, made.batch, made.loss)
    with preserve_state(made.model):
        subject.loss().backward()
        gradients = {n: p.grad for n, p in subject.parameters.items()}
    for layer, names in subject.layers.items():
        kept = [gradients[n] for n in names if gradients[n] is not None]
        expected = torch.cat([g.flatten() for g in kept]).norm().item()  # type: ignore[union-attr]
        assert reading.per_layer[layer] == pytest.approx(expected)
        weights = torch.cat([subject.parameters[n].detach().flatten() for n in names]).norm().item()
        assert reading.details["weight_norm"][layer] == pytest.approx(weights)
        assert reading.details["gradient_to_weight"][layer] == pytest.approx(expected / weights)
    assert reading.value == pytest.approx(math.hypot(*reading.per_layer.values()))
    assert reading.status == "computed"


class Backwards(nn.Module):
    """Layers used in another order than that of their making; one of them through its weight alone."""

    def __init__(self) -> None:
        super().__init__()
        self.last, self.second, self.first = nn.Linear(4, 2), nn.Linear(4, 4), nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.first(x))
        found: Tensor = self.last(torch.tanh(x @ self.second.weight))
        return found


def test_layers_come_in_the_order_of_use() -> None:
    torch.manual_seed(0)
    model = Backwards()
    reading = gradient_norms(model, (torch.randn(5, 3), torch.arange(5) % 2))
    assert list(reading.per_layer) == ["first", "second", "last"]
    ratio = reading.details["ratio_to_layer_before"]
    assert ratio["last"] == pytest.approx(reading.per_layer["last"] / reading.per_layer["second"])
    assert set(ratio) == {"second", "last"}
    assert reading.details["no_gradient"] == ["second.bias"]


def deep(gain: float, activation: type[nn.Module], depth: int = 10, width: int = 64) -> nn.Module:
    layers: list[nn.Module] = []
    for _ in range(depth):
        layer = nn.Linear(width, width)
        nn.init.orthogonal_(layer.weight, gain)
        layers += [layer, activation()]
    return nn.Sequential(*layers, nn.Linear(width, 3)).double()


def test_sigmoids_make_gradients_vanish_by_four_a_layer() -> None:
    torch.manual_seed(0)
    batch = (torch.randn(16, 64, dtype=torch.float64), torch.arange(16) % 3)
    details = gradient_norms(deep(1.0, nn.Sigmoid), batch).details
    for name in ("weight_slope", "output_slope"):
        assert details[name] == pytest.approx(math.log(4), rel=0.25)
        assert details[f"{name}_uncertainty"] < 0.1
        assert details[f"{name}_layers"] == 11


def test_an_explosion_that_the_weights_do_not_show() -> None:
    """In a deep linear network signals grow forward as gradients grow backward, by the gain a layer."""
    torch.manual_seed(0)
    batch = (torch.randn(16, 64, dtype=torch.float64), torch.arange(16) % 3)
    details = gradient_norms(deep(3.0, nn.Identity), batch).details
    norms = list(details["output_gradient_norm"].values())
    assert norms[0] / norms[9] == pytest.approx(3**9)
    assert details["output_slope"] < -0.9 * math.log(3)
    assert abs(details["weight_slope"]) < 0.3


def test_gradients_at_outputs_are_those_of_hooks() -> None:
    made = case("cnn-group-norm", double=True)
    seen: dict[str, Tensor] = {}
    for name, module in made.model.named_modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            module.register_forward_hook(
                lambda m, i, o, n=name: o.register_hook(lambda g: seen.update({n: g.norm()})) and None
            )
    assert made.loss is not None
    made.loss(made.model(made.batch[0]), made.batch[1]).backward()
    reading = gradient_norms(case("cnn-group-norm", double=True).model, made.batch, made.loss)
    expected = {name: float(norm) for name, norm in seen.items()}
    assert reading.details["output_gradient_norm"] == pytest.approx(expected)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(-5, 5).map(float), min_size=3, max_size=12).filter(lambda v: len(set(v)) > 1))
def test_the_slope_is_that_of_a_regression(values: list[float]) -> None:
    expected = stats.linregress(numpy.arange(len(values)), values)
    slope, error = fitted_slope(values)
    assert slope == pytest.approx(expected.slope, abs=1e-9)
    assert error == pytest.approx(expected.stderr, abs=1e-7)


def test_too_few_layers_for_a_slope() -> None:
    assert fitted_slope([1.0]) == (None, None)
    assert fitted_slope([1.0, 3.0]) == (2.0, None)


def test_detached_and_dead_are_told_apart() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cut, self.dead, self.head = nn.Linear(3, 4), nn.Linear(3, 4), nn.Linear(4, 2)
            nn.init.constant_(self.dead.bias, -100.0)

        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = self.head(self.cut(x).detach() + torch.relu(self.dead(x)))
            return found

    reading = gradient_norms(Net(), (torch.randn(6, 3), torch.arange(6) % 2))
    assert reading.details["no_gradient"] == ["cut.weight", "cut.bias"]
    assert reading.details["zero_gradient"] == ["dead.weight", "dead.bias"]
    assert reading.per_layer["cut"] == reading.per_layer["dead"] == 0
    assert len(reading.notes) == 2


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "AdamW, fused": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
    "AdamW, foreach": lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5, centered=True),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01),
    "Rprop": lambda p: torch.optim.Rprop(p, lr=0.01),
    "Lion": lambda p: apoint.optim.Lion(p, lr=0.01),
    "Lookahead": lambda p: apoint.optim.Lookahead(p, lr=0.01),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_update_is_the_one_that_the_next_step_makes(name: str) -> None:
    made, optimizer = trained(OPTIMIZERS[name])
    torch.optim.lr_scheduler.StepLR(optimizer, 5)  # replaces `step` by one of its own
    before = copy.deepcopy(optimizer.state_dict())
    weights = {n: p.detach().clone() for n, p in made.model.named_parameters()}
    reading = gradient_norms(made.model, made.batch, made.loss, optimizer)
    assert str(before) == str(optimizer.state_dict()), "the optimizer is as it was"
    assert all(torch.equal(weights[n], p) for n, p in made.model.named_parameters())
    backward(made)
    optimizer.step()
    for layer in reading.per_layer:
        names = [n for n in weights if n.rpartition(".")[0] == layer]
        moved = [(p.detach() - weights[n]).flatten() for n, p in made.model.named_parameters() if n in names]
        old = torch.cat([weights[n].flatten() for n in names]).norm().item()
        expected = torch.cat(moved).norm().item()
        assert reading.details["update_norm"][layer] == pytest.approx(expected, rel=1e-6)
        assert reading.details["update_to_weight"][layer] == pytest.approx(expected / old, rel=1e-6)


def test_schedulers_and_hooks_do_not_notice() -> None:
    made, optimizer = trained(lambda p: torch.optim.SGD(p, lr=0.1))
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5)
    called: list[int] = []
    optimizer.register_step_pre_hook(lambda *_: called.append(1))
    counted = getattr(optimizer, "_opt_called", None)
    gradient_norms(made.model, made.batch, made.loss, optimizer)
    assert not called
    assert getattr(optimizer, "_opt_called", None) == counted
    assert scheduler.last_epoch == 0


def test_an_optimizer_that_needs_a_closure_is_said_so() -> None:
    made = case("mlp")
    reading = gradient_norms(made.model, made.batch, made.loss, torch.optim.LBFGS(made.model.parameters()))
    assert "LBFGS" in reading.notes[0]
    assert "update_norm" not in reading.details
    assert reading.status == "computed"


def test_parameters_that_the_optimizer_does_not_have() -> None:
    made = case("mlp")
    some = list(made.model.parameters())[:2]
    reading = gradient_norms(made.model, made.batch, made.loss, torch.optim.SGD(some, lr=0.1))
    assert "0.weight" not in reading.details["not_in_optimizer"]
    assert "5.bias" in reading.details["not_in_optimizer"]
    assert reading.details["update_norm"]["5"] == 0


def test_what_is_not_finite_is_said() -> None:
    model = nn.Linear(2, 2)
    with torch.no_grad():
        model.weight[0, 0] = math.nan
    reading = gradient_norms(model, (torch.randn(4, 2), torch.arange(4) % 2), F.cross_entropy)
    assert "not finite" in reading.notes[0]
    assert gradient_norms(nn.Flatten(), torch.randn(4, 2)).status == "undefined"
