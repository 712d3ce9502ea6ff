"""Networks that compute monomials: their values, their counts, and that fewer neurons cannot."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from apoint.errors import UsageError
from apoint.theory import expressivity as ex


def points(inputs, count=50, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, (count, inputs))


def test_the_product_gate_is_the_four_neurons_of_the_paper():
    size, uv = 0.05, points(2)
    u, v = uv.T
    written = (
        np.exp(size * (u + v)) + np.exp(-size * (u + v)) - np.exp(size * (u - v)) - np.exp(size * (v - u))
    ) / (4 * size**2)
    network = ex.shallow_network((1, 1), torch.exp, size)
    assert network.neurons == 4
    np.testing.assert_allclose(network(uv), written, atol=1e-12)


@pytest.mark.parametrize("powers", [(1,), (2,), (3,), (1, 1, 1), (2, 1), (3, 2)])
def test_a_gate_of_exponentials_is_a_product_of_hyperbolic_sines(powers):
    size, x = 0.3, points(len(powers))
    exact = np.prod((np.sinh(size * x) / size) ** np.array(powers), axis=1)
    network = ex.shallow_network(powers, torch.exp, size)
    assert network.neurons == ex.shallow_count(powers) == math.prod(p + 1 for p in powers)
    np.testing.assert_allclose(network(x), exact, atol=1e-9)


@pytest.mark.parametrize(("activation", "shift"), [(torch.exp, 0.0), (torch.sigmoid, 0.7), (torch.tanh, 0.4)])
@pytest.mark.parametrize("powers", [(5,), (8,), (1, 1, 1, 1, 1), (3, 1), (7, 2, 1)])
def test_a_deep_network_computes_its_monomial_with_an_error_of_second_order(powers, activation, shift):
    x = points(len(powers))
    exact = np.prod(x ** np.array(powers), axis=1)
    sizes = (0.02, 0.01)
    errors = [np.abs(ex.deep_network(powers, activation, s, shift)(x) - exact).max() for s in sizes]
    assert errors[0] < 0.02
    assert errors[1] / errors[0] == pytest.approx(0.25, abs=0.03)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=9))
def test_the_deep_network_stays_two_below_the_bound(powers):
    network = ex.deep_network(powers, torch.exp)
    assert network.neurons <= ex.deep_bound(powers) - 2
    assert network.depth <= max(p.bit_length() for p in powers) + math.ceil(math.log2(len(powers))) + 1


def test_counts_of_the_paper():
    assert ex.shallow_count((1,) * 10) == 1024
    assert ex.deep_bound((1,) * 10) == 40
    assert ex.deep_bound((5, 1, 8)) == (21 + 4) + 4 + (21 + 4)
    assert ex.deep_network((16,), torch.exp).neurons == 12
    assert ex.deep_network((1,) * 8, torch.exp).neurons == 28


@pytest.mark.parametrize("order", [0, 1, 2, 3, 4])
def test_derivatives(order):
    assert ex.derivative(torch.sin, order, 0.6) == pytest.approx(math.sin(0.6 + order * math.pi / 2))
    assert ex.derivative(torch.square, 3, 0.5) == 0.0


def least_residual(powers, neurons, seed):
    """The smallest residual that an optimiser finds over the weights."""
    start = np.random.default_rng(seed).uniform(-1, 1, neurons * len(powers))
    found = minimize(
        lambda w: ex.moment_residual(w.reshape(neurons, -1), powers), start, options={"maxiter": 40}
    )
    return found.fun


@pytest.mark.parametrize("powers", [(2,), (3,), (1, 1), (2, 1)])
def test_one_neuron_too_few_leaves_what_the_proof_says(powers):
    needed = ex.shallow_count(powers)
    for seed, fewer in itertools.product(range(2), (1, 2)):
        assert least_residual(powers, needed - fewer, seed) >= 1 / needed


@pytest.mark.parametrize("powers", [(2,), (3,), (1, 1), (1, 1, 1), (2, 2)])
def test_as_many_neurons_as_the_count_leave_nothing_in_the_limit(powers):
    left = []
    for size in (0.2, 0.1):
        gate = ex.monomial_gate(powers, torch.exp, size)
        factorial = 1.0  # exp's derivatives are 1, and d!/Πr_i! ways give x^r its moment
        for power in powers:
            factorial *= math.factorial(power)
        left.append(ex.moment_residual(gate.weights, powers, gate.outer / factorial))
        assert ex.moment_residual(gate.weights, powers) <= left[-1] + 1e-9
    if max(powers) == 1:
        assert max(left) < 1e-12  # signs alone: no moment up to 2r is left over
        return
    assert left[1] / left[0] == pytest.approx(0.25, abs=0.03)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: ex.shallow_count(()),
            "exponents must be whole numbers from 1 on, at least one of them; got ()",
        ),
        (lambda: ex.deep_bound((2, 0)), "got (2, 0)"),
        (lambda: ex.monomial_gate((1, 1), torch.exp, 0.0), "size must be positive and finite, got 0"),
        (lambda: ex.monomial_gate((1, 1), torch.tanh), "at the shift 0, where it is"),
    ],
)
def test_bad_input_gets_a_sentence(call, sentence):
    with pytest.raises(UsageError) as caught:
        call()
    assert sentence in str(caught.value)
