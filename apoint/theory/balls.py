"""Volumes of p-balls in any dimension, and where in them the volume is. All computed in logarithms.

Reference: Wang (2005), Volumes of generalized unit balls, Mathematics Magazine 78(5).
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import gammaln

from apoint.errors import UsageError

MOST_DIMENSIONS = 10**9


def log_volume(dimension: int, p: float = 2.0, radius: float = 1.0) -> float:
    """The logarithm of the volume of a p-ball.

    V = (2R)ⁿ · Γ(1 + 1/p)ⁿ / Γ(1 + n/p), and (2R)ⁿ for p = ∞. The volume itself is too small for a float64
    from about dimension 300; its logarithm is exact to 1e-12 of its size in dimension one million.

    Args:
        dimension: n, at least 1.
        p: Exponent of the norm (Σ|x_i|^p)^(1/p), at least 1; `math.inf` for the largest coordinate.
        radius: R, above 0.
    """
    _check(dimension, p, radius)
    cube = dimension * math.log(2 * radius)
    if math.isinf(p):
        return cube
    return cube + dimension * float(gammaln(1 + 1 / p)) - float(gammaln(1 + dimension / p))


def volume(dimension: int, p: float = 2.0, radius: float = 1.0) -> float:
    """The volume of a p-ball; 0 or infinite where a float64 cannot hold it. See `log_volume`."""
    with np.errstate(over="ignore", under="ignore"):
        return float(np.exp(log_volume(dimension, p, radius)))


def log_volume_asymptotic(dimension: int, p: float = 2.0, radius: float = 1.0) -> float:
    """The logarithm of the asymptotic equivalent of the volume of a p-ball as the dimension grows.

    V ~ √(p/(2πn)) · (2R · Γ(1 + 1/p) · (pe/n)^(1/p))ⁿ by Stirling's formula for Γ(1 + n/p); the ratio of
    the two goes to 1 as 1 + p/(12n).
    """
    _check(dimension, p, radius)
    if math.isinf(p):
        return dimension * math.log(2 * radius)
    base = math.log(2 * radius) + float(gammaln(1 + 1 / p)) + (math.log(p / dimension) + 1) / p
    return 0.5 * math.log(p / (2 * math.pi * dimension)) + dimension * base


def largest_dimension(p: float = 2.0, radius: float = 1.0, most: int = 10_000) -> int:
    """The dimension in which a p-ball has the largest volume, searched up to `most`.

    Five for the Euclidean unit ball. For p = ∞ and a radius above 1/2 the volume always grows.
    """
    if math.isinf(p) and radius > 0.5:
        raise UsageError(
            f"largest_dimension: a cube with sides of {2 * radius:g} has no largest volume; radius must be "
            "at most 0.5 for p = inf"
        )
    return max(range(1, most + 1), key=lambda dimension: log_volume(dimension, p, radius))


def shell_share(dimension: int, thickness: float, radius: float = 1.0) -> float:
    """The share of a ball's volume in its outermost shell: 1 − (1 − ε/R)ⁿ, for any norm.

    Shrinking a ball by a factor multiplies its volume by that factor's n-th power, for any shape.

    Args:
        dimension: n, at least 1.
        thickness: ε, from 0 to R.
        radius: R, above 0.
    """
    _check(dimension, 2.0, radius)
    if not 0 <= thickness <= radius:
        raise UsageError(
            f"shell_share: a shell must be at least 0 and at most as thick as the radius {radius:g}, got "
            f"{thickness:g}"
        )
    return -math.expm1(dimension * math.log1p(-thickness / radius)) if thickness < radius else 1.0


def sample(count: int, dimension: int, p: float, random: np.random.Generator) -> np.ndarray:
    """Points drawn uniformly from the unit p-ball, [count, dimension].

    Coordinates with density exp(−|x|^p), divided by (Σ|x_i|^p + E)^(1/p) with E exponential. Reference:
    Barthe, Guédon, Mendelson and Naor (2005), A probabilistic approach to the geometry of the lₚⁿ-ball.
    """
    _check(dimension, p, 1.0)
    if math.isinf(p):
        return random.uniform(-1, 1, (count, dimension))
    sizes = random.gamma(1 / p, size=(count, dimension))
    signs = random.choice([-1.0, 1.0], (count, dimension))
    total = sizes.sum(1) + random.exponential(size=count)
    return np.asarray(signs * (sizes / total[:, None]) ** (1 / p))


def _check(dimension: int, p: float, radius: float) -> None:
    if isinstance(dimension, bool) or int(dimension) != dimension or not 1 <= dimension <= MOST_DIMENSIONS:
        raise UsageError(f"a dimension must be a whole number from 1 on, got {dimension}")
    if not p >= 1:
        raise UsageError(f"p must be at least 1, or inf, for a norm; got {p:g}")
    if not (radius > 0 and math.isfinite(radius)):
        raise UsageError(f"a radius must be positive and finite, got {radius:g}")
