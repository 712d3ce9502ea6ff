"""E5: when random points surround their own centre (Wendel)."""

from __future__ import annotations

import itertools
import math

import numpy as np
from scipy.optimize import linprog

from apoint.book.claim import claim
from apoint.book.evidence import Evidence, Number, agrees, at_least, close, same
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.theory import hull

CASES = ((2, 3), (2, 6), (3, 6))


@claim(
    "E5c",
    "Twice as many points as dimensions surround their centre",
    kind="identity",
    statement=r"""
    Draw $N$ points in dimension $d$ from any law that is symmetric about the origin and puts no $d$ of them
    in a plane through it. Their hull contains the origin with probability
    $$1-2^{-(N-1)}\sum_{k=0}^{d-1}\binom{N-1}{k},$$
    whatever the law. That is one half at $N=2d$, and the change from 0 to 1 around it takes only about
    $\sqrt{N}$ points. So the centre of the data is interpolated with 200 points in dimension 100, while a
    *new* point needs $4\cdot10^{24}$ (E5).
    """,
    refuted_by="a number of sign patterns that differs from the formula by even one, or a drawn share that "
    "differs by more than three standard errors",
    seconds={"quick": 2, "standard": 12},
    planted={"factor": 1.06},
    details=r"""
    Take $N$ vectors and give each a sign. Of the $2^N$ patterns exactly $2\sum_{k<d}\binom{N-1}{k}$ leave
    all vectors on one side of some plane, whichever the vectors: that is the number of regions into which
    $N$ planes through the origin cut space (Schläfli), one for each pattern that a half space can have. A
    symmetric law makes all patterns equally likely, and the formula follows. The check counts all patterns
    for two sets of vectors each, by a linear programme that looks for a half space, which is not the one of
    `hull.membership`. It then draws points of heavy tails with very different scales, and asks
    `hull.membership`.

    This is also Cover's count: as many labellings of $N$ points can be separated by a plane through the
    origin, so that a linear classifier of $d$ weights can store $2d$ random labels.
    """,
    references=(
        "Wendel (1962), A problem in geometric probability, Math. Scand. 11",
        "Cover (1965), Geometrical and statistical properties of systems of linear inequalities",
    ),
)
def surrounded_centres(run: Running, factor: float = 1.0) -> Evidence:
    """Counted sign patterns and drawn points against the formula, which `factor` multiplies."""
    random, numbers = run.random(), list[Number]()
    for d, count in CASES:
        expected = factor * hull.probability_around(count, d) * 2**count
        for which in ("first", "second"):
            vectors = random.standard_normal((count, d))
            found = sum(
                not _in_a_half_space(vectors * np.array(signs)[:, None])
                for signs in itertools.product((1, -1), repeat=count)
            )
            numbers.append(close(f"patterns around it, d = {d}, N = {count}, {which} set", found, expected))
    drawn: dict[int, list[tuple[int, float, float]]] = {}
    for d, counts in ((5, (7, 10, 14)), (20, (32, 40, 48))):
        for count in counts:
            share, error = _share(d, count, run.pick(900, 8000), random)
            drawn.setdefault(d, []).append((count, share, error))
            chance = factor * hull.probability_around(count, d)
            numbers.append(agrees(f"share around it, d = {d}, N = {count}", share, error, chance))
    half = hull.probability_around(200, 100)
    numbers.append(close("probability at N = 2d, d = 100", factor * half, 0.5, relative=1e-9))
    numbers.append(at_least("the same at N = 2.5 d", hull.probability_around(250, 100), 0.99))
    numbers.append(same("never with N = d", hull.probability_around(100, 100) == 0, True))
    return Evidence(numbers, pictures=[_picture(drawn)])


def _in_a_half_space(points: np.ndarray) -> bool:
    """Whether some w has w·x ≥ 1 for all points."""
    size = points.shape[1]
    found = linprog(
        np.zeros(size), A_ub=-points, b_ub=-np.ones(len(points)), bounds=[(None, None)] * size, method="highs"
    )
    assert found.status in (0, 2), found.message
    return bool(found.status == 0)


def _share(d: int, count: int, sets: int, random: np.random.Generator) -> tuple[float, float]:
    """The share of sets around the origin, drawn with heavy tails and coordinates of unlike size."""
    scales = np.geomspace(1, 100, d)
    origin = np.zeros((1, d))
    hits = [bool(hull.inside(scales * random.standard_t(3, (count, d)), origin)[0]) for _ in range(sets)]
    share = float(np.mean(hits))
    return share, math.sqrt(max(share * (1 - share), 1 / sets) / sets)


def _picture(drawn: dict[int, list[tuple[int, float, float]]]) -> Picture:
    lines = []
    for d in (2, 5, 20, 100):
        counts = np.unique(np.linspace(d, 4 * d, 60).round().astype(int))
        exact = [hull.probability_around(int(count), d) for count in counts]
        lines.append(Series(f"exact, d = {d}", (counts / d).tolist(), exact))
    for d, found in drawn.items():
        places, shares, errors = np.array(found).T
        low, high = (shares - 2 * errors).tolist(), (shares + 2 * errors).tolist()
        lines.append(Series(f"drawn, d = {d}", (places / d).tolist(), shares.tolist(), low, high, "points"))
    panel = Panel("The origin in the hull of N points", "points by dimension, N/d", "probability", lines)
    caption = (
        "Dots: shares of drawn sets, of Student's t law with coordinates of unlike size, with two standard "
        "errors. The change at N = 2d gets sharper as the dimension grows."
    )
    return Picture(caption, [panel])
