"""Activations against scipy and closed forms in float64: values, slopes, settings, stability, chance."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, special
from torch import nn

from apoint.errors import UsageError
from apoint.nn import StochasticGELU, Swish, activation
from apoint.registry import registry

Array = np.ndarray[Any, Any]
SELU_SCALE, SELU_ALPHA = 1.0507009873554804934193349852946, 1.6732632423543772848170429916717


def tanh_gelu(x: Array) -> Array:
    return x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2


# name -> [(settings, closed form in numpy or scipy)]; each setting is given a value that is not its default.
REFERENCES: dict[str, list[tuple[dict[str, Any], Callable[[Array], Array]]]] = {
    "identity": [({}, lambda x: x)],
    "sigmoid": [({}, special.expit)],
    "tanh": [({}, np.tanh)],
    "arctan": [({}, np.arctan)],
    "softsign": [({}, lambda x: x / (1 + np.abs(x)))],
    "hardtanh": [({}, lambda x: np.clip(x, -1, 1))],
    "relu": [({}, lambda x: np.maximum(x, 0))],
    "leaky-relu": [
        ({}, lambda x: np.where(x > 0, x, 0.01 * x)),
        ({"slope": 0.3}, lambda x: np.where(x > 0, x, 0.3 * x)),
    ],
    "relu6": [({}, lambda x: np.clip(x, 0, 6))],
    "relu-squared": [({}, lambda x: np.maximum(x, 0) ** 2)],
    "elu": [
        ({}, lambda x: np.where(x > 0, x, np.expm1(x))),
        ({"alpha": 0.7}, lambda x: np.where(x > 0, x, 0.7 * np.expm1(x))),
    ],
    "celu": [
        ({}, lambda x: np.where(x > 0, x, np.expm1(x))),
        ({"alpha": 0.7}, lambda x: np.maximum(x, 0) + np.minimum(0, 0.7 * np.expm1(x / 0.7))),
    ],
    "selu": [({}, lambda x: SELU_SCALE * np.where(x > 0, x, SELU_ALPHA * np.expm1(x)))],
    "softplus": [
        ({"threshold": 50.0}, lambda x: np.logaddexp(0, x)),
        ({"beta": 2.5, "threshold": 50.0}, lambda x: np.logaddexp(0, 2.5 * x) / 2.5),
        ({"threshold": 1.0}, lambda x: np.where(x > 1, x, np.logaddexp(0, x))),
    ],
    "squareplus": [
        ({}, lambda x: (x + np.sqrt(x**2 + 4)) / 2),
        ({"b": 0.3}, lambda x: (x + np.sqrt(x**2 + 0.3)) / 2),
    ],
    "swish": [
        ({}, lambda x: x * special.expit(x)),
        ({"beta": 1.7}, lambda x: x * special.expit(1.7 * x)),
        ({"beta": 0.0}, lambda x: x / 2),
        ({"beta": 1.7, "trainable": True}, lambda x: x * special.expit(float(np.float32(1.7)) * x)),
    ],
    "silu": [({}, lambda x: x * special.expit(x))],
    "hard-swish": [({}, lambda x: x * np.clip(x + 3, 0, 6) / 6)],
    "mish": [({}, lambda x: x * np.tanh(np.logaddexp(0, x)))],
    "gelu": [({}, lambda x: x * special.ndtr(x)), ({"approximate": "tanh"}, tanh_gelu)],
    "stochastic-gelu": [({}, lambda x: x * special.ndtr(x))],
}
CASES = [(name, given, form) for name, cases in REFERENCES.items() for given, form in cases]
IDS = [f"{name}-{given}" for name, given, _ in CASES]
# Far and near points, none on a kink (0, ±1, ±3, 6).
POINTS = np.concatenate([np.linspace(-9.03, 9.01, 121), [-35.5, -20.2, 20.7, 34.9, 1e-3, -1e-3]])


def ours() -> list[str]:
    """The names registered by the package; other tests may add their own."""
    known = registry("activation")
    return [name for name in known if known[name].build.__module__.startswith("apoint.")]


def test_every_activation_has_a_reference() -> None:
    assert set(ours()) == set(REFERENCES)


def test_every_setting_has_a_case_that_leaves_its_default() -> None:
    for name in ours():
        defaults = {key: value[1] for key, value in registry("activation")[name].setting_parameters.items()}
        changed = {key for given, _ in REFERENCES[name] for key in given if given[key] != defaults[key]}
        assert changed == set(defaults), name


@pytest.mark.parametrize(("name", "given", "form"), CASES, ids=IDS)
def test_values_are_those_of_the_closed_form(
    name: str, given: dict[str, Any], form: Callable[[Array], Array]
) -> None:
    module = activation({"name": name, **given}).eval()
    values = module(torch.from_numpy(POINTS)).detach().numpy()
    np.testing.assert_allclose(values, form(POINTS), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("name", "given", "form"), CASES, ids=IDS)
def test_slopes_are_those_of_the_closed_form(
    name: str, given: dict[str, Any], form: Callable[[Array], Array]
) -> None:
    module = activation({"name": name, **given}).eval()
    x = torch.from_numpy(POINTS).requires_grad_()
    (slope,) = torch.autograd.grad(module(x).sum(), x)
    step = 1e-5  # error about step²·|f'''| + 1e-16·|f|/step: below 1e-9 relative to the largest value, 1225
    numeric = (form(POINTS + step) - form(POINTS - step)) / (2 * step)
    tolerance = 5e-7 if name == "celu" else 1e-8  # PyTorch's backward of CELU holds 1/α in float32
    np.testing.assert_allclose(slope.numpy(), numeric, rtol=tolerance, atol=2e-9)


@pytest.mark.parametrize(
    ("spec", "function"),
    [
        ("sigmoid", torch.sigmoid),
        ("tanh", torch.tanh),
        ("arctan", torch.atan),
        ("softsign", F.softsign),
        ("hardtanh", F.hardtanh),
        ("relu", F.relu),
        ({"name": "leaky-relu", "slope": 0.2}, lambda x: F.leaky_relu(x, 0.2)),
        ("relu6", F.relu6),
        ({"name": "elu", "alpha": 0.4}, lambda x: F.elu(x, 0.4)),
        ({"name": "celu", "alpha": 0.4}, lambda x: F.celu(x, 0.4)),
        ("selu", F.selu),
        ({"name": "softplus", "beta": 3.0, "threshold": 5.0}, lambda x: F.softplus(x, 3.0, 5.0)),
        ("softplus", F.softplus),
        ("silu", F.silu),
        ("swish", F.silu),
        ("hard-swish", F.hardswish),
        ("mish", F.mish),
        ("gelu", F.gelu),
        ({"name": "gelu", "approximate": "tanh"}, lambda x: F.gelu(x, approximate="tanh")),
    ],
)
def test_values_and_slopes_are_those_of_pytorch(spec: Any, function: Callable[..., torch.Tensor]) -> None:
    x = torch.from_numpy(np.append(POINTS, [0.0, 1.0, -1.0, 3.0, -3.0, 6.0])).requires_grad_()
    module = activation(spec)
    torch.testing.assert_close(module(x), function(x), rtol=1e-14, atol=1e-15)
    slopes = [torch.autograd.grad(f(x).sum(), x)[0] for f in (module, function)]
    torch.testing.assert_close(slopes[0], slopes[1], rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("name", sorted(REFERENCES))
@settings(deadline=None, max_examples=25)
@given(x=st.floats(-1e4, 1e4, width=32))
def test_value_and_slope_are_finite_in_float32(name: str, x: float) -> None:
    point = torch.tensor([x], requires_grad=True)
    value = activation(name)(point)
    (slope,) = torch.autograd.grad(value.sum(), point)
    assert value.isfinite().all()
    assert slope.isfinite().all()


@settings(deadline=None, max_examples=50)
@given(x=st.floats(-50, 50))
def test_symmetries(x: float) -> None:
    both = torch.tensor([x, -x], dtype=torch.float64)
    for name in ("identity", "tanh", "arctan", "softsign", "hardtanh"):
        right, left = activation(name)(both)
        assert right == -left, f"{name} is odd"
    right, left = activation("sigmoid")(both)
    assert right + left == pytest.approx(1, abs=1e-15), "the sigmoid is odd about 1/2, not about 0"
    for name in ("silu", "gelu", "softplus", "squareplus"):  # f(x) - f(-x) = x
        right, left = activation(name)(both)
        assert right - left == pytest.approx(x, rel=1e-13, abs=1e-8), name


def test_swish_runs_from_half_the_identity_to_the_rectifier() -> None:
    x = torch.from_numpy(POINTS)
    torch.testing.assert_close(activation({"name": "swish", "beta": 0.0})(x), x / 2)
    torch.testing.assert_close(activation({"name": "swish", "beta": 1e5})(x), F.relu(x), atol=1e-12, rtol=0)


def test_a_trainable_beta_is_one_parameter_and_gets_its_gradient() -> None:
    module = activation({"name": "swish", "beta": 0.5, "trainable": True}).double()
    x = torch.linspace(-2, 3, 11, dtype=torch.float64)
    module(x).sum().backward()
    (beta,) = module.parameters()
    gate = torch.sigmoid(0.5 * x)
    torch.testing.assert_close(beta.grad, (x**2 * gate * (1 - gate)).sum())
    assert list(activation("swish").parameters()) == []
    assert isinstance(module, Swish)


def test_squareplus_keeps_its_precision_far_below_zero() -> None:
    x = torch.tensor(
        [-1e2, -1e3, -1e4], requires_grad=True
    )  # float32, where the plain formula gives 0 at last
    value = activation("squareplus")(x)
    exact = x.detach().double()
    torch.testing.assert_close(value.double(), 2 / (torch.sqrt(exact**2 + 4) - exact), rtol=1e-6, atol=0)
    (slope,) = torch.autograd.grad(value.sum(), x)
    expected = value.detach() / torch.sqrt(x.detach() ** 2 + 4)  # f' = f/√(x² + b)
    torch.testing.assert_close(slope, expected, rtol=2e-4, atol=0)


def test_squareplus_has_slope_one_half_at_zero() -> None:
    x = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(activation("squareplus")(x).sum(), x)
    assert slope.item() == 0.5


def test_squareplus_meets_softplus_as_its_docstring_says() -> None:
    x = torch.zeros(1, dtype=torch.float64)
    same_value = activation({"name": "squareplus", "b": 4 * math.log(2) ** 2})
    torch.testing.assert_close(same_value(x), F.softplus(x))
    tiny = torch.tensor(1e-4, dtype=torch.float64)

    def curvature(name: str) -> torch.Tensor:
        f = activation(name)
        return (f(tiny) - 2 * f(0 * tiny) + f(-tiny)) / tiny**2

    torch.testing.assert_close(curvature("squareplus"), curvature("softplus"), rtol=1e-6, atol=0)


def test_softplus_is_within_its_stated_error_above_the_threshold() -> None:
    x = torch.linspace(0.1, 30, 300, dtype=torch.float64)
    for beta, threshold in ((1.0, 20.0), (2.0, 3.0)):
        module = activation({"name": "softplus", "beta": beta, "threshold": threshold})
        error = np.abs(module(x).numpy() - np.logaddexp(0, beta * x.numpy()) / beta)
        assert error.max() <= math.exp(-threshold) / beta
        assert error.max() > 0.1 * math.exp(-threshold) / beta


@pytest.mark.parametrize(("name", "place"), [("gelu", -0.752), ("silu", -1.278)])
def test_the_minimum_is_where_the_docstring_says(name: str, place: float) -> None:
    module = activation(name)
    found = optimize.minimize_scalar(
        lambda x: module(torch.tensor(x, dtype=torch.float64)).item(), bounds=(-3, 0), method="bounded"
    )
    assert found.x == pytest.approx(place, abs=6e-4)
    assert str(abs(place)) in (registry("activation")[name].build.__doc__ or "")


def test_selu_keeps_mean_zero_and_variance_one() -> None:
    nodes, weights = np.polynomial.hermite_e.hermegauss(200)
    weights = weights / weights.sum()
    value = activation("selu")(torch.from_numpy(nodes)).numpy()
    assert weights @ value == pytest.approx(0, abs=5e-3)  # the kink limits the quadrature
    assert weights @ value**2 == pytest.approx(1, abs=5e-3)


class TestStochasticGELU:
    def test_its_mean_in_training_is_gelu(self) -> None:
        points = torch.tensor([-2.5, -1.0, -0.3, 0.0, 0.4, 1.2, 2.2], dtype=torch.float64)
        num_draws = 40_000
        torch.manual_seed(0)
        draws = StochasticGELU()(points.expand(num_draws, -1))
        keep = special.ndtr(points.numpy())
        standard_error = np.abs(points.numpy()) * np.sqrt(keep * (1 - keep) / num_draws)
        error = np.abs(draws.mean(0).numpy() - F.gelu(points).numpy())
        assert (error <= 4.5 * standard_error).all()

    def test_each_draw_is_zero_or_the_input_and_the_slope_is_the_mask(self) -> None:
        x = torch.linspace(-2, 2, 1001, dtype=torch.float64, requires_grad=True)
        torch.manual_seed(1)
        value = StochasticGELU()(x)
        (slope,) = torch.autograd.grad(value.sum(), x)
        assert set(slope.tolist()) == {0.0, 1.0}
        torch.testing.assert_close(value, slope * x, rtol=0, atol=0)

    def test_the_seed_of_the_default_generator_decides(self) -> None:
        x = torch.linspace(-1, 1, 100)

        def drawn(seed: int) -> list[float]:
            torch.manual_seed(seed)
            return StochasticGELU()(x).tolist()

        assert drawn(3) == drawn(3)
        assert drawn(3) != drawn(4)

    def test_evaluation_is_exact_gelu_and_draws_nothing(self) -> None:
        x = torch.linspace(-3, 3, 50, dtype=torch.float64)
        before = torch.get_rng_state()
        torch.testing.assert_close(StochasticGELU().eval()(x), F.gelu(x), rtol=0, atol=0)
        assert torch.equal(torch.get_rng_state(), before)


def test_pytorchs_modules_are_used_where_they_exist() -> None:
    for name, kind in {"relu": nn.ReLU, "gelu": nn.GELU, "tanh": nn.Tanh, "silu": nn.SiLU}.items():
        assert type(activation(name)) is kind


@pytest.mark.parametrize("name", sorted(REFERENCES))
def test_it_can_be_stacked_over_replicas(name: str) -> None:
    x = torch.randn(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    module = activation(name).eval()
    torch.testing.assert_close(torch.func.vmap(module)(x), module(x), rtol=0, atol=1e-15)


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (
            {"name": "leaky-relu", "slope": -0.1},
            "activation 'leaky-relu': slope must be at least 0, got -0.1",
        ),
        ({"name": "leaky-relu", "slope": 1.5}, "activation 'leaky-relu': slope must be at most 1, got 1.5"),
        ({"name": "squareplus", "b": 0}, "activation 'squareplus': b must be greater than 0, got 0"),
        ({"name": "swish", "beta": -1}, "activation 'swish': beta must be at least 0, got -1"),
        (
            {"name": "gelu", "approximate": "erf"},
            "activation 'gelu': approximate must be one of 'none' or 'tanh', got 'erf'",
        ),
        ({"name": "relu", "slope": 0.1}, "activation 'relu': unknown setting 'slope'; there are none"),
        ("rellu", "unknown activation 'rellu'; did you mean 'relu' or 'relu6' or 'elu'?"),
    ],
)
def test_wrong_specs_are_refused_in_one_sentence(spec: Any, sentence: str) -> None:
    with pytest.raises(UsageError) as refusal:
        activation(spec)
    assert str(refusal.value).replace(".0,", ",") == sentence
