"""Bounds on stochastic gradient descent against exact recursions, enumeration and chains that are run."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from apoint.errors import UsageError
from apoint.theory import stochastic

POSITIVE = st.floats(0.1, 5)
NUMBERS = np.array([-1.0, 0.5, 2.0, 3.5])
MEAN = stochastic.FiniteSum(
    "mean",
    np.ones((4, 1)),
    lambda z: (z - NUMBERS) ** 2 / 2,
    lambda z: z - NUMBERS,
    1.0,
    float(NUMBERS.var() / 2),
)


@settings(deadline=None, max_examples=30)
@given(POSITIVE, POSITIVE, st.floats(0.01, 1), st.integers(1, 200), st.floats(-3, 3), st.integers(1, 8))
def test_the_bound_holds_for_the_exact_recursion_of_a_quadratic(
    beta: float, noise: float, share: float, steps: int, start: float, batch: int
) -> None:
    """E x² ← (1 − ηβ)²·E x² + η²σ²/n_B, gradient βx; at η = 1/β the bound is attained."""
    eta, square, total = share / beta, start**2, 0.0
    for _ in range(steps):
        total += beta**2 * square
        after = (1 - eta * beta) ** 2 * square + eta**2 * noise / batch
        expected = stochastic.step_bound(beta * square / 2, beta**2 * square, eta, beta, noise, batch)
        assert beta * after / 2 == pytest.approx(expected)  # an equality for a quadratic of curvature β
        square = after
    gap = beta * start**2 / 2
    bound = stochastic.fixed_rate_bound(eta, beta, noise, gap, steps, batch)
    assert total / steps <= bound * (1 + 1e-9)
    at_once = stochastic.fixed_rate_bound(1 / beta, beta, noise, gap, steps, batch)
    assert at_once == pytest.approx(
        (beta**2 * start**2 + (steps - 1) * noise / batch) / steps + noise / batch / steps
    )


@pytest.mark.parametrize("batch", [1, 3])
def test_the_plateau_of_quadratics_is_the_fixed_point_of_the_recursion(batch: int) -> None:
    curvatures, noise, eta = np.array([0.3, 1.0, 1.7]), 2.0, 0.9
    square = np.ones(3)
    for _ in range(2000):
        square = (1 - eta * curvatures) ** 2 * square + eta**2 * noise / 3 / batch
    exact = float((curvatures**2 * square).sum())
    assert stochastic.quadratic_plateau(eta, curvatures.tolist(), noise, batch) == pytest.approx(exact)
    one = stochastic.quadratic_plateau(0.5, [2.0], noise, batch)
    assert one == pytest.approx(stochastic.plateau(0.5, 2.0, noise, batch))


@settings(deadline=None, max_examples=30)
@given(POSITIVE, POSITIVE, POSITIVE, st.integers(1, 500), st.integers(1, 8))
def test_the_best_rate_has_the_lowest_bound(
    beta: float, noise: float, gap: float, steps: int, batch: int
) -> None:
    best = stochastic.best_rate(beta, noise, gap, steps, batch)
    lowest = stochastic.fixed_rate_bound(best, beta, noise, gap, steps, batch)
    found = optimize.minimize_scalar(
        lambda eta: stochastic.fixed_rate_bound(eta, beta, noise, gap, steps, batch),
        bounds=(1e-6 / beta, 1 / beta),
        method="bounded",
    )
    assert lowest <= found.fun * (1 + 1e-6)
    needed = stochastic.steps_needed(beta, noise, gap, lowest, batch)
    assert needed <= steps
    if needed > 1:
        rate = stochastic.best_rate(beta, noise, gap, needed - 1, batch)
        assert stochastic.fixed_rate_bound(rate, beta, noise, gap, needed - 1, batch) > lowest * (1 - 1e-12)


def test_without_noise_the_best_rate_is_the_largest() -> None:
    assert stochastic.best_rate(4.0, 0.0, 1.0, 10) == 0.25


def test_falling_rates_on_the_exact_recursion() -> None:
    rates, square, weighted = 1 / (1 + np.arange(400.0)) ** 0.75, 4.0, 0.0
    for eta in rates:
        weighted += eta * square
        square = (1 - eta) ** 2 * square + eta**2 * 0.5 / 2
    bound = stochastic.falling_rate_bound(rates.tolist(), 1.0, 0.5, 2.0, batch=2)
    assert weighted / rates.sum() <= bound
    equal = stochastic.falling_rate_bound([0.2] * 50, 3.0, 0.7, 1.1)
    assert equal == pytest.approx(stochastic.fixed_rate_bound(0.2, 3.0, 0.7, 1.1, 50))


@pytest.mark.parametrize("batch", [1, 2, 3, 4])
def test_the_noise_of_batches_by_going_through_all_of_them(batch: int) -> None:
    noise = float(NUMBERS.var())
    drawn = [np.mean(rows) for rows in itertools.product(NUMBERS, repeat=batch)]
    assert stochastic.batch_noise(noise, batch) == pytest.approx(np.var(drawn))
    chosen = [np.mean(rows) for rows in itertools.combinations(NUMBERS, batch)]
    assert stochastic.batch_noise(noise, batch, population=4) == pytest.approx(np.var(chosen), abs=1e-12)


def test_a_finite_sum_against_loops() -> None:
    random = np.random.default_rng(0)
    inputs, targets = random.standard_normal((6, 2)), random.standard_normal(6)
    problem = stochastic.FiniteSum(
        "squares", inputs, lambda z: (z - targets) ** 2 / 2, lambda z: z - targets, 1.0
    )
    weights = random.standard_normal((3, 2))
    for w, value, slope, variance in zip(
        weights, problem.value(weights), problem.gradient(weights), problem.variance(weights), strict=True
    ):
        each = np.array([(x @ w - y) * x for x, y in zip(inputs, targets, strict=True)])
        assert value == pytest.approx(
            np.mean([(x @ w - y) ** 2 / 2 for x, y in zip(inputs, targets, strict=True)])
        )
        assert slope == pytest.approx(each.mean(0))
        assert variance == pytest.approx(each.var(0).sum())


@pytest.mark.parametrize("batch", [1, 4])
def test_chains_have_the_expectation_of_the_exact_recursion(batch: int) -> None:
    eta, steps, chains = 0.4, 30, 4000
    course = stochastic.run_chains(
        MEAN, np.array([5.0]), [eta] * steps, chains, np.random.default_rng(1), batch
    )
    square, exact = (5.0 - NUMBERS.mean()) ** 2, []
    for _ in range(steps):
        exact.append(square)
        square = (1 - eta) ** 2 * square + eta**2 * NUMBERS.var() / batch
    error = course.squared.std(1) / np.sqrt(chains)
    assert (np.abs(course.squared.mean(1) - exact) <= 4.5 * error + 1e-12).all()
    assert course.noise == pytest.approx(NUMBERS.var())
    assert course.gap == pytest.approx((5.0 - NUMBERS.mean()) ** 2 / 2)
    assert course.squared.shape == (steps, chains)


def test_refusals() -> None:
    with pytest.raises(UsageError, match=r"rates up to 1/β = 0\.5, got 0\.6; take a smaller one"):
        stochastic.plateau(0.6, 2.0, 1.0)
    with pytest.raises(UsageError, match="plateau: noise must be at least 0 and finite, got -1"):
        stochastic.plateau(0.1, 2.0, -1.0)
    with pytest.raises(UsageError, match="step_bound: rate must be positive and finite, got 0"):
        stochastic.step_bound(1.0, 1.0, 0.0, 1.0, 1.0)
    with pytest.raises(UsageError, match="rates must be positive, one for each step, and at least one"):
        stochastic.falling_rate_bound([], 1.0, 1.0, 1.0)
    with pytest.raises(UsageError, match="rate times curvature must be between 0 and 2, got 2 to 2"):
        stochastic.quadratic_plateau(1.0, [2.0], 1.0)
    with pytest.raises(UsageError, match="a batch holds at most the 4 examples, got 5"):
        stochastic.batch_noise(1.0, 5, 4)
