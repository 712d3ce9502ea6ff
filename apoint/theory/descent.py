"""How many steps gradient descent needs, and worst-case functions on which it needs them all.

Each rate comes with a function that attains or nearly attains it, which shows that the bound is not overly
cautious. Throughout, R = `distance` is ‖x₀ − x*‖ and steps are x ← x − η·∇f(x).

Reference: Bubeck (2015), Convex optimization: algorithms and complexity; Drori and Teboulle (2014),
Performance of first-order methods for smooth convex minimization; Drori and Teboulle (2016), An optimal
variant of Kelley's cutting-plane method; Nesterov (2018), Lectures on convex optimization, section 2.1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from apoint.errors import UsageError

Gradient = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Problem:
    """A convex function with everything that a convergence rate involves.

    Attributes:
        value: f.
        gradient: ∇f, or a subgradient of f.
        start: x₀.
        minimiser: x*.
        minimum: f*.
    """

    value: Callable[[np.ndarray], float]
    gradient: Gradient
    start: np.ndarray
    minimiser: np.ndarray
    minimum: float

    @property
    def distance(self) -> float:
        """R = ‖x₀ − x*‖."""
        return float(np.linalg.norm(self.start - self.minimiser))


def descend(gradient: Gradient, start: np.ndarray, rates: float | Sequence[float], steps: int) -> np.ndarray:
    """The points x₀ … x_T of gradient descent, [T + 1, dimension].

    Args:
        gradient: ∇f.
        start: x₀.
        rates: η, or one value per step.
        steps: T, at least 0.
    """
    etas = _per_step(rates, steps, "rates")
    points = [np.asarray(start, dtype=np.float64)]
    for eta in etas:
        points.append(points[-1] - eta * gradient(points[-1]))
    return np.array(points)


def accelerate(
    gradient: Gradient, start: np.ndarray, rate: float, momenta: float | Sequence[float], steps: int
) -> np.ndarray:
    """The points x₀ … x_T of Nesterov's method, [T + 1, dimension].

    y = x_t + m_t·(x_t − x_{t−1}),  x_{t+1} = y − η·∇f(y), with x_{−1} = x₀.

    Args:
        gradient: ∇f.
        start: x₀.
        rate: η.
        momenta: m, or one value per step; the first has no effect.
        steps: T.
    """
    shares = _per_step(momenta, steps, "momenta")
    points = [np.asarray(start, dtype=np.float64)]
    before = points[0]
    for share in shares:
        ahead = points[-1] + share * (points[-1] - before)
        before = points[-1]
        points.append(ahead - rate * gradient(ahead))
    return np.array(points)


def nesterov_momenta(steps: int) -> np.ndarray:
    """The momenta t/(t + 3) for t = 0 … T − 1, for which Nesterov's method has its rate."""
    t = np.arange(steps)
    return np.asarray(t / (t + 3.0))


# -- Lipschitz -----------------------------------------------------------------------------------------------


def lipschitz_rate(lipschitz: float, error: float) -> float:
    """η = ε/L²: the step of gradient descent on a convex L-Lipschitz function for an error ε.

    Args:
        lipschitz: L.
        error: ε.
    """
    _positive("lipschitz_rate", lipschitz=lipschitz, error=error)
    return error / lipschitz**2


def lipschitz_steps(lipschitz: float, distance: float, error: float) -> int:
    """T = ⌈L²R²/ε²⌉: one of the T points x₀ … x_{T−1} has f − f* ≤ ε, on any convex L-Lipschitz f.

    While the error is above ε, ‖x − x*‖² falls by more than ε²/L² in each step of ε/L², and it began at R².
    This is about the best point, not the last one. No method that only sees subgradients does better if
    the dimension may be as large as T, as `staircase` shows.

    Args:
        lipschitz: L.
        distance: R.
        error: ε.
    """
    _positive("lipschitz_steps", lipschitz=lipschitz, distance=distance, error=error)
    return max(math.ceil((lipschitz * distance / error) ** 2 * (1 - 1e-12)), 1)


