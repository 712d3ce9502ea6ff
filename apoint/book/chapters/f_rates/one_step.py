"""F1: what one step of stochastic gradient descent does to the expected loss."""

from __future__ import annotations

import math

import numpy as np

from apoint.book.chapters.f_rates.five_problems import five_problems
from apoint.book.claim import Erratum, claim
from apoint.book.evidence import Evidence, at_least, at_most, close
from apoint.book.running import Running
from apoint.theory import stochastic


@claim(
    "F1",
    "One step descends in expectation, if the gradient outweighs the noise",
    kind="bound",
    statement=r"""
    Let $\mathcal{L}$ be $\beta$-smooth and let the gradient of a drawn example be unbiased with
    $\mathbb{E}\|\nabla\ell_i(\theta)\|^2\leq\sigma^2+\|\nabla\mathcal{L}(\theta)\|^2$. Then a step with the
    rate $\eta$ leaves
    $$\mathbb{E}[\mathcal{L}(\theta')]\leq\mathcal{L}(\theta)-\left(\eta-\frac{\beta\eta^2}{2}\right)
    \|\nabla\mathcal{L}(\theta)\|^2+\frac{\beta\eta^2}{2}\sigma^2 .$$
    For $\eta\leq1/\beta$ it descends where $\|\nabla\mathcal{L}\|^2>\eta\beta\sigma^2$; at a minimum it
    ascends.
    """,
    refuted_by="a point of one of five problems at which the expected loss after a step, over all examples, "
    "exceeds the bound, or that has a gradient above the noise and ascends",
    seconds={"quick": 1, "standard": 5},
    planted={"factor": 0.95},
    erratum=Erratum(
        quote=r"$\mathbb{E}\left[\|\nabla\ell_{i_t}(\theta_t)\|^2\right]\leq\sigma^2+\|\mathcal{L}(\theta)\|^2$"
        r" […] "
        r"$\mathbb{E}[\mathcal{L}(\theta_{t+1})]\leq\mathcal{L}(\theta_t)+\eta_t\langle"
        r"\nabla\mathcal{L}(\theta_t),\mathbb{E}[\nabla\ell_{i_t}(\theta_t)]\rangle$ […]",
        place="llm 1.1",
        written=r"$\mathbb{E}\|\nabla\ell_i(\theta)\|^2\leq\sigma^2+\|\mathcal{L}(\theta)\|^2$, and the "
        r"expected loss is at most "
        r"$\mathcal{L}(\theta)+\eta\langle\nabla\mathcal{L},\mathbb{E}[\nabla\ell_i]\rangle+"
        r"\frac{\beta\eta^2}{2}\mathbb{E}\|\nabla\ell_i\|^2$.",
        corrected=r"$\|\nabla\mathcal{L}(\theta)\|^2$, the gradient, in the assumption; and "
        r"$-\eta\langle\nabla\mathcal{L},\mathbb{E}[\nabla\ell_i]\rangle$ in the bound.",
        why=r"A step is $-\eta\nabla\ell_i$. With a plus the right side is above $\mathcal{L}(\theta)$ and "
        r"promises nothing. And the loss may be raised by a constant, which changes no gradient: with it in "
        r"the assumption $\sigma^2=0$ becomes allowed for any noise, and the bound is then false.",
    ),
    details=r"""
    The expectation over the drawn example is exact: the step is made with each of them. $\sigma^2$ is the
    variance at the point itself. On a quadratic the bound is an equality. The condition $\eta\leq 1/\beta$ is
    not needed for the bound, only for the factor to be at least $\eta/2$; and it does not make every step
    descend, as a start at the minimum shows.
    """,
    references=(
        "Bottou, Curtis and Nocedal (2018), Optimization methods for large-scale machine learning, 4.1",
    ),
)
def one_step(run: Running, factor: float = 1.0) -> Evidence:
    """Expected losses after a step with every example, less the bound; `factor` multiplies its noise."""
    random, worst, descents, rises, room = run.random(), -math.inf, -math.inf, -math.inf, 0.0
    for problem in five_problems(random):
        dimension = problem.inputs.shape[1]
        for place in random.normal(0, 1.5, (run.pick(40, 400), dimension)):
            loss, squared, noise = _at(problem, place)
            for share in (0.1, 0.5, 1.0, 1.8):
                eta = share / problem.smoothness
                expected = _after(problem, place, eta)
                bound = stochastic.step_bound(loss, squared, eta, problem.smoothness, factor * noise)
                worst = max(worst, (expected - bound) / (1 + abs(bound)))
                if problem.name == "mean of numbers":
                    room = max(room, (bound - expected) / (1 + abs(bound)))
                if share <= 1 and squared > eta * problem.smoothness * noise:
                    descents = max(descents, expected - loss)
    mean = five_problems(run.random())[0]
    lowest = np.array([float(-mean.slope(np.zeros((1, 1))).mean())])
    loss, squared, noise = _at(mean, lowest)
    rises = _after(mean, lowest, 1.0) - loss
    raised = _raised_excess()
    return Evidence(
        [
            at_most("largest expected loss less the bound, relatively", worst, 1e-12, remark="rounding"),
            at_most("largest room under the bound on a quadratic, relatively", room, 1e-12),
            at_most("largest change where the gradient outweighs the noise", descents, 0.0),
            at_least("rise at the minimum with η = 1/β, though η ≤ 1/β", rises, 0.1),
            close("that rise, in σ²/(2β)", rises / (noise / 2), 1.0, 1e-9),
        ],
        [
            at_most("loss raised so that σ² = 0 is allowed: expected loss less the bound", raised, 0.0),
            at_most("printed right side less the loss, β = η = ‖∇ℒ‖ = 1 without noise", 1 + 0.5, 0.0),
        ],
    )


def _at(problem: stochastic.FiniteSum, place: np.ndarray) -> tuple[float, float, float]:
    """Loss, squared gradient and variance."""
    rows = place[None]
    squared = float((problem.gradient(rows) ** 2).sum())
    return float(problem.value(rows)[0]), squared, float(problem.variance(rows)[0])


def _after(problem: stochastic.FiniteSum, place: np.ndarray, eta: float) -> float:
    """The mean loss after a step with each example."""
    slopes = problem.slope(place[None] @ problem.inputs.T)[0]
    return float(problem.value(place - eta * slopes[:, None] * problem.inputs).mean())


def _raised_excess() -> float:
    """A quadratic at its minimum with noise 1, raised by 1: 1 ≤ 0 + 1² allows σ² = 0, and the loss rises."""
    eta, beta, raised = 1.0, 1.0, 1.0
    outcomes = np.array([-1.0, 1.0])
    assert (outcomes**2).mean() <= 0 + raised**2
    expected = float((beta * (eta * outcomes) ** 2 / 2 + raised).mean())
    return expected - stochastic.step_bound(raised, 0.0, eta, beta, 0.0)
