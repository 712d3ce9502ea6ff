"""E4: two random directions are nearly orthogonal, with the bound of the course, and how to draw one."""

from __future__ import annotations

import math

import numpy as np

from apoint.book.chapters.e_dimension.sketches import angle
from apoint.book.claim import Erratum, claim
from apoint.book.evidence import Evidence, Number, agrees, at_most, same
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.theory import concentration

DIMENSIONS = (14, 20, 50, 100, 1000, 10**4, 10**6)


@claim(
    "E4",
    "Random directions are nearly orthogonal",
    kind="bound",
    statement=r"""
    For independent directions $x,y$, uniform on the sphere of $\mathbb{R}^n$,
    $$P\left(|\cos(x,y)|\ge t\right)\le 2e^{-nt^2/4},\qquad
    P\left(|\cos(x,y)|\ge\sqrt{\tfrac{4\ln(2n)}{n}}\right)\le\frac1n .$$
    The 4 may be a 2 in both, and no less. A uniform direction is a normalised Gaussian vector.
    """,
    refuted_by="an exact probability above the bound with 2 in place of 4 in any dimension, or normalised "
    "Gaussian vectors whose "
    "cosines do not have the exact distribution",
    seconds={"quick": 0.5, "standard": 8},
    planted={"factor": 0.95},
    erratum=Erratum(
        quote=r"un vecteur construit avec chacune de ses coordonnées sélectionnées aléatoirement entre "
        r"$-1$ et "
        r"$1$. Puis on normalise le vecteur x",
        place="notes C.2, proof of lemma C.1",
        written=r"A point of the sphere is drawn by choosing each coordinate between $-1$ and $1$ and "
        "normalising.",
        corrected=r"By drawing each coordinate from a Gaussian and normalising.",
        why=r"A cube has corners: directions towards them come up more often. The variance $1/n$ of "
        r"a coordinate is right for both, its fourth moment $3/(n(n+2))$ only for the sphere.",
    ),
    details=r"""
    The squared cosine has the distribution $\mathrm{Beta}(1/2,(n-1)/2)$, so that the bound is compared with
    an exact probability and not with draws. The constant 4 leaves room; with 2 the
    bound still holds, and with 1.9 it fails twelve standard deviations out, since a cosine is nearly
    Gaussian. Up to
    $n=13$ the threshold is above 1 and the second bound says nothing. A normalised point of the cube is
    nearly as good for large $n$, but not uniform: in three dimensions its fourth moment along an axis is a
    tenth too small, and caps around the diagonals hold a third too many.
    """,
    references=("Vershynin (2018), High-dimensional probability, chapter 3",),
)
def near_orthogonality(run: Running, factor: float = 1.0) -> Evidence:
    """Exact probabilities against the bound; `factor` multiplies its best constant, 2, and the 4."""
    numbers = [_worst_ratio(4 * factor), _worst_ratio(2 * factor)]
    for n in DIMENSIONS:
        for divisor in (4.0, 2.0):
            threshold = concentration.orthogonality_threshold(n, divisor)
            tail = concentration.cosine_tail(n, min(threshold, 1.0))
            numbers.append(at_most(f"n·P(|cos| ≥ threshold with {divisor:g}), n = {n}", n * tail, 1.0))
    vacuous = [n for n in range(1, 100) if concentration.orthogonality_threshold(n) >= 1]
    numbers.append(same("last dimension in which the threshold says nothing", max(vacuous), 13))
    count, random = run.pick(100_000, 2_000_000), run.random()
    gauss = random.standard_normal((count, 3))
    numbers += _moments("normalised Gaussian", gauss)
    cube = random.uniform(-1, 1, (count, 3))
    written = _moments("normalised cube", cube)
    return Evidence(numbers, as_written=written, pictures=[angle(), _cosines(), _how_to_draw(gauss, cube)])


def _worst_ratio(divisor: float) -> Number:
    """The largest ratio of probability to bound over dimensions and thresholds."""
    ratios = [
        concentration.cosine_tail(n, t) / concentration.cosine_bound(n, t, divisor)
        for n in (2, 3, 5, 10, 100, 10**4, 10**6)
        for t in np.minimum(np.linspace(0, 15, 76) / math.sqrt(n), 1).tolist()
    ]
    return at_most(f"largest probability over bound, constant {divisor:g}", float(max(ratios)), 1.0)


def _moments(how: str, vectors: np.ndarray) -> list[Number]:
    """Moments of the cosine with the first axis, and the share of a cap around a corner of the cube."""
    count, n = vectors.shape
    directions = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    first = directions[:, 0]
    corner = np.abs(directions @ np.ones(n) / math.sqrt(n)) >= 0.9
    tail = concentration.cosine_tail(n, 0.9)
    found = [
        (f"{how}: E[cos²] with an axis", first**2, 1 / n),
        (f"{how}: E[cos⁴] with an axis", first**4, 3 / (n * (n + 2))),
        (f"{how}: P(|cos| ≥ 0.9) with a diagonal", corner.astype(float), tail),
    ]
    return [
        agrees(name, float(values.mean()), float(values.std()) / math.sqrt(count), expected)
        for name, values, expected in found
    ]


def _cosines() -> Picture:
    places = np.linspace(-0.995, 0.995, 200)
    lines = [
        Series(f"n = {n}", places.tolist(), concentration.cosine_density(n, places).tolist())
        for n in (2, 3, 10, 100, 1000)
    ]
    dimensions = np.unique(np.geomspace(2, 10**6, 60).astype(int))
    exact = [concentration.cosine_quantile(int(n), 1 / n) for n in dimensions]
    bounds = [concentration.orthogonality_threshold(int(n)) for n in dimensions]
    thresholds = [
        Series("bound of the course", dimensions.tolist(), bounds, style="dashed"),
        Series("exact", dimensions.tolist(), exact),
    ]
    panels = [
        Panel("Distribution of the cosine", "cosine", "density", lines),
        Panel("Exceeded with probability 1/n", "dimension n", "|cosine|", thresholds, x_log=True, y_log=True),
    ]
    caption = "Left: exact density of the cosine of two uniform directions. Right: what it exceeds once in n."
    return Picture(caption, panels, "notes C.2")


def _how_to_draw(gauss: np.ndarray, cube: np.ndarray) -> Picture:
    """The angle in the plane of the first two coordinates of each, which for the sphere is uniform."""
    series = []
    for label, vectors in (("normalised Gaussian", gauss), ("normalised cube", cube)):
        angles = np.degrees(np.arctan2(vectors[:, 1], vectors[:, 0]))
        counts, edges = np.histogram(angles, bins=72, range=(-180, 180), density=True)
        middles = ((edges[1:] + edges[:-1]) / 2).tolist()
        series.append(Series(label, middles, counts.tolist(), style="steps"))
    panel = Panel("Directions in the plane", "angle (degrees)", "density (per degree)", series)
    caption = f"Angles of {len(cube):,} vectors each. The cube prefers its corners, at 45 and 135 degrees."
    return Picture(caption, [panel], "notes C.2")
