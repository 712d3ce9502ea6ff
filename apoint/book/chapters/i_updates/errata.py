"""Errata of chapter I that belong to no claim: ranges of settings, and the slides on Adam."""

from __future__ import annotations

import math

import numpy as np
import torch

from apoint.book.claim import erratum
from apoint.book.evidence import Evidence, at_least, at_most, close
from apoint.book.running import Running
from apoint.optim.adam import adam


@erratum(
    "I2.1",
    "A momentum of 1",
    place="weights 1.1",
    quote=r"la valeur du momentum $\gamma_t$ doit être dans l'intervalle $[0, 1]$",
    written=r"The momentum may be any $\gamma\in[0,1]$.",
    corrected=r"$0\le\gamma<1$.",
    why=r"""
    In $v_{t+1}=\gamma v_t+(1-\gamma)\nabla\mathcal{L}$ a momentum of 1 gives the gradient the weight 0: from
    $v_0=0$ nothing ever moves.
    """,
)
def momentum_of_one(run: Running) -> Evidence:
    """2,000 steps on x² from 1 with γ = 0, 0.9, 0.99 and 1."""

    def last(gamma: float) -> float:
        x, v = 1.0, 0.0
        for _ in range(2_000):
            v = gamma * v + (1 - gamma) * 2 * x
            x -= 0.1 * v
        return abs(x)

    return Evidence(
        [at_most("distance left, the largest for γ = 0, 0.9, 0.99", max(map(last, (0.0, 0.9, 0.99))), 1e-3)],
        [at_most("distance left for γ = 1", last(1.0), 1e-3)],
    )


@erratum(
    "I4.1",
    "How large RMSProp's memory may be",
    place="weights 1.3",
    quote=r"Contrôle la mémoire des précédents gradients, $\alpha\geq0$",
    written=r"$\alpha\ge0$ is all that is asked.",
    corrected=r"$0\le\alpha<1$.",
    why=r"""
    With $\alpha>1$ the accumulator $\alpha g_t+(1-\alpha)(\nabla\mathcal{L})^2$ is negative and has no root;
    with $\alpha=1$ it stays 0 and every step is divided by $\varepsilon$.
    """,
)
def memory_of_rmsprop(run: Running) -> Evidence:
    """The accumulator after ten gradients of size 1 for several α."""

    def accumulated(alpha: float) -> float:
        g = 0.0
        for _ in range(10):
            g = alpha * g + (1 - alpha)
        return g

    name = "least accumulator after ten gradients of size 1"
    return Evidence(
        [at_least(f"{name}, α = 0, 0.9, 0.99", min(map(accumulated, (0.0, 0.9, 0.99))), 1e-3)],
        [at_least(f"{name}, α = 1, 1.5", min(map(accumulated, (1.0, 1.5))), 1e-3)],
    )


@erratum(
    "I5.1",
    "Which gradients Adam has averaged",
    place="weights 1.4",
    quote=r"On remarque que : $v_t=\beta_2v_{t-1}+(1-\beta_2)\mathcal{L}(\theta_t)^2$ […] "
    r"$\sum_{i=1}^t\beta_2^{t-i}\mathcal{L}(\theta_i)^2$",
    written=r"$v_t$ holds the gradients at $\theta_1,\dots,\theta_t$.",
    corrected=r"At $\theta_0,\dots,\theta_{t-1}$: "
    r"$v_t=(1-\beta_2)\sum_{i=1}^t\beta_2^{t-i}(\nabla\mathcal{L}(\theta_{i-1}))^2$.",
    why=r"""
    The definition two lines above is $v_{t+1}=\beta_2v_t+(1-\beta_2)\nabla\mathcal{L}(\theta_t)^2$. The step
    to $\theta_t$ needs $v_t$, so that $v_t$ cannot hold the gradient there. The bias correction is the same.
    """,
)
def averaged_gradients(run: Running) -> Evidence:
    """Five steps of Adam on θ² from 1, and both sums."""
    beta, steps = 0.999, 5
    path, kept = _adam_path(steps)
    gradients = 2 * path

    def total(first: int) -> float:
        squares = [gradients[first + i] ** 2 for i in range(steps)]
        return float((1 - beta) * sum(beta ** (steps - 1 - i) * square for i, square in enumerate(squares)))

    name = "v after 5 steps over the sum"
    return Evidence(
        [close(f"{name}, θ₀ to θ₄", kept / total(0), 1.0, relative=1e-9)],
        [close(f"{name}, θ₁ to θ₅", kept / total(1), 1.0, relative=1e-9)],
    )


