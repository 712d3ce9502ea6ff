"""I7: weight decay helps on new data, by how much it should, and when a penalty in the loss is not decay."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from apoint.book.chapters.i_updates.paths import difference, gradient_of, path, torch_path
from apoint.book.claim import claim
from apoint.book.evidence import Evidence, Number, agrees, at_least, at_most, between, close, same
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.optim.adam import adam, adamw
from apoint.optim.descent import gradient_descent, momentum
from apoint.theory import weight_decay

DIMENSION, NOISE, PRIOR = 40, 8.0, 1.0
FACTORS = (0.0, 0.05, 0.2, 0.5, 1.0, 2.0, 5.0, 20.0)


@claim(
    "I7",
    "Weight decay and the error on new data",
    kind="size",
    statement=r"""
    A linear model of $d$ weights learns from $N$ labels with noise of variance $\sigma^2$, given by a
    teacher whose weights have variance $\sigma_w^2$. Its expected error on new data is smallest for the
    decay
    $$\lambda=\frac{\sigma^2}{\sigma_w^2},$$
    whatever the inputs are; and the peak at $N=d$, where the error without decay has no bound, is gone.
    """,
    refuted_by="a strength among those tried that does better, a drawn error that differs from the exact "
    "one by more "
    "than three standard errors, or a peak that stays",
    seconds={"quick": 2, "standard": 15},
    planted={"factor": 1.05},
    details=r"""
    In a direction in which the inputs have the sum of squares $s$ the error is
    $(\sigma_w^2\lambda^2+\sigma^2s)/(s+\lambda)^2$, whose derivative vanishes at
    $\lambda=\sigma^2/\sigma_w^2$ for every $s$. The check solves the regressions, with $d=40$, for inputs,
    teachers and noise drawn anew. The course says that small weights limit over-fitting; the optimum says
    how small: too strong a decay is as bad as none.
    """,
    references=(
        "Krogh and Hertz (1991), A simple weight decay can improve generalization, NeurIPS 4",
        "Hastie et al. (2022), Surprises in high-dimensional ridgeless least squares interpolation",
    ),
)
def best_decay(run: Running, factor: float = 1.0) -> Evidence:
    """Regressions are drawn and solved; `factor` multiplies the strength that is said to be best."""
    random, trials = run.random(), run.pick(120, 1500)
    best = factor * weight_decay.optimal_decay(NOISE, PRIOR)
    errors = {samples: _errors(samples, trials, random) for samples in (10, 20, 30, 40, 50, 60, 80, 120)}
    numbers: list[Number] = []
    at = FACTORS.index(1.0)
    for samples in (20, 40, 80):
        drawn, exact = errors[samples]
        mean, error = float(drawn[:, at].mean()), float(drawn[:, at].std()) / math.sqrt(trials)
        expected = float(exact[:, at].mean())
        limit = weight_decay.typical_ridge_error(samples, DIMENSION, NOISE / PRIOR, NOISE, PRIOR)
        numbers.append(agrees(f"error at N = {samples}, λ = σ²/σ_w²", mean, error, expected))
        numbers.append(between("the same, exact, over its large-d limit", expected / limit, 0.97, 1.03))
        for other in (0.2, 5.0):
            loss = drawn[:, FACTORS.index(other)] - drawn[:, at]
            spread = float(loss.std()) / math.sqrt(trials)
            numbers.append(
                at_least(f"drawn error added by {other:g} times that λ", float(loss.mean()), 0.0, spread)
            )
        beaten = _beaten(samples, best, run)
        numbers.append(same(f"strengths that do better on some inputs, N = {samples}", beaten, 0))
    peak = float(np.median(errors[40][0][:, 0]) / np.median(errors[80][0][:, 0]))
    calm = float(np.median(errors[40][0][:, at]) / np.median(errors[80][0][:, at]))
    numbers.append(at_least("median error at N = d over N = 2d, no decay", peak, 10))
    numbers.append(at_most("the same at λ = σ²/σ_w²", calm, 3))
    return Evidence(numbers, pictures=[_picture(errors)])


def _draw(samples: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    inputs = random.standard_normal((samples, DIMENSION))
    teacher = math.sqrt(PRIOR) * random.standard_normal(DIMENSION)
    labels = inputs @ teacher + math.sqrt(NOISE) * random.standard_normal(samples)
    return inputs, teacher, labels


def _errors(samples: int, trials: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Drawn and exact errors, [trials, strengths]."""
    drawn, exact = [], []
    for _ in range(trials):
        inputs, teacher, labels = _draw(samples, random)
        values, vectors = np.linalg.eigh(inputs.T @ inputs)
        values = np.where(np.arange(DIMENSION) < DIMENSION - samples, 0.0, values)  # rounding leaves 1e-15
        along = vectors.T @ (inputs.T @ labels)
        row = []
        for factor in FACTORS:
            total = values + factor * NOISE / PRIOR
            found = vectors @ np.where(total > 0, along / np.where(total > 0, total, 1.0), 0.0)
            row.append(float(((found - teacher) ** 2).sum()))
        drawn.append(row)
        exact.append(
            [weight_decay.ridge_error(values, factor * NOISE / PRIOR, NOISE, PRIOR) for factor in FACTORS]
        )
    return np.array(drawn), np.array(exact)


