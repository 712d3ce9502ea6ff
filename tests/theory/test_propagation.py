"""Variance maps against scipy's quadrature, closed forms, expansions and drawn networks."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from apoint.errors import UsageError
from apoint.theory import propagation


def by_scipy(function, variance):
    std = math.sqrt(variance)
    pieces = [
        integrate.quad(lambda z: function(z) * stats.norm.pdf(z, 0, std), low, high, epsabs=1e-13)[0]
        for low, high in ((-12 * std, 0), (0, 12 * std))
    ]
    return sum(pieces)


@pytest.mark.parametrize("variance", [0.04, 1.0, 9.0])
def test_moments_agree_with_scipy(variance):
    assert propagation.second_moment_of(torch.tanh, variance) == pytest.approx(
        by_scipy(lambda z: np.tanh(z) ** 2, variance), abs=1e-10
    )
    assert propagation.slope_moment(torch.tanh, variance) == pytest.approx(
        by_scipy(lambda z: np.cosh(z) ** -4.0, variance), abs=1e-10
    )


def test_moments_at_variance_zero_are_values_at_zero():
    assert propagation.second_moment_of(torch.sigmoid, 0.0) == pytest.approx(0.25)
    assert propagation.slope_moment(torch.sigmoid, 0.0) == pytest.approx(1 / 16)


@settings(deadline=None, max_examples=30)
@given(st.floats(0, 1), st.floats(0.01, 30), st.floats(0.1, 4), st.floats(0, 2))
def test_leaky_relu_has_a_straight_map(slope, variance, scale, bias):
    function = lambda x: F.leaky_relu(x, slope)  # noqa: E731
    step = propagation.variance_map(function, scale, bias)
    assert step(variance) == pytest.approx(scale * (1 + slope**2) / 2 * variance + bias, rel=1e-9)
    assert propagation.slope_moment(function, variance) == pytest.approx((1 + slope**2) / 2, rel=1e-9)


def test_erf_has_its_closed_forms():
    # Williams (1997): E[erf(√V Z)²] = (2/π) arcsin(2V/(1 + 2V)); E[erf'²] = (4/π)/√(1 + 4V).
    for variance in (0.1, 1.0, 5.0):
        expected = 2 / math.pi * math.asin(2 * variance / (1 + 2 * variance))
        assert propagation.second_moment_of(torch.erf, variance) == pytest.approx(expected, abs=1e-10)
        slope = 4 / math.pi / math.sqrt(1 + 4 * variance)
        assert propagation.slope_moment(torch.erf, variance) == pytest.approx(slope, abs=1e-10)


def test_depth_by_depth():
    assert propagation.forward_variances(torch.relu, 4, 3.0, 2.0) == pytest.approx([3.0] * 4)
    assert propagation.forward_variances(torch.relu, 3, 1.0, 1.0) == pytest.approx([1, 0.5, 0.25])
    assert propagation.forward_variances(torch.relu, 3, 1.0, 1.0, 0.5) == pytest.approx([1, 1.0, 1.0])
    assert propagation.backward_variances(torch.relu, [1.0] * 3, 2.0, 1.0) == pytest.approx([0.5, 1, 2])
    assert propagation.backward_variances(torch.relu, [1.0] * 3, 1.0, 4.0) == pytest.approx([4, 2, 1])
    # tanh(x)² = x² - 2x⁴/3 + …, so that V' = V - 2V² + …, which falls as 1/(2l).
    tail = propagation.forward_variances(torch.tanh, 400)[-1]
    assert tail == pytest.approx(1 / 800, rel=0.05)


def test_backward_uses_the_variance_of_each_layer():
    variances = [0.2, 3.0, 1.0]
    slopes = [propagation.slope_moment(torch.tanh, v) for v in variances]
    found = propagation.backward_variances(torch.tanh, variances)
    assert found == pytest.approx([slopes[0] * slopes[1], slopes[1], 1.0])


def test_drawn_networks_agree():
    width, depth, nets = 400, 6, 24
    generator = torch.Generator().manual_seed(1)
    forwards, backwards = [], []
    for _ in range(nets):
        weights = [
            torch.randn(width, width, generator=generator, dtype=torch.float64) * math.sqrt(1.5 / width)
            for _ in range(depth - 1)
        ]
        z = torch.randn(8, width, generator=generator, dtype=torch.float64)
        layers = [z]
        for weight in weights:
            layers.append(torch.tanh(layers[-1]) @ weight.T)
        delta = torch.randn(8, width, generator=generator, dtype=torch.float64)
        for weight, z in zip(reversed(weights), reversed(layers[:-1]), strict=True):
            delta = (1 - torch.tanh(z) ** 2) * (delta @ weight)
        forwards.append(float(layers[-1].square().mean()))
        backwards.append(float(delta.square().mean()))
    expected = propagation.forward_variances(torch.tanh, depth, 1.0, 1.5)
    back = propagation.backward_variances(torch.tanh, expected, 1.0, 1.5)[0]
    # Four standard errors for chance, and depth/width of the value for the width that is not infinite.
    for values, right in ((forwards, expected[-1]), (backwards, back)):
        error = np.std(values) / math.sqrt(nets)
        assert abs(np.mean(values) - right) <= 4 * error + depth / width * right


def test_fixed_points():
    assert propagation.fixed_point(torch.relu, 1.0) == 0.0
    assert math.isinf(propagation.fixed_point(torch.relu, 2.5))
    found = propagation.fixed_point(torch.tanh, 2.0)
    assert 2.0 * propagation.second_moment_of(torch.tanh, found) == pytest.approx(found, rel=1e-8)
    assert propagation.fixed_point(torch.tanh, 2.0, start=7.0) == pytest.approx(found, rel=1e-7)
    assert propagation.fixed_point(torch.relu, 1.0, bias_variance=0.5) == pytest.approx(1.0, rel=1e-8)
    assert abs(propagation.fixed_point(torch.relu, 1.0, 0.5, 4.0, tolerance=0.1) - 1) > 0.01
    with pytest.raises(UsageError, match="cross the diagonal"):
        propagation.fixed_point(lambda x: x / (1 + x.square()).sqrt())


def test_bad_input_is_told():
    with pytest.raises(UsageError, match="a variance must be at least 0 and finite, got -1"):
        propagation.second_moment_of(torch.tanh, -1.0)
    with pytest.raises(UsageError, match="weight scale must be at least 0 and finite, got -2"):
        propagation.variance_map(torch.tanh, -2.0)
    with pytest.raises(UsageError, match="bias variance must be at least 0"):
        propagation.variance_map(torch.tanh, 1.0, -1.0)
    with pytest.raises(UsageError, match="whole number from 1 on, got 0"):
        propagation.forward_variances(torch.tanh, 0)
    with pytest.raises(UsageError, match="at least one layer, got none"):
        propagation.backward_variances(torch.tanh, [])
