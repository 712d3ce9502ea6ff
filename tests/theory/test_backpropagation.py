"""Back-propagation by hand against autograd; its bounds against drawn networks and known slopes."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from apoint.errors import UsageError
from apoint.theory import backpropagation

SLOPES = {
    "tanh": (torch.tanh, lambda z: 1 - torch.tanh(z) ** 2),
    "sigmoid": (torch.sigmoid, lambda z: torch.sigmoid(z) * (1 - torch.sigmoid(z))),
    "relu": (torch.relu, lambda z: (z > 0).to(z.dtype)),
}


def drawn(sizes, seed=0, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    weights = [
        scale * torch.randn(after, before, generator=generator, dtype=torch.float64) / math.sqrt(before)
        for before, after in itertools.pairwise(sizes)
    ]
    biases = [torch.randn(size, generator=generator, dtype=torch.float64) for size in sizes[1:]]
    return weights, biases, torch.randn(5, sizes[0], generator=generator, dtype=torch.float64)


def cost(outputs):
    return (outputs**3 / 3 + outputs).sum()


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.integers(1, 6), min_size=2, max_size=5),
    st.sampled_from(sorted(SLOPES)),
    st.booleans(),
    st.integers(0, 1000),
)
def test_gradients_are_those_of_autograd(sizes, name, last_linear, seed):
    weights, biases, inputs = drawn(sizes, seed)
    function, slope = SLOPES[name]
    passed = backpropagation.forward(weights, biases, function, inputs, last_linear)
    outputs = passed.after[-1]
    by_hand = backpropagation.backward(passed, weights, slope, outputs**2 + 1, last_linear)
    leaves = [tensor.clone().requires_grad_() for tensor in (*weights, *biases)]
    a = inputs
    for number, weight in enumerate(leaves[: len(weights)]):
        z = torch.nn.functional.linear(a, weight, leaves[len(weights) + number])
        a = z if last_linear and number == len(weights) - 1 else function(z)
    expected = torch.autograd.grad(cost(a), leaves)
    for mine, right in zip((*by_hand.weights, *by_hand.biases), expected, strict=True):
        torch.testing.assert_close(mine, right, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ("function", "gamma"),
    [
        (torch.sigmoid, 0.25),
        (torch.tanh, 1.0),
        (torch.relu, 1.0),
        (torch.atan, 1.0),
        (lambda x: torch.nn.functional.leaky_relu(x, 0.3), 1.0),
        # The second derivative of x·σ(x) is 0 at x = 2.39935728…, and its slope there is 1.0998….
        (torch.nn.functional.silu, 1.0998393194507),
        (lambda x: -3 * torch.sigmoid(x), 0.75),
    ],
)
def test_largest_slope(function, gamma):
    assert backpropagation.largest_slope(function) == pytest.approx(gamma, abs=1e-8)


def test_largest_slope_sees_as_far_as_its_reach():
    assert backpropagation.largest_slope(torch.square, reach=3.0) == pytest.approx(6.0, abs=1e-2)
    assert backpropagation.largest_slope(torch.square, reach=5.0) == pytest.approx(10.0, abs=1e-2)


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.integers(1, 5), min_size=3, max_size=6),
    st.sampled_from(["tanh", "sigmoid"]),
    st.integers(0, 99),
)
def test_errors_keep_their_bounds(sizes, name, seed):
    weights, biases, inputs = drawn(sizes, seed, scale=2.0)
    function, slope = SLOPES[name]
    passed = backpropagation.forward(weights, biases, function, inputs)
    deltas = backpropagation.backward(passed, weights, slope, torch.ones_like(passed.after[-1])).deltas
    gamma = {"tanh": 1.0, "sigmoid": 0.25}[name]
    for delta, bound in zip(deltas, backpropagation.delta_bounds(weights, gamma, deltas[-1]), strict=True):
        assert bool((delta.abs() <= bound * (1 + 1e-12)).all())
    for example in range(len(inputs)):
        bounds = backpropagation.norm_bounds(weights, gamma, float(deltas[-1][example].norm()))
        for delta, bound in zip(deltas, bounds, strict=True):
            assert float(delta[example].norm()) <= bound * (1 + 1e-12)


def test_bounds_are_attained_by_a_linear_chain():
    weights = [torch.tensor([[w]], dtype=torch.float64) for w in (2.0, -3.0, 0.5)]
    (first, *_) = backpropagation.delta_bounds(weights, 0.7, torch.tensor([4.0], dtype=torch.float64))
    assert float(first) == pytest.approx(0.7**2 * 3 * 0.5 * 4)
    assert backpropagation.norm_bounds(weights, 0.7, 4.0) == pytest.approx([2.94, 1.4, 4.0])


def test_bad_input_is_told():
    weights, biases, inputs = drawn([3, 2, 1])
    with pytest.raises(UsageError, match="at least one layer"):
        backpropagation.forward([], [], torch.tanh, inputs)
    with pytest.raises(UsageError, match=r"layer 2 needs a weight of shape \[units, 2\]"):
        backpropagation.forward([weights[0], weights[0]], biases, torch.tanh, inputs)
    passed = backpropagation.forward(weights, biases, torch.tanh, inputs)
    with pytest.raises(UsageError, match=r"shape \(5, 1\) of the last"):
        backpropagation.backward(passed, weights, torch.tanh, torch.ones(5, 2))
    with pytest.raises(UsageError, match="at least 0 and finite, got -1"):
        backpropagation.norm_bounds(weights, -1.0)
    with pytest.raises(UsageError, match="a norm must be at least 0 and finite, got -2"):
        backpropagation.norm_bounds(weights, 1.0, -2.0)
    with pytest.raises(UsageError, match="must be as many, got 4"):
        backpropagation.delta_bounds(weights, 1.0, torch.ones(4))
    with pytest.raises(UsageError, match="reach must be positive and finite, got 0"):
        backpropagation.largest_slope(torch.tanh, reach=0.0)
