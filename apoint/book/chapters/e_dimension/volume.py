"""E1: the volume of a ball in n dimensions, how it rises and falls, and the norm that measures it."""

from __future__ import annotations

import math

import numpy as np

from apoint.book.chapters.e_dimension.sketches import balls_by_dimension
from apoint.book.claim import Erratum, claim
from apoint.book.evidence import Evidence, Number, agrees, at_least, at_most, close, same
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.theory import balls

NORMS = ((1.0, "1"), (2.0, "2"), (math.inf, "∞"))
COUNTED = ((1, 2, 1.0), (1, 4, 2.0), (2, 3, 0.5), (2, 6, 1.5), (3, 2, 3.0), (3, 5, 0.8), (2.5, 3, 1.0))
"""Balls whose points are counted: p, the dimension n and the radius."""


@claim(
    "E1",
    "Volume of a p-ball",
    kind="identity",
    statement=r"""
    In dimension $n$ the ball of radius $R$ of the norm $\|x\|_p=\left(\sum_i|x_i|^p\right)^{1/p}$ has the
    volume
    $$V_n^p(R)=\frac{\left(2R\,\Gamma(1+1/p)\right)^n}{\Gamma(1+n/p)},\qquad
    V_n^p(R)\sim\sqrt{\frac{p}{2\pi n}}\left(2R\,\Gamma(1+1/p)\left(\frac{pe}{n}\right)^{1/p}\right)^n .$$
    """,
    refuted_by="a share of points of a cube inside the ball that differs from the formula by more than three "
    "standard errors, or a ratio to the asymptotic form that does not go to 1",
    seconds={"quick": 0.3, "standard": 5},
    planted={"factor": 1.05},
    erratum=Erratum(
        quote=r"Avec $\|u\|_p$ la norme p définie comme $\|u\|_p^p=\sum_{i=1}^nx_i^p$",
        place="notes C.1",
        written=r"$\|u\|_p^p=\sum_i x_i^p$, and the ball is the set where $\sum_i x_i^p\le R^p$.",
        corrected=r"$\|u\|_p^p=\sum_i|x_i|^p$.",
        why=r"For odd $p$ a negative coordinate would be subtracted: $x^3+y^3\le1$ holds on a half plane, "
        r"whose area has no bound. The proof itself uses $|x|^p$.",
    ),
    details=r"""
    The check draws points from the cube around balls of several radii and counts those inside, which knows
    nothing of the gamma function, and repeats with the set as it is printed for $p=3$ in squares of growing
    size. Stirling's formula makes the asymptotic form too large by the factor $1+p/(12n)$, seen here to
    dimension a million, where the volume itself has two million digits after the point and only its logarithm
    can be held.
    """,
    references=("Wang (2005), Volumes of generalized unit balls, Mathematics Magazine 78(5)",),
)
def volume_formula(run: Running, factor: float = 1.0) -> Evidence:
    """Points of a cube are counted inside balls; `factor` multiplies the formulas."""
    count, random = run.pick(100_000, 2_000_000), run.random()
    numbers = []
    for p, n, radius in COUNTED:
        points = random.uniform(-radius, radius, (count, n))
        share = float((np.sum(np.abs(points) ** p, axis=1) <= radius**p).mean())
        cube = (2 * radius) ** n
        error = cube * math.sqrt(share * (1 - share) / count)
        name = f"volume for p = {p:g}, n = {n}, R = {radius:g}"
        numbers.append(agrees(name, cube * share, error, factor * balls.volume(n, p, radius)))
    for p, n, radius in ((1.0, 100, 1.0), (2.0, 100, 0.7), (3.0, 300, 2.0), (2.0, 10**6, 1.0)):
        ratio = factor * math.exp(balls.log_volume_asymptotic(n, p, radius) - balls.log_volume(n, p, radius))
        # 1 + p/(12n) up to its square, and rounding of two logarithms of size n·ln n.
        rounding = 1e-15 * n * math.log(n)
        name = f"asymptotic form over volume, p = {p:g}, n = {n}, R = {radius:g}"
        numbers.append(close(name, ratio, 1 + p / (12 * n), 0, (p / (12 * n)) ** 2 + rounding))
    return Evidence(numbers, as_written=_as_printed(), pictures=[balls_by_dimension(), _unit_balls()])


