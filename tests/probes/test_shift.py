"""Internal covariate shift by both definitions, written out."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from apoint.errors import UsageError
from apoint.probes import Subject
from apoint.probes.shift import covariate_shift, distribution_shift, gradient_shift
from tests.probes.zoo import MAKERS, case


def moved(model: nn.Module, size: float = 0.1) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(5)
    return {
        name: p.detach() + size * torch.randn(p.shape, generator=generator).to(p)
        for name, p in model.named_parameters()
    }


def by_definition(before: np.ndarray, now: np.ndarray) -> float:
    """Of inputs as rows of units."""
    means = (now.mean(0) - before.mean(0)) ** 2
    deviations = (now.std(0) - before.std(0)) ** 2
    scale = (now.var(0) + before.var(0)) / 2
    return math.sqrt((means + deviations).mean() / scale.mean())


def test_inputs_by_the_book() -> None:
    made = case("functional-mlp", double=True)
    x, _ = made.batch
    start = moved(made.model)
    reading = covariate_shift(made.model, made.batch, made.loss, start)

    def inputs(weights: dict[str, Tensor]) -> tuple[np.ndarray, np.ndarray]:
        a = F.relu(F.linear(x, weights["first.weight"], weights["first.bias"]))
        b = a + torch.tanh(F.linear(a, weights["second.weight"], weights["second.bias"]))
        return a.detach().numpy(), b.clamp(min=0).detach().numpy()

    old, new = inputs(start), inputs(dict(made.model.named_parameters()))
    expected = [by_definition(one, two) for one, two in zip(old, new, strict=True)]
    assert reading.per_layer == pytest.approx({"first": 0.0, "second": expected[0], "last": expected[1]})
    assert reading.value == pytest.approx(np.mean(expected))
    assert reading.coverage == 1


def test_channels_are_units() -> None:
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.Conv2d(3, 2, 1)).double()
    x, start = torch.randn(5, 1, 6, 6).double(), moved(model)
    reading = covariate_shift(model, (x, torch.randn(5, 2, 4, 4).double()), None, start)
    old, new = (
        F.conv2d(x, weights["0.weight"], weights["0.bias"]).movedim(1, -1).reshape(-1, 3).detach().numpy()
        for weights in (start, dict(model.named_parameters()))
    )
    assert reading.value == pytest.approx(by_definition(old, new))


def test_the_distance_of_two_normal_laws() -> None:
    """For one unit: the Wasserstein distance of empirical laws that differ by shift and scale, by sorting."""
    sample = np.random.default_rng(0).normal(size=20000)
    one, two = sample, 2.0 * sample + 0.7
    slow = math.sqrt(((np.sort(one) - np.sort(two)) ** 2).mean()) / math.sqrt((one.var() + two.var()) / 2)
    moments = [torch.tensor([value]) for value in (one.mean(), one.std(), two.mean(), two.std())]
    shift, mean_shift, ratio = distribution_shift(*moments)
    assert shift == pytest.approx(slow)
    assert mean_shift < shift
    assert ratio == pytest.approx(math.log(2))


def test_constants() -> None:
    zero, one = torch.zeros(2), torch.ones(2)
    assert distribution_shift(one, zero, one, zero)[0] == 0
    assert distribution_shift(one, zero, zero, zero)[0] == math.inf


def test_no_movement_is_no_shift() -> None:
    for name in MAKERS:
        made = case(name)
        start = {key: p.detach().clone() for key, p in made.model.named_parameters()}
        reading = covariate_shift(made.model, made.batch, made.loss, start)
        assert reading.value == 0, name


def test_a_shift_by_a_bias_is_known() -> None:
    """All units of the second layer's input moved by one standard deviation."""
    model = nn.Sequential(nn.Linear(3, 3, bias=True), nn.Linear(3, 1)).double()
    with torch.no_grad():
        model[0].weight.copy_(torch.eye(3))
        model[0].bias.fill_(1.0)
    x = torch.randn(50, 3).double()
    x = (x - x.mean(0)) / x.std(0, correction=0)
    start = {name: p.detach().clone() for name, p in model.named_parameters()} | {
        "0.bias": torch.zeros(3).double()
    }
    reading = covariate_shift(model, (x, torch.randn(50, 1).double()), None, start)
    assert reading.value == pytest.approx(1.0)


