"""F11: Nesterov's method wants a momentum on a schedule."""

from __future__ import annotations

import math

import numpy as np
import torch

from apoint.book.claim import claim
from apoint.book.evidence import Evidence, Number, at_least, at_most, between
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.optim import Nesterov
from apoint.schedules import nesterov_momentum
from apoint.theory import descent
from apoint.theory.descent import Problem
from apoint.units import Horizon

CEILING = 0.9999


@claim(
    "F11",
    "Momentum on a schedule, for Nesterov",
    kind="bound",
    statement=r"""
    On a convex $\beta$-smooth function Nesterov's method with $\eta=1/\beta$ and a momentum that climbs as
    $1-3/(t+3)$ has $f(x_T)-f^*\leq 2\beta R^2/(T+1)^2$; no method that adds up gradients can do better than
    $3\beta R^2/(32(T+1)^2)$ on all such functions. With a fixed momentum it falls behind by
    a power of $T$. The library's schedule climbs in stairs, $1-2^{-1-\log_2(\lfloor t/s\rfloor+1)}$, up to a
    ceiling, and keeps the fast rate.
    """,
    refuted_by="an error above the bound with a climbing momentum, or below it with a fixed one of 1/2 in "
    "the long run",
    seconds={"quick": 2, "standard": 20},
    planted={"factor": 0.95},
    details=r"""
    The function is Nesterov's chain with twice as many links as steps, for whose last step the lower bound
    is made. Neither constant can be better: on Huber's function with its knee at $R/(2S+1)$,
    $S=T(T+7)/8$, every step still feels the same slope and the error is $2\beta R^2/(T^2+7T+4)$; and the
    lowest point that $T$ steps can reach on the chain, by linear algebra, is at the lower bound but for
    $3/(4T)$. The stairs have six steps each, so that they follow $1-3/t$. The library's own optimiser is run
    with that schedule beside PyTorch's, and both give the same numbers to rounding.
    """,
    references=(
        "Nesterov (1983), A method of solving a convex programming problem with convergence rate O(1/k²)",
        "Sutskever, Martens, Dahl and Hinton (2013), On the importance of initialization and momentum, eq. 5",
    ),
)
def climbing_momentum(run: Running, factor: float = 1.0) -> Evidence:
    """Errors on the chain over upper and lower bound, both times `factor`."""
    steps = run.pick(600, 2400)
    problem = descent.chain(1.0, 2 * steps + 1)
    schedule = nesterov_momentum(Horizon(steps, 100), interval="6 steps", ceiling=CEILING)
    stairs = np.array(schedule.values(steps))
    ways = {
        "climbing as 1 − 3/(t + 3)": descent.nesterov_momenta(steps),
        "the library's stairs": stairs,
        "fixed at 1/2": np.full(steps, 0.5),
        "none": np.zeros(steps),
    }
    errors = {name: _errors(problem, momenta, steps) for name, momenta in ways.items()}
    t = np.arange(1, steps + 1)
    upper = np.array([factor * descent.accelerated_bound(1.0, problem.distance, int(s)) for s in t])
    lower = factor * descent.first_order_bound(1.0, problem.distance, steps)
    slow, fast = (_slope(t, errors[name]) for name in ("fixed at 1/2", "climbing as 1 − 3/(t + 3)"))
    by_stairs, by_climbing = (errors[name] for name in list(ways)[1::-1])
    numbers = [
        at_most("climbing: largest error over the upper bound", float((by_climbing / upper).max()), 1.0),
        at_most("the library's stairs: the same", float((by_stairs / upper).max()), 1.0),
        at_least(
            "all: least last error over the lower bound",
            min(float(e[-1]) for e in errors.values()) / lower,
            1.0,
        ),
        at_least(
            "fixed at 1/2: error over the upper bound at the end",
            float(errors["fixed at 1/2"][-1] / upper[-1]),
            1.0,
        ),
        at_most("power of T, climbing less fixed", fast - slow, -0.3),
        *_hardest(problem, steps, factor),
        *_formula(steps),
        _same_as_torch(problem, stairs[:200]),
    ]
    return Evidence(numbers, pictures=[_picture(t, errors, upper, lower)])


