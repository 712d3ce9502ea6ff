"""E5: is a new point interpolated or extrapolated? For Gaussians in theory, and on images of digits."""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from apoint.book.claim import claim
from apoint.book.evidence import Evidence, Number, agrees, at_least, at_most, between, close
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.theory import hull

BALESTRIERO = "Balestriero, Pesenti and LeCun (2021), arXiv 2110.09485"


@claim(
    "E5",
    "Interpolation takes exponentially many points",
    kind="size",
    statement=r"""
    A new Gaussian point in dimension $d$ lies in the convex hull of $N$ others with probability one half only
    once $N$ is about 135 for $d=5$, 555 for $d=7$, 3934 for $d=10$ and $4\cdot10^{24}$ for $d=100$: $\ln N$
    grows by a little more than one half per dimension. In dimension 100 interpolation never happens.
    """,
    refuted_by="a share of drawn points inside that differs from the exact one by more than three standard "
    "errors, an exact one that differs from an integral on the line or in the plane, or a growth of ln N "
    "per dimension outside 0.5 to 0.7",
    seconds={"quick": 5, "standard": 60},
    planted={"factor": 1.05},
    details=r"""
    The exact probability is that of not being a corner of the hull of all $N+1$, which is a random
    projection of a regular simplex, so that its angles decide. The draws know nothing of this: each point
    is decided by least squares or a linear programme whose solution proves its own answer, by weights for a
    point inside and by a separating plane for one outside. Draws see errors of a tenth; that the formula is
    right to many digits is seen where the answer is an integral: on the line a new point is an end of all
    $N+1$ with probability $2/(N+1)$, and in the plane it is a corner with probability
    $N\,\mathbb{E}[\Phi(h)^{N-1}]$, with $h$ normal of variance 1/2 the distance of a line through two points
    from the centre. The often quoted threshold $2^{d/2}/d$ (Bárány
    and Füredi) is 3 for $d=10$ and tells nothing at such sizes; it speaks of the limit of large $d$ and of
    all points at once.
    """,
    references=(
        BALESTRIERO,
        "Kabluchko and Zaporozhets (2020), Absorption probabilities for Gaussian polytopes, arXiv 1704.04968",
    ),
)
def gaussian_hulls(run: Running, factor: float = 1.0) -> Evidence:
    """Drawn points and integrals against the exact probability, which `factor` multiplies."""
    random = run.random()
    numbers = []
    drawn: dict[int, list[tuple[int, float, float]]] = {}
    for d, counts in ((5, (40, 135, 400)), (7, (150, 555, 1500)), (10, (1000, 3934))):
        for count in counts:
            sets, each = run.pick(40, 400) if count < 1000 else run.pick(25, 200), 20
            share, error = _share(d, count, sets, each, random)
            drawn.setdefault(d, []).append((count, share, error))
            expected = factor * hull.probability_inside(count, d)
            numbers.append(agrees(f"share inside, d = {d}, N = {count}", share, error, expected))
    numbers += _integrals(factor)
    for d, count in ((5, 135), (7, 555), (10, 3934)):
        before, after = (factor * hull.probability_inside(count - one, d) for one in (1, 0))
        numbers.append(at_least(f"chance with N = {count}, d = {d}", after, 0.5))
        numbers.append(at_most("the same with one point fewer", before, 0.5))
    # N is given to one digit, within which the chance changes by 0.01.
    far = factor * hull.probability_inside(4 * 10**24, 100)
    numbers.append(close("chance with N = 4·10²⁴, d = 100", far, 0.5, absolute=0.01))
    growth = math.log(hull.half_inside_count(100) / hull.half_inside_count(10)) / 90
    numbers.append(between("growth of ln N per dimension, d = 10 to 100", growth, 0.5, 0.7))
    chance = hull.probability_inside(10**6, 100)
    numbers.append(at_most("chance to be inside a million points, d = 100", chance, 1e-6))
    return Evidence(numbers, pictures=[_picture(drawn)])


def _integrals(factor: float) -> list[Number]:
    """The chance on the line and in the plane, where one integral gives it."""
    nodes, weights = np.polynomial.hermite.hermgauss(200)  # for the weight exp(−h²), of a variance of 1/2
    numbers = []
    for count in (3, 20, 200):
        line = 1 - 2 / (count + 1)
        plane = 1 - count * float(weights @ special.ndtr(nodes) ** (count - 1)) / math.sqrt(math.pi)
        for d, expected in ((1, line), (2, plane)):
            chance = factor * hull.probability_inside(count, d)
            numbers.append(close(f"chance by an integral, d = {d}, N = {count}", chance, expected, 1e-9))
    return numbers


def _share(d: int, count: int, sets: int, each: int, random: np.random.Generator) -> tuple[float, float]:
    """The share of new points inside, over several data sets, and its standard error."""
    shares = []
    for _ in range(sets):
        points, queries = random.standard_normal((count, d)), random.standard_normal((each, d))
        shares.append(hull.inside(points, queries).mean())
    overall = float(np.mean(shares))
    # Between few sets the spread is itself uncertain; that of independent points is a floor.
    spread = np.std(shares, ddof=1) / math.sqrt(sets)
    return overall, max(float(spread), math.sqrt(overall * (1 - overall) / (sets * each)))


