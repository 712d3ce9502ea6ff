"""Is a function or a set convex? Three tests, each of which returns a counterexample if it finds one.

For a function that is twice differentiable on a convex set the three are equivalent: chords lie above the
graph, tangents below it, and the Hessian has no negative eigenvalue. A test looks only at the given
points, so it can refute convexity but never prove it.

Reference: Boyd and Vandenberghe (2004), Convex optimization, sections 2.1, 3.1.1, 3.1.3 and 3.1.4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from apoint.errors import UsageError

Function = Callable[[Tensor], Tensor]
"""Takes points [count, dimension] in float64 and returns a value for each, [count]."""
Membership = Callable[[np.ndarray], np.ndarray]
"""Takes points [count, dimension] and returns for each whether it belongs to the set."""

ROUNDING = 1e-10
"""A violation counts if it exceeds this share of the size of the values it is computed from."""


@dataclass(frozen=True)
class Violation:
    """Two points that show that something is not convex.

    Attributes:
        test: `chord`, `tangent`, `hessian` or `set`.
        first: a; for the tangent test the point where the tangent touches.
        second: b.
        share: t of the point t·a + (1 − t)·b in between; 1 for the tangent test.
        excess: How far the inequality is violated; for the Hessian test minus the smallest eigenvalue.
    """

    test: str
    first: np.ndarray
    second: np.ndarray
    share: float
    excess: float

    def __str__(self) -> str:
        ends = f"a = {_written(self.first)} and b = {_written(self.second)}"
        if self.test == "set":
            return f"{ends} belong to it, and {self.share:.3g}·a + {1 - self.share:.3g}·b does not"
        if self.test == "tangent":
            return f"at {ends} the tangent in a lies above f(b) by {self.excess:.4g}"
        between = f"{self.share:.3g}·a + {1 - self.share:.3g}·b"
        if self.test == "hessian":
            return f"between {ends} the curvature is {-self.excess:.4g} at {between}"
        return f"between {ends} the graph lies above the chord by {self.excess:.4g} at {between}"


def chord_violation(function: Function, points: np.ndarray, share: float | None = None) -> Violation | None:
    """The largest violation of f(ta + (1−t)b) ≤ t·f(a) + (1−t)·f(b) over all pairs of the points, if any.

    Args:
        function: f.
        points: a and b, [count, dimension] or [count] for functions of one variable; all pairs are taken.
        share: t; by default 1/4, 1/2 and 3/4 are tried.
    """
    places = _points(points)
    if share is not None and not 0 <= share <= 1:
        raise UsageError(f"chord_violation: a share must be between 0 and 1, got {share:g}")
    heights = _values(function, places)
    first, second = np.triu_indices(len(places), 1)
    worst: Violation | None = None
    for t in (0.25, 0.5, 0.75) if share is None else (share,):
        inner = _values(function, t * places[first] + (1 - t) * places[second])
        excess = inner - t * heights[first] - (1 - t) * heights[second]
        scale = np.abs(inner) + np.abs(heights[first]) + np.abs(heights[second])
        excess = np.where(excess > ROUNDING * scale, excess, 0.0)
        at = int(np.argmax(excess))
        if excess[at] > (worst.excess if worst else 0.0):
            worst = Violation("chord", places[first[at]], places[second[at]], t, float(excess[at]))
    return worst


def tangent_violation(function: Function, points: np.ndarray) -> Violation | None:
    """The largest violation of f(b) ≥ f(a) + ⟨∇f(a), b − a⟩ over all pairs of the points, if any.

    Args:
        function: f; its gradient comes from autograd.
        points: a and b, [count, dimension] or [count] for functions of one variable; all pairs are taken.
    """
    places = _points(points)
    heights, slopes = _values(function, places), _gradients(function, places)
    along = slopes @ places.T - (slopes * places).sum(1)[:, None]
    excess = heights[:, None] + along - heights[None, :]
    scale = np.abs(heights[:, None]) + np.abs(along) + np.abs(heights[None, :])
    excess = np.where(excess > ROUNDING * scale, excess, 0.0)
    a, b = np.unravel_index(int(np.argmax(excess)), excess.shape)
    if excess[a, b] == 0:
        return None
    return Violation("tangent", places[a], places[b], 1.0, float(excess[a, b]))


def hessian_violation(function: Function, points: np.ndarray, reach: float = 1e-2) -> Violation | None:
    """The most negative eigenvalue of ∇²f over the points, if there is one, with two points that show it.

    Args:
        function: f; its Hessian comes from autograd.
        points: Points to test, [count, dimension] or [count] for functions of one variable.
        reach: How far along the eigenvector the two points lie on either side.
    """
    places = _points(points)
    worst: Violation | None = None
    for place in places:
        eigenvalues, vectors = np.linalg.eigh(_hessian(function, place))
        lowest = float(eigenvalues[0])
        small = -ROUNDING * max(1.0, float(np.abs(eigenvalues).max()))
        if lowest < small and (worst is None or -lowest > worst.excess):
            beside = reach * vectors[:, 0]
            worst = Violation("hessian", place - beside, place + beside, 0.5, -lowest)
    return worst


def set_violation(
    contains: Membership, points: np.ndarray, shares: tuple[float, ...] = (0.25, 0.5, 0.75)
) -> Violation | None:
    """Two points of a set with a point between them that is not in it, if there are any.

    Of the pairs found, the one whose ends are farthest apart is returned.

    Args:
        contains: Returns for each point whether it belongs to the set.
        points: Points to test, [count, dimension]; those outside the set are ignored.
        shares: The t of the points ta + (1 − t)b that are tried.
    """
    places = _points(points)
    places = places[np.asarray(contains(places), dtype=bool)]
    first, second = np.triu_indices(len(places), 1)
    worst: Violation | None = None
    for share in shares:
        outside = ~np.asarray(contains(share * places[first] + (1 - share) * places[second]), dtype=bool)
        if outside.any():
            lengths = np.linalg.norm(places[first] - places[second], axis=1) * outside
            at = int(np.argmax(lengths))
            if lengths[at] > (worst.excess if worst else 0.0):
                worst = Violation("set", places[first[at]], places[second[at]], share, float(lengths[at]))
    return worst


def check_convex(function: Function, points: np.ndarray, name: str = "the function") -> None:
    """Raise an error if a function is not convex, with the pair of points that shows it.

    Args:
        function: f.
        points: Pairs of these are tested by chords.
        name: What to call it in the error message.
    """
    found = chord_violation(function, points)
    if found is not None:
        raise UsageError(f"{name} must be convex, and it is not: {found}")


def chord_gap(function: Function, points: np.ndarray) -> float:
    """The smallest of (f(a) + f(b))/2 − f((a+b)/2) over |a − b|²/8 for all pairs of different points.

    It is at least the strong convexity μ and at most the smoothness β of a function that has them; above 0
    on all pairs for a strictly convex function, 0 where a chord lies in the graph.
    """
    places = _points(points)
    heights = _values(function, places)
    first, second = np.triu_indices(len(places), 1)
    middle = _values(function, (places[first] + places[second]) / 2)
    gaps = (heights[first] + heights[second]) / 2 - middle
    return float((8 * gaps / ((places[first] - places[second]) ** 2).sum(1)).min())


def _points(points: np.ndarray) -> np.ndarray:
    places = np.asarray(points, dtype=np.float64)
    places = places[:, None] if places.ndim == 1 else places
    if places.ndim != 2 or len(places) < 2:
        raise UsageError(
            f"points must be at least two, as a table [count, dimension], got the shape {np.shape(points)}"
        )
    return places


def _values(function: Function, places: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        values = function(torch.from_numpy(np.ascontiguousarray(places)))
    if values.shape != (len(places),):
        raise UsageError(
            f"the function must give one value for each point, but it turned {len(places)} points into a "
            f"tensor of shape {tuple(values.shape)}"
        )
    return values.numpy()


def _gradients(function: Function, places: np.ndarray) -> np.ndarray:
    x = torch.from_numpy(np.ascontiguousarray(places)).requires_grad_()
    (slopes,) = torch.autograd.grad(function(x).sum(), x)
    return slopes.numpy()


def _hessian(function: Function, place: np.ndarray) -> np.ndarray:
    x = torch.from_numpy(place.copy()).requires_grad_()
    (slope,) = torch.autograd.grad(function(x[None]).sum(), x, create_graph=True)
    if not slope.requires_grad:
        return np.zeros((len(place), len(place)))
    rows = [torch.autograd.grad(each, x, retain_graph=True, materialize_grads=True)[0] for each in slope]
    return torch.stack(rows).numpy()


def _written(point: np.ndarray) -> str:
    numbers = ", ".join(f"{number:.4g}" for number in point[:6])
    more = ", …" if len(point) > 6 else ""
    return numbers if len(point) == 1 else f"({numbers}{more})"
