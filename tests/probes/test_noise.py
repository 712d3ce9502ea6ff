"""Noise scale and direction variance against their definitions, and their estimators against the truth."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor, nn

from apoint.probes import Subject, preserve_state
from apoint.probes.direction import directions, gradient_direction
from apoint.probes.noise import Noise, gradient_noise, jackknife
from apoint.probes.parts import parts_of
from tests.probes.zoo import MAKERS, case

INDEPENDENT = [name for name in MAKERS if name not in ("cnn-batch-norm", "resnet")]


def flat_gradients(subject: Subject, batches: list[Any], layer: str | None = None) -> Tensor:
    """The gradient of the loss of each batch as a row."""
    names = subject.layers[layer] if layer else list(subject.parameters)
    parameters = [subject.parameters[name] for name in names]
    rows = []
    for batch in batches:
        found = torch.autograd.grad(
            subject.loss(batch), parameters, materialize_grads=True, allow_unused=True
        )
        rows.append(torch.cat([g.flatten() for g in found]))
    return torch.stack(rows)


def noise_by_definition(g: Tensor, size: int) -> tuple[float, float]:
    """σ² of one example, as the trace of the covariance by numpy, and |G|²."""
    variance = size * float(numpy.var(g.numpy(), axis=0, ddof=1).sum())
    return variance, float(g.mean(0).square().sum()) - variance / (len(g) * size)


@pytest.mark.parametrize("name", INDEPENDENT)
def test_noise_of_single_examples_is_its_definition(name: str) -> None:
    made = case(name, double=True)
    made.model.eval()
    subject = Subject(made.model, made.batch, made.loss)
    reading = gradient_noise(made.model, made.batch, made.loss)
    singles = [subject.batch.select([k]) for k in range(subject.batch.size)]
    for layer, found in [(None, None), *((layer, layer) for layer in subject.layers)]:
        variance, signal = noise_by_definition(flat_gradients(subject, singles, layer), 1)
        got = reading.details
        if found:
            scale = reading.per_layer[found]
            assert got["sigma_squared_per_layer"][found] == pytest.approx(variance)
            assert got["gradient_norm_squared_per_layer"][found] == pytest.approx(signal, abs=1e-9)
        else:
            scale = reading.value
            assert got["sigma_squared"] == pytest.approx(variance)
            assert got["gradient_norm_squared"] == pytest.approx(signal)
        assert scale == pytest.approx(variance / signal if signal > 0 else math.inf)
    assert reading.unit == "examples"


@pytest.mark.parametrize("name", ["mlp", "cnn-batch-norm", "own-loss"])
def test_noise_of_parts_is_its_definition(name: str) -> None:
    made = case(name, double=True)
    if name != "cnn-batch-norm":
        made.model.eval()
    subject = Subject(made.model, made.batch, made.loss)
    reading = gradient_noise(made.model, made.batch, made.loss, num_batches=4, seed=3)
    with preserve_state(made.model):
        g = flat_gradients(subject, parts_of(subject.batch, 4, 3))
    variance, signal = noise_by_definition(g, 2)
    assert reading.details["sigma_squared"] == pytest.approx(variance)
    assert reading.details["gradient_norm_squared"] == pytest.approx(signal)
    assert ("depend" in reading.how) == (name == "cnn-batch-norm")


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), count=st.integers(4, 9), size=st.integers(1, 3))
def test_the_jackknife_is_leaving_out_one_at_a_time(seed: int, count: int, size: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    g = torch.randn(count, 3, generator=generator, dtype=torch.float64) + 2
    found = Noise.estimated(g.square().sum(1), g @ g.mean(0), size)
    without = [noise_by_definition(torch.cat([g[:k], g[k + 1 :]]), size) for k in range(count)]
    for error, values in (
        (found.variance_error, [v for v, _ in without]),
        (found.signal_error, [s for _, s in without]),
        (found.scale_error, [v / s if s > 0 else math.inf for v, s in without]),
    ):
        if not all(map(math.isfinite, values)):
            assert error == math.inf
            continue
        expected = math.sqrt((count - 1) / count * sum((v - numpy.mean(values)) ** 2 for v in values))
        assert error == pytest.approx(expected, rel=1e-6)


def test_the_jackknife_of_a_mean_is_its_standard_error() -> None:
    values = torch.randn(20, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    without = (values.sum() - values) / 19
    assert jackknife(without) == pytest.approx(stats.sem(values.numpy()))


@pytest.mark.parametrize("num_batches", [0, 6])
def test_the_estimates_have_no_bias(num_batches: int) -> None:
    """Batches drawn from a known population: the mean of many estimates is the truth of the population."""
    torch.manual_seed(0)
    model = nn.Linear(3, 1, bias=False).double()
    inputs = torch.randn(200, 3, dtype=torch.float64)
    targets = inputs @ torch.tensor([[1.0], [2.0], [0.5]], dtype=torch.float64) + torch.randn(200, 1)
    with torch.no_grad():
        each = 2 * (model(inputs) - targets) * inputs  # gradients of the squared errors, [200, 3]
    signal = float(each.mean(0).square().sum())
    variance = float((each - each.mean(0)).square().sum(1).mean())
    found, errors = [], []
    for seed in range(120):
        drawn = torch.randint(200, (24,), generator=torch.Generator().manual_seed(seed))
        batch = (inputs[drawn], targets[drawn])
        details = gradient_noise(model, batch, F.mse_loss, num_batches=num_batches).details
        found.append((details["sigma_squared"], details["gradient_norm_squared"]))
        errors.append(details["sigma_squared_uncertainty"])
    values = torch.tensor(found)
    error = values.std(0) / math.sqrt(len(found))
    assert bool(((values.mean(0) - torch.tensor([variance, signal])).abs() < 3.5 * error).all())
    assert sum(errors) / len(errors) == pytest.approx(float(values.std(0)[0]), rel=0.3), "the standard error"


def test_mini_batches_with_replacement_divide_the_noise_by_their_size() -> None:
    """The proposition of the course: E|ĝ_b|² = σ²/b + |G|², with this σ² and |G|² of the population."""
    torch.manual_seed(0)
    each = torch.randn(50, 4, dtype=torch.float64) + 1
    signal = each.mean(0).square().sum()
    variance = (each - each.mean(0)).square().sum(1).mean()
    for size in (1, 4, 16):
        drawn = torch.randint(50, (20000, size))
        found = each[drawn].mean(1).square().sum(1).mean()
        assert float(found) == pytest.approx(float(variance / size + signal), rel=0.03)


def test_pure_noise_has_an_infinite_scale_and_no_noise_none() -> None:
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    inputs = torch.ones(6, 1)
    noise = gradient_noise(model, (inputs, torch.tensor([[1.0], [-1.0]] * 3)), F.mse_loss)
    assert noise.value == math.inf
    assert "distinguished from 0" in noise.notes[0]
    assert noise.details["scale_at_least"] > 1
    quiet = gradient_noise(model, (inputs, torch.ones(6, 1)), F.mse_loss)
    assert quiet.value == pytest.approx(0, abs=1e-6)
    assert quiet.details["gradient_norm_squared"] == pytest.approx(4)


def test_a_loss_that_couples_examples_is_split() -> None:
    torch.manual_seed(0)
    model, weight = nn.Linear(3, 3), torch.tensor([1.0, 5.0, 2.0])
    batch = (torch.randn(16, 3), torch.arange(16) % 3)
    reading = gradient_noise(model, batch, lambda out, y: F.cross_entropy(out, y, weight=weight))
    assert reading.how.startswith("gradients of 8 parts of 2 examples, since the loss")


def test_examples_that_fit_no_part_are_named() -> None:
    model, batch = nn.Linear(3, 3), (torch.randn(11, 3), torch.arange(11) % 3)
    assert "3 of 11" in gradient_noise(model, batch, num_batches=4).notes[0]
    assert "3 of 11" in gradient_direction(model, batch, num_batches=4).notes[0]


def test_too_little_to_see_noise() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    assert "one example" in gradient_noise(nn.Linear(3, 3), (torch.randn(1, 3), torch.tensor([0]))).how
    assert "at least 4" in gradient_noise(model, (torch.randn(3, 3), torch.arange(3))).how
    assert "at least 4" in gradient_direction(model, (torch.randn(3, 3), torch.arange(3))).how
    two = gradient_noise(nn.Linear(3, 3), (torch.randn(2, 3), torch.arange(2)))
    assert two.uncertainty is None
    assert "no spread" in two.notes[-1]


# -- direction -----------------------------------------------------------------------------------------------


def direction_by_definition(g: Tensor, reference: Tensor) -> tuple[float, float]:
    """Formulas of the paper, pair by pair."""

    def distance(a: Tensor, b: Tensor) -> float:
        return 0.5 * (1 - float(F.cosine_similarity(a, b, dim=0)))

    pairs = [distance(a, b) for a, b in itertools.permutations(g, 2)]
    return sum(pairs) / len(pairs), sum(distance(a, reference) for a in g) / len(g)


@pytest.mark.parametrize("name", MAKERS)
def test_direction_is_its_definition(name: str) -> None:
    made = case(name, double=True)
    if name not in ("cnn-batch-norm", "resnet"):
        made.model.eval()
    subject = Subject(made.model, made.batch, made.loss)
    reading = gradient_direction(made.model, made.batch, made.loss, num_batches=4, seed=5)
    with preserve_state(made.model):
        parts = parts_of(subject.batch, 4, 5)
        whole = flat_gradients(subject, [subject.batch])[0]
        value, error = direction_by_definition(flat_gradients(subject, parts), whole)
        assert reading.value == pytest.approx(value)
        assert reading.details["direction_error"] == pytest.approx(error)
        for layer in reading.per_layer:
            row = flat_gradients(subject, [subject.batch], layer)[0]
            value, error = direction_by_definition(flat_gradients(subject, parts, layer), row)
            assert reading.per_layer[layer] == pytest.approx(value)
            assert reading.details["direction_error_per_layer"][layer] == pytest.approx(error)


def test_the_reference_has_dropout_at_rest_and_batch_norm_as_it_was() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Linear(6, 3)).double()
    batch = (torch.randn(12, 4, dtype=torch.float64), torch.arange(12) % 3)
    reading = gradient_direction(model, batch, F.cross_entropy, num_batches=3)
    subject = Subject(model, batch, F.cross_entropy)
    still = Subject(nn.Sequential(model[0], model[1], nn.Identity(), model[3]), batch, F.cross_entropy)
    with preserve_state(still.model):
        reference = flat_gradients(still, [still.batch])[0]
    with preserve_state(model):
        g = flat_gradients(subject, parts_of(subject.batch, 3, 0))
    _, error = direction_by_definition(g, reference)
    assert reading.details["direction_error"] == pytest.approx(error)


def test_directions_of_known_vectors() -> None:
    def of(*vectors: tuple[float, ...]) -> tuple[float | None, float | None]:
        v = torch.tensor(vectors, dtype=torch.float64)
        found = directions(v @ v.T)
        return found["variance"], found["error"]

    assert of((1, 0), (2, 0), (5, 0)) == pytest.approx((0, 0))
    assert of((1, 1), (3, 0), (0, 1)) == pytest.approx((0.5, 0.5 * (1 - math.sqrt(0.5))))
    assert of((1, 0), (1, 0), (-4, 0)) == pytest.approx((1, 0.5))


def test_the_spread_of_directions_is_that_of_leaving_one_out() -> None:
    torch.manual_seed(0)
    g = torch.randn(7, 5, dtype=torch.float64) + 1
    found = directions(g @ g.T)
    rest = g[1:]
    without = [
        direction_by_definition(torch.cat([rest[:k], rest[k + 1 :]]), g[0])[0] for k in range(len(rest))
    ]
    expected = jackknife(torch.tensor(without, dtype=torch.float64))
    assert found["variance_uncertainty"] == pytest.approx(expected)


def test_single_examples_and_layers_without_a_direction() -> None:
    made = case("raw-parameters")
    reading = gradient_direction(made.model, made.batch, made.loss, num_batches=0)
    assert reading.how == "gradients of 8 parts of 1 example"
    dead = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    nn.init.constant_(dead[0].bias, -100.0)
    reading = gradient_direction(dead, (torch.randn(8, 3), torch.arange(8) % 2))
    assert set(reading.per_layer) == {"2"}
    assert reading.coverage == pytest.approx(10 / 26)
    still = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(still.weight)
    assert "no direction" in gradient_direction(still, (torch.ones(4, 1), torch.zeros(4, 1))).how


def test_settings_change_the_outcome() -> None:
    made = case("mlp")
    for probe in (gradient_noise, gradient_direction):
        arguments = (made.model, made.batch, made.loss)
        values = {str(probe(*arguments, num_batches=n, seed=s).to_dict()) for n in (2, 4) for s in (0, 1)}
        assert len(values) == 4
