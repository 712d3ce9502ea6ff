"""I8: Lion takes the sign of the blend of this step."""

from __future__ import annotations

import numpy as np
import torch

from apoint.book.chapters.i_updates.paths import difference, gradient_of, path
from apoint.book.claim import Erratum, claim
from apoint.book.evidence import Evidence, Number, at_most, close
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.optim.sign import lion

START, RATE, DECAY = (1.5, -1.0), 0.03, 0.1


def by_hand(steps: int, late: int = 0, factor: float = 1.0) -> np.ndarray:
    """The paper's programme in plain numbers on x² + 3y²; `late` takes the sign of an earlier blend."""
    place, momentum = np.array(START), np.zeros(2)
    blends, places = [np.zeros(2)], [place]
    for _ in range(steps):
        gradient = np.array([2.0, 6.0]) * place
        blends.append(0.9 * momentum + 0.1 * gradient)
        momentum = 0.99 * momentum + 0.01 * gradient
        place = place - RATE * (factor * np.sign(blends[len(blends) - 1 - late]) + DECAY * place)
        places.append(place)
    return np.array(places)


@claim(
    "I8",
    "Lion",
    kind="identity",
    statement=r"""
    Lion blends momentum and gradient, $c_{t+1}=\beta_1m_t+(1-\beta_1)\nabla\mathcal{L}(\theta_t)$, and
    steps by $\theta_{t+1}=\theta_t-\eta\left(\operatorname{sign}(c_{t+1})+\lambda\theta_t\right)$; the
    momentum moves on with $\beta_2$. So every coordinate moves by exactly $\eta$, besides the decay.
    """,
    refuted_by="a path of the rule that differs from the paper's programme, or a first step that does not "
    "have the "
    "length η",
    seconds={"quick": 0.2},
    planted={"factor": 1.05},
    erratum=Erratum(
        quote=r"$\theta_{t+1}=\theta_t-\eta_t(\text{sign}(c_t)+\lambda\theta_t)$",
        place="weights annex",
        written=r"$\theta_{t+1}=\theta_t-\eta_t(\operatorname{sign}(c_t)+\lambda\theta_t)$.",
        corrected=r"$\theta_{t+1}=\theta_t-\eta_t(\operatorname{sign}(c_{t+1})+\lambda\theta_t)$.",
        why=r"With $c_t$ the first step has no blend to take a sign of, and every later one comes a step "
        r"late: "
        r"the gradient just computed has no say in it.",
    ),
    details=r"""
    The paper's programme updates with the blend of the current gradient, then renews the momentum. The check
    writes it out in plain numbers on $x^2+3y^2$ and compares paths, and reads the size of the first step.
    """,
    references=("Chen et al. (2023), Symbolic discovery of optimization algorithms, arXiv 2302.06675",),
)
def sign_of_the_new_blend(run: Running, factor: float = 1.0) -> Evidence:
    """Our rule's path against the paper's programme; `factor` multiplies the sign in the latter."""
    slope = gradient_of(lambda place: place[0].square() + 3 * place[1].square())
    ours = path(lion, slope, START, 200, lr=RATE, weight_decay=DECAY)
    numbers = _against(ours, by_hand(200, factor=factor))
    gradient = torch.from_numpy(run.random().standard_cauchy(1000))
    delta, _ = lion.step(gradient, lion.init(gradient), gradient, 1, {**lion.defaults, "lr": RATE})
    numbers.append(at_most("spread of step lengths over 1000 coordinates", float(delta.abs().std()), 1e-15))
    written = _against(ours, by_hand(200, 1))
    labels = (("sign of the new blend", 0), ("as written, a step late", 1))
    lines = [Series(label, range(201), np.abs(by_hand(200, lag)[:, 1]).tolist()) for label, lag in labels]
    panel = Panel("Distance of y from its minimum", "step", "|y| (no unit)", lines, y_log=True)
    caption = "Lion on x² + 3y² at rate 0.03: a late sign starts a step later and swings wider."
    return Evidence(numbers, written, [Picture(caption, [panel], "weights annex")])


def _against(ours: np.ndarray, expected: np.ndarray) -> list[Number]:
    first = np.abs(expected[1] - expected[0] + RATE * DECAY * expected[0])
    return [
        at_most("path of 200 steps less the programme's", difference(ours, expected), 1e-12),
        close("first step of the programme over η", float(first.min()) / RATE, 1.0, 1e-12),
    ]
