"""E3: distances between random points become all alike as the dimension grows."""

from __future__ import annotations

import math

import numpy as np

from apoint.book.claim import claim
from apoint.book.evidence import Evidence, agrees, at_least, at_most, close
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.theory import balls, concentration

DIMENSIONS = (2, 3, 10, 100, 1000)


@claim(
    "E3",
    "Distances concentrate",
    kind="size",
    statement=r"""
    The distance of two points drawn from the unit ball in dimension $n$ has a mean that goes to $\sqrt2$
    and a standard deviation that falls as $1/\sqrt{2n}$. So the nearest of many points is hardly nearer
    than the farthest: their relative contrast $(d_{\max}-d_{\min})/d_{\min}$ falls as $n^{-1/2}$ too.
    """,
    refuted_by="drawn distances whose mean or spread differs from the exact one by more than three standard "
    "errors, or whose relative spread does not fall as the root of the dimension",
    seconds={"quick": 1, "standard": 16},
    planted={"factor": 1.05},
    details=r"""
    The exact moments come from the density of the distance of two points of a ball; the check draws pairs and
    also sets of 100 points around a query. What concentrates is the distance of points *without structure*:
    of data near a surface of few dimensions it is the dimension of that surface that counts, which is why
    nearest neighbours work on images at all.
    """,
    references=(
        "Tu and Fischbach (2002), Random distance distribution for spherical objects, J. Phys. A 35",
        "Beyer et al. (1999), When is “nearest neighbor” meaningful?, ICDT",
    ),
)
def distances_concentrate(run: Running, factor: float = 1.0) -> Evidence:
    """Pairs of points are drawn; `factor` multiplies the exact moments and the limits."""
    pairs, random = run.pick(4000, 60_000), run.random()
    numbers, histograms, contrasts = [], [], []
    for n in DIMENSIONS:
        first, second = balls.sample(pairs, n, 2.0, random), balls.sample(pairs, n, 2.0, random)
        distances = np.linalg.norm(first - second, axis=1)
        mean, deviation = (factor * moment for moment in concentration.ball_distance(n))
        drawn, drawn_error = float(distances.mean()), deviation / math.sqrt(pairs)
        numbers.append(agrees(f"mean distance, n = {n}", drawn, drawn_error, mean))
        # The error of a standard deviation, from the fourth moment of what was drawn.
        centred = distances - distances.mean()
        error = float(math.sqrt((np.mean(centred**4) / centred.var() ** 2 - 1) / (4 * pairs)) * centred.std())
        numbers.append(agrees(f"spread of distances, n = {n}", float(centred.std()), error, deviation))
        contrasts.append(_contrasts(n, run.pick(30, 300), random))
        counts, edges = np.histogram(distances, bins=60, range=(0, 2), density=True)
        middles = ((edges[1:] + edges[:-1]) / 2).tolist()
        histograms.append(Series(f"n = {n}", middles, counts.tolist(), style="steps"))
    # The exact spread, which the draws above confirm; its terms of higher order are of the size 1/n.
    slope = math.log10(_relative_spread(10_000) / _relative_spread(1000))
    numbers.append(close("slope of the relative spread, n = 1000 to 10000", slope, -0.5, absolute=1e-3))
    far, width = concentration.ball_distance(10**7)
    # Both come with terms of the order of 1/n.
    numbers.append(close("mean distance, n = 10⁷, over √2", far / math.sqrt(2), factor, 1e-6))
    numbers.append(close("spread, n = 10⁷, over 1/√(2n)", width * math.sqrt(2e7), factor, 1e-6))
    last = contrasts[-1]
    error = float(last.std()) / math.sqrt(len(last))
    numbers.append(at_most("contrast of 100 neighbours, n = 1000", float(last.mean()), 0.1, error))
    numbers.append(at_least("the same, n = 2", float(contrasts[0].mean()), 2.0))
    return Evidence(numbers, pictures=[_picture(histograms, contrasts)])


def _contrasts(n: int, queries: int, random: np.random.Generator) -> np.ndarray:
    """The relative contrast of 100 points as seen from each of several queries, all drawn from the ball."""
    found = []
    for _ in range(queries):
        points = balls.sample(101, n, 2.0, random)
        found.append(concentration.relative_contrast(np.linalg.norm(points[1:] - points[0], axis=1)))
    return np.array(found)


def _relative_spread(n: int) -> float:
    mean, deviation = concentration.ball_distance(n)
    return deviation / mean


def _picture(histograms: list[Series], contrasts: list[np.ndarray]) -> Picture:
    means = np.array([values.mean() for values in contrasts])
    errors = np.array([2 * values.std() / math.sqrt(len(values)) for values in contrasts])
    low, high = (means - errors).tolist(), (means + errors).tolist()
    line = Series("100 points", DIMENSIONS, means.tolist(), low, high, "points")
    panels = [
        Panel("Distances of two points", "distance (radii)", "density (per radius)", histograms),
        Panel(
            "Contrast of the nearest",
            "dimension n",
            "(farthest − nearest)/nearest",
            [line],
            x_log=True,
            y_log=True,
        ),
    ]
    caption = (
        "Left: distances of pairs drawn from the unit ball. Right: relative contrast, mean over queries with "
        "two standard errors."
    )
    return Picture(caption, panels, "notes fig. C.4")
