"""Volumes of p-balls against integration, drawn points and known values."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

from apoint.errors import UsageError
from apoint.theory import balls

POWER = st.one_of(st.floats(1, 20), st.just(math.inf))


def test_known_volumes() -> None:
    for dimension, volume in ((1, 2.0), (2, math.pi), (3, 4 * math.pi / 3), (5, 8 * math.pi**2 / 15)):
        assert balls.volume(dimension) == pytest.approx(volume, rel=1e-13)
    assert balls.volume(4, p=1.0) == pytest.approx(2**4 / 24, rel=1e-13)
    assert balls.volume(4, p=math.inf) == pytest.approx(16, rel=1e-13)
    assert balls.volume(3, radius=2.0) == pytest.approx(32 * math.pi / 3, rel=1e-13)


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 4.0])
def test_a_slice_at_a_time(p: float) -> None:
    for dimension in (2, 3, 6):
        slices = quad(lambda x, n=dimension: (1 - abs(x) ** p) ** ((n - 1) / p), -1, 1)[0]
        assert balls.volume(dimension, p) == pytest.approx(balls.volume(dimension - 1, p) * slices, rel=1e-7)


def test_a_million_dimensions_against_the_product_over_them() -> None:
    # V_n = V_(n-2)·2π/n for even n: half a million factors, none of them a gamma function.
    factors = np.log(2 * np.pi / np.arange(2, 10**6 + 1, 2, dtype=np.float64))
    assert balls.log_volume(10**6) == pytest.approx(math.fsum(factors), rel=1e-11)
    assert balls.volume(10**6) == 0
    assert balls.volume(10**6, p=math.inf) == math.inf


@given(st.integers(10, 10**6), st.floats(1, 5), st.floats(0.1, 10))
@settings(deadline=None, max_examples=30)
def test_asymptotic_ratio(dimension: int, p: float, radius: float) -> None:
    difference = balls.log_volume(dimension, p, radius) - balls.log_volume_asymptotic(dimension, p, radius)
    rounding = 1e-14 * dimension * math.log(dimension)
    assert difference == pytest.approx(-p / (12 * dimension), rel=0.05, abs=10 * rounding)


def test_asymptotic_cube_is_the_cube() -> None:
    assert balls.log_volume_asymptotic(7, math.inf, 0.3) == balls.log_volume(7, math.inf, 0.3)


def test_largest() -> None:
    assert balls.largest_dimension() == 5
    assert balls.largest_dimension(p=1.0) == 1  # 2, 2, 4/3, …: the first of two equal ones
    assert balls.largest_dimension(radius=2.0) == max(
        range(1, 100), key=lambda n: balls.log_volume(n, 2, 2.0)
    )
    assert balls.largest_dimension(radius=10.0, most=50) == 50
    assert balls.largest_dimension(p=math.inf, radius=0.4) == 1


@given(st.integers(1, 10**6), st.floats(0, 1), st.floats(0.1, 10))
@settings(deadline=None, max_examples=30)
def test_shell_is_what_a_smaller_ball_leaves(dimension: int, share: float, radius: float) -> None:
    thickness = share * radius
    found = balls.shell_share(dimension, thickness, radius)
    assert 0 <= found <= 1
    if thickness < 0.999 * radius and dimension <= 1000:
        inner = balls.log_volume(dimension, radius=radius - thickness)
        left = -math.expm1(inner - balls.log_volume(dimension, radius=radius))
        assert found == pytest.approx(left, rel=1e-6, abs=1e-10)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, math.inf])
def test_drawn_points_are_uniform(p: float) -> None:
    points = balls.sample(20_000, 3, p, np.random.default_rng(0))
    norms = np.linalg.norm(points, p, axis=1)
    assert norms.max() <= 1
    error = math.sqrt(0.25 / 20_000)
    # Half of the volume is in the ball of radius 2^(-1/3), and shares of octants are eighths.
    assert abs((norms <= 2 ** (-1 / 3)).mean() - 0.5) < 4 * error
    assert abs((points > 0).all(1).mean() - 1 / 8) < 4 * error
    # The cube within, of volume (2·0.3)³, has its share of the points.
    within = (np.abs(points) < 0.3).all(1).mean()
    assert abs(within - 0.6**3 / balls.volume(3, p)) < 4 * error


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: balls.volume(0), "a dimension must be a whole number from 1 on, got 0"),
        (lambda: balls.volume(2.5), "a dimension must be a whole number from 1 on, got 2.5"),  # type: ignore[arg-type]
        (lambda: balls.volume(True), "a dimension must be a whole number"),
        (lambda: balls.volume(2, p=0.5), "p must be at least 1, or inf, for a norm; got 0.5"),
        (lambda: balls.log_volume_asymptotic(2, p=math.nan), "p must be at least 1"),
        (lambda: balls.volume(2, radius=0.0), "a radius must be positive and finite, got 0"),
        (lambda: balls.shell_share(3, 2.0), "at most as thick as the radius 1, got 2"),
        (lambda: balls.largest_dimension(math.inf, 0.6), "radius must be at most 0.5 for p = inf"),
        (lambda: balls.sample(3, 0, 2.0, np.random.default_rng(0)), "a dimension must be a whole number"),
    ],
)
def test_bad_input_is_told_the_rule(call: object, sentence: str) -> None:
    assert callable(call)
    with pytest.raises(UsageError, match=sentence):
        call()