def _picture(drawn: dict[int, list[tuple[int, float, float]]]) -> Picture:
    counts = np.unique(np.geomspace(10, 10**5, 80).astype(int))
    lines = []
    for d, found in drawn.items():
        exact = [hull.probability_inside(int(count), d) for count in counts]
        lines.append(Series(f"exact, d = {d}", counts.tolist(), exact))
        places, shares, errors = np.array(found).T
        low, high = shares - 2 * errors, shares + 2 * errors
        lines.append(
            Series(f"drawn, d = {d}", places.tolist(), shares.tolist(), low.tolist(), high.tolist(), "points")
        )
    dimensions = [1, 2, 3, 5, 7, 10, 15, 20, 30, 45, 60]
    halves = Series("exact", dimensions, [float(hull.half_inside_count(d)) for d in dimensions])
    panels = [
        Panel("New points inside the hull", "points N", "share inside", lines, x_log=True),
        Panel("N for one half", "dimension d", "points N", [halves], y_log=True),
    ]
    caption = "Dots: drawn Gaussian points, with two standard errors. Lines: exact."
    return Picture(caption, panels, "notes C.3")


@claim(
    "E5b",
    "Test images are extrapolated, and recognised",
    kind="direction",
    statement=r"""
    Of handwritten digits described by their first 2 principal components nearly all test images lie in the
    hull of the training images; with 30 components, or with the 30 most variable pixels, hardly any do.
    Meanwhile the nearest neighbour recognises them ever better. So lying inside the hull is not what lets a
    model generalise.
    """,
    refuted_by="a share inside that does not fall below one in ten by 30 dimensions, or an accuracy that "
    "falls with it",
    seconds={"quick": 3, "standard": 20},
    planted={"known_dimensions": 2},
    details=r"""
    Membership is decided in the same way, each answer with its proof. The training images are 1397 of
    scikit-learn's 1797 digits of 8 × 8 pixels, and components are computed from them alone. A user's own
    data can be asked in the same way through `apoint.theory.hull.inside`, in whatever space is chosen:
    pixels, components or the activations of a layer.
    """,
    references=(BALESTRIERO,),
)
def digits_in_hulls(run: Running, known_dimensions: int = 30) -> Evidence:
    """Shares inside and accuracies over dimensions; images keep no more than `known_dimensions` of them."""
    images, labels = _digits()
    order = run.random().permutation(len(images))
    learn, test = order[:1397], order[1397 : 1397 + run.pick(100, 400)]
    known = labels[learn]
    sizes = (2, 4, 6, 8, 12, 20, 30)
    numbers: list[Number] = []
    series, scores = [], []
    for name, spaces in (("principal components", _components), ("pixels", _pixels)):
        seen, new = spaces(images[learn], images[test])
        seen[:, known_dimensions:] = new[:, known_dimensions:] = 0
        shares = np.array([hull.inside(seen[:, :k], new[:, :k]).mean() for k in sizes])
        hits = np.array([_neighbours(seen[:, :k], known, new[:, :k], labels[test]) for k in sizes])
        errors = np.sqrt(np.maximum(shares * (1 - shares), 1 / len(test)) / len(test))
        series.append(_with_errors(name, sizes, shares, errors))
        wrong = np.sqrt(np.maximum(hits * (1 - hits), 1 / len(test)) / len(test))
        scores.append(_with_errors(name, sizes, hits, wrong))
        last, fall, gain = float(shares[-1]), float(shares[0] - shares[-1]), float(hits[-1] - hits[0])
        numbers.append(at_most(f"share inside, 30 {name}", last, 0.1, float(errors[-1])))
        numbers.append(at_least(f"fall of the share, {name}", fall, 0.5, float(errors[0])))
        spread = math.hypot(wrong[0], wrong[-1])
        numbers.append(at_least(f"gain of accuracy meanwhile, {name}", gain, 0.0, spread))
    numbers.append(at_least("share inside, 2 principal components", float(series[0].y[0]), 0.9))
    panels = [
        Panel("Inside the hull", "dimensions", "share of test images", series, x_log=True),
        Panel("Recognised by the nearest", "dimensions", "accuracy", scores, x_log=True),
    ]
    caption = "Test images of digits in the first k components or most variable pixels; two standard errors."
    return Evidence(numbers, pictures=[Picture(caption, panels, "notes C.3")])


def _with_errors(label: str, sizes: tuple[int, ...], values: np.ndarray, errors: np.ndarray) -> Series:
    low, high = values - 2 * errors, values + 2 * errors
    return Series(label, sizes, values.tolist(), low.tolist(), high.tolist())


def _digits() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_digits

    found = load_digits()
    return np.asarray(found.data, dtype=np.float64), np.asarray(found.target)


def _components(learn: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    centre = learn.mean(0)
    axes = np.linalg.svd(learn - centre, full_matrices=False)[2][:30]
    return (learn - centre) @ axes.T, (test - centre) @ axes.T


def _pixels(learn: np.ndarray, test: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    chosen = np.argsort(-learn.var(0))[:30]
    return learn[:, chosen], test[:, chosen]


def _neighbours(learn: np.ndarray, known: np.ndarray, test: np.ndarray, truth: np.ndarray) -> float:
    """The accuracy of the nearest training image."""
    squares = (learn**2).sum(1)[None] - 2 * test @ learn.T
    return float((known[squares.argmin(1)] == truth).mean())
