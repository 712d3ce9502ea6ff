"""Convexity checks against functions and sets whose answer is known, with the counter-example tried out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from apoint.errors import UsageError
from apoint.theory import convexity

GRID = np.linspace(-3, 3, 61)


def of_one(function: object) -> convexity.Function:
    assert callable(function)
    return lambda x: function(x[:, 0])


CONVEX = {
    "square": of_one(torch.square),
    "affine": of_one(lambda x: 2 * x + 1),
    "softplus": of_one(lambda x: torch.logaddexp(x, torch.zeros_like(x))),
}
OTHER = {"cube": of_one(lambda x: x**3), "cos": of_one(torch.cos), "sigmoid": of_one(torch.sigmoid)}


@pytest.mark.parametrize("name", CONVEX)
def test_nothing_is_found_on_convex_functions(name: str) -> None:
    function = CONVEX[name]
    assert convexity.chord_violation(function, GRID) is None
    assert convexity.tangent_violation(function, GRID) is None
    assert convexity.hessian_violation(function, GRID) is None
    convexity.check_convex(function, GRID)


@pytest.mark.parametrize("name", OTHER)
def test_the_two_points_that_are_handed_back_show_it(name: str) -> None:
    function = OTHER[name]

    def value(x: np.ndarray) -> float:
        return float(function(torch.from_numpy(np.atleast_2d(x))))

    chord = convexity.chord_violation(function, GRID)
    assert chord is not None
    a, b, t = chord.first, chord.second, chord.share
    excess = value(t * a + (1 - t) * b) - t * value(a) - (1 - t) * value(b)
    assert excess == pytest.approx(chord.excess)
    assert excess > 0

    tangent = convexity.tangent_violation(function, GRID)
    assert tangent is not None
    step = 1e-5
    slope = (value(tangent.first + step) - value(tangent.first - step)) / (2 * step)
    above = value(tangent.first) + slope * float((tangent.second - tangent.first)[0]) - value(tangent.second)
    assert above == pytest.approx(tangent.excess, rel=1e-5)

    hessian = convexity.hessian_violation(function, GRID, reach=1e-3)
    assert hessian is not None
    middle = (hessian.first + hessian.second) / 2
    curvature = (value(hessian.first) + value(hessian.second) - 2 * value(middle)) / 1e-6
    assert curvature == pytest.approx(-hessian.excess, rel=1e-3)


def test_the_largest_violation_is_found_by_brute_force() -> None:
    points = np.random.default_rng(0).uniform(-2, 2, (12, 2))

    def function(x: Tensor) -> Tensor:
        return x[:, 0] ** 2 - x[:, 1] ** 2

    def value(x: np.ndarray) -> float:
        return float(x[0] ** 2 - x[1] ** 2)

    worst = max(
        value((a + b) / 2) - (value(a) + value(b)) / 2 for a in points for b in points if not (a == b).all()
    )
    found = convexity.chord_violation(function, points, share=0.5)
    assert found is not None
    assert found.excess == pytest.approx(worst)
    assert found.share == 0.5
    worst = max(value(a) + (2 * a * [1, -1]) @ (b - a) - value(b) for a in points for b in points)
    tangent = convexity.tangent_violation(function, points)
    assert tangent is not None
    assert tangent.excess == pytest.approx(worst)
    hessian = convexity.hessian_violation(function, points, reach=0.5)
    assert hessian is not None
    assert hessian.excess == pytest.approx(2.0)
    assert np.abs(hessian.second - hessian.first) == pytest.approx([0.0, 1.0])


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000), st.integers(1, 4))
def test_quadratics_are_judged_by_their_smallest_eigenvalue(seed: int, dimension: int) -> None:
    random = np.random.default_rng(seed)
    matrix = random.standard_normal((dimension, dimension))
    matrix = matrix + matrix.T
    lowest = float(np.linalg.eigvalsh(matrix)[0])
    weights = torch.from_numpy(matrix)
    points = random.standard_normal((40, dimension)) * 2

    def function(x: Tensor) -> Tensor:
        return ((x @ weights) * x).sum(1) / 2

    found = convexity.hessian_violation(function, points)
    assert (found is not None) == (lowest < -1e-8)
    if found is not None:
        assert found.excess == pytest.approx(-lowest, rel=1e-6)
    if lowest > 1e-8:
        assert convexity.chord_violation(function, points) is None


def test_chord_gap_lies_between_the_curvatures() -> None:
    points = np.random.default_rng(1).standard_normal((30, 2))
    gap = convexity.chord_gap(lambda x: 0.5 * x[:, 0] ** 2 + 2 * x[:, 1] ** 2, points)
    assert 1.0 <= gap <= 1.2
    assert convexity.chord_gap(CONVEX["affine"], GRID) == pytest.approx(0, abs=1e-9)


def test_sets() -> None:
    points = np.random.default_rng(2).uniform(-1, 1, (400, 2))

    def ring(x: np.ndarray) -> np.ndarray:
        return np.asarray(np.abs(np.linalg.norm(x, axis=1) - 0.8) < 0.2)

    def square(x: np.ndarray) -> np.ndarray:
        return np.asarray(np.abs(x).max(1) <= 0.7)

    assert convexity.set_violation(square, points) is None
    found = convexity.set_violation(ring, points, shares=(0.5,))
    assert found is not None
    assert ring(np.array([found.first, found.second])).all()
    assert not ring((found.first + found.second)[None] / 2).any()
    assert found.share == 0.5
    assert found.excess == pytest.approx(np.linalg.norm(found.first - found.second))
    assert "belong to it, and 0.5·a + 0.5·b does not" in str(found)


def test_a_function_that_is_not_convex_is_refused_with_its_pair_of_points() -> None:
    with pytest.raises(
        UsageError, match=r"^my loss must be convex, and it is not: between a = .* and b = .*"
    ):
        convexity.check_convex(OTHER["cos"], GRID, name="my loss")
    tangent = convexity.tangent_violation(OTHER["cos"], GRID)
    assert "the tangent in a lies above f(b) by" in str(tangent)
    many = convexity.hessian_violation(lambda x: -x.square().sum(1), np.zeros((2, 8)) + 0.5)
    assert "the curvature is -2 at" in str(many)
    assert ", …)" in str(many)


def test_refusals() -> None:
    with pytest.raises(UsageError, match="a share must be between 0 and 1, got 2"):
        convexity.chord_violation(CONVEX["square"], GRID, share=2)
    with pytest.raises(UsageError, match=r"points must be at least two, as a table .* got the shape \(1,\)"):
        convexity.chord_violation(CONVEX["square"], GRID[:1])
    with pytest.raises(
        UsageError, match=r"one value for each point, but it turned 61 points into .* \(61, 1\)"
    ):
        convexity.chord_violation(torch.square, GRID)
