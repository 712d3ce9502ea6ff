"""D7: proper scores, and whether a model that minimises one says true probabilities."""

from __future__ import annotations

import numpy as np
from scipy import integrate, optimize

from apoint.book.claim import claim
from apoint.book.evidence import Evidence, Number, agrees, at_least, at_most, between, close
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.probes.calibration import binned_error, mass_bins, reliability
from apoint.theory import scores

Table = np.ndarray


@claim(
    "D7",
    "Proper scores ask for the truth",
    kind="identity",
    statement=r"""
    The log score (cross-entropy), the Brier score and the spherical score are strictly proper: if class $y$
    has the probability $p_y$, the forecast $q=p$ and no other has the lowest expected score. The absolute
    score is not: its best forecast puts everything on the likeliest class.
    """,
    refuted_by="a true distribution for which one of the three scores is lower at another forecast",
    seconds={"quick": 1, "standard": 6},
    planted={"factor": 1.05},
    details=r"""
    Truths of two and three classes are drawn and the expected score is minimised over logits by a search that
    does not know the answer, with what each class is charged counted class by class. Charging one class 5 %
    more than the score says moves the best forecast away from the truth: propriety is exact or not there. The
    picture has the expected score of forecasts of one event for a truth of 0.7.
    """,
    references=("Gneiting and Raftery (2007), Strictly proper scoring rules, prediction, and estimation",),
)
def propriety(run: Running, factor: float = 1.0) -> Evidence:
    """Best forecasts by a search, against the truth; `factor` multiplies what the first class is charged."""
    random = run.random()
    farthest: dict[str, float] = {}
    truths = [random.dirichlet(np.full(k, 2.0)) for k in (2, 3) for _ in range(run.pick(6, 60))]
    for name in ("log", "brier", "spherical"):
        gaps = [float(np.abs(_best(name, truth, random, factor) - truth).max()) for truth in truths]
        farthest[name] = max(farthest.get(name, 0.0), max(gaps))
    extreme = [float(_best("absolute", truth, random)[int(np.argmax(truth))]) for truth in truths]
    numbers = [
        # The search ends at a gradient of 1e-7 and the scores are quadratic about their minimum.
        at_most(f"{name}: farthest best forecast from the truth", gap, 1e-4)
        for name, gap in farthest.items()
    ]
    numbers += [_by_theory(name, truths, random, factor) for name in scores.SCORES]
    numbers.append(
        at_least("absolute: least share that its best forecast puts on one class", min(extreme), 0.99)
    )
    return Evidence(numbers, pictures=[_curves(0.7)])


def _best(name: str, truth: Table, random: np.random.Generator, factor: float = 1.0) -> Table:
    """The forecast that a search over logits ends with, from a start of its own."""

    def forecast(logits: Table) -> Table:
        shifted = np.exp(logits - logits.max())
        return np.asarray(shifted / shifted.sum())

    def objective(logits: Table) -> float:
        q = forecast(logits)
        return _expected(name, q, truth, factor)

    found = optimize.minimize(objective, 0.1 * random.standard_normal(len(truth)), options={"gtol": 1e-7})
    return forecast(found.x)


def _expected(name: str, q: Table, truth: Table, factor: float) -> float:
    """The expected score, class by class; `factor` multiplies what the first class is charged."""
    return float(sum(p * _charge(name, q, y) * (1.0 if y else factor) for y, p in enumerate(truth)))


def _by_theory(name: str, truths: list[Table], random: np.random.Generator, factor: float) -> Number:
    """The same sum against the library's own scores, at drawn forecasts."""
    apart = 0.0
    for truth in truths:
        q = random.dirichlet(np.ones(len(truth)))
        apart = max(apart, abs(_expected(name, q, truth, factor) - float(scores.expected(name, q, truth))))
    return at_most(f"{name}: expected score by classes less the library's", apart, 1e-12)


def _charge(name: str, q: Table, happened: int) -> float:
    """What a forecast is charged, from the definition with the indicator written out."""
    truth = np.eye(len(q))[happened]
    if name == "log":
        return float(-np.log(max(q[happened], 1e-300)))
    if name == "brier":
        return float(((q - truth) ** 2).sum())
    if name == "spherical":
        return float(-(q @ truth) / np.sqrt(q @ q))
    return float(np.abs(q - truth).sum())


def _curves(truth: float) -> Picture:
    grid = np.linspace(0.02, 0.98, 97)
    forecasts = np.stack([grid, 1 - grid], 1)
    lines = []
    for name in scores.SCORES:
        values = scores.expected(name, forecasts, np.array([truth, 1 - truth]))
        lines.append(Series(name, grid.tolist(), (values - values.min()).tolist()))
    lines.append(Series("truth", [truth, truth], [0, 1], style="dashed"))
    panel = Panel(
        f"An event of probability {truth:g}",
        "forecast probability (no unit)",
        "expected score above its least (no unit)",
        lines,
    )
    return Picture("Three scores are least at the truth; the absolute one at 1.", [panel], "notes annex A")