def staircase(lipschitz: float, distance: float, points: int) -> Problem:
    """The convex L-Lipschitz function on which the best of T points is off by L·R/√T.

    f(x) = L·max(max_i x_i, ‖x‖ − R·(1 + 1/√T)) in dimension T, from x₀ = 0, with the subgradient of the
    first largest coordinate: each step discovers one more coordinate, and as long as one is undiscovered f
    has not fallen below f(x₀) = 0, while f* = −L·R/√T.

    Args:
        lipschitz: L.
        distance: R.
        points: T, the number of points x₀ … x_{T−1}, which is the dimension.
    """
    _positive("staircase", lipschitz=lipschitz, distance=distance, points=points)
    root = math.sqrt(points)
    edge = distance * (1 + 1 / root)

    def value(x: np.ndarray) -> float:
        return lipschitz * max(float(x.max()), float(np.linalg.norm(x)) - edge)

    def gradient(x: np.ndarray) -> np.ndarray:
        length = float(np.linalg.norm(x))
        if length - edge > x.max():
            return np.asarray(lipschitz * x / length)
        slope = np.zeros_like(x)
        slope[int(np.argmax(x))] = lipschitz
        return slope

    minimiser = np.full(points, -distance / root)
    return Problem(value, gradient, np.zeros(points), minimiser, -lipschitz * distance / root)


# -- smooth --------------------------------------------------------------------------------------------------


def smooth_bound(smoothness: float, distance: float, steps: int) -> float:
    """β·R²/(4T + 2): upper bound on f(x_T) − f* of gradient descent with η = 1/β, f convex and β-smooth.

    `plateau_and_bowl` attains it. The textbooks' β·R²/(2T) is within a factor of two.

    Args:
        smoothness: β.
        distance: R.
        steps: T, at least 0.
    """
    _positive("smooth_bound", smoothness=smoothness, distance=distance)
    _count("smooth_bound", steps)
    return smoothness * distance**2 / (4 * steps + 2)


def smooth_steps(smoothness: float, distance: float, error: float) -> int:
    """The smallest T with β·R²/(4T + 2) ≤ ε; see `smooth_bound`.

    Args:
        smoothness: β.
        distance: R.
        error: ε.
    """
    _positive("smooth_steps", smoothness=smoothness, distance=distance, error=error)
    return max(math.ceil((smoothness * distance**2 / error - 2) / 4 * (1 - 1e-12)), 0)


def plateau_and_bowl(smoothness: float, distance: float, steps: int) -> Problem:
    """Huber's function, on which gradient descent with η = 1/β is off by β·R²/(4T + 2) after T steps.

    f(x) = β·x²/2 for |x| ≤ d and β·d·|x| − β·d²/2 beyond, with d = R/(2T + 1), from x₀ = R: every step moves
    d forward, and after T of them x is still on the slope.

    Args:
        smoothness: β.
        distance: R.
        steps: T, at least 0.
    """
    _positive("plateau_and_bowl", smoothness=smoothness, distance=distance)
    _count("plateau_and_bowl", steps)
    knee = distance / (2 * steps + 1)

    def value(x: np.ndarray) -> float:
        size = abs(float(x[0]))
        inside, outside = size**2 / 2, knee * size - knee**2 / 2
        return smoothness * (inside if size <= knee else outside)

    def gradient(x: np.ndarray) -> np.ndarray:
        return np.asarray(smoothness * np.clip(x, -knee, knee))

    return Problem(value, gradient, np.array([distance]), np.zeros(1), 0.0)


def strongly_convex_factor(smoothness: float, convexity: float, rate: float) -> float:
    """ρ = max(|1 − ημ|, |1 − ηβ|): the factor on ‖x − x*‖ per step, for f β-smooth and μ-strongly convex.

    f − f* shrinks by ρ² per step (Taylor, Hendrickx and Glineur, 2018). ρ is below 1 for 0 < η < 2/β and
    smallest at η = 2/(β + μ). Quadratics with the curvatures β and μ attain it.

    Args:
        smoothness: β.
        convexity: μ, above 0 and at most β.
        rate: η.
    """
    _positive("strongly_convex_factor", smoothness=smoothness, convexity=convexity, rate=rate)
    if convexity > smoothness:
        raise UsageError(
            f"strongly_convex_factor: the convexity must be at most the smoothness {smoothness:g}, got "
            f"{convexity:g}"
        )
    return max(abs(1 - rate * convexity), abs(1 - rate * smoothness))


