"""Angles and distances between random points against integration, drawn points and known values."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

from apoint.errors import UsageError
from apoint.theory import balls, concentration


@pytest.mark.parametrize("dimension", [2, 3, 5, 40])
@pytest.mark.parametrize("threshold", [0.05, 0.3, 0.9])
def test_tail_is_the_integral_over_angles(dimension: int, threshold: float) -> None:
    # The angle from a pole has the density sin^(n-2), whatever the beta function says.
    whole = quad(lambda angle: math.sin(angle) ** (dimension - 2), 0, math.pi)[0]
    part = quad(lambda angle: math.sin(angle) ** (dimension - 2), 0, math.acos(threshold))[0]
    assert concentration.cosine_tail(dimension, threshold) == pytest.approx(2 * part / whole, rel=1e-8)


def test_tail_of_drawn_directions() -> None:
    directions = np.random.default_rng(0).standard_normal((2, 40_000, 8))
    directions /= np.linalg.norm(directions, axis=-1, keepdims=True)
    share = (np.abs((directions[0] * directions[1]).sum(-1)) >= 0.3).mean()
    expected = concentration.cosine_tail(8, 0.3)
    assert abs(share - expected) < 4 * math.sqrt(expected * (1 - expected) / 40_000)


@pytest.mark.parametrize("dimension", [4, 7, 30])
def test_density_is_the_derivative_of_the_tail(dimension: int) -> None:
    inside = quad(lambda c: float(concentration.cosine_density(dimension, np.array(c))), -0.25, 0.25)[0]
    assert inside == pytest.approx(1 - concentration.cosine_tail(dimension, 0.25), rel=1e-9)


@given(st.integers(4, 10**6), st.floats(1e-6, 0.999))  # in the plane 1 − t has no digits left at 1e-6
@settings(deadline=None, max_examples=30)
def test_quantile_inverts_the_tail(dimension: int, probability: float) -> None:
    threshold = concentration.cosine_quantile(dimension, probability)
    assert concentration.cosine_tail(dimension, threshold) == pytest.approx(probability, rel=1e-6)


@given(st.integers(2, 10**6), st.floats(0, 1))
@settings(deadline=None, max_examples=30)
def test_both_bounds_hold(dimension: int, threshold: float) -> None:
    tail = concentration.cosine_tail(dimension, threshold)
    assert tail <= concentration.cosine_bound(dimension, threshold, divisor=2.0)
    assert tail <= concentration.cosine_bound(dimension, threshold)


def test_a_smaller_constant_fails() -> None:
    threshold = 5 / math.sqrt(1000)
    tail = concentration.cosine_tail(1000, threshold)
    assert tail > concentration.cosine_bound(1000, threshold, divisor=1.5)


def test_threshold_meets_the_bound_and_says_nothing_up_to_thirteen() -> None:
    for divisor in (2.0, 4.0):
        threshold = concentration.orthogonality_threshold(50, divisor)
        assert concentration.cosine_bound(50, threshold, divisor) == pytest.approx(1 / 50)
    assert concentration.orthogonality_threshold(13) > 1 > concentration.orthogonality_threshold(14)


def test_known_mean_distances() -> None:
    # A segment of length 2: 2/3; a disc: 128/(45π); a ball: 36/35.
    for dimension, mean in ((1, 2 / 3), (2, 128 / (45 * math.pi)), (3, 36 / 35)):
        assert concentration.ball_distance(dimension)[0] == pytest.approx(mean, rel=1e-12)
    assert concentration.ball_distance(3, radius=2.5)[0] == pytest.approx(2.5 * 36 / 35, rel=1e-12)
    assert concentration.gaussian_distance(1)[0] == pytest.approx(2 / math.sqrt(math.pi), rel=1e-12)


@pytest.mark.parametrize("dimension", [1, 2, 3, 10, 57, 59, 60, 61, 1000, 10**4, 10**6, 10**7])
def test_distances_against_sixty_digits(dimension: int) -> None:
    # The variance is a difference of numbers that agree in all but log10(n) digits.
    import mpmath

    with mpmath.workdps(60):
        n, half = mpmath.mpf(dimension), mpmath.mpf(1) / 2
        gauss = 2 * mpmath.exp(mpmath.loggamma((n + 1) / 2) - mpmath.loggamma(n / 2))
        ball = n / (n + 1) * 2 ** (n + 1) * mpmath.beta(n / 2 + 1, n / 2 + half)
        ball /= mpmath.beta((n + 1) / 2, half)
        spreads = mpmath.sqrt(2 * n - gauss**2), mpmath.sqrt(2 * n / (n + 2) - ball**2)
        expected = [(float(mean), float(spread)) for mean, spread in zip((gauss, ball), spreads, strict=True)]
    assert concentration.gaussian_distance(dimension) == pytest.approx(expected[0], rel=3e-13)
    assert concentration.ball_distance(dimension) == pytest.approx(expected[1], rel=3e-13)
    assert concentration.ball_distance(dimension, 2.5)[1] == pytest.approx(2.5 * expected[1][1], rel=3e-13)


@given(st.integers(1, 10**5))
@settings(deadline=None, max_examples=30)
def test_second_moment_is_twice_that_of_one_point(dimension: int) -> None:
    moment = concentration.ball_distance_moment(dimension, 2.0)
    assert moment == pytest.approx(2 * dimension / (dimension + 2), rel=1e-9)


@pytest.mark.parametrize("dimension", [2, 12])
def test_moments_of_drawn_distances(dimension: int) -> None:
    random = np.random.default_rng(1)
    first, second = (balls.sample(40_000, dimension, 2.0, random) for _ in range(2))
    distances = np.linalg.norm(first - second, axis=1)
    mean, deviation = concentration.ball_distance(dimension)
    assert abs(distances.mean() - mean) < 4 * deviation / 200
    assert distances.std() == pytest.approx(deviation, rel=0.02)
    cube = concentration.ball_distance_moment(dimension, 3.0)
    assert abs((distances**3).mean() - cube) < 4 * (distances**3).std() / 200


def test_gaussian_distance_of_drawn_points() -> None:
    pairs = np.random.default_rng(2).standard_normal((2, 40_000, 10))
    distances = np.linalg.norm(pairs[0] - pairs[1], axis=1)
    mean, deviation = concentration.gaussian_distance(10)
    assert abs(distances.mean() - mean) < 4 * deviation / 200
    assert distances.std() == pytest.approx(deviation, rel=0.02)


@pytest.mark.parametrize("distance", [concentration.ball_distance, concentration.gaussian_distance])
def test_relative_spread_falls_as_the_root(distance: object) -> None:
    assert callable(distance)
    means, deviations = zip(*(distance(n) for n in (1000, 100_000)), strict=True)
    for dimension, mean, deviation in zip((1000, 100_000), means, deviations, strict=True):
        # The ball's distances have half the variance of the Gaussian's, relative to their mean.
        expected = 1 / math.sqrt((4 if distance is concentration.ball_distance else 2) * dimension)
        assert deviation / mean == pytest.approx(expected, rel=0.01)


def test_contrast() -> None:
    found = concentration.relative_contrast(np.array([[1.0, 3.0, 2.0], [2.0, 2.0, 2.0]]))
    np.testing.assert_allclose(found, [2.0, 0.0])


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: concentration.cosine_tail(1, 0.1), "cosine_tail: a dimension must be a whole number from 2"),
        (lambda: concentration.cosine_tail(2.5, 0.1), "whole number from 2 to 10000000, got 2.5"),  # type: ignore[arg-type]
        (lambda: concentration.cosine_tail(3, 1.5), "from 0 to 1, got a threshold of 1.5"),
        (lambda: concentration.cosine_density(3, np.array([1.0])), "between -1 and 1, both left out"),
        (lambda: concentration.cosine_quantile(3, 1.0), "a probability must lie between 0 and 1, got 1"),
        (lambda: concentration.cosine_bound(3, -1.0), "at least 0 and divisor above 0, got -1 and 4"),
        (lambda: concentration.orthogonality_threshold(3, 0.0), "divisor must be above 0, got 0"),
        (lambda: concentration.ball_distance_moment(3, -3.0), "power must be above -dimension = -3, got -3"),
        (
            lambda: concentration.ball_distance_moment(3, 1.0, 0.0),
            "radius must be positive and finite, got 0",
        ),
        (lambda: concentration.gaussian_distance(0), "whole number from 1 to 10000000, got 0"),
        (lambda: concentration.relative_contrast(np.ones(1)), "at least 2 others, got an array of shape"),
        (lambda: concentration.relative_contrast(np.array([0.0, 1.0])), "must be above 0, got 0"),
    ],
)
def test_bad_input_is_told_the_rule(call: object, sentence: str) -> None:
    assert callable(call)
    with pytest.raises(UsageError, match=sentence):
        call()


@pytest.mark.parametrize(("dimension", "distance", "examples"), [(1, 1.0, 1), (5, 1.5, 1), (20, 2.0, 4)])
def test_nearest_mean_by_drawing(dimension: int, distance: float, examples: int) -> None:
    random, trials = np.random.default_rng(3), 50_000
    centre = np.full(dimension, distance / math.sqrt(dimension))  # which coordinates differ does not matter
    own = centre + random.standard_normal((trials, dimension)) / math.sqrt(examples)
    other = -centre + random.standard_normal((trials, dimension)) / math.sqrt(examples)
    query = centre + random.standard_normal((trials, dimension))
    share = (((query - own) ** 2).sum(1) < ((query - other) ** 2).sum(1)).mean()
    expected = concentration.nearest_mean_accuracy(dimension, distance, examples)
    assert abs(share - expected) < 4 * math.sqrt(expected * (1 - expected) / trials)


def test_nearest_mean_in_known_cases() -> None:
    """Without a difference it is a guess; with exact means, the best rule there is; on a line, by hand."""
    assert concentration.nearest_mean_accuracy(7, 0.0) == pytest.approx(0.5, abs=1e-12)
    best = 0.5 * math.erfc(-1.3 / math.sqrt(2))
    assert concentration.nearest_mean_accuracy(3, 1.3, 800) == pytest.approx(best, abs=1e-3)
    # On a line u·s > 0 means equal signs: u ~ N(δ, 3/2) and s ~ N(2δ, 2) are independent.
    u, s = (0.5 * math.erfc(-mean / math.sqrt(2 * variance)) for mean, variance in ((0.8, 1.5), (1.6, 2.0)))
    assert concentration.nearest_mean_accuracy(1, 0.8) == pytest.approx(u * s + (1 - u) * (1 - s), rel=1e-12)
    falling = [concentration.nearest_mean_accuracy(n, 2.0) for n in (1, 10, 100, 1000, 10_000)]
    assert falling == sorted(falling, reverse=True)


@pytest.mark.parametrize(
    ("distance", "examples"), [(-1.0, 1), (math.inf, 1), (1.0, 0), (1.0, True), (2.0, 10**6)]
)
def test_nearest_mean_refuses(distance: float, examples: int) -> None:
    with pytest.raises(UsageError, match="nearest_mean_accuracy"):
        concentration.nearest_mean_accuracy(3, distance, examples)