@claim(
    "D7b",
    "What could be gained tells of calibration",
    kind="bound",
    statement=r"""
    For predictions $v$ of an event $y$ let
    $\operatorname{smCE}=\sup_\eta\mathbb{E}[(y-v)\eta(v)]$ over 1-Lipschitz $\eta:[0,1]\to[-1,1]$, and let
    $\operatorname{pGap}$ be what the squared loss gains by the best change $\kappa(v)$ of the predictions
    with $\kappa(v)-v$ 1-Lipschitz. Then
    $$\operatorname{smCE}^2\leq\operatorname{pGap}\leq 2\operatorname{smCE}.$$
    So a model is calibrated if and only if no simple change of its outputs would lower its loss.
    """,
    refuted_by="predictions for which one of the two inequalities fails",
    seconds={"quick": 3, "standard": 60},
    planted={"factor": 0.95},
    details=r"""
    smCE comes from a linear program, pGap from least squares with box constraints, on predictions of many
    kinds: over- and under-confident, alternating, constant, drawn at random. A constant prediction has
    $\operatorname{pGap}=\operatorname{smCE}^2$, so the left side cannot be improved; two predictions on each
    side of one half, as near to each other as one likes, with truths 0 and 1, come near the right side.
    """,
    references=(
        "Błasiok, Gopalan, Hu and Nakkiran (2023), When does optimizing a proper loss yield calibration?",
    ),
)
def two_sides(run: Running, factor: float = 1.0) -> Evidence:
    """Both quantities on many kinds of predictions; `factor` multiplies the right side."""
    cases = _cases(run.random(), run.pick(40, 400), run.pick(40, 120))
    errors = np.array([scores.smooth_calibration_error(v, y, m) for v, y, m in cases])
    gaps = np.array([scores.post_processing_gap(v, y, m) for v, y, m in cases])
    lower, upper = gaps / errors**2, gaps / (2 * factor * errors)
    order = np.geomspace(errors.min(), errors.max(), 60)
    panel = Panel(
        "Each dot a set of predictions",
        "smooth calibration error smCE (no unit)",
        "post-processing gap pGap (no unit)",
        [
            Series("predictions", errors.tolist(), gaps.tolist(), style="points"),
            Series("smCE²", order.tolist(), (order**2).tolist(), style="dashed"),
            Series("2·smCE", order.tolist(), (2 * order).tolist(), style="dashed"),
        ],
        x_log=True,
        y_log=True,
    )
    caption = f"{len(cases)} sets of predictions; both numbers are exact, by linear and quadratic programs."
    return Evidence(
        [
            # Both programs are solved to 1e-9 or so.
            at_least("least pGap over smCE²", float(lower.min()), 1 - 1e-6),
            at_most("largest pGap over 2·smCE", float(upper.max()), 1 + 1e-6),
            at_most("the left side is attained: least pGap over smCE²", float(lower.min()), 1 + 1e-6),
            at_least(
                "the right side is approached: largest pGap over 2·smCE",
                float((gaps / 2 / errors).max()),
                0.98,
            ),
        ],
        pictures=[Picture(caption, [panel])],
    )


def _cases(random: np.random.Generator, count: int, atoms: int) -> list[tuple[Table, Table, Table]]:
    """Predictions, the true probability at each, and how frequent each is."""
    cases = [(np.array([0.5]), np.array([1.0]), np.array([1.0]))]
    grid = np.linspace(0.01, 0.99, atoms)
    even = np.full(atoms, 1 / atoms)
    for sharpness in (0.5, 0.8, 1.3, 2.0, 4.0):
        odds = (grid / (1 - grid)) ** sharpness
        cases.append((grid, odds / (1 + odds), even))
    # Close predictions whose truths alternate: an η that may change only slowly sees almost nothing.
    for period in (2, 4, 8):
        close_by = 0.5 + 0.2 * np.linspace(-1, 1, atoms)
        wave = np.sin(2 * np.pi * np.arange(atoms) / period + 0.7)
        cases.append((close_by, np.clip(close_by + 0.02 * wave, 0, 1), even))
    # The Lipschitz η is small where the error is large, so that its square hardly matters.
    cases += [(np.array([0.5 - d, 0.5 + d]), np.array([0.0, 1.0]), np.full(2, 0.5)) for d in (0.01, 0.1)]
    cases.append(_overlap_case(atoms))
    for _ in range(count):
        v = np.sort(random.random(int(random.integers(2, atoms))))
        truth = np.clip(v + random.normal(0, random.choice([0.02, 0.2, 0.6]), len(v)), 0, 1)
        cases.append((v, truth, random.dirichlet(np.ones(len(v)))))
    return cases


# -- the best of a class that cannot say the truth -----------------------------------------------------------


def density(x: Table) -> tuple[Table, Table]:
    """Density of x and probability of y = 1: y is a coin, x uniform on [−3, 1] for 0 and [−1, 3] for 1."""
    zero, one = (x >= -3) & (x <= 1), (x >= -1) & (x <= 3)
    total = (zero / 4 + one / 4) / 2
    return np.asarray(total), np.asarray(np.where(total > 0, one / 8 / np.maximum(total, 1e-300), 0.5))