@erratum(
    "I6.1",
    "A quotient that is always 1",
    place="weights 1.4",
    quote=r"$|\Delta_t|\sim\eta\frac{|\mathbb{E}[\mathcal{L}(\theta_t)]|}{\sqrt{\mathbb{E}[\mathcal{L}(\theta_t)]^2}}$",
    written=r"$|\Delta_t|\sim\eta\,\frac{|\mathbb{E}[g]|}{\sqrt{\mathbb{E}[g]^2}}$",
    corrected=r"$|\Delta_t|\sim\eta\,\frac{|\mathbb{E}[g]|}{\sqrt{\mathbb{E}[g^2]}}$",
    why=r"""
    $\hat v$ estimates the mean of the square, not the square of the mean. With the latter the quotient is 1
    whatever the noise, and Jensen's inequality, which the slide proves, would have nothing to do.
    """,
)
def quotient_of_one(run: Running) -> Evidence:
    """Adam's step for gradients of mean 0.3 and deviation 1, with averages over about 2,000 steps."""
    gradients = 0.3 + run.random().standard_normal(20_000)
    average, square = (float(_averaged(gradients**power, 0.9995)) for power in (1, 2))
    step = abs(average) / math.sqrt(square)
    right = 0.3 / math.sqrt(0.3**2 + 1)
    return Evidence(
        [close("size of Adam's step in η over the formula", step / right, 1.0, absolute=0.2)],
        [close("size of Adam's step in η over the formula", step, 1.0, absolute=0.2)],
    )


@erratum(
    "I6.2",
    "The sign of a step",
    place="weights 1.4",
    quote=r"on définit $\Delta_t=\theta_t-\theta_{t-1}$ et on a : "
    r"$\Delta_t=\eta\frac{\hat{m}_t}{\sqrt{\hat{v}_t}}$",
    written=r"$\theta_t-\theta_{t-1}=\eta\,\hat m_t/\sqrt{\hat v_t}$",
    corrected=r"$\theta_t-\theta_{t-1}=-\eta\,\hat m_t/\sqrt{\hat v_t}$",
    why="Descent goes against the gradient, as the slide that defines Adam has it. The size is not affected.",
)
def sign_of_a_step(run: Running) -> Evidence:
    """The first step of Adam on θ² from 1 with η = 0.1, where m̂/√v̂ is 1."""
    path, _ = _adam_path(1)
    step = (path[1] - path[0]) / 0.1
    return Evidence(
        [close("step over −η m̂/√v̂", step / -1, 1.0, relative=1e-9)],
        [close("step over η m̂/√v̂", step, 1.0, relative=1e-9)],
    )


@erratum(
    "I6.3",
    "Which average estimates what",
    place="weights 1.4",
    quote=r"les suites $(\hat{v}_t)_{t\in\mathbb{N}}$ et $(\hat{m}_t)_{t\in\mathbb{N}}$ sont des "
    r"estimateurs non "
    r"biaisés de $\mathbb{E}[\mathcal{L}(\theta_t)]$ et $\mathbb{E}[\mathcal{L}(\theta_t)^2]$",
    written=r"$\hat v$ estimates the first moment and $\hat m$ the second.",
    corrected=r"$\hat m$ estimates the first, $\mathbb{E}[\nabla\mathcal{L}]$, and $\hat v$ the second, "
    r"$\mathbb{E}[(\nabla\mathcal{L})^2]$.",
    why="The two are named in the wrong order; the formulas further down use them in the right one.",
)
def which_average(run: Running) -> Evidence:
    """Both averages, corrected, after 100 gradients of mean 2 and variance 1, in 2,000 runs."""
    gradients = 2 + run.random().standard_normal((100, 2_000))
    first, second = (
        float(_averaged(gradients**power, beta).mean()) for power, beta in ((1, 0.9), (2, 0.999))
    )
    return Evidence(
        [
            close("m̂ over E[g]", first / 2, 1.0, absolute=0.05),
            close("v̂ over E[g²]", second / 5, 1.0, absolute=0.05),
        ],
        [
            close("v̂ over E[g]", second / 2, 1.0, absolute=0.05),
            close("m̂ over E[g²]", first / 5, 1.0, absolute=0.05),
        ],
    )


def _adam_path(steps: int) -> tuple[np.ndarray, float]:
    """The points of Adam on θ² from 1 with η = 0.1, and its average of squares at the end."""
    theta = torch.ones(1, dtype=torch.float64)
    state, points = adam.init(theta), [1.0]
    for step in range(1, steps + 1):
        update, state = adam.step(2 * theta, state, theta, step, {**adam.defaults, "lr": 0.1, "eps": 0.0})
        theta = theta + update
        points.append(float(theta))
    return np.array(points), float(state["square"])


def _averaged(values: np.ndarray, beta: float) -> np.ndarray:
    """The exponential average of values over their first axis, with Adam's correction."""
    steps = len(values)
    weights = (1 - beta) * beta ** np.arange(steps - 1, -1, -1) / (1 - beta**steps)
    return np.tensordot(weights, values, 1)
