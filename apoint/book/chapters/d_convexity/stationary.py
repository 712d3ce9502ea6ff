"""D2: stationary points, local and global minima, and when the minimum is the only one."""

from __future__ import annotations

import numpy as np
import torch
from scipy import optimize

from apoint.book.claim import claim, exercise
from apoint.book.evidence import Evidence, Number, at_least, at_most, close, same
from apoint.book.running import Running
from apoint.theory import regularity

TIGHT = 1e-6  # the gradient at which the searches below stop


@claim(
    "D2",
    "A stationary point of a convex function is a global minimum",
    kind="identity",
    statement=r"""
    If $f$ is convex and differentiable, every point with $\nabla f(x)=0$ is a global minimum; if $f$ is
    strictly convex there is at most one. Without convexity a stationary point may be a local minimum only,
    or none at all.
    """,
    refuted_by="two searches on a convex function that end at stationary points of different height, or two "
    "on a strictly convex one that end at different points, or ends above the lowest value there is",
    seconds={"quick": 1, "standard": 8},
    planted={"factor": 1.05},
    details=r"""
    From many starts a quasi-Newton search goes on until the gradient is zero. On least squares with more
    unknowns than equations (convex, not strictly) all ends have one height and are different points; with a
    ridge, which makes it strictly convex, they are one point; on a function with waves the heights differ.
    The lowest value itself comes from linear algebra, which knows nothing of searches: 0 without the ridge,
    and the solution of the normal equations with it.
    """,
    references=("Boyd and Vandenberghe (2004), Convex optimization, section 4.2.2",),
)
def ends_of_searches(run: Running, factor: float = 1.0) -> Evidence:
    """Searches from many starts against the lowest value by linear algebra, times `factor`."""
    random, starts = run.random(), run.pick(30, 200)
    matrix, target = random.standard_normal((3, 6)), random.standard_normal(3)

    def heights(ridge: float, waves: float) -> tuple[np.ndarray, np.ndarray]:
        def value(x: np.ndarray) -> tuple[float, np.ndarray]:
            rest = matrix @ x - target
            slope = matrix.T @ rest + ridge * x - 3 * waves * np.sin(3 * x)
            return float(rest @ rest / 2 + ridge * x @ x / 2 + waves * np.cos(3 * x).sum()), slope

        ends = [
            optimize.minimize(
                value, random.standard_normal(6) * 3, jac=True, method="BFGS", options={"gtol": TIGHT}
            )
            for _ in range(starts)
        ]
        return np.array([end.fun for end in ends]), np.array([end.x for end in ends])

    flat_heights, flat_ends = heights(0.0, 0.0)
    bowl_heights, bowl_ends = heights(0.5, 0.0)
    wave_heights, _ = heights(0.5, 1.0)
    best = np.linalg.solve(matrix.T @ matrix + 0.5 * np.eye(6), matrix.T @ target)
    lowest = float(((matrix @ best - target) ** 2).sum() / 2 + 0.25 * best @ best)
    # The height at a gradient of 1e-6 is off by its square over the curvature; ends by the ratio itself.
    return Evidence(
        [
            at_most("convex: spread of the heights", float(np.ptp(flat_heights)), 1e-9),
            at_most("convex: highest end, above the lowest value 0", float(flat_heights.max()), 1e-9),
            at_least("convex, not strictly: spread of the ends", float(np.ptp(flat_ends, axis=0).max()), 1.0),
            at_most("strictly convex: spread of the heights", float(np.ptp(bowl_heights)), 1e-9),
            close("strictly convex: highest end", float(bowl_heights.max()), factor * lowest, absolute=1e-9),
            at_most("strictly convex: spread of the ends", float(np.ptp(bowl_ends, axis=0).max()), 1e-5),
            at_least("not convex: spread of the heights", float(np.ptp(wave_heights)), 0.1),
        ]
    )


