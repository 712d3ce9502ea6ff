"""D1: convex sets and functions, by definition, by tangents and by the Hessian."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from apoint.book.claim import claim, exercise
from apoint.book.evidence import Evidence, Number, at_least, at_most, close, same
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.theory import convexity

Function = Callable[[Tensor], Tensor]


def _of_one(function: Function) -> Function:
    """A function of one variable, as one of points [count, 1]."""
    return lambda points: function(points[:, 0])


FUNCTIONS: dict[str, tuple[Function, bool, int]] = {
    "x⁴": (_of_one(lambda x: x**4), True, 1),
    "3x − 2": (_of_one(lambda x: 3 * x - 2), True, 1),
    "ln(1 + eˣ)": (_of_one(lambda x: torch.logaddexp(x, torch.zeros_like(x))), True, 1),
    "ln Σ exp": (lambda x: torch.logsumexp(x, 1), True, 3),
    "x² + xy + y²": (lambda x: x[:, 0] ** 2 + x[:, 0] * x[:, 1] + x[:, 1] ** 2, True, 2),
    "x² + 3xy + y²": (lambda x: x[:, 0] ** 2 + 3 * x[:, 0] * x[:, 1] + x[:, 1] ** 2, False, 2),
    "x³ − x": (_of_one(lambda x: x**3 - x), False, 1),
    "exp(−x²)": (_of_one(lambda x: torch.exp(-(x**2))), False, 1),
    "sigmoid": (_of_one(torch.sigmoid), False, 1),
    "GELU": (_of_one(torch.nn.functional.gelu), False, 1),
}
"""Functions with whether they are convex, by hand, and of how many variables."""


def disc(points: np.ndarray) -> np.ndarray:
    """The unit disc."""
    return np.asarray(np.linalg.norm(points, axis=1) <= 1)


def crescent(points: np.ndarray) -> np.ndarray:
    """The unit disc without another one."""
    return np.asarray(disc(points) & (np.linalg.norm(points - [0.6, 0.0], axis=1) > 0.7))


@claim(
    "D1",
    "Three tests of convexity",
    kind="identity",
    statement=r"""
    For a function that is twice differentiable on a convex set three properties are one and the same: every
    chord lies above the graph, $f(ta+(1-t)b)\leq tf(a)+(1-t)f(b)$; every tangent lies below it,
    $f(b)\geq f(a)+\langle\nabla f(a),b-a\rangle$; and the Hessian has no negative eigenvalue,
    $\nabla^2 f\succeq 0$.
    """,
    refuted_by="a function on which two of the three tests disagree, or one that they judge otherwise than "
    "its second derivative by hand",
    seconds={"quick": 1, "standard": 4},
    planted={"factor": 1.05},
    details=r"""
    Ten functions of one, two and three variables are looked at, five of them convex. Points are drawn, all
    pairs of them are joined by chords, tangents are taken at each, and Hessians come from autograd. A test
    that finds nothing proves nothing; one that finds something hands back the two points. The picture has
    the largest violation of each test for a function that is not convex, and a set that is convex beside one
    that is not.
    """,
    references=("Boyd and Vandenberghe (2004), Convex optimization, chapter 3",),
)
def three_tests(run: Running, factor: float = 1.0) -> Evidence:
    """Functions judged by chords, tangents and Hessians; `factor` multiplies the slope of the tangents."""
    random, count = run.random(), run.pick(60, 160)
    agreements, right, numbers = 0, 0, []
    for name, (function, is_convex, dimension) in FUNCTIONS.items():
        points = random.uniform(-3, 3, (count, dimension))
        by_chord = convexity.chord_violation(function, points)
        by_tangent = convexity.tangent_violation(_with_slopes(function, factor), points)
        by_hessian = convexity.hessian_violation(function, points)
        found = [one is not None for one in (by_chord, by_tangent, by_hessian)]
        agreements += len(set(found)) == 1
        right += found == [not is_convex] * 3
        if by_chord is not None and name in ("x³ − x", "exp(−x²)"):
            numbers.append(at_least(f"graph above a chord of {name}", by_chord.excess, 0.1))
    numbers.insert(0, same("functions on which the three tests agree", agreements, len(FUNCTIONS)))
    numbers.insert(1, same("functions judged as by hand", right, len(FUNCTIONS)))
    points = random.uniform(-1, 1, (run.pick(300, 800), 2))
    hole = convexity.set_violation(crescent, points)
    numbers.append(
        same("disc: pairs with a point outside", convexity.set_violation(disc, points) is None, True)
    )
    numbers.append(same("crescent: a pair with a point outside", hole is not None, True))
    assert hole is not None
    return Evidence(numbers, pictures=[_sets(hole), _functions()])


def _with_slopes(function: Function, factor: float) -> Function:
    """The same values with a gradient that is `factor` times the true one."""

    def steeper(points: Tensor) -> Tensor:
        values = function(points)
        return values if factor == 1 else values.detach() + factor * (values - values.detach())

    return steeper


def _sets(hole: convexity.Violation) -> Picture:
    around = np.linspace(0, 2 * np.pi, 120)
    circle = np.stack([np.cos(around), np.sin(around)], 1)
    # The two circles meet where x = (1 + 0.6² − 0.7²)/(2·0.6).
    meeting = np.arccos((1 + 0.36 - 0.49) / 1.2)
    outer = np.linspace(meeting, 2 * np.pi - meeting, 120)
    opening = np.arctan2(np.sin(meeting), np.cos(meeting) - 0.6)
    inner = np.linspace(2 * np.pi - opening, opening, 80)
    edge = np.concatenate(
        [
            np.stack([np.cos(outer), np.sin(outer)], 1),
            np.stack([0.6 + 0.7 * np.cos(inner), 0.7 * np.sin(inner)], 1),
        ]
    )
    ends = np.array([hole.first, hole.second])
    middle = hole.share * hole.first + (1 - hole.share) * hole.second
    convex = Panel(
        "Convex",
        "first coordinate (no unit)",
        "second coordinate (no unit)",
        [
            Series("disc", circle[:, 0].tolist(), circle[:, 1].tolist(), style="area"),
            Series("two of its points", [-0.7, 0.5], [-0.4, 0.7]),
        ],
        equal=True,
    )
    not_convex = Panel(
        "Not convex",
        "first coordinate (no unit)",
        "second coordinate (no unit)",
        [
            Series("crescent", edge[:, 0].tolist(), edge[:, 1].tolist(), style="area"),
            Series("the pair that was found", ends[:, 0].tolist(), ends[:, 1].tolist()),
            Series("a point between them, outside", [middle[0]], [middle[1]], style="points"),
        ],
        equal=True,
    )
    return Picture(
        "A set is convex if no segment between two of its points leaves it; right, the pair that the search "
        "found among drawn points.",
        [convex, not_convex],
        "notes fig. A.1",
    )


def _functions() -> Picture:
    panels = []
    for name in ("x⁴", "x³ − x"):
        function = FUNCTIONS[name][0]
        grid = np.linspace(-1.5, 1.5, 121)
        heights = function(torch.from_numpy(grid)[:, None]).numpy()
        lines = [Series(f"f(x) = {name}", grid.tolist(), heights.tolist())]
        found = convexity.tangent_violation(function, grid)
        at = -0.5 if found is None else float(found.first[0])
        touch = torch.tensor([[at]], dtype=torch.float64, requires_grad=True)
        height = function(touch)
        (slope,) = torch.autograd.grad(height.sum(), touch)
        line = float(height.detach()) + float(slope) * (grid - at)
        lines.append(Series(f"tangent at {at:.2f}", grid.tolist(), line.tolist(), style="dashed"))
        chord = convexity.chord_violation(function, grid)
        ends = np.array([-1.2, 0.8]) if chord is None else np.array([chord.first[0], chord.second[0]])
        ends_at = function(torch.from_numpy(ends)[:, None]).numpy()
        lines.append(Series("chord", ends.tolist(), ends_at.tolist(), style="dashed"))
        title = "Convex: tangents below, chords above" if found is None else "Not convex: the worst of each"
        panels.append(Panel(title, "x (no unit)", "f(x) (no unit)", lines))
    return Picture(
        "Chords and tangents of a function that is convex, and the chord and tangent that show of another "
        "that it is not.",
        panels,
        "notes fig. A.2 and A.3",
    )


@exercise(
    "notes A.1",
    "D1",
    question="Name a strictly convex function; one that is convex and not strictly; and one that is convex, "
    "not strictly, and not affine either.",
    hints=(
        "Where does a chord lie in the graph itself?",
        "Glue two straight pieces together, or take a power.",
    ),
    solution=r"""
    $x\mapsto x^4$ is strictly convex: $f''(x)=12x^2$ is positive but at one point, so $f'$ increases
    strictly. An affine function equals its chords. $x\mapsto\max(0,x)$ equals them on each half line, and
    is not affine, since its slope jumps at 0.
    """,
    planted={"third": "abs_plus_square"},
)
def examples(third: str = "relu") -> list[Number]:
    """The smallest gap between chord and graph, and the largest, over pairs of points on both sides of 0."""
    points = np.linspace(-2, 2, 41)
    answers: dict[str, Function] = {
        "relu": _of_one(torch.relu),
        "abs_plus_square": _of_one(lambda x: x.abs() + x**2),
    }
    quartic, affine = FUNCTIONS["x⁴"][0], FUNCTIONS["3x − 2"][0]
    numbers = [
        same("x⁴ is convex", convexity.chord_violation(quartic, points) is None, True),
        at_least("smallest relative chord gap of x⁴", convexity.chord_gap(quartic, points), 1e-6),
        close(
            "smallest relative chord gap of an affine function",
            convexity.chord_gap(affine, points),
            0,
            0,
            1e-9,
        ),
    ]
    relu = answers[third]
    numbers.append(same("the third is convex", convexity.chord_violation(relu, points) is None, True))
    numbers.append(at_most("its smallest relative chord gap", convexity.chord_gap(relu, points), 1e-9))
    bend = relu(torch.tensor([[-1.0], [1.0], [0.0]], dtype=torch.float64))
    numbers.append(
        at_least("its chord from −1 to 1 above the graph at 0", float((bend[0] + bend[1]) / 2 - bend[2]), 0.4)
    )
    return numbers
