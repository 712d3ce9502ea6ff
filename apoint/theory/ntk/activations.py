"""Activations as kernels see them: E[f(u)f(v)] and E[f'(u)f'(v)] for a Gaussian pair (u, v).

Both expectations depend on the variances p = E[u²], q = E[v²] and the covariance c = E[uv] alone. They have
closed forms for the identity, ReLU, leaky ReLU, erf and GELU. Any other activation is expanded in Hermite
polynomials h_k, which are orthonormal under the Gaussian, so that (Mehler's formula)

    E[f(u)f(v)] = Σ_k a_k(p) · a_k(q) · (c/√(pq))^k,   a_k(p) = E[f(√p·z) · h_k(z)],

with the coefficients by quadrature in one dimension (`apoint.theory.gaussian`). What the series leaves out is
known exactly at c = p = q, where the sum must be E[f²]; see `Series.accuracy`.

References: Cho and Saul (2009), Kernel methods for deep learning; Williams (1997), Computing with infinite
networks; Tsuchida, Pearce, van der Heide, Roosta and Gallagher (2021), Avoiding kernel fixed points; Daniely,
Frostig and Singer (2016), Toward deeper understanding of neural networks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from apoint.errors import UsageError
from apoint.registry import registry
from apoint.theory import gaussian

Function = Callable[[Tensor], Tensor]
Activation = str | Mapping[str, Any] | Function
"""A registry name (or `erf`), a mapping with a name and settings, or an elementwise function."""

MOST_TERMS = 200
_NEGLIGIBLE = 1e-13  # relative to E[f²]: terms of the series that together are below it are left out
_MOST_VARIANCES = 64  # from this many different variances on, coefficients are interpolated between them
_NO_STEP = 1e-9  # distance from 0 at which the slopes on both sides are compared, to find a kink


class Dual(Protocol):
    """An activation as a map of covariances.

    `describe` returns numbers for each variance once, stacked along a new first axis. `pair` takes
    covariances and the descriptions of both sides, broadcast to each other, and returns the two expectations.
    """

    def describe(self, variance: Tensor) -> Tensor: ...

    def pair(self, covariance: Tensor, one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]: ...

    def alone(self, variance: Tensor) -> tuple[Tensor, Tensor]:
        """E[f(u)²] and E[f'(u)²]."""


class Rectifier:
    """f(x) = max(x, 0) + a·min(x, 0): ReLU for a = 0, leaky ReLU, the identity for a = 1.

    With θ the angle of the pair, cos θ = c/√(pq): E[f(u)f(v)] is a·c + (1−a)²·√(pq)·(sin θ + (π−θ) cos θ)/2π
    and E[f'(u)f'(v)] is a + (1−a)²·(π−θ)/2π.

    Args:
        slope: a, of the negative side.
    """

    def __init__(self, slope: float = 0.0) -> None:
        self.slope = slope

    def describe(self, variance: Tensor) -> Tensor:
        return variance.clamp(min=0).sqrt()[None]

    def pair(self, covariance: Tensor, one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
        size = one[0] * other[0]
        # (s − c)(s + c) keeps more digits than s² − c² where the two are close
        sine = (size - covariance).mul_(size.add_(covariance)).clamp_(min=0).sqrt_()
        turned = torch.atan2(sine, -covariance)  # π − θ
        values = sine.addcmul_(covariance, turned).div_(2 * math.pi)
        slopes = turned.div_(2 * math.pi)
        if self.slope:
            share = (1 - self.slope) ** 2
            values = values.mul_(share).add_(covariance, alpha=self.slope)
            slopes = slopes.mul_(share).add_(self.slope)
        return values, slopes

    def alone(self, variance: Tensor) -> tuple[Tensor, Tensor]:
        half = (1 + self.slope**2) / 2
        return half * variance, torch.full_like(variance, half)


class ErrorFunction:
    """f(x) = erf(x): E[f(u)f(v)] = 2/π·arcsin(2c/√((1+2p)(1+2q)))."""

    def describe(self, variance: Tensor) -> Tensor:
        return (1 + 2 * variance)[None]

    def pair(self, covariance: Tensor, one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
        size = one[0] * other[0]
        values = (2 * covariance / size.sqrt()).clamp_(-1, 1).asin_().mul_(2 / math.pi)
        return values, (size - 4 * covariance.square()).rsqrt_().mul_(4 / math.pi)

    def alone(self, variance: Tensor) -> tuple[Tensor, Tensor]:
        described = self.describe(variance)
        return self.pair(variance, described, described)


class GaussianUnit:
    """f(x) = x·Φ(x), the exact GELU.

    With D = (1+p)(1+q) − c², G = E[Φ(u)Φ(v)] = 1/4 + arcsin(c/√((1+p)(1+q)))/2π, H = 1/(2π√D) and
    B = pq − c² + c²·(1/(1+p) + 1/(1+q)), Stein's lemma gives E[f(u)f(v)] = cG + HB; its derivative in c is
    E[f'(u)f'(v)].
    """

    def describe(self, variance: Tensor) -> Tensor:
        return (1 + variance)[None]

    def pair(self, covariance: Tensor, one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
        p, q, c = one[0], other[0], covariance
        size, inverses = p * q, 1 / p + 1 / q
        determinant = size - c.square()
        gate = (c / size.sqrt()).clamp_(-1, 1).asin_().div_(2 * math.pi).add_(0.25)
        density = determinant.rsqrt() / (2 * math.pi)
        bracket = (p - 1) * (q - 1) + c.square() * (inverses - 1)
        values = c * gate + density * bracket
        return values, gate + density * c * (bracket / determinant - 1 + 2 * inverses)

    def alone(self, variance: Tensor) -> tuple[Tensor, Tensor]:
        described = self.describe(variance)
        return self.pair(variance, described, described)


class Series:
    """Any activation, by its Hermite coefficients from quadrature.

    A kink at 0 is split off as a multiple of ReLU, whose part has a closed form. With 200 terms the errors of
    E[f(u)f(v)] and E[f'(u)f'(v)] are below 1e-11 for tanh, sigmoid, swish and similar at variances up to 2
    (1e-5 at 10). Where f' itself bends (ELU, SELU, softsign) they are 1e-6 and 5e-4 near correlation ±1, and
    with kinks away from 0 (hardtanh, ReLU6) 1e-4 and 2e-2 there; away from ±1 they vanish with the power of
    the correlation. `accuracy` measures them. Variances are above 0.

    Args:
        function: f, applied to each element.
        terms: Maximum number of terms of the series.
    """

    def __init__(self, function: Function, terms: int = MOST_TERMS) -> None:
        self.function, self.terms = function, terms
        right, left = self._slope(torch.tensor([_NO_STEP, -_NO_STEP], dtype=torch.float64)).tolist()
        self.kink = right - left if abs(right - left) > 1e-6 else 0.0

    def describe(self, variance: Tensor) -> Tensor:
        """The standard deviation, then the coefficients of f, f' and, at a kink, of the ReLU's share."""
        different, places = torch.unique(variance.double(), return_inverse=True)
        _check_variance(different)
        if len(different) > _MOST_VARIANCES:
            table = _interpolated(self._coefficients, different)
        else:
            table = torch.stack([self._coefficients(float(one)) for one in different], 1)
        table = torch.cat([different.sqrt()[None], table])
        return table[:, places].to(variance.dtype)

    def pair(self, covariance: Tensor, one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
        correlation = (covariance / (one[0] * other[0])).clamp_(-1, 1)
        parts = 4 if self.kink else 2
        coefficients = list(zip(one[1:].chunk(parts), other[1:].chunk(parts), strict=True))
        sums = [_powers(correlation, a, b, self._kept(a, b)) for a, b in coefficients]
        if not self.kink:
            return sums[0], sums[1]
        rectified = Rectifier().pair(covariance, one[:1], other[:1])
        share = self.kink**2
        return (
            sums[0] - sums[2] + share * rectified[0],
            sums[1] - sums[3] + share * rectified[1],
        )

    def alone(self, variance: Tensor) -> tuple[Tensor, Tensor]:
        different, places = torch.unique(variance.double(), return_inverse=True)
        _check_variance(different)
        if len(different) > _MOST_VARIANCES:
            table = _interpolated(self._moments, different)
        else:
            table = torch.stack([self._moments(float(one)) for one in different], 1)
        return table[0][places].to(variance.dtype), table[1][places].to(variance.dtype)

    def accuracy(self, variance: float = 1.0) -> tuple[float, float]:
        """How far E[f(u)f(v)] and E[f'(u)f'(v)] are off at correlation 1 and this variance.

        There the true values are known, E[f²] and E[f'²], and the terms left out all add up. At correlation r
        and equal variances the error is at most |r|^(number of terms) of it; where a kink at 0 is split off,
        terms may cancel, and it is an estimate rather than a bound.
        """
        p = torch.tensor([variance], dtype=torch.float64)
        described = self.describe(p)
        series = self.pair(p, described, described)
        return tuple(float((true - found).abs()) for true, found in zip(self.alone(p), series, strict=True))  # type: ignore[return-value]

    def _coefficients(self, variance: float) -> Tensor:
        """E[g(√p z)h_k(z)] for g = f, f' and, at a kink, its ReLU and step, one after the other."""
        nodes, weights = gaussian._rule(math.sqrt(variance), 0.0)
        with torch.no_grad():
            rows = [self.function(nodes), self._slope(nodes)]
        if self.kink:
            rows += [self.kink * nodes.clamp(min=0), self.kink * (nodes > 0).double()]
        weighted = torch.stack(rows) * weights
        return (weighted @ _hermite(nodes / math.sqrt(variance), self.terms).T).flatten()

    def _moments(self, variance: float) -> Tensor:
        nodes, weights = gaussian._rule(math.sqrt(variance), 0.0)
        with torch.no_grad():
            rows = torch.stack([self.function(nodes), self._slope(nodes)])
        return rows.square() @ weights

    def _slope(self, places: Tensor) -> Tensor:
        with torch.enable_grad():
            z = places.clone().requires_grad_()
            (slope,) = torch.autograd.grad(self.function(z).sum(), z)
        return slope

    def _kept(self, one: Tensor, other: Tensor) -> int:
        """How many terms matter: those after them are negligible together."""
        sizes = one.flatten(1).abs().amax(1) * other.flatten(1).abs().amax(1)
        beyond = sizes.double().flip(0).cumsum(0).flip(0)
        return max(1, int((beyond > _NEGLIGIBLE * beyond[0].clamp(min=1e-300)).sum()))


def _powers(correlation: Tensor, one: Tensor, other: Tensor, terms: int) -> Tensor:
    """Σ_k a_k·b_k·r^k by Horner's rule."""
    total = (one[terms - 1] * other[terms - 1]).expand_as(correlation).clone()
    for k in range(terms - 2, -1, -1):
        total.mul_(correlation).add_(one[k] * other[k])
    return total


def _hermite(z: Tensor, terms: int) -> Tensor:
    """The orthonormal Hermite polynomials h_0 … at each place, [terms, places]."""
    found = [torch.ones_like(z), z]
    for k in range(1, terms - 1):
        found.append((z * found[k] - math.sqrt(k) * found[k - 1]) / math.sqrt(k + 1))
    return torch.stack(found[:terms])


def _interpolated(function: Callable[[float], Tensor], variances: Tensor) -> Tensor:
    """A function of the variance at many of them, from Chebyshev nodes in its logarithm."""
    low, high = float(variances.min().log()), float(variances.max().log())
    angles = (torch.arange(_MOST_VARIANCES, dtype=torch.float64) + 0.5) * math.pi / _MOST_VARIANCES
    nodes = (low + high) / 2 + (high - low) / 2 * angles.cos()
    values = torch.stack([function(math.exp(float(node))) for node in nodes], 1)
    weights = angles.sin() * (1 - 2 * (torch.arange(_MOST_VARIANCES) % 2)).double()
    distance = variances.log()[:, None] - nodes
    hit = distance == 0
    shares = weights / torch.where(hit, torch.ones_like(distance), distance)
    shares = torch.where(hit.any(1, keepdim=True), hit.double(), shares)
    return values @ (shares / shares.sum(1, keepdim=True)).T


def _check_variance(variances: Tensor) -> None:
    low, high = float(variances.min()), float(variances.max())
    if not (low > 0 and math.isfinite(high)):
        raise UsageError(
            f"infinite width: an activation without closed form needs variances above 0, got {low:g}; leave "
            "out inputs that are all 0, or set bias_variance above 0"
        )


def dual(activation: Activation) -> Dual:
    """The kernel side of an activation: closed form where there is one, otherwise the series."""
    if isinstance(activation, str) and activation == "erf":
        return ErrorFunction()
    module = function(activation)
    if isinstance(module, nn.Identity):
        return Rectifier(1.0)
    if isinstance(module, nn.ReLU):
        return Rectifier()
    if isinstance(module, nn.LeakyReLU):
        return Rectifier(float(module.negative_slope))
    if isinstance(module, nn.GELU) and module.approximate == "none":
        return GaussianUnit()
    return Series(module)


def function(activation: Activation) -> Function:
    """An activation as an elementwise function.

    Args:
        activation: A registry name or `erf`, a mapping with a name and settings, or a function.
    """
    if activation == "erf":
        return torch.erf
    if isinstance(activation, (str, Mapping)):
        made: Function = registry("activation").build(activation)
        return made
    if not callable(activation):
        raise UsageError(
            f"an activation must be a name such as 'relu', a mapping or a function, got {activation!r}"
        )
    return activation
