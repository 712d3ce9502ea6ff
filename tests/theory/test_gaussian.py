"""Expectations under a Gaussian against closed forms and scipy; gains against torch and closed forms."""

import itertools
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from apoint.errors import UsageError
from apoint.theory import backward_gain, expectation, gain, second_moment

TOLERANCE = 1e-10  # the promise of `expectation`


def scipy_expectation(function, std, mean, kinks=()):
    """E[f(Z)] by adaptive quadrature, split at the kinks."""
    edges = sorted({mean - 12 * std, mean + 12 * std, *[k for k in kinks if abs(k - mean) < 12 * std]})
    total = 0.0
    for low, high in itertools.pairwise(edges):
        total += integrate.quad(
            lambda z: float(function(torch.tensor(z, dtype=torch.float64))) * stats.norm.pdf(z, mean, std),
            low,
            high,
            epsabs=1e-13,
            epsrel=1e-12,
            limit=200,
        )[0]
    return total


@pytest.mark.parametrize(
    ("function", "kinks"),
    [
        (torch.relu, (0,)),
        (F.hardtanh, (-1, 1)),
        (F.hardswish, (-3, 3)),
        (F.relu6, (0, 6)),
        (torch.tanh, ()),
        (torch.sigmoid, ()),
        (F.gelu, ()),
        (F.silu, ()),
        (F.mish, ()),
        (F.elu, (0,)),
        (F.softplus, ()),
    ],
)
@pytest.mark.parametrize(("std", "mean"), [(1.0, 0.0), (0.3, 0.5), (2.5, -1.2)])
def test_expectation_agrees_with_scipy(function, kinks, std, mean):
    assert expectation(function, std, mean) == pytest.approx(
        scipy_expectation(function, std, mean, kinks), abs=TOLERANCE
    )


@settings(deadline=None, max_examples=50)
@given(st.floats(0.01, 100), st.floats(-5, 5))
def test_moments_of_a_gaussian(std, mean):
    """Exact for polynomials: E[Z], E[Z²], E[Z⁴] around the mean, at every scale."""
    assert expectation(torch.ones_like, std, mean) == pytest.approx(1, abs=1e-12)
    assert expectation(lambda z: z, std, mean) == pytest.approx(mean, abs=1e-12 * (std + abs(mean)))
    assert second_moment(lambda z: z - mean, std, mean) == pytest.approx(std**2, rel=1e-12)
    assert expectation(lambda z: (z - mean) ** 4, std, mean) == pytest.approx(3 * std**4, rel=1e-12)


@settings(deadline=None, max_examples=50)
@given(st.floats(0.05, 4), st.floats(-3, 3))
def test_characteristic_function_and_folded_normal(std, mean):
    """E[cos Z] and E|Z|, one smooth and one with a kink, have closed forms."""
    assert expectation(torch.cos, std, mean) == pytest.approx(
        math.cos(mean) * math.exp(-(std**2) / 2), abs=TOLERANCE
    )
    folded = std * math.sqrt(2 / math.pi) * math.exp(-(mean**2) / (2 * std**2))
    folded += mean * math.erf(mean / (std * math.sqrt(2)))
    assert expectation(torch.abs, std, mean) == pytest.approx(folded, abs=TOLERANCE)


def test_gains_in_closed_form():
    """1 for the identity, √2 for ReLU, √(2/(1+α²)) for leaky ReLU; PyTorch's table says the same."""
    assert gain(lambda z: z) == pytest.approx(1, rel=1e-12)
    assert gain(torch.relu) == pytest.approx(math.sqrt(2), rel=1e-12)
    assert gain(torch.relu) == pytest.approx(torch.nn.init.calculate_gain("relu"), rel=1e-12)
    for slope in (0.01, 0.2, 0.7):
        leaky = gain(lambda z, slope=slope: F.leaky_relu(z, slope))
        assert leaky == pytest.approx(math.sqrt(2 / (1 + slope**2)), rel=1e-12)
        assert leaky == pytest.approx(torch.nn.init.calculate_gain("leaky_relu", slope), rel=1e-12)


def test_gain_of_selu_is_one():
    """The constants of SELU are chosen so that variance 1 is kept; they have 17 digits."""
    assert gain(F.selu) == pytest.approx(1, abs=1e-9)


def test_gain_is_the_factor_on_the_deviation_not_on_the_variance():
    """f(cZ) with c = gain of ReLU doubles the second moment to 1: E[relu(√2 Z)²] = 1."""
    assert second_moment(torch.relu, std=gain(torch.relu)) == pytest.approx(1, rel=1e-12)
    assert second_moment(torch.relu, std=gain(torch.relu) ** 2) == pytest.approx(2, rel=1e-12)


def test_backward_gains():
    """E[f'(Z)²]: 1/2 for ReLU, (1+α²)/2 for leaky ReLU, P(|Z| < 1) for hard tanh, scipy for tanh."""
    assert backward_gain(torch.relu) == pytest.approx(math.sqrt(2), rel=1e-12)
    assert backward_gain(lambda z: F.leaky_relu(z, 0.2)) == pytest.approx(math.sqrt(2 / 1.04), rel=1e-12)
    assert backward_gain(F.hardtanh) == pytest.approx(math.erf(1 / math.sqrt(2)) ** -0.5, rel=1e-12)
    slope = scipy_expectation(lambda z: (1 - torch.tanh(z) ** 2) ** 2, 1.0, 0.0)
    assert backward_gain(torch.tanh) == pytest.approx(slope**-0.5, rel=1e-10)
    assert backward_gain(torch.tanh) != pytest.approx(gain(torch.tanh), rel=0.05)


def test_quadrature_against_sampling():
    """An independent look at the numbers: a million draws agree within five standard errors."""
    z = torch.from_numpy(np.random.default_rng(0).normal(size=1_000_000))
    squares = F.gelu(z).square()
    error = float(squares.std()) / 1000
    assert abs(float(squares.mean()) - second_moment(F.gelu)) < 5 * error


def test_works_inside_no_grad_and_leaves_no_graph():
    with torch.no_grad():
        assert backward_gain(torch.tanh) > 1
    layer = torch.nn.PReLU(init=0.5).double()
    assert gain(layer) == pytest.approx(math.sqrt(2 / 1.25), rel=1e-12)
    backward_gain(layer)
    assert layer.weight.grad is None


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: expectation(torch.relu, std=0.0), "std must be positive"),
        (lambda: expectation(torch.relu, std=math.nan), "std must be positive"),
        (lambda: expectation(torch.relu, mean=math.inf), "mean finite"),
        (lambda: expectation(torch.sum), "must act on each element"),
        (lambda: gain(torch.zeros_like), r"E\[f\(Z\)²\] must be positive and finite"),
        (lambda: backward_gain(lambda z: z * 0), r"E\[f'\(Z\)²\] must be positive and finite"),
    ],
)
def test_refusals(call, sentence):
    with pytest.raises(UsageError, match=sentence):
        call()
