"""How angles and distances between random points behave as the dimension grows.

References: Vershynin (2018), High-dimensional probability, chapter 3; Tu and Fischbach (2002), Random
distance distribution for spherical objects, J. Phys. A 35; Beyer, Goldstein, Ramakrishnan and Shaft (1999),
When is "nearest neighbor" meaningful?
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import betainc, betainccinv, betaln, gammaln

from apoint.errors import UsageError

MOST_DIMENSIONS = 10**7


def cosine_tail(dimension: int, threshold: float) -> float:
    """P(|cos(x, y)| ≥ t) for two independent directions, uniform on the sphere.

    The square of the cosine has the distribution Beta(1/2, (n − 1)/2), so the tail is the regularised
    incomplete beta function I at 1 − t² with the parameters (n − 1)/2 and 1/2.

    Args:
        dimension: n, at least 2.
        threshold: t, from 0 to 1.
    """
    _check_dimension("cosine_tail", dimension, 2)
    if not 0 <= threshold <= 1:
        raise UsageError(f"cosine_tail: a cosine's size is from 0 to 1, got a threshold of {threshold:g}")
    return float(betainc((dimension - 1) / 2, 0.5, (1 - threshold) * (1 + threshold)))


def cosine_density(dimension: int, cosine: np.ndarray) -> np.ndarray:
    """The density of the cosine c of two uniform directions: (1 − c²)^((n−3)/2) / B(1/2, (n−1)/2).

    Args:
        dimension: n, at least 2.
        cosine: c, between −1 and 1, exclusive.
    """
    _check_dimension("cosine_density", dimension, 2)
    values = np.asarray(cosine, dtype=np.float64)
    if not np.all(np.abs(values) < 1):
        raise UsageError("cosine_density: a cosine must lie between -1 and 1, both left out")
    power = (dimension - 3) / 2 * np.log1p(-values * values)
    return np.asarray(np.exp(power - betaln(0.5, (dimension - 1) / 2)))


def cosine_quantile(dimension: int, probability: float) -> float:
    """The t that |cos(x, y)| of two uniform directions exceeds with the given probability.

    Args:
        dimension: n, at least 2.
        probability: Between 0 and 1, exclusive.
    """
    _check_dimension("cosine_quantile", dimension, 2)
    if not 0 < probability < 1:
        raise UsageError(f"cosine_quantile: a probability must lie between 0 and 1, got {probability:g}")
    return math.sqrt(float(betainccinv(0.5, (dimension - 1) / 2, probability)))


def cosine_bound(dimension: int, threshold: float, divisor: float = 4.0) -> float:
    """The Gaussian bound 2·exp(−n·t²/c) on P(|cos(x, y)| ≥ t).

    It holds in every dimension for c = 4, which the course proves, and for c = 2, which is the best constant:
    a cosine has the variance 1/n and is nearly Gaussian, so any smaller c fails for large n.

    Args:
        dimension: n, at least 1.
        threshold: t, at least 0.
        divisor: c, above 0.
    """
    _check_dimension("cosine_bound", dimension, 1)
    if not (threshold >= 0 and divisor > 0):
        raise UsageError(
            f"cosine_bound: threshold must be at least 0 and divisor above 0, got {threshold:g} and "
            f"{divisor:g}"
        )
    return 2 * math.exp(-dimension * threshold * threshold / divisor)


def orthogonality_threshold(dimension: int, divisor: float = 4.0) -> float:
    """The t at which `cosine_bound` is 1/n: t = √(c·ln(2n)/n).

    So |cos(x, y)| stays below it with a probability of at least 1 − 1/n. With c = 4 it is above 1, and says
    nothing, up to dimension 13.

    Args:
        dimension: n, at least 1.
        divisor: c, above 0.
    """
    _check_dimension("orthogonality_threshold", dimension, 1)
    if not divisor > 0:
        raise UsageError(f"orthogonality_threshold: divisor must be above 0, got {divisor:g}")
    return math.sqrt(divisor * math.log(2 * dimension) / dimension)


def ball_distance_moment(dimension: int, power: float, radius: float = 1.0) -> float:
    """E[‖x − y‖^k] for two independent points, uniform in a Euclidean ball.

    E = R^k · n/(n + k) · 2^(n+k) · B((n+k+1)/2, (n+1)/2) / B((n+1)/2, 1/2), from the density
    n·s^(n−1) · I_(1−s²/4)((n+1)/2, 1/2) of the distance s in the unit ball.

    Args:
        dimension: n, at least 1.
        power: k, above −n.
        radius: R, above 0.
    """
    _check_dimension("ball_distance_moment", dimension, 1)
    if not power > -dimension:
        raise UsageError(
            f"ball_distance_moment: power must be above -dimension = {-dimension}, got {power:g}"
        )
    if not (radius > 0 and math.isfinite(radius)):
        raise UsageError(f"ball_distance_moment: radius must be positive and finite, got {radius:g}")
    n = float(dimension)
    betas = betaln((n + power + 1) / 2, (n + 1) / 2) - betaln((n + 1) / 2, 0.5)
    return n / (n + power) * math.exp(power * math.log(radius) + (n + power) * math.log(2) + float(betas))


def ball_distance(dimension: int, radius: float = 1.0) -> tuple[float, float]:
    """The mean and the standard deviation of the distance between two points drawn from a Euclidean ball.

    As n grows the mean goes to R·√2 and the deviation to 0 as R/√(2n). With `_root_excess` the mean is
    R·√2·n/(n + 1)·e^D, D = s((n+1)/2) − s(n + 1), and its square is subtracted from 2R²·n/(n + 2), the
    mean square, without a difference of nearly equal numbers.

    Args:
        dimension: n, at least 1.
        radius: R, above 0.
    """
    _check_dimension("ball_distance", dimension, 1)
    if not (radius > 0 and math.isfinite(radius)):
        raise UsageError(f"ball_distance: radius must be positive and finite, got {radius:g}")
    n = float(dimension)
    excess = _root_excess((n + 1) / 2) - _root_excess(n + 1)
    missing = -math.expm1(math.log1p(-1 / (n + 1) ** 2) + 2 * excess)
    mean = radius * math.sqrt(2) * n / (n + 1) * math.exp(excess)
    return mean, radius * math.sqrt(2 * n / (n + 2) * missing)


def gaussian_distance(dimension: int) -> tuple[float, float]:
    """The mean and the standard deviation of ‖x − y‖ for two standard Gaussian points.

    The mean is 2·Γ((n+1)/2)/Γ(n/2), near √(2n); the deviation goes to 1, so their ratio falls as 1/√(2n).
    The square of the mean, 2n·e^(2s) with s = `_root_excess`(n/2), is subtracted from 2n without
    cancellation.

    Args:
        dimension: n, at least 1.
    """
    _check_dimension("gaussian_distance", dimension, 1)
    excess = _root_excess(dimension / 2)
    return math.sqrt(2 * dimension) * math.exp(excess), math.sqrt(-2 * dimension * math.expm1(2 * excess))


def _root_excess(z: float) -> float:
    """s(z) = ln(Γ(z + 1/2)/Γ(z)) − ln(z)/2, which falls as −1/(8z), to rounding.

    A difference of two `gammaln` has an error of the size of their own, which grows as z·ln z. From z = 30 on
    the asymptotic series is used; its next term would be 0.0038/z¹¹.
    """
    if z < 30:
        return math.log(math.gamma(z + 0.5) / math.gamma(z) / math.sqrt(z))
    terms = (-1 / 8, 1 / 192, -1 / 640, 17 / 14336, -31 / 18432)
    return sum(term / z ** (2 * place + 1) for place, term in enumerate(terms))


def relative_contrast(distances: np.ndarray) -> np.ndarray:
    """(largest − smallest)/smallest along the last axis: how much a nearest neighbour stands out.

    Args:
        distances: Distances from one point to at least two others, [..., others], above 0.
    """
    values = np.asarray(distances, dtype=np.float64)
    if values.ndim < 1 or values.shape[-1] < 2:
        raise UsageError(
            f"relative_contrast: needs distances to at least 2 others, got an array of shape {values.shape}"
        )
    smallest = values.min(-1)
    if not np.all(smallest > 0):
        raise UsageError(f"relative_contrast: distances must be above 0, got {smallest.min():g}")
    return np.asarray((values.max(-1) - smallest) / smallest)


def _check_dimension(who: str, dimension: int, least: int) -> None:
    whole = not isinstance(dimension, bool) and int(dimension) == dimension
    if not (whole and least <= dimension <= MOST_DIMENSIONS):
        raise UsageError(
            f"{who}: a dimension must be a whole number from {least} to {MOST_DIMENSIONS}, got {dimension}"
        )


def nearest_mean_accuracy(dimension: int, distance: float, examples: int = 1) -> float:
    """The exact probability that the nearer of two class means is the right one.

    Two classes are Gaussian with the identity as covariance. Their centres ±μ are 2δ = ‖2μ‖ apart, no matter
    how many of the n coordinates differ. Each centre is estimated by the mean of m examples. With m = 1 this
    is the nearest neighbour among one example per class. The difference of the two squared distances is a
    product u·s of independent Gaussian vectors, and so a difference of two independent non-central χ² with n
    degrees of freedom and parameters λ± = δ²·(√(2m) ± 1/√(1 + 1/(2m)))²/2. The accuracy is the probability
    that the first is the larger one, a sum over two Poisson distributions of incomplete beta functions.

    Args:
        dimension: n, at least 1.
        distance: δ, half the distance between the centres, in standard deviations.
        examples: m of each class, at least 1.
    """
    _check_dimension("nearest_mean_accuracy", dimension, 1)
    if not (math.isfinite(distance) and distance >= 0):
        raise UsageError(f"nearest_mean_accuracy: distance must be at least 0, got {distance:g}")
    if isinstance(examples, bool) or not (int(examples) == examples and examples >= 1):
        raise UsageError(f"nearest_mean_accuracy: examples must be a whole number from 1 on, got {examples}")
    if (size := distance**2 * examples) > 1e4:  # the sums would be too long
        raise UsageError(f"nearest_mean_accuracy: distance² times examples exceeds 10⁴, got {size:g}")
    near, far = math.sqrt(2 * examples), 1 / math.sqrt(1 + 1 / (2 * examples))
    first, first_weights = _poisson((distance * (near + far)) ** 2 / 4)
    second, second_weights = _poisson((distance * (near - far)) ** 2 / 4)
    chances = betainc(dimension / 2 + second[:, None], dimension / 2 + first[None], 0.5)
    return float(second_weights @ chances @ first_weights)


def _poisson(mean: float) -> tuple[np.ndarray, np.ndarray]:
    """The values and probabilities of a Poisson distribution, except for tails of about 1e-16."""
    reach = 9 * math.sqrt(mean) + 40
    places = np.arange(max(0, math.floor(mean - reach)), math.ceil(mean + reach) + 1, dtype=np.float64)
    logs = (
        places * math.log(mean) - mean - gammaln(places + 1) if mean > 0 else np.where(places, -np.inf, 0.0)
    )
    weights = np.exp(logs)
    return places, weights / weights.sum()
