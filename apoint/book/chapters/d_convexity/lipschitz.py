"""D3: gradient descent on convex Lipschitz functions: L²R²/ε² steps are enough, and can be needed."""

from __future__ import annotations

import math

import numpy as np

from apoint.book.claim import Erratum, claim, exercise
from apoint.book.evidence import Evidence, Number, at_least, at_most, close
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.theory import descent
from apoint.theory.descent import Problem


def absolute(lipschitz: float, distance: float) -> Problem:
    """L·|x| from a distance R."""
    return Problem(
        lambda x: lipschitz * abs(float(x[0])),
        lambda x: lipschitz * np.sign(x),
        np.array([distance]),
        np.zeros(1),
        0.0,
    )


def largest_of(random: np.random.Generator, distance: float, dimension: int = 5) -> tuple[Problem, float]:
    """The largest of a few sizes |⟨a_i, x − x*⟩|, with L the length of the longest a_i."""
    rows = random.standard_normal((12, dimension))
    minimiser = random.standard_normal(dimension)
    direction = random.standard_normal(dimension)

    def gradient(x: np.ndarray) -> np.ndarray:
        along = rows @ (x - minimiser)
        steepest = int(np.argmax(np.abs(along)))
        return np.asarray(np.sign(along[steepest]) * rows[steepest])

    start = minimiser + distance * direction / np.linalg.norm(direction)
    problem = Problem(lambda x: float(np.abs(rows @ (x - minimiser)).max()), gradient, start, minimiser, 0.0)
    return problem, float(np.linalg.norm(rows, axis=1).max())


def mean_distance(random: np.random.Generator, distance: float, dimension: int = 4) -> tuple[Problem, float]:
    """The mean distance to points in opposite pairs about their centre, which is its minimiser; L = 1."""
    half = random.standard_normal((5, dimension))
    places = np.concatenate([half, -half])
    direction = random.standard_normal(dimension)

    def gradient(x: np.ndarray) -> np.ndarray:
        rest = x - places
        lengths = np.linalg.norm(rest, axis=1, keepdims=True)
        return np.asarray((rest / np.maximum(lengths, 1e-300)).mean(0))

    def value(x: np.ndarray) -> float:
        return float(np.linalg.norm(x - places, axis=1).mean())

    start = distance * direction / np.linalg.norm(direction)
    return Problem(value, gradient, start, np.zeros(dimension), value(np.zeros(dimension))), 1.0


def errors_of(problem: Problem, lipschitz: float, error: float, points: int) -> tuple[np.ndarray, np.ndarray]:
    """f − f* and ‖x − x*‖² at the points of descent with the step ε/L²."""
    path = descent.descend(
        problem.gradient, problem.start, descent.lipschitz_rate(lipschitz, error), points - 1
    )
    heights = np.array([problem.value(x) for x in path]) - problem.minimum
    return heights, ((path - problem.minimiser) ** 2).sum(1)


