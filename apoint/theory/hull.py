"""Convex hulls of data: membership with a certificate, and how many points it takes in theory.

The hull of N points x_i is the set of their averages Σ λ_i x_i with λ_i ≥ 0 and Σ λ_i = 1. A new point
inside it is interpolated, one outside is extrapolated.

References: Balestriero, Pesenti and LeCun (2021), Learning in high dimension always amounts to
extrapolation, arXiv 2110.09485; Affentranger and Schneider (1992), Random projections of regular simplices,
Discrete Comput. Geom. 7; Kabluchko and Zaporozhets (2020), Absorption probabilities for Gaussian polytopes
and regular spherical simplices, Adv. Appl. Probab. 52; Wendel (1962), A problem in geometric probability,
Math. Scand. 11.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
import scipy  # loads its submodules on demand; probes are imported wherever recipes are read

from apoint.errors import ApointError, UsageError

TOLERANCE = 1e-7
"""How far off the hull a point may lie and still count as on it, relative to the largest deviation."""
MOST_EXACT_DIMENSIONS = 100
"""At this dimension, having half of new points inside takes far more points than any dataset has."""


@dataclass(frozen=True)
class Membership:
    """Whether a point lies in a hull, and the proof.

    Attributes:
        inside: The answer; a point on the boundary is inside.
        distance: The smallest Σ|x − hull| over coordinates; 0, up to rounding, inside.
        weights: λ, [points]: at least 0, with sum 1; the average of the points with these weights is the
            nearest point of the hull, which is the point itself if that is inside.
        normal: w, [coordinates], of a plane w·z = offset that has all points on its lower side; useful
            outside, where the point is on the upper side.
        offset: The largest w·x_i over the points.
    """

    inside: bool
    distance: float
    weights: np.ndarray
    normal: np.ndarray
    offset: float


def membership(points: np.ndarray, point: np.ndarray, tolerance: float = TOLERANCE) -> Membership:
    """Whether a point lies in the convex hull of others, by one linear programme, with its certificate.

    The programme finds the point of the hull that is nearest in the sum of absolute differences,
    minimise Σ(s⁺ + s⁻) with Σ λ_i x_i + s⁺ − s⁻ = x, Σ λ_i = 1 and all of λ, s⁺, s⁻ at least 0. Its
    variables λ prove that a point is inside; its multipliers w give the plane that proves one outside.

    Args:
        points: x_i, [points, coordinates].
        point: x, [coordinates].
        tolerance: What counts as on the hull, as a share of the largest deviation of the data from x.
    """
    data, query = _checked(points, point)
    deviations = data - query
    scale = float(np.abs(deviations).max()) or 1.0
    count, size = data.shape
    columns = np.block([[deviations.T / scale, np.eye(size), -np.eye(size)]])
    sums = np.concatenate([np.ones(count), np.zeros(2 * size)])[None]
    cost = np.concatenate([np.zeros(count), np.ones(2 * size)])
    result = scipy.optimize.linprog(
        cost,
        A_eq=np.vstack([columns, sums]),
        b_eq=np.concatenate([np.zeros(size), [1.0]]),
        bounds=(0, None),
        method="highs",
    )
    if result.status != 0:
        raise ApointError(f"membership: the linear programme ended without an answer: {result.message}")
    weights = np.maximum(result.x[:count], 0.0)
    normal = np.asarray(result.eqlin.marginals[:size])
    return Membership(
        inside=bool(result.fun <= tolerance),
        distance=float(result.fun) * scale,
        weights=weights / weights.sum(),
        normal=normal,
        offset=float((data @ normal).max()),
    )


def inside(points: np.ndarray, queries: np.ndarray, tolerance: float = TOLERANCE) -> np.ndarray:
    """Which of several points lie in the convex hull of others, [queries] of bool. See `membership`.

    Most are decided by least squares, with the same certificates, and the others by the linear programme.

    Args:
        points: [points, coordinates].
        queries: [queries, coordinates].
        tolerance: As in `membership`.
    """
    answers = []
    for query in np.atleast_2d(queries):
        quick = _by_least_squares(*_checked(points, query), tolerance)
        answers.append(membership(points, query, tolerance).inside if quick is None else quick)
    return np.array(answers)


def _by_least_squares(data: np.ndarray, query: np.ndarray, tolerance: float) -> bool | None:
    """The answer where non-negative least squares proves it, which is several times faster; else None.

    The λ ≥ 0 that minimise ‖Σ λ_i (x_i − x)‖² + (1 − Σ λ_i)² prove a point inside if the residual is zero;
    otherwise the residual is the normal of a plane, which proves it outside if all points are beneath.
    """
    deviations = data - query
    scale = float(np.abs(deviations).max()) or 1.0
    rows = np.vstack([deviations.T / scale, np.ones(len(data))])
    wanted = np.zeros(len(rows))
    wanted[-1] = 1.0
    try:
        weights = scipy.optimize.nnls(rows, wanted)[0]
    except RuntimeError:  # too many steps
        return None
    left = wanted - rows @ weights
    if weights.sum() > 0.5 and np.abs(left[:-1]).sum() <= tolerance * weights.sum() / 10:
        return True
    normal = left[:-1] / (np.abs(left[:-1]).max() or 1.0)
    gap = -float((normal @ rows[:-1]).max())  # a lower bound on the distance, in units of scale
    return False if gap > 10 * tolerance else None


def probability_inside(count: int, dimension: int) -> float:
    """The exact probability that a new Gaussian point lies in the hull of N Gaussian points.

    A new point is outside if it is a corner of the hull of all n = N + 1 of them. Such a hull is a random
    projection of a regular simplex, and a point is a corner with the probability
    2 · Σ_s C(n−1, m−1) · β_m · γ_(m,n) over m = d, d − 2, d − 4, … ≥ 1, where β_m is the angle at a corner of
    the regular simplex with m corners (`simplex_vertex_angle`) and γ_(m,n) the outer angle of such a face
    in the simplex with n corners, √(m/π)·∫ exp(−m·x²)·Ψ(x)^(n−m) dx with Ψ the distribution of a Gaussian
    of variance 1/2. It depends neither on the mean nor on the covariance.

    Args:
        count: N, at least 1.
        dimension: d, from 1 to 100.
    """
    if not (int(count) == count and count >= 1):
        raise UsageError(f"probability_inside: count must be a whole number from 1 on, got {count}")
    _check_dimension("probability_inside", dimension)
    if count <= dimension:
        return 0.0  # the hull is flat
    total = count + 1
    corner = 0.0
    for corners in range(dimension, 0, -2):
        chosen = float(total) - np.arange(1, corners)  # a difference of two gammaln would lose digits
        ways = float(np.log(chosen).sum() - scipy.special.gammaln(corners))
        log_angle = math.log(simplex_vertex_angle(corners))
        corner += 2 * math.exp(ways + log_angle + _log_outer_angle(corners, total))
    return min(max(1 - corner, 0.0), 1.0)


def probability_around(count: int, dimension: int) -> float:
    """The probability that the hull of N random points contains the origin, by Wendel's formula.

    It is 1 − 2^(−(N−1))·Σ_(k<d) C(N−1, k), for every distribution that is symmetric (x and −x are equally
    likely) and puts any d of its points in general position; lengths and correlations do not matter. It is
    the probability of at least d heads in N − 1 tosses of a fair coin, and so exactly one half at N = 2d.

    Args:
        count: N, at least 1.
        dimension: d, at least 1.
    """
    for name, value in (("count", count), ("dimension", dimension)):
        if isinstance(value, bool) or not (int(value) == value and value >= 1):
            raise UsageError(f"probability_around: {name} must be a whole number from 1 on, got {value}")
    if count <= dimension:
        return 0.0  # all lie on one side of a plane through the origin
    return float(scipy.special.betainc(dimension, count - dimension, 0.5))


def half_inside_count(dimension: int, share: float = 0.5) -> int:
    """The smallest N at which a new Gaussian point lies in the hull of N with at least a given probability.

    It grows exponentially in the dimension; from about dimension 30 only its first ten digits are certain.
    See `probability_inside`.

    Args:
        dimension: d, from 1 to 100.
        share: Target probability, between 0 and 1.
    """
    _check_dimension("half_inside_count", dimension)
    if not 0 < share < 1:
        raise UsageError(f"half_inside_count: share must lie between 0 and 1, got {share:g}")

    def short(log_count: float) -> float:
        return share - probability_inside(max(round(math.exp(log_count)), dimension), dimension)

    end = math.log(2 * dimension)
    while short(end) > 0:
        end += 2.0
    found = end
    if short(end) < 0:
        found = float(scipy.optimize.brentq(short, math.log(dimension), end, xtol=1e-12))
    count = max(round(math.exp(found)), dimension + 1)
    if count > 10**9:
        return count
    while probability_inside(count, dimension) >= share and count > dimension + 1:
        count -= 1
    while probability_inside(count, dimension) < share:
        count += 1
    return count


@functools.cache
def simplex_vertex_angle(corners: int) -> float:
    """The angle at a corner of the regular simplex with m corners, as a share of the full angle.

    1/2 for a segment, 1/6 for a triangle, (3·arccos(1/3) − π)/(4π) for a tetrahedron. It is the probability
    that k = m − 1 Gaussians with correlations of −1/k are all positive, which one common factor, an
    imaginary one, makes independent: E[Φ(i·Z/√m)^k] with Z standard Gaussian. With Faddeeva's function w it
    becomes √(m/(2π)) · ∫ exp(−y²/2)·(w(y/√2)/2)^k dy, taken along Im y = √k, where nothing cancels.

    Args:
        corners: m, from 1 to 100.
    """
    _check_dimension("simplex_vertex_angle", corners)
    edges = corners - 1
    places, weights = _panels(-12.0, 12.0)
    path = places + 1j * math.sqrt(edges)
    values = np.exp(-(path**2) / 2) * (scipy.special.wofz(path / math.sqrt(2)) / 2) ** edges
    return float(math.sqrt(corners / (2 * math.pi)) * (weights @ values.real))


def _log_outer_angle(corners: int, total: int) -> float:
    """ln of the outer angle of a face with m corners of the regular simplex with n corners."""

    def powers(places: np.ndarray) -> np.ndarray:
        upper = scipy.special.ndtr(-np.abs(places) * math.sqrt(2))
        below = np.where(places > 0, np.log1p(-upper), np.log(np.maximum(upper, 1e-300)))
        return np.asarray(float(total - corners) * below - corners * places**2)

    reach = 6 + 2 * math.sqrt(math.log(total))
    low, high = -reach, reach
    for _ in range(3):  # the integrand is a peak, far narrower than the range in which it may lie
        grid = np.linspace(low, high, 201)
        heights = powers(grid)
        kept = np.flatnonzero(heights > heights.max() - 40)
        low, high = float(grid[max(kept[0] - 1, 0)]), float(grid[min(kept[-1] + 1, 200)])
    places, weights = _panels(low, high)
    values = powers(places)
    largest = float(values.max())
    integral = float(weights @ np.exp(values - largest))
    return 0.5 * math.log(corners / math.pi) + largest + math.log(integral)


def _panels(low: float, high: float) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of the Gauss-Legendre rule on 24 panels."""
    nodes, weights = _legendre()
    edges = np.linspace(low, high, 25)
    half = (high - low) / 48
    return (edges[:-1, None] + half * (1 + nodes)).ravel(), np.tile(half * weights, 24)


@functools.cache
def _legendre() -> tuple[np.ndarray, np.ndarray]:
    return np.polynomial.legendre.leggauss(24)


def _checked(points: np.ndarray, point: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    data, query = np.asarray(points, dtype=np.float64), np.asarray(point, dtype=np.float64)
    if data.ndim != 2 or 0 in data.shape:
        raise UsageError(f"membership: points must be an array [points, coordinates], got shape {data.shape}")
    if query.shape != data.shape[1:]:
        raise UsageError(
            f"membership: the point must have the {data.shape[1]} coordinates of the data, got shape "
            f"{query.shape}"
        )
    if not (np.isfinite(data).all() and np.isfinite(query).all()):
        raise UsageError("membership: coordinates must be finite; some are not")
    return data, query


def _check_dimension(who: str, value: int) -> None:
    whole = not isinstance(value, bool) and int(value) == value
    if not (whole and 1 <= value <= MOST_EXACT_DIMENSIONS):
        raise UsageError(
            f"{who}: this is exact for whole numbers from 1 to {MOST_EXACT_DIMENSIONS}, got {value}"
        )
