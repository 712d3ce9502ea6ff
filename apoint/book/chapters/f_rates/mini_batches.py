"""F4: a mini-batch drawn with replacement divides the noise by its size, and the plateau with it."""

from __future__ import annotations

import itertools
import math

import numpy as np
import torch
from torch import nn

from apoint.book.chapters.f_rates.batch_arrows import batch_arrows
from apoint.book.chapters.f_rates.five_problems import both_terms, five_problems, largest_share, start_of
from apoint.book.claim import claim
from apoint.book.evidence import Evidence, Number, at_least, at_most, between, close
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.probes.noise import gradient_noise
from apoint.theory import stochastic

SIZES = (1, 2, 4, 8, 16)


@claim(
    "F4",
    "A batch divides the noise by its size",
    kind="identity",
    statement=r"""
    The mean gradient of $n_B$ examples drawn independently, with replacement, has
    $$\mathbb{E}\left\|\frac{1}{n_B}\sum_{i\in\mathcal{B}}\nabla\ell_i\right\|^2=
    \|\nabla\mathcal{L}\|^2+\frac{\sigma^2}{n_B},$$
    with $\sigma^2$ the variance of one example's gradient. Without replacement from $n$ examples the noise is
    smaller still, by the factor $(n-n_B)/(n-1)$.
    """,
    refuted_by="a mean over all possible batches that differs from the formula by more than rounding",
    seconds={"quick": 1, "standard": 3},
    planted={"factor": 1.05},
    details=r"""
    Five examples, batches of one to four: all $5^{n_B}$ ordered batches are gone through, and all
    combinations without replacement, so the expectations are exact. The proof in the course has the loss
    $\|\mathcal{L}\|^2$ where its gradient $\|\nabla\mathcal{L}\|^2$ is meant, as in F1. The probe `noise`
    measures the same $\sigma^2$, with $n-1$ in place of $n$, on a model of PyTorch.
    """,
    references=("Bottou, Curtis and Nocedal (2018), Optimization methods for large-scale machine learning",),
)
def noise_of_batches(run: Running, factor: float = 1.0) -> Evidence:
    """Exact means over all batches of five examples; `factor` multiplies the formulas."""
    random = run.random()
    gradients = random.standard_normal((5, 3)) + 0.4
    mean = gradients.mean(0)
    noise = float(((gradients - mean) ** 2).sum(1).mean())
    numbers = []
    for size in (1, 2, 3, 4):
        drawn = np.array(list(itertools.product(range(5), repeat=size)))
        chosen = np.array(list(itertools.combinations(range(5), size)))
        found, without = (
            float((gradients[rows].mean(1) ** 2).sum(1).mean() - (mean**2).sum()) for rows in (drawn, chosen)
        )
        numbers.append(
            close(f"noise of batches of {size}", found, factor * stochastic.batch_noise(noise, size), 1e-12)
        )
        expected = factor * stochastic.batch_noise(noise, size, 5)
        numbers.append(close(f"the same without replacement, {size}", without, expected, 1e-12, 1e-14))
    return Evidence([*numbers, *_probe(random)], pictures=[batch_arrows(run.random("arrows"))])


def _probe(random: np.random.Generator) -> list[Number]:
    """The probe's σ² against per-example gradients of logistic regression by hand."""
    inputs = random.standard_normal((40, 3))
    labels = (random.random((40, 1)) < 0.5).astype(float)
    model = nn.Linear(3, 1, bias=False, dtype=torch.float64)
    with torch.no_grad():
        model.weight.copy_(torch.from_numpy(random.standard_normal((1, 3))))
    weights = model.weight.detach().numpy()[0]
    each = (1 / (1 + np.exp(-(inputs @ weights))) - labels[:, 0])[:, None] * inputs
    expected = float(each.var(0, ddof=1).sum())
    batch = (torch.from_numpy(inputs), torch.from_numpy(labels))
    reading = gradient_noise(model, batch, nn.BCEWithLogitsLoss())
    return [close("σ² that the probe `noise` reads", _noise(reading.details), expected, 1e-6)]


