"""Hull membership against brute force, its certificates, and exact probabilities against known cases."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.spatial import ConvexHull, Delaunay

from apoint.errors import UsageError
from apoint.theory import hull


@given(st.integers(0, 10**6), st.integers(2, 4))
@settings(deadline=None, max_examples=25)
def test_agrees_with_a_triangulation(seed: int, dimension: int) -> None:
    random = np.random.default_rng(seed)
    points, queries = random.standard_normal((12, dimension)), random.standard_normal((6, dimension))
    expected = Delaunay(points).find_simplex(queries) >= 0
    np.testing.assert_array_equal(hull.inside(points, queries), expected)


@given(st.integers(0, 10**6), st.floats(1e-3, 1e3))
@settings(deadline=None, max_examples=25)
def test_certificates_prove_the_answer(seed: int, scale: float) -> None:
    random = np.random.default_rng(seed)
    points = scale * (7 + random.standard_normal((20, 3)))
    query = scale * (7 + random.standard_normal(3))
    found = hull.membership(points, query)
    assert np.all(found.weights >= 0)
    assert found.weights.sum() == pytest.approx(1)
    nearest = found.weights @ points
    assert np.abs(nearest - query).sum() == pytest.approx(found.distance, abs=1e-6 * scale)
    assert found.offset == pytest.approx((points @ found.normal).max())
    if found.inside:
        np.testing.assert_allclose(nearest, query, atol=1e-6 * scale)
    else:
        assert query @ found.normal > found.offset + 1e-9 * scale
        assert np.abs(found.normal).max() <= 1 + 1e-9  # so that the gap is the distance
        assert query @ found.normal - found.offset == pytest.approx(found.distance, rel=1e-5)


def test_corners_and_edges_count_as_inside_and_tolerance_decides_beyond() -> None:
    square = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    assert hull.inside(square, np.array([[0.0, 0.0], [0.5, 1.0], [0.5, 0.5]])).all()
    outside = np.array([0.5, 1.01])
    assert hull.membership(square, outside).distance == pytest.approx(0.01)
    assert not hull.membership(square, outside).inside
    assert hull.membership(square, outside, tolerance=0.02).inside


def test_many_points_are_judged_as_one_by_one() -> None:
    random = np.random.default_rng(4)
    points, queries = random.standard_normal((40, 5)), 1.5 * random.standard_normal((60, 5))
    points[:, 4] = points[:, 0]  # a flat hull, whose covariance has no inverse
    queries[:30, 4] = queries[:30, 0]
    one_by_one = [hull.membership(points, query).inside for query in queries]
    np.testing.assert_array_equal(hull.inside(points, queries), one_by_one)
    assert any(one_by_one[:30])
    assert not any(one_by_one[30:])


def test_one_point_is_its_own_hull() -> None:
    assert hull.membership(np.array([[2.0, 3.0]]), np.array([2.0, 3.0])).inside
    assert not hull.membership(np.array([[2.0, 3.0]]), np.array([2.0, 3.1])).inside


def test_angles_of_known_simplices() -> None:
    tetrahedron = (3 * math.acos(1 / 3) - math.pi) / (4 * math.pi)
    for corners, angle in ((1, 1.0), (2, 1 / 2), (3, 1 / 6), (4, tetrahedron)):
        assert hull.simplex_vertex_angle(corners) == pytest.approx(angle, rel=1e-13)


def test_angle_of_a_larger_simplex_by_drawing() -> None:
    # The cone at a corner is spanned by edges with products of 1/2; a Gaussian is in it if its coordinates
    # along them are all positive.
    edges, count = 5, 400_000
    factor = np.linalg.cholesky(np.full((edges, edges), 0.5) + 0.5 * np.eye(edges))
    drawn = np.random.default_rng(0).standard_normal((count, edges))
    share = (np.linalg.solve(factor.T, drawn.T) > 0).all(0).mean()
    angle = hull.simplex_vertex_angle(edges + 1)
    assert abs(share - angle) < 4 * math.sqrt(angle / count)


@given(st.integers(2, 10**6))
@settings(deadline=None, max_examples=30)
def test_on_a_line_all_but_two_of_the_points_are_inside(count: int) -> None:
    assert hull.probability_inside(count, 1) == pytest.approx(1 - 2 / (count + 1), rel=1e-9)


def test_four_gaussians_in_the_plane() -> None:
    # Sylvester's question for Gaussians: four are the corners of a quadrilateral with 6·arcsin(1/3)/π.
    expected = 1 - 6 * math.asin(1 / 3) / math.pi
    assert 4 * hull.probability_inside(3, 2) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("dimension", "count"), [(2, 8), (3, 30), (4, 60)])
def test_probability_by_counting_corners(dimension: int, count: int) -> None:
    random, trials = np.random.default_rng(3), 600
    corners = [
        len(ConvexHull(random.standard_normal((count + 1, dimension))).vertices) for _ in range(trials)
    ]
    inside = 1 - np.array(corners) / (count + 1)
    expected = hull.probability_inside(count, dimension)
    assert abs(inside.mean() - expected) < 4 * inside.std() / math.sqrt(trials)


def test_half_inside_is_where_the_probability_crosses() -> None:
    for dimension, share in ((5, 0.5), (7, 0.5), (10, 0.5), (6, 0.2)):
        count = hull.half_inside_count(dimension, share)
        assert hull.probability_inside(count - 1, dimension) < share
        assert hull.probability_inside(count, dimension) >= share


def test_a_flat_hull_has_no_inside() -> None:
    assert hull.probability_inside(5, 5) == 0
    assert hull.probability_inside(6, 5) > 0


def test_in_a_hundred_dimensions_a_million_points_hold_none() -> None:
    assert hull.probability_inside(10**6, 100) < 1e-6
    chances = [hull.probability_inside(10**power, 100) for power in range(6, 30, 2)]
    assert all(after >= before for before, after in itertools.pairwise(chances))
    assert chances[-1] > 0.5


@pytest.mark.parametrize(("dimension", "count"), [(1, 5), (2, 3), (2, 6), (3, 6), (4, 7)])
def test_signs_that_surround_the_origin_are_counted(dimension: int, count: int) -> None:
    """Of all 2^N choices of signs of any N vectors in general position, the same number surrounds it."""
    for seed in range(2):
        points = np.random.default_rng(seed).standard_cauchy((count, dimension))
        around = sum(
            _surrounded(points * np.array(signs)[:, None])
            for signs in itertools.product((1, -1), repeat=count)
        )
        assert around / 2**count == pytest.approx(hull.probability_around(count, dimension), rel=1e-12)


def _surrounded(points: np.ndarray) -> bool:
    """No half space holds all points: no w has w·x ≥ 1 for all of them."""
    bounds = [(None, None)] * points.shape[1]
    found = linprog(np.zeros(points.shape[1]), A_ub=-points, b_ub=-np.ones(len(points)), bounds=bounds)
    return bool(found.status == 2)


def test_the_origin_is_surrounded_half_the_time_by_twice_as_many_points() -> None:
    for dimension in (1, 2, 10, 1000, 10**6):
        assert hull.probability_around(2 * dimension, dimension) == pytest.approx(0.5, rel=1e-9)
    exact = 1 - Fraction(sum(math.comb(59, k) for k in range(20)), 2**59)
    assert hull.probability_around(60, 20) == pytest.approx(float(exact), rel=1e-12)
    assert hull.probability_around(20, 20) == 0
    assert hull.probability_around(21, 20) == pytest.approx(2.0**-20, rel=1e-12)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: hull.membership(np.ones(3), np.ones(3)), r"points must be an array \[points, coordinates\]"),
        (lambda: hull.membership(np.ones((4, 3)), np.ones(2)), "the 3 coordinates of the data, got shape"),
        (lambda: hull.membership(np.full((4, 1), np.nan), np.ones(1)), "coordinates must be finite"),
        (lambda: hull.probability_inside(0, 2), "count must be a whole number from 1 on, got 0"),
        (lambda: hull.probability_inside(50, 101), "exact for whole numbers from 1 to 100, got 101"),
        (lambda: hull.probability_around(0, 2), "probability_around: count must be a whole number"),
        (lambda: hull.probability_around(3, 0), "probability_around: dimension must be a whole number"),
        (lambda: hull.half_inside_count(0), "half_inside_count: this is exact for whole numbers"),
        (lambda: hull.half_inside_count(3, 1.0), "share must lie between 0 and 1, got 1"),
        (lambda: hull.simplex_vertex_angle(0), "simplex_vertex_angle: this is exact for whole numbers"),
    ],
)
def test_bad_input_is_told_the_rule(call: object, sentence: str) -> None:
    assert callable(call)
    with pytest.raises(UsageError, match=sentence):
        call()