@claim(
    "D3",
    "Steps for a Lipschitz function",
    kind="bound",
    statement=r"""
    Let $f$ be convex and $L$-Lipschitz with a minimum at distance $R=\|x_0-x^*\|$. Gradient descent with
    $\eta=\varepsilon/L^2$ reaches $f(x_t)\leq f(x^*)+\varepsilon$ at one of $T=L^2R^2/\varepsilon^2$ points,
    because as long as it has not, $\|x_t-x^*\|^2$ falls by more than $\varepsilon^2/L^2$ in each step.
    There is a function on which not one point fewer will do.
    """,
    refuted_by="a convex Lipschitz function on which the best of T points is off by more than the allowed "
    "error, or a step above that error which lowers the squared distance by less",
    seconds={"quick": 1, "standard": 5},
    planted={"factor": 0.95},
    erratum=Erratum(
        quote=r"$\Phi(t)-\Phi(t+1)>2\eta\varepsilon-\eta^2L^2=\frac{\varepsilon}{L^2}$",
        place="notes A.3.1, proof of proposition A.3",
        written=r"With $\eta=\varepsilon/L^2$ the squared distance falls by more than "
        r"$2\eta\varepsilon-\eta^2L^2=\varepsilon/L^2$ in each step.",
        corrected=r"It falls by more than $2\eta\varepsilon-\eta^2L^2=\varepsilon^2/L^2$, which is what the "
        r"count $T=L^2R^2/\varepsilon^2$ follows from.",
        why=r"$2\cdot\frac{\varepsilon}{L^2}\varepsilon-\frac{\varepsilon^2}{L^4}L^2=\frac{\varepsilon^2}{L^2}$"
        r". With the printed drop $L^2R^2/\varepsilon$ points would do, and the staircase function shows "
        "that they do not.",
    ),
    details=r"""
    Three families are descended on: $L|x|$, the largest of several sizes, and the mean distance to several
    points. The fourth, $L\max_i x_i$ with as many coordinates as points are allowed, is the worst there is:
    every step lowers one coordinate only. The guarantee is about the best point on the way and about the
    height, not about the last point or its distance: on $L|x|$ the last one jumps to and fro.
    """,
    references=(
        "Bubeck (2015), Convex optimization: algorithms and complexity, theorem 3.2",
        "Drori and Teboulle (2016), An optimal variant of Kelley's cutting-plane method",
    ),
)
def steps_suffice(run: Running, factor: float = 1.0) -> Evidence:
    """The best of T points on four families, and the least drop; `factor` multiplies T."""
    random, error, distance = run.random(), 0.1, 1.5
    problems: list[tuple[str, Problem, float]] = [("L|x|", absolute(2.0, distance), 2.0)]
    for k in range(run.pick(3, 20)):
        problems.append((f"largest of sizes {k}", *largest_of(random, distance)))
        problems.append((f"mean distance {k}", *mean_distance(random, distance)))
    worst, least_drop, lines = 0.0, math.inf, []
    for name, problem, lipschitz in problems:
        points = math.ceil(factor * descent.lipschitz_steps(lipschitz, distance, error))
        heights, squares = errors_of(problem, lipschitz, error, points)
        worst = max(worst, float(heights.min()) / error)
        above = (heights > error * (1 + 1e-9))[:-1]
        drops = (squares[:-1] - squares[1:])[above] * lipschitz**2 / error**2
        least_drop = min([least_drop, *drops.tolist()])
        if name.endswith(("x|", "0")):
            lines.append(_line(name.removesuffix(" 0"), heights, error))
    points = math.ceil(factor * descent.lipschitz_steps(1.0, distance, error))
    hardest = descent.staircase(1.0, distance, points)
    heights, _ = errors_of(hardest, 1.0, error, points)
    lines.append(_line("staircase", heights, error))
    numbers = [
        at_most("best point's error over the allowed one, three families", worst, 1.0),
        at_most("the same on the staircase, within rounding", float(heights.min()) / error, 1 + 1e-9),
        at_least("the same with one point fewer allowed", _one_fewer(distance, error), 1 + 1e-6),
        at_least("least drop of the squared distance, in ε²/L²", least_drop, 1.0),
    ]
    written = [at_least("least drop of the squared distance, in ε/L²", least_drop * error, 1.0)]
    panel = Panel(
        f"Best point so far, with the step ε/L² for ε = {error:g}",
        "points tried (count)",
        "error f − f* (no unit)",
        [*lines, Series("ε", [1, points], [error, error], style="dashed")],
        x_log=True,
        y_log=True,
    )
    caption = "The staircase needs all L²R²/ε² points; L|x| and the others are through earlier "
    caption += "(what is below ε/100 is drawn there)."
    return Evidence(numbers, written, [Picture(caption, [panel], "notes prop. A.3"), _cones()])


def _one_fewer(distance: float, error: float) -> float:
    """The error of the best of T − 1 points on the staircase with T − 1 coordinates, over the allowed one."""
    points = descent.lipschitz_steps(1.0, distance, error) - 1
    heights, _ = errors_of(descent.staircase(1.0, distance, points), 1.0, error, points)
    return float(heights.min()) / error