def _as_printed() -> list[Number]:
    """The area of the set where x³ + y³ ≤ 1, within squares that would each hold the whole unit ball."""
    numbers = []
    for half in (2.0, 8.0):
        grid = np.linspace(-half, half, 801)[:-1] + half / 800
        x, y = np.meshgrid(grid, grid)
        area = float((x**3 + y**3 <= 1).mean() * (2 * half) ** 2)
        formula = balls.volume(2, 3.0)
        numbers.append(
            close(f"area where x³ + y³ ≤ 1, in a square of side {2 * half:g}", area, formula, 0.01)
        )
    return numbers


def _unit_balls() -> Picture:
    angles = np.linspace(0, 2 * np.pi, 241)
    directions = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    panels = []
    for p, name in NORMS:
        edge = directions / np.linalg.norm(directions, p, axis=1, keepdims=True)
        line = Series(f"p = {name}", edge[:, 0].tolist(), edge[:, 1].tolist(), style="area")
        panels.append(Panel(f"Norm {name}", "x (no unit)", "y (no unit)", [line], equal=True))
    caption = "The points of the plane whose norm is at most 1, for three norms; areas 2, π and 4."
    return Picture(caption, panels, "notes fig. C.2")


@claim(
    "E1b",
    "The volume rises, then vanishes",
    kind="shape",
    statement=r"""
    The volume of the Euclidean unit ball grows up to dimension 5 and then falls to 0, faster than any
    exponential; for every finite $p$ and radius it falls in the end. Only the cube, $p=\infty$, with a radius
    above $1/2$ does not: its volume is $(2R)^n$.
    """,
    refuted_by="a largest volume in another dimension than 5, a ratio of successive volumes that does not "
    "fall "
    "to 0 for a finite p, or a cube whose volume falls",
    seconds={"quick": 0.05},
    planted={"radius": 2.0},
    details=r"""
    The check goes from one dimension to the next by integrating over slices,
    $V_n=V_{n-1}\int_{-1}^{1}(1-|x|^p)^{(n-1)/p}dx$, numerically and without the formula. The ratio of
    successive volumes falls as $n^{-1/p}$. The course speaks of any norm, and its own figure shows the
    cube; a large ball, too, has its maximum late: at radius 2 in dimension 24.
    """,
    references=("Wang (2005), Volumes of generalized unit balls, Mathematics Magazine 78(5)",),
)
def rise_and_fall(run: Running, radius: float = 1.0) -> Evidence:
    """Volumes slice by slice; `radius` scales the balls, which moves the maximum."""
    most = 60
    nodes, weights = np.polynomial.legendre.leggauss(200)
    places, halves = (nodes + 1) / 2, weights / 2
    volumes: dict[str, np.ndarray] = {}
    for p, name in NORMS:
        slices = [
            2 * halves @ (1 - places**p) ** ((n - 1) / p) if p < math.inf else 2.0 for n in range(1, most + 1)
        ]
        volumes[name] = np.cumprod(radius * np.array(slices))
    euclid = volumes["2"]
    ratios = euclid[1:] / euclid[:-1]
    numbers = [
        same("dimension of the largest Euclidean ball", int(euclid.argmax()) + 1, 5),
        close("its volume", float(euclid.max()), 8 * math.pi**2 / 15, 1e-4),
        same("volumes fall from there on", bool(np.all(np.diff(euclid[4:]) < 0)), True),
        close(
            "slope of ln(V_n/V_(n−1)) against ln n, n = 30 to 60",
            float(np.polyfit(np.log(np.arange(30, most + 1)), np.log(ratios[28:]), 1)[0]),
            -0.5,
            0.02,
        ),
        at_most("largest p = 1 volume past dimension 2", float(volumes["1"][2:].max()), 2.0),
        at_least("volume of the cube in dimension 60", float(volumes["∞"][-1]), 1e18),
    ]
    shown = range(1, 31)
    series = [
        Series(f"p = {name}", shown, values[:30].tolist()) for name, values in volumes.items() if name != "∞"
    ]
    logs = [Series(f"p = {name}", range(1, most + 1), values.tolist()) for name, values in volumes.items()]
    panels = [
        Panel("Norms 1 and 2", "dimension n", "volume (unit of length to the n)", series),
        Panel("With the cube", "dimension n", "volume (unit of length to the n)", logs, y_log=True),
    ]
    caption = "Volumes of unit balls, integrated slice by slice. Finite norms vanish, the cube grows."
    return Evidence(numbers, pictures=[Picture(caption, panels, "notes fig. C.3")])
