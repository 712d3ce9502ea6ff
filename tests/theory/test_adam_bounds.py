"""Adam's largest steps and bias factors against PyTorch's Adam and brute force."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from apoint.errors import UsageError
from apoint.theory import adam

BETA = st.floats(0.05, 0.98)


def last_step(gradients: np.ndarray, beta1: float, beta2: float, lr: float = 1.0) -> float:
    """The size of the last step of PyTorch's Adam on given gradients."""
    weight = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([weight], lr=lr, betas=(beta1, beta2), eps=0.0)
    before = 0.0
    for gradient in gradients:
        before = weight.item()
        weight.grad = torch.tensor([gradient], dtype=torch.float64)
        optimizer.step()
    return abs(weight.item() - before)


@given(BETA, st.integers(1, 60), st.integers(0, 10**6))
@settings(deadline=None, max_examples=30)
def test_weights_are_those_of_the_recursion(beta: float, steps: int, seed: int) -> None:
    gradients = np.random.default_rng(seed).standard_normal(steps)
    average = 0.0
    for gradient in gradients:
        average = beta * average + (1 - beta) * gradient
    assert adam.average_weights(beta, steps) @ gradients == pytest.approx(average, rel=1e-9, abs=1e-12)
    assert adam.average_weights(beta, steps).sum() == pytest.approx(adam.bias_factor(beta, steps), rel=1e-9)


def test_bias_factor_without_memory_is_one() -> None:
    assert adam.bias_factor(0.0, 3) == 1


@given(BETA, BETA, st.integers(1, 40), st.integers(0, 10**6))
@settings(deadline=None, max_examples=30)
def test_no_gradients_exceed_the_largest_step(beta1: float, beta2: float, steps: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    gradients = random.standard_normal(steps) * random.gamma(0.3, size=steps) + 1e-12
    assert last_step(gradients, beta1, beta2) <= adam.largest_step(1.0, beta1, beta2, steps) * (1 + 1e-9)


@pytest.mark.parametrize(("beta1", "beta2"), [(0.9, 0.999), (0.5, 0.9), (0.9, 0.7)])
@pytest.mark.parametrize("steps", [1, 2, 30])
def test_worst_gradients_attain_it(beta1: float, beta2: float, steps: int) -> None:
    found = last_step(adam.worst_gradients(beta1, beta2, steps), beta1, beta2, lr=0.3)
    assert found == pytest.approx(adam.largest_step(0.3, beta1, beta2, steps), rel=1e-9)


@pytest.mark.parametrize(("beta1", "beta2"), [(0.9, 0.999), (0.9, 0.7), (0.2, 0.9)])
def test_a_single_gradient_steps_as_said(beta1: float, beta2: float) -> None:
    for steps in (1, 3, 50):
        gradients = np.zeros(steps)
        gradients[-1] = 5.0
        # PyTorch divides 0 by 0 while all gradients are 0; a tiny one first keeps it from that.
        gradients[0] = gradients[0] or 1e-12
        expected = adam.sparse_step(0.1, beta1, beta2, steps)
        assert last_step(gradients, beta1, beta2, lr=0.1) == pytest.approx(expected, rel=1e-6)


def test_limits() -> None:
    assert adam.sparse_step(1.0, 0.9, 0.999) == pytest.approx(0.1 / math.sqrt(0.001))
    assert adam.sparse_step(1.0, 0.9, 0.999, 20_000) == pytest.approx(adam.sparse_step(1.0, 0.9, 0.999))
    assert adam.largest_step(1.0, 0.9, 0.999, 20_000) == pytest.approx(adam.largest_step(1.0, 0.9, 0.999))
    assert adam.largest_step(1.0, 0.9, 0.999) == pytest.approx(7.2703, abs=1e-4)
    assert adam.largest_step(1.0, 0.9, 0.8) == math.inf
    assert adam.largest_step(1.0, 0.5, 0.5) == pytest.approx(1.0)  # equal rates never exceed the rate


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: adam.average_weights(1.0, 3), "beta must be at least 0 and below 1, got 1"),
        (lambda: adam.bias_factor(0.9, 0), "steps must be a whole number from 1 on, got 0"),
        (lambda: adam.sparse_step(0.0, 0.9, 0.999), "lr must be positive and finite, got 0"),
        (lambda: adam.sparse_step(1.0, 0.9, 1.0), "beta2 must be at least 0 and below 1, got 1"),
        (lambda: adam.largest_step(1.0, -0.1, 0.9), "beta1 must be at least 0 and below 1, got -0.1"),
        (lambda: adam.largest_step(1.0, 0.9, 0.0), "beta2 must be above 0"),
        (lambda: adam.worst_gradients(0.0, 0.9, 3), "both betas must be above 0, got 0 and 0.9"),
    ],
)
def test_bad_input_is_told_the_rule(call: object, sentence: str) -> None:
    assert callable(call)
    with pytest.raises(UsageError, match=sentence):
        call()
