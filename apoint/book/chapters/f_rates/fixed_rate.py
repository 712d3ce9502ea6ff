"""F2: with a fixed rate the gradient stays under a plateau that is proportional to the rate."""

from __future__ import annotations

import math

import numpy as np

from apoint.book.chapters.f_rates.five_problems import both_terms, five_problems, largest_share, start_of
from apoint.book.claim import claim
from apoint.book.evidence import Evidence, Number, agrees, at_most, between
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.theory import stochastic

SHARES = (1.0, 1 / 4, 1 / 8, 1 / 16)
"""Rates, in 1/β."""
QUADRATIC = "mean of numbers"


@claim(
    "F2",
    "The plateau of a fixed rate",
    kind="bound",
    statement=r"""
    Stochastic gradient descent with a fixed rate $\eta\leq1/\beta$ on a $\beta$-smooth loss, convex or not,
    has
    $$\mathbb{E}\left[\frac{1}{T}\sum_{t=0}^{T-1}\|\nabla\mathcal{L}(\theta_t)\|^2\right]\leq
    \eta\beta\sigma^2+\frac{2(\mathcal{L}(\theta_0)-\mathcal{L}^*)}{\eta T}.$$
    In the long run a plateau remains, which noise keeps up and which is proportional to $\eta$.
    """,
    refuted_by="one of five problems whose mean squared gradient is above the bound, or whose plateau does "
    "not halve with the rate",
    seconds={"quick": 6, "standard": 90},
    planted={"factor": 0.95},
    details=r"""
    Chains of descent run side by side on five problems, two of which are not convex. $\sigma^2$ is the
    largest variance that any of them met, $\beta$ is known by hand, and the gradient is that of the whole
    loss. On a quadratic the plateau is known exactly, $\eta\beta\sigma^2/(2-\eta\beta)$: half of the bound
    for small rates, and all of it at $\eta=1/\beta$. The bound is looked at after 1, 2, 5, 10, 50, 200 and
    all steps. From afar a quadratic with $\eta=1/\beta$ stays below it by $\sigma^2/T$ exactly, whatever $T$
    is: so neither of its two terms can be smaller by any factor.
    """,
    references=(
        "Bottou, Curtis and Nocedal (2018), Optimization methods for large-scale machine learning, th. 4.8",
        "Ghadimi and Lan (2013), Stochastic first- and zeroth-order methods for nonconvex stochastic "
        "programming",
    ),
)
def plateau(run: Running, factor: float = 1.0) -> Evidence:
    """Mean squared gradients of chains on five problems over four rates; `factor` multiplies the bound."""
    steps, chains = run.pick(2000, 10_000), run.pick(80, 400)
    numbers, left, right = [], [], []
    for problem in five_problems(run.random()):
        run.say(problem.name)
        plateaus, errors, over = [], [], []
        for share in SHARES:
            eta = share / problem.smoothness
            course = stochastic.run_chains(
                problem, start_of(problem), [eta] * steps, chains, run.random(f"{problem.name} {share}")
            )
            # At η = 1/β the quadratic has the bound for its expectation: that equality is asked below.
            if not (problem.name == QUADRATIC and share == 1):
                over.append(largest_share(problem, eta, course, 1, factor))
            late = course.squared[steps // 2 :].mean(0)
            plateaus.append(float(late.mean()))
            errors.append(float(late.std() / math.sqrt(chains)))
            if share == SHARES[0]:
                left.append(_course(problem.name, course.squared.mean(1) / course.noise))
        numbers.append(
            at_most(f"{problem.name}: largest mean over its bound", max(over)[0], 1.0, max(over)[1])
        )
        numbers.append(_slope(problem.name, plateaus, errors))
        right.append(_against_rate(problem.name, plateaus, errors, course.noise))
        if problem.name == QUADRATIC:
            numbers.extend(_exactly(problem, plateaus, errors, course.noise, factor))
    numbers.extend(both_terms(steps, chains, run.random("from afar"), 1, factor))
    right.append(
        Series("bound, in the long run", list(SHARES), list(SHARES), style="dashed"),
    )
    panels = [
        Panel("η = 1/β", "step (count)", "E‖∇ℒ‖²/σ² (no unit)", left, x_log=True, y_log=True),
        Panel(
            "Plateau against the rate", "ηβ (no unit)", "E‖∇ℒ‖²/σ² (no unit)", right, x_log=True, y_log=True
        ),
    ]
    caption = f"{chains} chains on each problem; bars are two standard errors of the second half of the way "
    caption += "(right: σ² as met at the smallest rate)."
    return Evidence(numbers, pictures=[Picture(caption, panels, "llm th. 1")])


def _slope(name: str, plateaus: list[float], errors: list[float]) -> Number:
    """Of the plateau against the rate in logarithms, over the three smaller rates."""
    places = np.log(SHARES[1:])
    heights = np.log(plateaus[1:])
    slope = float(np.polyfit(places, heights, 1)[0])
    spread = math.hypot(errors[1] / plateaus[1], errors[3] / plateaus[3]) / float(places[0] - places[-1])
    # Curvature that changes over the width of the plateau bends the line by the order of ηβ, up to 1/4.
    return between(f"{name}: power of the rate", slope, 0.75, 1.25, spread)


def _exactly(
    problem: stochastic.FiniteSum, plateaus: list[float], errors: list[float], noise: float, factor: float
) -> list[Number]:
    """The plateau of the quadratic, whose noise is the same everywhere, against the closed form."""
    numbers = []
    for at in (0, 3):
        rate = SHARES[at] / problem.smoothness
        expected = factor * stochastic.quadratic_plateau(rate, [problem.smoothness], noise)
        name = f"quadratic at ηβ = {SHARES[at]:g}: plateau over its closed form"
        numbers.append(agrees(name, plateaus[at] / expected, errors[at] / expected, 1.0))
    return numbers


def _course(name: str, values: np.ndarray) -> Series:
    places = np.unique(np.geomspace(1, len(values), 120).astype(int))
    return Series(name, places.tolist(), values[places - 1].tolist())


def _against_rate(name: str, plateaus: list[float], errors: list[float], noise: float) -> Series:
    heights, spread = np.array(plateaus) / noise, 2 * np.array(errors) / noise
    return Series(
        name,
        list(SHARES),
        heights.tolist(),
        (heights - spread).tolist(),
        (heights + spread).tolist(),
        "points",
    )
