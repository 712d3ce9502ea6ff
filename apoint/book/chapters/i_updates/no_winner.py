"""I10b: each of several update rules, its rate tuned, loses on some problem."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from apoint.book.claim import claim
from apoint.book.evidence import Evidence, Number, at_least, same
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.optim import Rule
from apoint.optim.adam import adam
from apoint.optim.adaptive import adagrad, rmsprop
from apoint.optim.descent import gradient_descent, nesterov
from apoint.optim.sign import lion

RULES: dict[str, Rule] = {
    "descent": gradient_descent,
    "Nesterov": nesterov,
    "AdaGrad": adagrad,
    "RMSProp": rmsprop,
    "Adam": adam,
    "Lion": lion,
}
SIZE, STEPS = 20, 300
RATES = np.geomspace(1e-4, 30, 23)


def problems(run: Running) -> dict[str, tuple[Tensor, float]]:
    """Quadratics θ'Hθ/2 with noise on the gradient: their H, [SIZE, SIZE], and the scale of the noise."""
    turn = torch.linalg.qr(torch.randn(SIZE, SIZE, generator=run.generator("turn"), dtype=torch.float64))[0]
    scales = torch.logspace(-3, 0, SIZE, dtype=torch.float64)
    return {
        "noisy, round": (torch.eye(SIZE, dtype=torch.float64), 1.0),
        "steep along axes": (torch.diag(scales), 0.0),
        "steep, turned": (turn @ torch.diag(scales) @ turn.T, 0.0),
        "steep along axes, noisy": (torch.diag(scales), 0.1),
    }


def final_losses(rule: Rule, bend: Tensor, noise: float, runs: int, random: torch.Generator) -> np.ndarray:
    """The loss after all steps for every rate and run, [rates, runs]: all of them one stack."""
    place = torch.randn(runs, SIZE, generator=random, dtype=torch.float64).repeat(len(RATES), 1, 1)
    place = place.reshape(-1, SIZE)
    rates = torch.from_numpy(RATES).repeat_interleave(runs)[:, None]
    state, settings = rule.init(place), {**rule.defaults, "lr": rates}
    for step in range(1, STEPS + 1):
        shaken = torch.randn(runs, SIZE, generator=random, dtype=torch.float64).repeat(len(RATES), 1)
        delta, state = rule.step(place @ bend + noise * shaken, state, place, step, settings)
        place = place + delta
    losses = ((place @ bend) * place).sum(1) / 2
    return np.asarray(losses.nan_to_num(1e30, 1e30).clamp(1e-30, 1e30).reshape(len(RATES), runs).numpy())


@claim(
    "I10b",
    "No update rule wins everywhere",
    kind="direction",
    statement=r"""
    Of six update rules, each with its rate tuned for each problem, none is best on all of four small
    problems: every one of them ends with at least one and a half times the loss of the best on some
    problem.
    """,
    refuted_by="a rule whose loss stays within one and a half times that of the best on all problems",
    seconds={"quick": 6, "standard": 30},
    planted={"without": "steep, turned"},
    details=r"""
    The problems are quadratics in 20 dimensions: a round one with noise on its gradient, one a thousand
    times steeper along some axes than others, the same turned so that no axis is special, and the second
    with noise. Rates are the best of 23 from $10^{-4}$ to 30, found on one set of starts and judged on
    another, by the mean logarithm of the loss after 300 steps. All rates and starts run as one stack. A
    rule that divides by the size of each coordinate's gradient gains where steepness lies along the axes
    and has nothing to gain where it does not.
    """,
    references=("Schmidt, Schneider and Hennig (2021), Descending through a crowded valley, ICML",),
)
def no_winner(run: Running, without: str = "") -> Evidence:
    """Six rules on four problems; `without` leaves a problem out."""
    runs = run.pick(16, 120)
    found = {name: _tuned(bend, noise, runs, run, name) for name, (bend, noise) in problems(run).items()}
    numbers: list[Number] = []
    judged = [name for name in found if name != without]
    winners = {min(found[name], key=lambda rule: float(found[name][rule].mean())) for name in judged}
    for rule in RULES:
        worst, error = -math.inf, 0.0
        for name in judged:
            best = min(RULES, key=lambda other: float(found[name][other].mean()))
            lag = found[name][rule] - found[name][best]
            if lag.mean() > worst:
                worst, error = float(lag.mean()), float(lag.std()) / math.sqrt(runs)
        numbers.append(at_least(f"{rule}: ln of its largest loss over the best", worst, math.log(1.5), error))
    numbers.append(same("several rules win somewhere", len(winners) > 1, True))
    return Evidence(numbers, pictures=[_picture(found, runs)])


def _tuned(bend: Tensor, noise: float, runs: int, run: Running, name: str) -> dict[str, np.ndarray]:
    """ln of the final loss of each rule at its best rate, [runs], on starts that did not choose the rate."""
    result = {}
    for rule_name, rule in RULES.items():
        tune = np.log(final_losses(rule, bend, noise, runs, run.generator(f"{name} tune")))
        judge = np.log(final_losses(rule, bend, noise, runs, run.generator(f"{name} judge")))
        result[rule_name] = judge[tune.mean(1).argmin()]
    return result


def _picture(found: dict[str, dict[str, np.ndarray]], runs: int) -> Picture:
    series = []
    for rule in RULES:
        values = np.array([found[name][rule] for name in found]) / math.log(10)
        mean, spread = values.mean(1), 2 * values.std(1) / math.sqrt(runs)
        places = list(range(1, len(found) + 1))
        low, high = (mean - spread).tolist(), (mean + spread).tolist()
        series.append(Series(rule, places, mean.tolist(), low, high, "points"))
    names = ", ".join(f"{place} {name}" for place, name in enumerate(found, start=1))
    panel = Panel("Tuned rules after 300 steps", "problem", "log10 of the loss (no unit)", series)
    return Picture(f"Problems: {names}. Means over starts with two standard errors.", [panel], "weights 1")