def _errors(problem: Problem, momenta: np.ndarray, steps: int) -> np.ndarray:
    path = descent.accelerate(problem.gradient, problem.start, 1.0, momenta.tolist(), steps)
    return np.array([problem.value(x) for x in path[1:]]) - problem.minimum


def _hardest(chain: Problem, steps: int, factor: float) -> list[Number]:
    """Where the two bounds are attained, but for terms of the order of 1/T."""
    plain = descent.plateau_and_bowl(1.0, 2.0, steps * (steps + 7) // 8)
    error = float(_errors(plain, descent.nesterov_momenta(steps), steps)[-1])
    upper = factor * descent.accelerated_bound(1.0, plain.distance, steps)
    # The first T coordinates free, the others 0: what T steps from 0 can reach at all.
    slopes = np.stack([chain.gradient(column) for column in np.eye(len(chain.start))[:steps]], 1)
    slopes = (slopes - chain.gradient(chain.start)[:, None])[:steps]
    reached = np.zeros(len(chain.start))
    reached[:steps] = np.linalg.solve(slopes, -chain.gradient(chain.start)[:steps])
    lower = factor * descent.first_order_bound(1.0, chain.distance, steps)
    least = chain.value(reached) - chain.minimum
    return [
        at_most("climbing, Huber's function: last error over the upper bound", error / upper, 1.0),
        at_least("the same", error / upper, 1 - 6 / steps),
        at_least("lowest point within reach on the chain over the lower bound", least / lower, 1.0),
        at_most("the same", least / lower, 1 + 2 / steps),
    ]


def _slope(t: np.ndarray, errors: np.ndarray) -> float:
    half = len(t) // 4
    return float(np.polyfit(np.log(t[half:]), np.log(errors[half:]), 1)[0])


def _formula(steps: int) -> list[Number]:
    """The stairs against the paper's formula with its interval of 250 updates."""
    ours = np.array(
        nesterov_momentum(Horizon(10 * steps, 100), interval="250 steps", ceiling=0.99).values(10 * steps)
    )
    paper = [min(1 - 2.0 ** (-1 - math.log2(t // 250 + 1)), 0.99) for t in range(10 * steps)]
    return [
        at_most(
            "stairs of 250 steps: largest difference from the formula",
            float(np.abs(ours - paper).max()),
            1e-12,
        ),
        between("their first value", float(ours[0]), 0.5, 0.5),
    ]


def _same_as_torch(problem: Problem, momenta: np.ndarray) -> Number:
    """The library's optimiser and PyTorch's on the chain, momentum by momentum."""
    ours, theirs = (torch.from_numpy(problem.start.copy()).requires_grad_() for _ in range(2))
    first = Nesterov([ours], lr=1.0, momentum=0.5, form="sum")
    second = torch.optim.SGD([theirs], lr=1.0, momentum=0.5, nesterov=True)
    for share in momenta:
        for optimizer, x in ((first, ours), (second, theirs)):
            optimizer.param_groups[0]["momentum"] = float(share)
            x.grad = torch.from_numpy(problem.gradient(x.detach().numpy().copy()))
            optimizer.step()
    return at_most(
        "largest difference of the library's optimiser from PyTorch's",
        float((ours - theirs).detach().abs().max()),
        1e-10,
    )


def _picture(t: np.ndarray, errors: dict[str, np.ndarray], upper: np.ndarray, lower: float) -> Picture:
    places = np.unique(np.geomspace(1, len(t), 120).astype(int)) - 1
    lines = [Series(name, t[places].tolist(), values[places].tolist()) for name, values in errors.items()]
    lines.append(Series("upper bound", t[places].tolist(), upper[places].tolist(), style="dashed"))
    lines.append(Series("lower bound for the last step", [float(t[-1])], [lower], style="points"))
    panel = Panel("Nesterov's chain, η = 1/β", "step T (count)", "f − f* (no unit)", lines, True, True)
    return Picture("A fixed momentum shifts the curve of descent; a climbing one bends it.", [panel])
