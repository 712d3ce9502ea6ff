"""E3: features without information bury those that have some, for all that goes by distance."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from scipy.cluster.vq import kmeans2

from apoint import data as datasets
from apoint.book.claim import claim
from apoint.book.evidence import Evidence, Number, agrees, at_least, at_most, between
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.theory import concentration

DISTANCE = 2.0
DIMENSIONS = (2, 10, 50, 200, 1000)
NOISE = (0, 64, 256, 1024, 4096)


@claim(
    "E3b",
    "Noise features bury the useful ones",
    kind="size",
    statement=r"""
    Two Gaussian classes whose centres are $2\delta$ apart in $n$ dimensions are told apart by the nearer of
    two examples, or of two means of $m$ examples, with the probability
    $$P\bigl(\chi_n'^2(\lambda_+)>\chi_n'^2(\lambda_-)\bigr),\qquad
    \lambda_\pm=\tfrac{\delta^2}{2}\Bigl(\sqrt{2m}\pm\bigl(1+\tfrac1{2m}\bigr)^{-1/2}\Bigr)^2,$$
    with two independent non-central $\chi^2$. What differs between the classes stays the same as noise
    features are added, and yet this falls to one half, as $n^{-1/2}$. On handwritten digits, noise features
    take nearest neighbours and clusters down in the same way.
    """,
    refuted_by="a drawn accuracy that differs from the formula by more than three standard errors, an excess "
    "over one half that does not fall as the root of the dimension, or digits that 4096 noise features leave "
    "as easy to recognise or to cluster",
    seconds={"quick": 5, "standard": 25},
    planted={"factor": 1.06},
    details=r"""
    For a query $q$ of the first class and estimated centres $a$, $b$ the difference of squared distances is
    $2\,(q-\frac{a+b}2)\cdot(a-b)$, a product of two independent Gaussian vectors $u\cdot s$, and
    $4\,u\cdot s=\lVert u+s\rVert^2-\lVert u-s\rVert^2$ with both terms independent once $u$ and $s$ are
    scaled to the same variance. The planted error makes $\delta$ 6 % larger.

    Digits have 64 pixels, scaled to a mean variance of 1 as the noise has. The bars were set beforehand: the
    five nearest of 1000 examples lose at least 0.3 of accuracy and $k$-means at least 0.2 of purity by 4096
    noise features. A linear model could give noise a weight of 0; a distance cannot. This is about features
    without information: a useful one added makes $\delta$ larger, and helps.
    """,
    references=(
        "Beyer et al. (1999), When is “nearest neighbor” meaningful?, ICDT",
        "Hastie, Tibshirani and Friedman (2009), The elements of statistical learning, section 13.4",
    ),
)
def noise_features(run: Running, factor: float = 1.0) -> Evidence:
    """Drawn Gaussian classes against the formula, whose δ `factor` multiplies; then digits with noise."""
    random, numbers = run.random(), list[Number]()
    trials = run.pick(6000, 60_000)
    drawn: dict[int, list[tuple[float, float]]] = {}
    for examples in (1, 10):
        for n in DIMENSIONS:
            share = _drawn(n, examples, trials, random)
            error = math.sqrt(share * (1 - share) / trials)
            drawn.setdefault(examples, []).append((share, error))
            exact = concentration.nearest_mean_accuracy(n, factor * DISTANCE, examples)
            if n in (10, 50, 200):
                numbers.append(agrees(f"accuracy, n = {n}, m = {examples}", share, error, exact))
    large = [concentration.nearest_mean_accuracy(n, DISTANCE) - 0.5 for n in (10**5, 10**6)]
    slope = math.log10(large[1] / large[0])
    numbers.append(between("power of n with which the excess over 1/2 falls", slope, -0.505, -0.495))
    scores = {
        name: np.array([score(noise, run.random(f"{name} {noise}")) for noise in NOISE])
        for name, score in (("5 nearest neighbours", _neighbours), ("k-means, purity", _purity))
    }
    for (name, found), bar in zip(scores.items(), (0.3, 0.2), strict=True):
        numbers.append(at_least(f"lost by 4096 noise features, {name}", found[0] - found[-1], bar))
    numbers.append(at_least("accuracy of neighbours without noise", scores["5 nearest neighbours"][0], 0.9))
    most = float(np.max(np.diff(scores["5 nearest neighbours"])))
    numbers.append(at_most("largest rise of it from one number of noise features to the next", most, 0.0))
    return Evidence(numbers, pictures=[_picture(drawn, scores)])


def _drawn(n: int, examples: int, trials: int, random: np.random.Generator) -> float:
    """The share of right answers; each trial has a training set of its own."""
    hits = 0
    for _ in range(10):
        own, other, query = random.standard_normal((3, trials // 10, n), dtype=np.float32)
        own /= math.sqrt(examples)
        other /= math.sqrt(examples)
        own[:, 0] += DISTANCE
        other[:, 0] -= DISTANCE
        query[:, 0] += DISTANCE
        near, far = query - own, query - other
        hits += int((np.einsum("ij,ij->i", near, near) < np.einsum("ij,ij->i", far, far)).sum())
    return hits / (trials // 10 * 10)


@cache
def _digits() -> tuple[np.ndarray, np.ndarray]:
    data = datasets.load("digits", normalise=False)
    images = data.train.inputs.flatten(1).numpy().astype(np.float64)
    images -= images.mean(0)
    return images / math.sqrt(images.var(0).mean()), data.train.targets.numpy()


def _with_noise(noise: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    images, labels = _digits()
    return np.hstack([images, random.standard_normal((len(images), noise))]), labels


def _neighbours(noise: int, random: np.random.Generator) -> float:
    """The accuracy of the five nearest of 1000 examples."""
    rows, labels = _with_noise(noise, random)
    seen, new = rows[:1000], rows[1000:]
    squares = (seen**2).sum(1) - 2 * new @ seen.T
    nearest = np.argpartition(squares, 5, axis=1)[:, :5]
    votes = np.stack([(labels[nearest] == digit).sum(1) for digit in range(10)])
    return float((votes.argmax(0) == labels[1000:]).mean())


def _purity(noise: int, random: np.random.Generator) -> float:
    """The share of digits that are the most frequent one of their cluster, best fit of five starts."""
    rows, labels = _with_noise(noise, random)
    found = []
    for _ in range(5):
        centres, names = kmeans2(rows, 10, iter=20, minit="++", rng=random)
        found.append((float(((rows - centres[names]) ** 2).sum()), names))
    names = min(found, key=lambda one: one[0])[1]
    most = sum(np.bincount(labels[names == one]).max() for one in range(10) if (names == one).any())
    return float(most / len(labels))


def _picture(drawn: dict[int, list[tuple[float, float]]], scores: dict[str, np.ndarray]) -> Picture:
    grid = np.unique(np.geomspace(2, 1000, 40).astype(int))
    lines = []
    for examples, found in drawn.items():
        exact = [concentration.nearest_mean_accuracy(int(n), DISTANCE, examples) for n in grid]
        lines.append(Series(f"exact, m = {examples}", grid.tolist(), exact))
        shares, errors = np.array(found).T
        low, high = shares - 2 * errors, shares + 2 * errors
        lines.append(
            Series(
                f"drawn, m = {examples}", DIMENSIONS, shares.tolist(), low.tolist(), high.tolist(), "points"
            )
        )
    count = 64 + np.array(NOISE)
    digits = [Series(name, count.tolist(), values.tolist()) for name, values in scores.items()]
    panels = [
        Panel("Two Gaussian classes, δ = 2", "dimension n", "accuracy", lines, x_log=True),
        Panel("Digits: 64 pixels and noise", "features", "share right", digits, x_log=True),
    ]
    caption = (
        "Left: the nearer of two means of m examples; dots are draws, with two standard errors. Right: one "
        "draw of the noise for each number of features; guessing gives 0.1."
    )
    return Picture(caption, panels)