def best_slope() -> float:
    """The slope of the logistic regression with the least expected log loss, by quadrature."""

    def objective(slope: float) -> float:
        def integrand(x: float) -> float:
            mass, truth = density(np.array([x]))
            z = slope * x
            loss = truth * np.logaddexp(0, -z) + (1 - truth) * np.logaddexp(0, z)
            return float((mass * loss)[0])

        return float(integrate.quad(integrand, -3, 3, points=(-1, 1), limit=200)[0])

    return float(
        optimize.minimize_scalar(objective, bounds=(0.1, 5), method="bounded", options={"xatol": 1e-8}).x
    )


def _overlap_case(atoms: int, slope: float = 1.447) -> tuple[Table, Table, Table]:
    x = -3 + 6 * (np.arange(atoms) + 0.5) / atoms
    mass, truth = density(x)
    return 1 / (1 + np.exp(-slope * x)), truth, mass / mass.sum()


@claim(
    "D7c",
    "A proper loss is not enough",
    kind="size",
    statement=r"""
    Minimising a proper loss yields calibrated predictions if the class of models can be post-processed; if it
    cannot, the best model of the class may be miscalibrated. With $x$ uniform on $[-3,1]$ for $y=0$ and on
    $[-1,3]$ for $y=1$, the logistic regression with the lowest cross-entropy of all has the slope 1.447
    and an expected calibration error of 0.118, while a model that always says one half is calibrated and
    worse.
    """,
    refuted_by="a best logistic regression whose predictions agree with frequencies, or a change of its "
    "outputs that does not lower its loss",
    seconds={"quick": 2, "standard": 20},
    planted={"factor": 1.05},
    details=r"""
    The slope comes from numerical integration, the calibration error from an integral in closed form and from
    drawn points.
    With the middle third of $x$ the truth is one half and the model says anything between 0.19 and 0.81. The
    smooth calibration error is ten times smaller than the binned one, since errors of both signs lie
    near each other. The reliability diagram has exact 95 % intervals.
    """,
    references=(
        "Błasiok, Gopalan, Hu and Nakkiran (2023), When does optimizing a proper loss yield calibration?",
    ),
)
def best_is_miscalibrated(run: Running, factor: float = 1.0) -> Evidence:
    """The best logistic regression and its calibration; `factor` multiplies the numbers of the statement."""
    slope, count, random = best_slope(), run.pick(20_000, 400_000), run.random()
    side = random.integers(2, size=count)
    x = random.uniform(-3, 1, count) + 2 * side
    v = 1 / (1 + np.exp(-slope * x))
    y = side.astype(float)
    bins = 20
    measured = binned_error(v, y, mass_bins(v, bins))
    spread = [_resampled(v, y, bins, random) for _ in range(30)]
    diagram = reliability(v, y, bins)
    places, truth, masses = _overlap_case(run.pick(300, 600), slope)
    exact = _expected_calibration_error(slope)
    smooth = scores.smooth_calibration_error(places, truth, masses)
    gap = scores.post_processing_gap(places, truth, masses)
    half = scores.smooth_calibration_error(np.full(2, 0.5), np.array([0.0, 1.0]))
    lines = [
        Series(
            "best logistic regression",
            diagram["confidence"],
            diagram["accuracy"],
            diagram["low"],
            diagram["high"],
            "points",
        ),
        Series("calibrated", [0, 1], [0, 1], style="dashed"),
    ]
    panel = Panel(
        "Reliability", "predicted probability (no unit)", "share of ones (no unit)", lines, equal=True
    )
    caption = f"{count:,} drawn points in {bins} bins of equal mass, with exact 95 % intervals."
    return Evidence(
        [
            # Each to the digits that the statement gives.
            close("slope of the best logistic regression", slope, 1.447 * factor, absolute=5e-4),
            close("expected calibration error, exactly", exact, 0.118 * factor, absolute=5e-4),
            # Bins lose a little of what differs within them, and noise adds a little.
            agrees("binned calibration error of points", measured, float(np.std(spread)) + 0.002, exact),
            between("smooth calibration error", smooth, 0.011, 0.0135),
            at_least("what post-processing would gain", gap, 0.01),
            close("smooth calibration error of always one half", half, 0.0, 0, 1e-12),
        ],
        pictures=[Picture(caption, [panel], "notes annex A, bibliography")],
    )


def _expected_calibration_error(slope: float) -> float:
    """E|P(y = 1 | x) − v(x)|: the truth is one half on [−1, 1], of mass 1/2, and certain beyond."""
    inner = (np.logaddexp(0, slope) - np.log(2)) / slope - 0.5
    outer = (np.logaddexp(0, -slope) - np.logaddexp(0, -3 * slope)) / slope
    return float(inner / 2 + outer / 4)


def _resampled(v: Table, y: Table, bins: int, random: np.random.Generator) -> float:
    chosen = random.integers(len(v), size=len(v))
    return binned_error(v[chosen], y[chosen], mass_bins(v[chosen], bins))
