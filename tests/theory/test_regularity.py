"""Constants of named functions and linear models against fine grids and Hessians by autograd."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from apoint.errors import UnknownNameError, UsageError
from apoint.theory import convexity, regularity

NAMES = ("quadratic", "absolute", "huber", "softplus", "logcosh", "hinge", "squared-hinge", "quartic")
FINE = np.linspace(-30, 30, 60_001)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scale", [1.0, 2.5])
def test_constants_are_attained_and_not_exceeded(name: str, scale: float) -> None:
    regular = regularity.named(name, scale)
    slope = regularity.measured_lipschitz(regular.function, FINE)
    curvature = regularity.measured_smoothness(regular.function, FINE)
    if math.isfinite(regular.lipschitz):
        assert slope == pytest.approx(regular.lipschitz, rel=1e-6)
    else:
        assert slope > 25 * scale
    if math.isfinite(regular.smoothness):
        assert curvature == pytest.approx(regular.smoothness, rel=1e-5)
    else:
        assert curvature > 900 * scale  # the jump of a slope over the spacing, or a curvature without bound
    gap = convexity.chord_gap(lambda x: regular.function(x[:, 0]), np.linspace(-30, 30, 601))
    assert gap == pytest.approx(regular.convexity, abs=2e-2 * scale)
    values = regular.function(torch.linspace(-40, 40, 8001, dtype=torch.float64))
    assert float(values.min()) == pytest.approx(regular.minimum, abs=1e-9)


def test_named_functions_are_those_of_pytorch() -> None:
    x = torch.linspace(-5, 5, 101, dtype=torch.float64)
    zeros = torch.zeros_like(x)
    assert torch.allclose(regularity.named("huber").function(x), F.huber_loss(x, zeros, reduction="none"))
    assert torch.allclose(regularity.named("softplus").function(x), F.softplus(x, threshold=100))
    assert torch.allclose(regularity.named("logcosh").function(x), torch.log(torch.cosh(x)))


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 10_000))
def test_linear_models_against_hessians_by_autograd(seed: int) -> None:
    random = np.random.default_rng(seed)
    inputs = random.standard_normal((12, 3))
    x, y = torch.from_numpy(inputs), torch.from_numpy(np.sign(random.standard_normal(12)))
    zero = torch.zeros(3, dtype=torch.float64)

    def hessian(loss: object, at: torch.Tensor) -> np.ndarray:
        return np.linalg.eigvalsh(torch.func.hessian(loss)(at).reshape(at.numel(), -1).numpy())  # type: ignore[operator,arg-type]

    squares = hessian(lambda w: ((x @ w - y) ** 2).mean() / 2, zero + 0.3)
    beta, mu = regularity.least_squares(inputs)
    assert squares[[-1, 0]] == pytest.approx([beta, mu])

    def logistic(w: torch.Tensor) -> torch.Tensor:
        return F.softplus(-y * (x @ w)).mean() + 0.1 * w.square().sum() / 2

    beta, lipschitz = regularity.logistic_regression(inputs, penalty=0.1)
    assert hessian(logistic, zero)[-1] == pytest.approx(beta)
    assert hessian(logistic, zero + torch.from_numpy(random.standard_normal(3)))[-1] <= beta * (1 + 1e-12)
    assert math.isinf(lipschitz)
    _, lipschitz = regularity.logistic_regression(inputs)
    steep = torch.func.grad(lambda w: F.softplus(-y * (x @ w)).mean())(zero + 3)
    assert float(steep.norm()) <= lipschitz

    labels = (y > 0).long()
    cross = hessian(lambda w: F.cross_entropy(x @ w.T, labels), torch.zeros(2, 3, dtype=torch.float64))
    assert cross[-1] == pytest.approx(regularity.softmax_regression(inputs, 2))
    three = hessian(lambda w: F.cross_entropy(x @ w.T, labels), torch.zeros(3, 3, dtype=torch.float64))
    assert three[-1] <= regularity.softmax_regression(inputs, 3)


def test_the_logistic_lipschitz_constant_is_approached() -> None:
    inputs = np.abs(np.random.default_rng(0).standard_normal((20, 1)))
    _, lipschitz = regularity.logistic_regression(inputs)
    x = torch.from_numpy(inputs)
    steep = torch.func.grad(lambda w: F.softplus(x @ w).mean())(torch.full((1,), 200.0, dtype=torch.float64))
    assert float(steep.norm()) == pytest.approx(lipschitz, rel=1e-3)


def test_refusals() -> None:
    with pytest.raises(UnknownNameError, match="softplus"):
        regularity.named("soft-plus")
    with pytest.raises(UsageError, match="a scale must be positive and finite, got 0"):
        regularity.named("huber", 0)
    with pytest.raises(UsageError, match=r"inputs must be a finite table .* got the shape \(3,\)"):
        regularity.least_squares(np.ones(3))
    with pytest.raises(UsageError, match="a penalty must be at least 0, got -1"):
        regularity.logistic_regression(np.ones((2, 2)), -1)
    with pytest.raises(UsageError, match="at least 2 classes, got 1"):
        regularity.softmax_regression(np.ones((2, 2)), 1)