def test_gradients_by_the_book() -> None:
    made = case("mlp", double=True)
    x, y = made.batch
    reading = covariate_shift(made.model, made.batch, made.loss, moved(made.model), lr=0.3)
    table = reading.details["gradients"]
    assert table["layer"] == ["2", "4", "5"]

    def gradient(model: nn.Module, layer: nn.Module) -> Tensor:
        found = torch.autograd.grad(F.cross_entropy(model(x), y), list(layer.parameters()))
        return torch.cat([g.flatten() for g in found])

    before = {name: gradient(made.model, getattr(made.model, name)) for name in ("2", "4", "5")}
    whole = torch.autograd.grad(F.cross_entropy(made.model(x), y), list(made.model.parameters()))
    for row, name in enumerate(table["layer"]):
        other = case("mlp", double=True).model
        with torch.no_grad():
            for (key, parameter), g in zip(other.named_parameters(), whole, strict=True):
                if int(key.split(".")[0]) < int(name):
                    parameter -= 0.3 * g
        after = gradient(other, getattr(other, name))
        assert table["gradient_change"][row] == pytest.approx(float((after - before[name]).norm()))
        assert table["relative"][row] == pytest.approx(
            float((after - before[name]).norm() / before[name].norm())
        )
        assert table["cosine"][row] == pytest.approx(float(torch.cosine_similarity(after, before[name], 0)))


def test_layers_come_in_the_order_of_execution() -> None:
    class Turned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last, self.first = nn.Linear(4, 2), nn.Linear(3, 4)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.last(torch.relu(self.first(x)))
            return out

    reading = covariate_shift(Turned(), (torch.randn(5, 3), torch.randn(5, 2)))
    assert reading.details["gradients"]["layer"] == ["last"]


def test_the_rate_and_the_number_of_layers_matter() -> None:
    made = case("resnet")
    subject = Subject(made.model, made.batch, made.loss)
    few = gradient_shift(subject, subject.layers, 0.1, 5, 0)
    assert len(few["layer"]) == 5
    small = gradient_shift(subject, subject.layers, 1e-3, 5, 0)
    assert few["layer"] == small["layer"]
    assert all(a > b for a, b in zip(few["gradient_change"], small["gradient_change"], strict=True))


def test_dropout_is_the_same_on_both_sides() -> None:
    made = case("encoder-layer")
    start = {name: p.detach().clone() for name, p in made.model.named_parameters()}
    reading = covariate_shift(made.model, made.batch, made.loss, start, lr=1e-12)
    assert reading.value == 0
    assert max(reading.details["gradients"]["relative"]) < 1e-4


def test_what_is_not_there() -> None:
    made = case("mlp")
    without = covariate_shift(made.model, made.batch, made.loss)
    assert without.status == "undefined"
    assert without.details["gradients"]["layer"]
    no_loss = covariate_shift(made.model, made.batch[0], None, moved(made.model))
    assert no_loss.value is not None
    assert "gradients" not in no_loss.details
    assert any("no gradients" in note for note in no_loss.notes)
    alone = nn.Linear(3, 2)
    assert "no layer takes" in covariate_shift(alone, torch.randn(4, 3), None, moved(alone)).how


def test_weights_of_another_model_are_refused() -> None:
    made = case("mlp")
    start = moved(made.model)
    with pytest.raises(UsageError, match=r"lacks the weights '0.bias'"):
        covariate_shift(made.model, made.batch, made.loss, {k: v for k, v in start.items() if k != "0.bias"})
    with pytest.raises(UsageError, match="which the model does not have"):
        covariate_shift(made.model, made.batch, made.loss, {**start, "extra": torch.ones(1)})
    with pytest.raises(UsageError, match="of shape"):
        covariate_shift(made.model, made.batch, made.loss, {**start, "0.bias": torch.ones(3)})