def _beaten(samples: int, best: float, run: Running) -> int:
    """How many strengths around one have a smaller expected error on some of a hundred sets of inputs."""
    random, better = run.random(f"inputs {samples}"), set()
    for _ in range(100):
        values = np.linalg.svd(random.standard_normal((samples, DIMENSION)), compute_uv=False) ** 2
        values = np.concatenate([values, np.zeros(DIMENSION - len(values))])
        least = weight_decay.ridge_error(values, best, NOISE, PRIOR)
        for factor in (0.1, 0.5, 0.8, 0.95, 1.05, 1.25, 2.0, 10.0):
            if weight_decay.ridge_error(values, best * factor, NOISE, PRIOR) < least * (1 - 1e-12):
                better.add(factor)
    return len(better)


def _picture(errors: dict[int, tuple[np.ndarray, np.ndarray]]) -> Picture:
    lines = []
    for label, factor in (("none", 0.0), ("σ²/σ_w² ÷ 20", 0.05), ("σ²/σ_w²", 1.0), ("20 σ²/σ_w²", 20.0)):
        drawn = np.array([errors[samples][0][:, FACTORS.index(factor)] for samples in errors]) / DIMENSION
        low, middle, high = np.quantile(drawn, [0.25, 0.5, 0.75], axis=1)
        lines.append(Series(label, list(errors), middle.tolist(), low.tolist(), high.tolist()))
    left = Panel(
        "Decay removes the peak", "observations N (d = 40)", "error per weight (σ_w²)", lines, y_log=True
    )
    shown = [factor for factor in FACTORS if factor]
    curves = []
    for samples in (20, 40, 80):
        drawn = errors[samples][0][:, 1:] / DIMENSION
        mean, spread = drawn.mean(0), 2 * drawn.std(0) / math.sqrt(len(drawn))
        curves.append(
            Series(f"N = {samples}", shown, mean.tolist(), (mean - spread).tolist(), (mean + spread).tolist())
        )
    right = Panel(
        "The best strength", "λ (σ²/σ_w²)", "error per weight (σ_w²)", curves, x_log=True, y_log=True
    )
    caption = "Left: medians and quartiles over drawn regressions. Right: means with two standard errors."
    return Picture(caption, [left, right], "weights 2.1")