def _noise(details: object) -> float:
    assert isinstance(details, dict)
    return float(details["sigma_squared"])


@claim(
    "F4b",
    "The plateau of mini-batches",
    kind="bound",
    statement=r"""
    With mini-batches of $n_B$ examples, drawn with replacement, and a fixed rate $\eta\leq1/\beta$,
    $$\mathbb{E}\left[\frac{1}{T}\sum_{t=0}^{T-1}\|\nabla\mathcal{L}(\theta_t)\|^2\right]\leq
    \frac{\eta\beta\sigma^2}{n_B}+\frac{2(\mathcal{L}(\theta_0)-\mathcal{L}^*)}{\eta T},$$
    and the plateau in the long run is inversely proportional to $n_B$.
    """,
    refuted_by="a problem whose mean squared gradient is above the bound, or whose plateau does not fall as "
    "1/n_B",
    seconds={"quick": 3, "standard": 90},
    planted={"factor": 0.95},
    details=r"""
    Three of the five problems of F2, one of them not convex, with $\eta=1/(2\beta)$ and batches of 1 to 16.
    As in F2, the bound is looked at after a few steps as well as after all of them, and a quadratic from afar
    stays below it by $\sigma^2/(n_BT)$ exactly.
    """,
    references=("Ghadimi and Lan (2013), Stochastic first- and zeroth-order methods, corollary 2.2",),
)
def plateau_of_batches(run: Running, factor: float = 1.0) -> Evidence:
    """Plateaus of chains for five batch sizes, and their slope; `factor` multiplies the bound."""
    steps, chains = run.pick(1200, 8000), run.pick(60, 300)
    numbers, lines = [], []
    problems = five_problems(run.random())
    for problem in (problems[0], problems[1], problems[3]):
        run.say(problem.name)
        eta = 0.5 / problem.smoothness
        plateaus, errors, over, noise = [], [], [], 1.0
        for size in SIZES:
            random = run.random(f"{problem.name} {size}")
            course = stochastic.run_chains(problem, start_of(problem), [eta] * steps, chains, random, size)
            over.append(largest_share(problem, eta, course, size, factor))
            noise = course.noise if size == 1 else noise  # one unit for all sizes
            late = course.squared[steps // 3 :].mean(0) / noise
            plateaus.append(float(late.mean()))
            errors.append(float(late.std(ddof=1) / math.sqrt(chains)))
        numbers.append(
            at_most(f"{problem.name}: largest mean over its bound", max(over)[0], 1.0, max(over)[1])
        )
        slope = float(np.polyfit(np.log(SIZES), np.log(plateaus), 1)[0])
        spread = math.hypot(errors[0] / plateaus[0], errors[-1] / plateaus[-1]) / math.log(SIZES[-1])
        # A wide plateau feels other curvatures than a narrow one, by a share of the order of ηβ/n_B.
        numbers.append(between(f"{problem.name}: power of the batch size", slope, -1.2, -0.8, spread))
        heights, bars = np.array(plateaus), 2 * np.array(errors)
        low, high = (heights - bars).tolist(), (heights + bars).tolist()
        lines.append(Series(problem.name, list(SIZES), plateaus, low, high, "points"))
    lines.append(Series("bound", list(SIZES), [0.5 / size for size in SIZES], style="dashed"))
    numbers.append(at_least("batch of 16 against 1, quadratic: plateau falls by", _fall(lines[0]), 12.0))
    for size in (4, 16):
        numbers.extend(both_terms(steps, chains, run.random(f"from afar {size}"), size, factor))
    panel = Panel("η = 1/(2β)", "batch size n_B (count)", "E‖∇ℒ‖²/σ² (no unit)", lines, True, True)
    caption = f"{chains} chains each; bars are two standard errors."
    return Evidence(numbers, pictures=[Picture(caption, [panel], "llm annex, th. 3")])


def _fall(line: Series) -> float:
    return float(line.y[0] / line.y[-1])
