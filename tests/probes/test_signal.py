"""The signal probe against moments written out, theory, and known activations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from apoint.probes.operations import Call
from apoint.probes.signal import share_saturated, signal
from tests.probes.zoo import MAKERS, case


def row(reading: Any, name: str) -> dict[str, Any]:
    table = reading.details["operations"]
    place = table["name"].index(name)
    return {column: values[place] for column, values in table.items()}


def test_moments_by_the_book() -> None:
    made = case("functional-mlp", double=True)
    x, y = made.batch
    reading = signal(made.model, made.batch, made.loss)
    z1 = made.model.first(x)
    a1 = F.relu(z1)
    z2 = made.model.second(a1)
    a2 = torch.tanh(z2)
    s = a1 + a2
    c = s.clamp(min=0)
    loss = F.cross_entropy(made.model.last(c), y)
    tensors = {
        "first": z1, "(model) · relu": a1, "second": z2, "(model) · tanh": a2, "(model) · add": s,
        "(model) · clamp": c,
    }  # fmt: skip
    gradients = torch.autograd.grad(loss, list(tensors.values()))
    for (name, value), gradient in zip(tensors.items(), gradients, strict=True):
        found, v, g = row(reading, name), value.detach().numpy(), gradient.numpy()
        assert found["mean"] == pytest.approx(v.mean())
        assert found["variance"] == pytest.approx(v.var())
        assert found["second_moment"] == pytest.approx((v**2).mean())
        assert found["spread"] == pytest.approx(v.var(0).mean())
        assert found["zeros"] == pytest.approx((v == 0).mean())
        assert found["gradient_mean"] == pytest.approx(g.mean())
        assert found["gradient_variance"] == pytest.approx(g.var())
        assert found["gradient_norm"] == pytest.approx(np.linalg.norm(g))
    assert row(reading, "(model) · tanh")["saturation"] == pytest.approx(
        float((1 - a2.square() < 0.05).double().mean())
    )
    assert row(reading, "(model) · relu")["saturation"] is None
    assert reading.per_layer["second"] == pytest.approx(float(z2.detach().square().mean()))


def test_the_slope_is_that_of_least_squares() -> None:
    made = case("mlp", double=True)
    reading = signal(made.model, made.batch, made.loss)
    linear = [row(reading, name) for name in ("0", "2", "5")]
    for column, field in (("second_moment", "forward"), ("spread", "spread"), ("gradient_norm", "backward")):
        logs = [math.log(entry[column]) for entry in linear]
        expected = scipy.stats.linregress([1, 2, 3], logs)
        factor = 2 if field == "backward" else 1
        assert reading.details[f"{field}_slope"] == pytest.approx(factor * expected.slope)
        assert reading.details[f"{field}_slope_error"] == pytest.approx(factor * expected.stderr)
    assert reading.value == reading.details["forward_slope"]
    assert reading.uncertainty == reading.details["forward_slope_error"]


def deep(depth: int, width: int, variance: float, activation: type[nn.Module]) -> nn.Sequential:
    """Layers of one width, without biases, with weights of variance `variance / width`."""
    parts: list[nn.Module] = []
    for _ in range(depth):
        layer = nn.Linear(width, width, bias=False)
        nn.init.normal_(layer.weight, std=math.sqrt(variance / width))
        parts += [layer, activation()]
    return nn.Sequential(*parts[:-1]).double()


@pytest.mark.parametrize("variance", [1.0, 2.0, 4.0])
def test_theory_of_random_rectifiers(variance: float) -> None:
    """q(l) = n·V[w]·E[relu(z)²] = variance/2 · q(l-1), forward; the same factor backward."""
    torch.manual_seed(0)
    model = deep(12, 300, variance, nn.ReLU)
    x, y = torch.randn(64, 300).double(), torch.randint(300, (64,))
    reading = signal(model, (x, y), nn.CrossEntropyLoss())
    assert reading.value == pytest.approx(math.log(variance / 2), abs=0.05)
    assert reading.details["backward_slope"] == pytest.approx(-math.log(variance / 2), abs=0.08)


def test_a_signal_that_keeps_its_size_and_loses_what_it_says() -> None:
    """Deep sigmoids: outputs stay near a half, but hardly depend on the input."""
    torch.manual_seed(0)
    reading = signal(deep(10, 64, 1.0, nn.Sigmoid), (torch.randn(32, 64).double(), torch.zeros(32).long()))
    assert reading.value is not None
    assert abs(reading.value) < 0.2
    assert reading.details["spread_slope"] < -2
    assert reading.details["backward_slope"] > 2


def saturated(function: Any, x: Tensor, **kwargs: Any) -> float:
    return float(share_saturated(Call(function, (x,), kwargs, 0, "f"), 0.05))


@pytest.mark.parametrize(
    ("function", "bound"),
    [(torch.tanh, math.atanh(math.sqrt(0.95))), (torch.sigmoid, 4.356), (F.softsign, math.sqrt(20) - 1),
     (torch.atan, math.sqrt(19)), (F.hardtanh, 1.0), (F.hardsigmoid, 3.0)],
)  # fmt: skip
def test_saturation_begins_where_the_slope_is_a_twentieth(function: Any, bound: float) -> None:
    x = torch.linspace(-6, 6, 100001, dtype=torch.float64)
    expected = float((x.abs() > bound).double().mean())
    assert saturated(function, x) == pytest.approx(expected, abs=3e-4)


def test_saturation_does_not_depend_on_what_is_given() -> None:
    """All inputs flat alike: the largest slope is that of the function, not of these inputs."""
    assert saturated(torch.sigmoid, torch.full((5,), -30.0)) == 1.0
    assert saturated(torch.sigmoid, torch.full((5,), -1000.0)) == 1.0
    assert saturated(torch.tanh, torch.zeros(5)) == 0.0


def test_a_rectifier_with_a_ceiling_saturates_at_the_ceiling_alone() -> None:
    x = torch.tensor([-3.0, -1.0, 1.0, 7.0])
    assert saturated(F.hardtanh, x, min_val=0.0, max_val=6.0) == 0.25
    assert saturated(torch.clamp, x, min=0.0, max=0.5) == 0.5


@pytest.mark.parametrize("name", MAKERS)
def test_any_model_in_double(name: str) -> None:
    """The same in float32, up to its rounding; every operation has a row, and gradients arrive everywhere."""
    made, double = case(name), case(name, double=True)
    one, two = signal(made.model, made.batch, made.loss), signal(double.model, double.batch, double.loss)
    assert one.value == pytest.approx(two.value, rel=0.02, abs=0.02)
    table = two.details["operations"]
    assert all(norm is not None and norm > 0 for norm in table["gradient_norm"])
    assert len({len(column) for column in table.values()}) == 1


def test_where_gradients_stop() -> None:
    class Detached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.last(torch.relu(self.first(x)).detach())
            return out

    reading = signal(Detached(), (torch.randn(5, 4), torch.arange(5) % 3))
    assert [norm is None for norm in reading.details["operations"]["gradient_norm"]] == [True, True, False]


def test_without_a_loss_there_is_still_a_signal() -> None:
    made = case("mlp")
    reading = signal(made.model, made.batch[0])
    assert reading.value == signal(made.model, made.batch, made.loss).value
    assert math.isnan(reading.details["backward_slope"])
    assert any("no gradients" in note for note in reading.notes)


def test_where_numbers_break() -> None:
    torch.manual_seed(0)
    model = deep(4, 8, 2.0, nn.ReLU)
    with torch.no_grad():
        model[4].weight[0, 0] = math.inf
    reading = signal(model, (torch.randn(8, 8).double(), torch.zeros(8).long()))
    assert any("from 4 on" in note for note in reading.notes)
    with torch.no_grad():
        model[4].weight.zero_()
    reading = signal(model, (torch.randn(8, 8).double(), torch.zeros(8).long()))
    assert any("output of 4 is nothing but 0" in note for note in reading.notes)


def test_squares_do_not_overflow() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    reading = signal(model, (1e25 * torch.randn(4, 3), torch.randn(4, 3)))
    assert reading.value is not None
    assert math.isfinite(reading.value)


def test_one_layer_has_no_slope() -> None:
    reading = signal(nn.Linear(3, 2), (torch.randn(4, 3), torch.zeros(4).long()))
    assert reading.status == "undefined"
    assert len(reading.details["operations"]["name"]) == 1


def test_the_threshold_matters() -> None:
    made = case("functional-mlp")
    found = [
        row(signal(made.model, made.batch, made.loss, saturation=share), "(model) · tanh")["saturation"]
        for share in (0.05, 0.9)
    ]
    assert found[0] < found[1]


def test_the_seed_matters_where_there_is_dropout() -> None:
    made = case("encoder-layer")
    one, two = (signal(made.model, made.batch, made.loss, seed=seed).value for seed in (0, 1))
    assert one != two
