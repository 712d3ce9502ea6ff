"""Autocorrelation of the input gradient: against its definition, noise of known colour, and the paper."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from apoint.probes.batch import as_batch
from apoint.probes.shattering import autocorrelation, brown_noise, half_length, line, shattering, white_noise
from tests.probes.zoo import case


def slow(rows: np.ndarray) -> list[float]:
    """The definition, term by term."""
    mean = rows.mean(0)
    total = sum(float((g - mean) @ (g - mean)) for g in rows)
    return [
        sum(float((rows[t] - mean) @ (rows[t + lag] - mean)) for t in range(len(rows) - lag)) / total
        for lag in range(len(rows))
    ]


@pytest.mark.parametrize("size", [1, 5])
def test_the_definition(size: int) -> None:
    rows = torch.randn(12, size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert np.allclose(autocorrelation(rows), slow(rows.numpy()))


def test_one_dimension_is_what_everybody_calls_autocorrelation() -> None:
    series = np.random.default_rng(0).normal(size=40).cumsum()
    centred = series - series.mean()
    full = np.correlate(centred, centred, "full")[39:]
    assert np.allclose(autocorrelation(torch.from_numpy(series)[:, None]), full / full[0])


def test_white_noise() -> None:
    rng = np.random.default_rng(1)
    curves = np.stack([autocorrelation(torch.from_numpy(rng.normal(size=(10, 1)))) for _ in range(6000)])
    errors = curves.std(0) / math.sqrt(len(curves))
    assert np.all(np.abs(curves.mean(0) - white_noise(10))[1:] < 4.5 * errors[1:])


def test_brown_noise() -> None:
    rng = np.random.default_rng(2)
    walks = rng.normal(size=(20, 20000)).cumsum(
        0
    )  # so many coordinates that the ratio is that of expectations
    assert np.allclose(autocorrelation(torch.from_numpy(walks)), brown_noise(20), atol=0.01)


def test_half_length() -> None:
    assert half_length(np.array([1.0, 0.75, 0.25, 0.0, 0.0])) == pytest.approx(1.5 / 4)
    assert half_length(np.ones(5)) == 1.0


class Wave(nn.Module):
    """Σ sin(f·x): a gradient f·cos(f·x) that can be written down."""

    def __init__(self, frequency: float) -> None:
        super().__init__()
        self.frequency = frequency

    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(self.frequency * x).sum(-1, keepdim=True)


def test_a_gradient_that_can_be_written_down() -> None:
    x = torch.tensor([[0.0], [2.0]], dtype=torch.float64)
    reading = shattering(Wave(5.0), x, num_points=30, num_paths=3)
    t = np.linspace(0, 2, 30)
    expected = slow(5 * np.cos(5 * t)[:, None])
    assert reading.value == pytest.approx(expected[1])
    assert reading.details["autocorrelation"] == pytest.approx(expected[:16])
    assert reading.uncertainty == pytest.approx(0, abs=1e-12), "there is but one line"


def test_gradients_of_every_example_are_its_own() -> None:
    """In eval mode, whatever the mode of the model; against a loop over single points."""
    made = case("cnn-batch-norm", double=True)
    made.model.eval()
    x = made.batch[0]
    reading = shattering(made.model, made.batch, num_points=9, num_paths=1)
    generator = torch.Generator().manual_seed(0)
    one, two = torch.randperm(len(x), generator=generator)[:2].tolist()
    direction = torch.randn(4, generator=generator, dtype=torch.float64)
    rows = []
    for share in torch.linspace(0, 1, 9, dtype=torch.float64):
        point = ((1 - share) * x[one] + share * x[two])[None].requires_grad_()
        (gradient,) = torch.autograd.grad(made.model(point)[0] @ direction, point)
        rows.append(gradient.flatten().numpy())
    assert reading.value == pytest.approx(slow(np.stack(rows))[1])


def network(depth: int, norm: bool) -> nn.Sequential:
    parts: list[nn.Module] = []
    for number in range(depth):
        layer = nn.Linear(200 if number else 1, 200)
        nn.init.kaiming_normal_(layer.weight)
        nn.init.normal_(layer.bias, std=0.1)
        parts += [layer, nn.BatchNorm1d(200), nn.ReLU()] if norm else [layer, nn.ReLU()]
    return nn.Sequential(*parts, nn.Linear(200, 1))


def test_the_papers_figure() -> None:
    """One layer is brown, 24 with batch norm are white, 24 without are in between."""
    torch.manual_seed(0)
    x = torch.linspace(-2, 2, 64)[:, None]
    shallow, deep, plain = (
        shattering(network(depth, norm), x, num_points=128, num_paths=6)
        for depth, norm in ((1, False), (24, True), (24, False))
    )
    assert shallow.value is not None
    assert deep.value is not None
    assert plain.value is not None
    assert deep.uncertainty is not None
    assert shallow.value > 0.9
    assert abs(deep.value) < 0.2
    assert plain.value > 0.5
    assert "statistics of the batch" in deep.how


def test_a_straight_line_is_smooth() -> None:
    reading = shattering(nn.Linear(3, 2), torch.randn(5, 3))
    assert reading.value == 1
    assert any("does not change" in note for note in reading.notes)


def test_lines() -> None:
    batch = as_batch(nn.Identity(), {"a": torch.randn(4, 2), "n": torch.arange(4), "c": torch.tensor(3.0)})
    points = line(batch, 1, 3, 5)
    inputs = points.args[0]
    a = batch.args[0]["a"]
    assert torch.allclose(inputs["a"][0], a[1])
    assert torch.allclose(inputs["a"][-1], a[3])
    assert torch.allclose(inputs["a"][2], (a[1] + a[3]) / 2)
    assert torch.equal(inputs["n"], torch.full((5,), 1))
    assert inputs["c"] == 3


def test_where_there_is_no_line() -> None:
    made = case("tied-lm")
    assert "not real" in shattering(made.model, made.batch).how
    assert "two examples" in shattering(nn.Linear(3, 1), torch.randn(1, 3)).how
    assert "three points" in shattering(nn.Linear(3, 1), torch.randn(4, 3), num_points=2).how


def test_settings_matter() -> None:
    made = case("mlp")
    base = shattering(made.model, made.batch)
    assert shattering(made.model, made.batch, seed=1).value != base.value
    assert shattering(made.model, made.batch, num_paths=4).value != base.value
    assert shattering(made.model, made.batch, num_points=16).value < base.value  # type: ignore[operator]
    assert len(shattering(made.model, made.batch, num_lags=3).details["lag"]) == 4
    assert shattering(made.model, made.batch, num_paths=1).uncertainty is None


def test_a_model_that_writes_on_its_inputs() -> None:
    torch.manual_seed(0)
    x = torch.randn(6, 4)
    layers = nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)
    writes = shattering(nn.Sequential(nn.ReLU(inplace=True), *layers), x)
    assert writes.value == shattering(nn.Sequential(nn.ReLU(), *layers), x).value