@claim(
    "I7b",
    "A penalty in the loss is not weight decay",
    kind="identity",
    statement=r"""
    For plain gradient descent a penalty $\frac\lambda2\|w\|^2$ in the loss and weight decay $w\leftarrow
    w-\eta\lambda w$ give the same path. With momentum they do not, since the penalty passes through the
    average; and with Adam the penalty is divided by the size of the gradient: a weight whose gradients are
    100 times larger decays 100 times more slowly. AdamW shrinks all weights at the one rate $\eta\lambda$.
    """,
    refuted_by="paths of plain descent that differ, paths of momentum that do not, or rates of decay under "
    "Adam that "
    "do not go inversely with the size of the gradient",
    seconds={"quick": 4, "standard": 12},
    planted={"factor": 1.05},
    details=r"""
    In the second part two weights get gradients without trend, $\pm1$ and $\pm100$ in turn, so that nothing
    but the decay moves them in the mean; the rates are read from the logarithm of the weights over 2000
    steps, once the averages are full. With momentum the two have the same resting point, and only the way
    there differs; with Adam not even that.
    """,
    references=("Loshchilov and Hutter (2019), Decoupled weight decay regularization",),
)
def penalty_is_not_decay(run: Running, factor: float = 1.0) -> Evidence:
    """Paths with penalty and decay; `factor` multiplies the rates of decay that are expected."""
    slope = gradient_of(lambda place: (place[0] - 1).square() + 3 * (place[1] + 0.5).square())
    start, rate, strength = [1.5, -1.0], 0.05, 0.2
    plain = [
        path(gradient_descent, slope, start, 100, lr=rate, **{way: strength})
        for way in ("l2", "weight_decay")
    ]
    heavy = [path(momentum, slope, start, 100, lr=rate, **{way: strength}) for way in ("l2", "weight_decay")]
    ours = path(adamw, slope, start, 100, lr=rate, weight_decay=strength)
    theirs = torch_path(lambda p: torch.optim.AdamW(p, lr=rate, weight_decay=strength), slope, start, 100)
    penalty = _rates(run, "l2")
    decay = _rates(run, "weight_decay")
    numbers: list[Number] = [
        at_most("descent: penalty less decay", difference(*plain), 1e-13),
        at_least("momentum: penalty less decay", difference(*heavy), 0.01),
        at_most("AdamW's path less PyTorch's", difference(ours, theirs), 1e-12),
        # The penalty itself, up to a tenth of the smaller gradient, adds half its square to the divisor.
        close("Adam with a penalty: ratio of the rates", penalty[0] / penalty[1], factor * 100, 0.005),
        close("AdamW: the same ratio", decay[0] / decay[1], 1.0, 1e-3),
        # Alternating steps of η, small against the weights, are left at the ends of the stretch.
        close("AdamW: rate of decay over ηλ", decay[0] / (0.001 * 0.1), factor, 1e-3),
    ]
    return Evidence(numbers, pictures=[_decays(run)])


def _shrink(way: str, steps: int) -> np.ndarray:
    """Weights that start at 1 under gradients of ±1 and ±100, with Adam, [steps + 1, 2]."""
    signs = iter(range(10**9))

    def gradient(place: Tensor) -> Tensor:
        sign = -1.0 if next(signs) % 2 else 1.0
        return torch.tensor([sign, 100 * sign], dtype=torch.float64)

    rule = adam if way == "l2" else adamw
    none = {"weight_decay": 0.0, "l2": 0.0}
    return path(rule, gradient, [1.0, 1.0], steps, lr=0.001, **{**none, way: 0.1})


def _rates(run: Running, way: str) -> tuple[float, float]:
    """The rates of decay of the two weights per step, between steps that the alternation leaves alike."""
    logs = np.log(
        _shrink(way, run.pick(2500, 6500))[500:]
    )  # the first steps find averages that are not yet full
    rates = (logs[0] - logs[-1]) / (len(logs) - 1)
    return float(rates[0]), float(rates[1])


def _decays(run: Running) -> Picture:
    panels = []
    for title, way in (("Adam with a penalty", "l2"), ("AdamW", "weight_decay")):
        places = _shrink(way, 2000)[::20]
        steps = list(range(0, 2001, 20))
        lines = [
            Series("gradients of ±1", steps, places[:, 0].tolist()),
            Series("gradients of ±100", steps, places[:, 1].tolist()),
        ]
        panels.append(Panel(title, "step", "weight (no unit)", lines))
    return Picture(
        "Two weights that nothing but decay should move: λ = 0.1, η = 0.001.", panels, "weights 2.1"
    )