def strongly_convex_steps(smoothness: float, convexity: float, gap: float, error: float) -> int:
    """The smallest T with ρ^(2T)·(f(x₀) − f*) ≤ ε at η = 1/β, where ρ = 1 − μ/β.

    Args:
        smoothness: β.
        convexity: μ.
        gap: f(x₀) − f*.
        error: ε.
    """
    _positive("strongly_convex_steps", gap=gap, error=error)
    factor = strongly_convex_factor(smoothness, convexity, 1 / smoothness)
    if error >= gap:
        return 0
    return 1 if factor == 0 else math.ceil(math.log(error / gap) / (2 * math.log(factor)) * (1 - 1e-12))


def accelerated_bound(smoothness: float, distance: float, steps: int) -> float:
    """2β·R²/(T + 1)²: upper bound on f(x_T) − f* of Nesterov's method with η = 1/β and `nesterov_momenta`.

    Args:
        smoothness: β.
        distance: R.
        steps: T, at least 1.
    """
    _positive("accelerated_bound", smoothness=smoothness, distance=distance)
    _count("accelerated_bound", steps)
    return 2 * smoothness * distance**2 / (steps + 1) ** 2


def first_order_bound(smoothness: float, distance: float, steps: int) -> float:
    """3β·R²/(32(T + 1)²): no sum of gradients gets below this in T steps on a `chain` of 2T + 1 links.

    Args:
        smoothness: β.
        distance: R.
        steps: T; the bound is for a chain of 2T + 1 links.
    """
    _positive("first_order_bound", smoothness=smoothness, distance=distance)
    _count("first_order_bound", steps)
    return 3 * smoothness * distance**2 / (32 * (steps + 1) ** 2)


def chain(smoothness: float, links: int) -> Problem:
    """Nesterov's worst function: a chain of k links; each step of a first-order method reaches one more.

    f(x) = (β/4)·((x₁² + Σ(x_i − x_{i+1})² + x_k²)/2 − x₁) from x₀ = 0, with x*_i = 1 − i/(k + 1) and
    f* = (β/8)·(1/(k + 1) − 1).

    Args:
        smoothness: β.
        links: k, which is the dimension.
    """
    _positive("chain", smoothness=smoothness, links=links)

    def value(x: np.ndarray) -> float:
        inside = float((np.diff(x) ** 2).sum())
        return smoothness / 4 * ((float(x[0]) ** 2 + inside + float(x[-1]) ** 2) / 2 - float(x[0]))

    def gradient(x: np.ndarray) -> np.ndarray:
        slope = 2 * x
        slope[1:] -= x[:-1]
        slope[:-1] -= x[1:]
        slope[0] -= 1
        return np.asarray(smoothness / 4 * slope)

    minimiser = 1 - np.arange(1, links + 1) / (links + 1)
    return Problem(value, gradient, np.zeros(links), minimiser, smoothness / 8 * (1 / (links + 1) - 1))


def _positive(where: str, **values: float) -> None:
    for name, value in values.items():
        if not (value > 0 and math.isfinite(value)):
            raise UsageError(f"{where}: {name} must be positive and finite, got {value:g}")


def _count(where: str, steps: int) -> None:
    if int(steps) != steps or steps < 0:
        raise UsageError(f"{where}: steps must be a whole number from 0 on, got {steps}")


def _per_step(values: float | Sequence[float], steps: int, name: str) -> np.ndarray:
    _count("descent", steps)
    each = np.asarray(values, dtype=np.float64)
    each = np.full(steps, float(each)) if each.ndim == 0 else each
    if each.shape != (steps,):
        raise UsageError(f"{name} must be one number, or one for each of the {steps} steps, got {len(each)}")
    return each
