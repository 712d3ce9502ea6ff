"""The error of ridge regression against drawn problems and matrix algebra."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from apoint.errors import UsageError
from apoint.theory import weight_decay


def drawn_errors(
    inputs: np.ndarray, decay: float, noise: float, prior: float, count: int, random: np.random.Generator
) -> np.ndarray:
    """‖w − w*‖² of ridge regression by solving its equations, for teachers and noise drawn anew."""
    samples, dimension = inputs.shape
    teachers = math.sqrt(prior) * random.standard_normal((dimension, count))
    labels = inputs @ teachers + math.sqrt(noise) * random.standard_normal((samples, count))
    if decay:
        found = np.linalg.solve(inputs.T @ inputs + decay * np.eye(dimension), inputs.T @ labels)
    else:
        found = np.linalg.pinv(inputs) @ labels
    return np.asarray(((found - teachers) ** 2).sum(0))


@pytest.mark.parametrize("decay", [0.0, 0.5, 4.0])
@pytest.mark.parametrize(("samples", "dimension"), [(12, 6), (4, 9)])
def test_error_of_drawn_teachers(decay: float, samples: int, dimension: int) -> None:
    random = np.random.default_rng(0)
    inputs = random.standard_normal((samples, dimension))
    eigenvalues = np.clip(np.linalg.eigvalsh(inputs.T @ inputs), 0, None)
    eigenvalues[: max(dimension - samples, 0)] = 0  # of the null space, where rounding leaves 1e-16
    errors = drawn_errors(inputs, decay, 0.6, 1.7, 20_000, random)
    expected = weight_decay.ridge_error(eigenvalues, decay, 0.6, 1.7)
    assert abs(errors.mean() - expected) < 4 * errors.std() / math.sqrt(len(errors))


@given(st.integers(0, 10**6), st.floats(0.01, 10), st.floats(0.1, 10))
@settings(deadline=None, max_examples=25)
def test_the_best_strength_is_noise_over_prior(seed: int, noise: float, prior: float) -> None:
    eigenvalues = np.random.default_rng(seed).gamma(1.0, size=6)
    found = minimize_scalar(
        lambda log: weight_decay.ridge_error(eigenvalues, math.exp(log), noise, prior), bounds=(-12, 12)
    )
    best = weight_decay.ridge_error(eigenvalues, weight_decay.optimal_decay(noise, prior), noise, prior)
    assert best <= found.fun * (1 + 1e-9)
    assert math.exp(found.x) == pytest.approx(noise / prior, rel=1e-2)


@pytest.mark.parametrize(("samples", "dimension"), [(30, 10), (8, 20)])
def test_without_decay_over_inputs_too(samples: int, dimension: int) -> None:
    random = np.random.default_rng(1)
    errors = np.concatenate(
        [
            drawn_errors(random.standard_normal((samples, dimension)), 0.0, 0.5, 2.0, 1, random)
            for _ in range(8000)
        ]
    )
    expected = weight_decay.least_squares_error(samples, dimension, 0.5, 2.0)
    assert abs(errors.mean() - expected) < 4 * errors.std() / math.sqrt(len(errors))


def test_the_peak_is_infinite_and_gone_without_noise() -> None:
    for samples in (9, 10, 11):
        assert weight_decay.least_squares_error(samples, 10, 0.1, 1.0) == math.inf
    assert weight_decay.least_squares_error(10, 10, 0.0, 1.0) == 0
    assert weight_decay.least_squares_error(7, 10, 0.0, 2.0) == 6


@pytest.mark.parametrize("samples", [150, 300, 600])
def test_large_dimension_matches_one_draw(samples: int) -> None:
    # Sums over the spectrum of one matrix differ from their limit by about 1/d of their size.
    inputs = np.random.default_rng(2).standard_normal((samples, 300))
    eigenvalues = np.clip(np.linalg.eigvalsh(inputs.T @ inputs), 0, None)
    for decay, noise, prior in ((30.0, 30.0, 1.0), (5.0, 60.0, 0.5), (200.0, 3.0, 1.0)):
        exact = weight_decay.ridge_error(eigenvalues, decay, noise, prior)
        assert weight_decay.typical_ridge_error(samples, 300, decay, noise, prior) == pytest.approx(
            exact, rel=0.03
        )


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: weight_decay.optimal_decay(-1.0, 1.0), "noise must be at least 0 and finite, got -1"),
        (lambda: weight_decay.optimal_decay(1.0, 0.0), "the variance of the weights, must be above 0, got 0"),
        (lambda: weight_decay.ridge_error(np.ones(2), -1.0, 1.0, 1.0), "decay must be at least 0"),
        (
            lambda: weight_decay.ridge_error(-np.ones(2), 1.0, 1.0, 1.0),
            "eigenvalues of X'X must be at least 0",
        ),
        (
            lambda: weight_decay.least_squares_error(0, 3, 1.0, 1.0),
            "samples must be a whole number from 1 on",
        ),
        (lambda: weight_decay.typical_ridge_error(3, 0, 1.0, 1.0, 1.0), "dimension must be a whole number"),
        (lambda: weight_decay.typical_ridge_error(3, 3, 0.0, 1.0, 1.0), "decay must be above 0"),
    ],
)
def test_bad_input_is_told_the_rule(call: object, sentence: str) -> None:
    assert callable(call)
    with pytest.raises(UsageError, match=sentence):
        call()