def _line(name: str, heights: np.ndarray, error: float) -> Series:
    best = np.minimum.accumulate(np.maximum(heights, error / 100))
    places = np.unique(np.geomspace(1, len(best), 150).astype(int))
    return Series(name, places.tolist(), best[places - 1].tolist())


def _cones() -> Picture:
    """A function that leaves the cones of slope L at one of its points near the ends of an interval."""
    x = np.linspace(0, 5, 200)

    def f(place: np.ndarray) -> np.ndarray:
        return np.asarray(np.sin(2 * place) + 0.08 * (place - 2.5) ** 4)

    slope = float(np.abs(np.gradient(f(x), x))[(x >= 0.5) & (x <= 4.5)].max())
    centre = np.array([2.5])
    high, low = f(centre) + slope * np.abs(x - 2.5), f(centre) - slope * np.abs(x - 2.5)
    steep = np.where(np.abs(np.gradient(f(x), x)) > slope, f(x), np.nan)
    panel = Panel(
        f"Slope at most L = {slope:.2f} from 0.5 to 4.5",
        "x (no unit)",
        "f(x) (no unit)",
        [
            Series("f", x.tolist(), f(x).tolist()),
            Series("steeper than L", x.tolist(), steep.tolist(), style="points"),
            Series("cone at 2.5", x.tolist(), high.tolist(), style="dashed"),
            Series("", x.tolist(), low.tolist(), style="dashed"),
        ],
    )
    return Picture(
        "A Lipschitz function stays between the two lines through each of its points; dots: where this one "
        "is steeper than its L on the inner interval.",
        [panel],
        "notes fig. A.4",
    )


@exercise(
    "notes A.5",
    "D3",
    question=r"Show that a step of gradient descent on a convex $L$-Lipschitz function satisfies "
    r"$\|x_{t+1}-x^*\|^2\leq\|x_t-x^*\|^2-2\eta(f(x_t)-f(x^*))+\eta^2L^2$.",
    hints=(
        "Put the step in and multiply the square out.",
        r"The tangent at $x_t$ lies below $f(x^*)$, and a gradient is no longer than $L$.",
    ),
    solution=r"""
    $\|x_t-\eta g-x^*\|^2=\|x_t-x^*\|^2-2\eta\langle g,x_t-x^*\rangle+\eta^2\|g\|^2$ with $g=\nabla f(x_t)$.
    Convexity gives $\langle g,x_t-x^*\rangle\geq f(x_t)-f(x^*)$, and $\|g\|\leq L$. With
    $\eta=\varepsilon/L^2$ and an error above $\varepsilon$ the square falls by more than
    $2\eta\varepsilon-\eta^2L^2=\varepsilon^2/L^2$.
    """,
    planted={"factor": 3},
)
def one_step(factor: int = 2) -> list[Number]:
    """The worst slack of the inequality over random functions and points; the drop by sympy."""
    import sympy  # type: ignore[import-untyped]

    random = np.random.default_rng(5)
    slack = math.inf
    for _ in range(20):
        problem, lipschitz = largest_of(random, 1.0)
        for eta in (0.01, 0.1, 0.5):
            x = problem.minimiser + random.standard_normal(5)
            step = x - eta * problem.gradient(x)
            before, after = (float(((p - problem.minimiser) ** 2).sum()) for p in (x, step))
            slack = min(slack, before - factor * eta * problem.value(x) + (eta * lipschitz) ** 2 - after)
    eps, big = sympy.symbols("epsilon L", positive=True)
    eta_symbol = eps / big**2
    drop = sympy.simplify((factor * eta_symbol * eps - eta_symbol**2 * big**2) * big**2 / eps**2)
    return [
        at_least("least slack of the inequality", slack, -1e-12),
        close("drop in a step, in ε²/L²", float(drop), 1.0),
    ]
