"""Step counts and bounds against runs of gradient descent, and worst functions against their bounds."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from apoint.errors import UsageError
from apoint.theory import descent

POSITIVE = st.floats(0.1, 5)


def errors(problem: descent.Problem, path: np.ndarray) -> np.ndarray:
    return np.array([problem.value(x) for x in path]) - problem.minimum


@settings(deadline=None, max_examples=20)
@given(POSITIVE, POSITIVE, st.integers(1, 60))
def test_the_staircase_needs_all_of_its_points(lipschitz: float, distance: float, points: int) -> None:
    problem = descent.staircase(lipschitz, distance, points)
    error = lipschitz * distance / math.sqrt(points)
    assert problem.distance == pytest.approx(distance)
    assert problem.value(problem.minimiser) == pytest.approx(problem.minimum)
    assert descent.lipschitz_steps(lipschitz, distance, error) == points
    rate = descent.lipschitz_rate(lipschitz, error)
    off = errors(problem, descent.descend(problem.gradient, problem.start, rate, points - 1))
    assert off.min() == pytest.approx(error)


def test_the_staircase_is_lipschitz_and_has_no_lower_value() -> None:
    problem, random = descent.staircase(2.0, 1.5, 4), np.random.default_rng(0)
    points = random.standard_normal((300, 4)) * 2
    for a, b in itertools.pairwise(points):
        assert abs(problem.value(a) - problem.value(b)) <= 2.0 * np.linalg.norm(a - b) * (1 + 1e-12)
        # a subgradient: the tangent lies below
        assert problem.value(b) >= problem.value(a) + problem.gradient(a) @ (b - a) - 1e-12
    found = optimize.minimize(problem.value, problem.minimiser + 0.1, method="Nelder-Mead")
    assert found.fun >= problem.minimum - 1e-9


@settings(deadline=None, max_examples=20)
@given(POSITIVE, POSITIVE, st.integers(0, 40))
def test_hubers_function_attains_the_smooth_bound(beta: float, distance: float, steps: int) -> None:
    problem = descent.plateau_and_bowl(beta, distance, steps)
    off = errors(problem, descent.descend(problem.gradient, problem.start, 1 / beta, steps))
    bound = descent.smooth_bound(beta, distance, steps)
    assert off[-1] == pytest.approx(bound)
    assert descent.smooth_steps(beta, distance, bound) == steps
    assert problem.distance == distance
    slopes = [problem.gradient(np.array([x]))[0] for x in np.linspace(-2 * distance, 2 * distance, 101)]
    assert np.abs(np.diff(slopes)).max() <= beta * 4 * distance / 100 * (1 + 1e-9)


def test_steps_are_the_fewest_that_the_bound_allows() -> None:
    steps = descent.smooth_steps(3.0, 2.0, 0.01)
    assert descent.smooth_bound(3.0, 2.0, steps) <= 0.01 < descent.smooth_bound(3.0, 2.0, steps - 1)
    assert descent.smooth_steps(1.0, 1.0, 10.0) == 0
    assert descent.lipschitz_steps(1.0, 1.0, 5.0) == 1
    steps = descent.strongly_convex_steps(4.0, 0.5, 10.0, 1e-3)
    assert 0.875 ** (2 * steps) * 10 <= 1e-3 < 0.875 ** (2 * steps - 2) * 10
    assert descent.strongly_convex_steps(4.0, 4.0, 10.0, 1e-3) == 1
    assert descent.strongly_convex_steps(4.0, 1.0, 1.0, 1.0) == 0


@settings(deadline=None, max_examples=20)
@given(st.floats(0.05, 1), st.floats(1, 4), st.floats(0.05, 1.95), st.integers(0, 1000))
def test_strongly_convex_factor_on_quadratics(mu: float, beta: float, share: float, seed: int) -> None:
    eta = share / beta
    factor = descent.strongly_convex_factor(beta, mu, eta)
    curvatures = np.array([mu, *np.random.default_rng(seed).uniform(mu, beta, 3), beta])
    shrunk = np.abs(1 - eta * curvatures)
    assert shrunk.max() == pytest.approx(factor)
    assert factor < 1
    assert descent.strongly_convex_factor(beta, mu, 2 / (beta + mu)) <= factor + 1e-12


@pytest.mark.parametrize("beta", [1.0, 3.0])
def test_the_chain(beta: float) -> None:
    links = 41
    problem = descent.chain(beta, links)
    x = torch.from_numpy(np.random.default_rng(0).standard_normal(links)).requires_grad_()
    edge = torch.cat([x[:1] ** 2, x.diff() ** 2, x[-1:] ** 2]).sum()
    value = beta / 4 * (edge / 2 - x[0])
    (slope,) = torch.autograd.grad(value, x)
    place = x.detach().numpy()
    assert problem.value(place) == pytest.approx(float(value.detach()))
    assert problem.gradient(place) == pytest.approx(slope.numpy())
    assert problem.gradient(problem.minimiser) == pytest.approx(np.zeros(links), abs=1e-12)
    assert problem.value(problem.minimiser) == pytest.approx(problem.minimum)
    steps = (links - 1) // 2
    momenta = descent.nesterov_momenta(steps).tolist()
    fast = errors(problem, descent.accelerate(problem.gradient, problem.start, 1 / beta, momenta, steps))
    slow = errors(problem, descent.descend(problem.gradient, problem.start, 1 / beta, steps))
    lowest = descent.first_order_bound(beta, problem.distance, steps)
    assert lowest <= fast[-1] <= descent.accelerated_bound(beta, problem.distance, steps)
    assert lowest <= fast[-1] < slow[-1] <= descent.smooth_bound(beta, problem.distance, steps)


def test_paths_against_loops_by_hand() -> None:
    matrix = np.array([[2.0, 0.5], [0.5, 1.0]])
    rates = [0.3, 0.1, 0.2]
    path = descent.descend(lambda x: matrix @ x, np.array([1.0, -1.0]), rates, 3)
    x = torch.tensor([1.0, -1.0], dtype=torch.float64)
    for rate, reached in zip(rates, path[1:], strict=True):
        x = x - rate * torch.from_numpy(matrix) @ x
        assert reached == pytest.approx(x.numpy())
    plain = descent.accelerate(lambda x: matrix @ x, np.array([1.0, -1.0]), 0.3, 0.0, 3)
    assert plain == pytest.approx(descent.descend(lambda x: matrix @ x, np.array([1.0, -1.0]), 0.3, 3))
    ahead = descent.accelerate(lambda x: matrix @ x, np.array([1.0, -1.0]), 0.3, [0.9, 0.5], 2)
    first = (np.eye(2) - 0.3 * matrix) @ [1.0, -1.0]
    y = first + 0.5 * (first - [1.0, -1.0])
    assert ahead[2] == pytest.approx(y - 0.3 * matrix @ y)
    assert descent.nesterov_momenta(4) == pytest.approx([0, 1 / 4, 2 / 5, 3 / 6])


def test_refusals() -> None:
    with pytest.raises(UsageError, match="lipschitz_rate: error must be positive and finite, got 0"):
        descent.lipschitz_rate(1.0, 0.0)
    with pytest.raises(UsageError, match="staircase: points must be positive and finite, got 0"):
        descent.staircase(1.0, 1.0, 0)
    with pytest.raises(UsageError, match="smooth_bound: steps must be a whole number from 0 on, got -1"):
        descent.smooth_bound(1.0, 1.0, -1)
    with pytest.raises(UsageError, match="the convexity must be at most the smoothness 1, got 2"):
        descent.strongly_convex_factor(1.0, 2.0, 0.1)
    with pytest.raises(UsageError, match="rates must be one number, or one for each of the 3 steps, got 2"):
        descent.descend(lambda x: x, np.ones(1), [0.1, 0.2], 3)