@exercise(
    "notes A.2",
    "D2",
    question="Name a function with a stationary point that is a local minimum; one with a stationary point "
    "that is neither a minimum nor a maximum; and one with infinitely many stationary points that are local "
    "minima.",
    hints=(
        "Polynomials of degree three have a second derivative that changes its sign.",
        "For infinitely many, think of a function that repeats itself.",
    ),
    solution=r"""
    $x^3-x$ has a stationary point at $1/\sqrt 3$ with $f''>0$, a local minimum, and no global one. $x^3$ at 0
    has $f'=0$ and increases on both sides. $\cos x$ is stationary at all multiples of $\pi$, and the odd ones
    are its minima: of its stationary points every other one. If all of them are to be minima, take a
    constant function.
    """,
    planted={"power": 4},
)
def stationary_points(power: int = 3) -> list[Number]:
    """Derivatives by sympy at the points of the answer."""
    import sympy  # type: ignore[import-untyped]

    x = sympy.Symbol("x", real=True)
    cubic = x**3 - x
    place = sympy.sqrt(3) / 3
    flat = x**power
    wave = sympy.cos(x)
    at_odd = [wave.diff(x, 2).subs(x, (2 * k + 1) * sympy.pi) for k in range(-2, 3)]
    below, above = (float(flat.subs(x, value)) for value in (-0.1, 0.1))
    return [
        close("f' of x³ − x at 1/√3", float(sympy.simplify(cubic.diff(x).subs(x, place))), 0, 0, 1e-15),
        at_least("its f'' there", float(cubic.diff(x, 2).subs(x, place)), 1.0),
        at_most("it has no global minimum: its value at −10", float(cubic.subs(x, -10)), -100),
        close("f' of x³ at 0", float(flat.diff(x).subs(x, 0)), 0),
        at_most("product of its values on both sides of 0", below * above, -1e-9),
        same("odd multiples of π at which cos has f'' = 1", sum(value == 1 for value in at_odd), 5),
        same(
            "odd multiples at which cos is stationary",
            sum(wave.diff(x).subs(x, (2 * k + 1) * sympy.pi) == 0 for k in range(-2, 3)),
            5,
        ),
    ]


@exercise(
    "notes A.3",
    "D2",
    question=r"Show with the tangent inequality that a point with $\nabla f(\bar x)=0$ is a global minimum "
    "of a convex differentiable function.",
    hints=("Write the tangent inequality at the stationary point.", "Its linear term vanishes."),
    solution=r"""
    Convexity gives $f(y)\geq f(\bar x)+\langle\nabla f(\bar x),y-\bar x\rangle$ for every $y$. With
    $\nabla f(\bar x)=0$ what is left is $f(y)\geq f(\bar x)$, and $y$ was arbitrary.
    """,
    planted={"name": "not convex"},
)
def global_minimum(name: str = "convex") -> list[Number]:
    """The lowest value on a wide grid against that at the stationary point, which a root search finds."""
    import sympy

    x = sympy.Symbol("x", real=True)
    function = sympy.exp(x) + x**2 - x if name == "convex" else x**4 - 2 * x**2 + x / 2
    place = float(sympy.nsolve(function.diff(x), x, 0.5 if name == "convex" else 0.9))
    value = sympy.lambdify(x, function, "numpy")
    grid = value(np.linspace(-5, 5, 100_001))
    return [
        at_most("slope at the stationary point", abs(float(function.diff(x).subs(x, place))), 1e-9),
        at_least(
            "lowest value anywhere, less that at the stationary point",
            float(grid.min() - value(place)),
            -1e-12,
        ),
    ]


@exercise(
    "notes A.4",
    "D2",
    question="Show by contradiction that a strictly convex function has at most one global minimum.",
    hints=("Suppose two, and look at the point halfway.", "What does strict convexity say of its height?"),
    solution=r"""
    If $a\neq b$ both attain the minimum $m$, strict convexity gives
    $f\left(\frac{a+b}{2}\right)<\frac{f(a)+f(b)}{2}=m$: a value below the lowest. So there are no two.
    """,
    planted={"name": "hinge"},
)
def one_minimum(name: str = "logcosh") -> list[Number]:
    """Pairs of equal height have a lower midpoint; and the points of lowest height on a grid are one."""
    function = regularity.named(name).function
    grid = torch.linspace(-4, 4, 801, dtype=torch.float64)
    heights = function(grid)
    pairs = torch.tensor([0.5, 1.0, 2.0, 3.5], dtype=torch.float64)
    gaps = (function(pairs) + function(-pairs)) / 2 - function(torch.zeros_like(pairs))
    return [
        same("points of the grid at the lowest height", int((heights == heights.min()).sum()), 1),
        at_least("least drop of the midpoint below a pair of equal height", float(gaps.min()), 1e-3),
    ]
