"""F3: rates whose sum diverges and whose squares do not make the mean squared gradient vanish."""

from __future__ import annotations

import math

import numpy as np

from apoint.book.chapters.f_rates.five_problems import LENGTHS, five_problems, start_of
from apoint.book.claim import claim
from apoint.book.evidence import Evidence, at_least, at_most, close
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.theory import stochastic


def rates_of(power: float, steps: int, smoothness: float) -> np.ndarray:
    """1/β·(1 + t)^−power."""
    return np.asarray((1.0 + np.arange(steps)) ** -power / smoothness)


def weighted_means(rates: np.ndarray, squared: np.ndarray) -> np.ndarray:
    """Σ η_t‖∇ℒ(θ_t)‖²/Σ η_t up to each step, for each chain."""
    return np.asarray(np.cumsum(rates[:, None] * squared, 0) / np.cumsum(rates)[:, None])


@claim(
    "F3",
    "Falling rates make the mean squared gradient vanish",
    kind="shape",
    statement=r"""
    If the rates are at most $1/\beta$ with $\sum\eta_t=\infty$ and $\sum\eta_t^2<\infty$, the mean of
    $\|\nabla\mathcal{L}(\theta_t)\|^2$ with the weights $\eta_t$ goes to 0 in expectation:
    $$\mathbb{E}\left[\frac{\sum_t\eta_t\|\nabla\mathcal{L}(\theta_t)\|^2}{\sum_t\eta_t}\right]\leq
    \frac{2(\mathcal{L}(\theta_0)-\mathcal{L}^*)+\beta\sigma^2\sum_t\eta_t^2}{\sum_t\eta_t}.$$
    So along some steps it vanishes, $\liminf_t\mathbb{E}\|\nabla\mathcal{L}(\theta_t)\|^2=0$; that the chain
    itself goes to a stationary point does not follow. A fixed rate keeps its plateau, and rates whose sum
    converges stop on the way.
    """,
    refuted_by="a weighted mean above the bound, or one that does not go on falling with the number of steps",
    seconds={"quick": 5, "standard": 60},
    planted={"power": 2.0},
    details=r"""
    Rates of $(1+t)^{-0.75}/\beta$ on five problems, after 1, 2, 5, 10, 50, 200 and all steps. The numerator
    of the bound stays finite and its denominator grows as $T^{1/4}$, so that sixteen times as many steps
    halve it in the end. The condition on the squares is sufficient and not necessary: for $(1+t)^{-1/2}$ the
    squares diverge as $\ln T$ and the sum as $\sqrt{T}$, and the bound goes to 0 all the same, faster. The
    planted version takes $(1+t)^{-2}$.
    """,
    references=(
        "Robbins and Monro (1951), A stochastic approximation method",
        "Bottou, Curtis and Nocedal (2018), Optimization methods for large-scale machine learning, th. 4.10",
    ),
)
def falling_rates(run: Running, power: float = 0.75) -> Evidence:
    """Weighted means of squared gradients on five problems, against their bound and their own past."""
    steps, chains = run.pick(8_000, 64_000), run.pick(16, 100)
    numbers, panels = [], []
    for problem in five_problems(run.random()):
        run.say(problem.name)
        rates = rates_of(power, steps, problem.smoothness)
        course = stochastic.run_chains(
            problem, start_of(problem), rates.tolist(), chains, run.random(problem.name)
        )
        means = weighted_means(rates, course.squared)
        shares = [_share(problem, rates, course, means, length) for length in (*LENGTHS, steps)]
        worst, error = max(shares)
        ratio, ratio_error = _mean(means[-1] / means[steps // 16 - 1].mean())
        name = problem.name
        numbers.append(at_most(f"{name}: largest mean over its bound", worst, 1.0, error))
        # The bound falls by 2 where the noise is spent; the start's share falls as fast or faster.
        numbers.append(at_most(f"{name}: mean against that at T/16", ratio, 0.75, ratio_error))
        if name in ("mean of numbers", "robust regression (not convex)"):
            panels.append(_panel(run, problem, name, steps // 8, chains))
    # For rates that do not fall the bound is that of F2, which a quadratic attains.
    same_rates = stochastic.falling_rate_bound([0.5] * 30, 2.0, 1.7, 3.0)
    fixed = stochastic.fixed_rate_bound(0.5, 2.0, 1.7, 3.0, 30)
    numbers.append(close("bound for thirty equal rates over that of F2", same_rates / fixed, 1.0, 1e-12))
    stopped = _stopped(run)
    numbers.append(at_least("rates (1 + t)^−2: squared gradient at the end, at the start 1", stopped, 1e-3))
    caption = "Means over chains, with two standard errors: rates that fall as a power of the step."
    return Evidence(numbers, pictures=[Picture(caption, panels, "llm th. 2")])


def _mean(values: np.ndarray) -> tuple[float, float]:
    return float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values)))


def _share(
    problem: stochastic.FiniteSum,
    rates: np.ndarray,
    course: stochastic.Course,
    means: np.ndarray,
    length: int,
) -> tuple[float, float]:
    """The weighted mean of the first steps over its bound, with its standard error."""
    used = rates[:length].tolist()
    bound = stochastic.falling_rate_bound(used, problem.smoothness, course.noise, course.gap)
    return _mean(means[length - 1] / bound)


def _stopped(run: Running) -> float:
    problem = five_problems(run.random())[1]
    rates = rates_of(2.0, 2000, problem.smoothness)
    course = stochastic.run_chains(problem, start_of(problem), rates.tolist(), 16, run.random("stopped"))
    return float(course.squared[-1].mean() / course.squared[0].mean())


def _panel(run: Running, problem: stochastic.FiniteSum, name: str, steps: int, chains: int) -> Panel:
    lines = []
    places = np.unique(np.geomspace(1, steps, 80).astype(int)) - 1
    for power, label in ((0.0, "fixed"), (0.5, "power 1/2"), (0.75, "power 3/4"), (2.0, "power 2")):
        rates = rates_of(power, steps, problem.smoothness)
        random = run.random(f"{name} {power}")
        course = stochastic.run_chains(problem, start_of(problem), rates.tolist(), chains, random)
        means = weighted_means(rates, course.squared)[places]
        middle, spread = means.mean(1), 2 * means.std(1, ddof=1) / math.sqrt(chains)
        low, high = np.maximum(middle - spread, 1e-6), middle + spread
        lines.append(Series(label, (places + 1).tolist(), middle.tolist(), low.tolist(), high.tolist()))
    return Panel(name, "steps T (count)", "weighted mean of ‖∇ℒ‖² (no unit)", lines, x_log=True, y_log=True)
