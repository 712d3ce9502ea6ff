"""I5: Adam's averages start at 0, and what its correction makes of them."""

from __future__ import annotations

import math

import numpy as np
import torch

from apoint.book.chapters.i_updates.paths import difference, gradient_of, path, torch_path
from apoint.book.claim import Erratum, claim
from apoint.book.evidence import Evidence, Number, agrees, at_least, at_most
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.optim.adam import adam as adam_rule
from apoint.theory import adam

BETA1, BETA2 = 0.9, 0.999


@claim(
    "I5",
    "Adam's bias correction",
    kind="identity",
    statement=r"""
    Adam averages the gradient, $m_t$, and its square, $v_t$, both from 0. For gradients of one distribution
    $$\mathbb{E}[v_t]=(1-\beta_2^t)\,\mathbb{E}[g^2],\qquad\mathbb{E}[m_t]=(1-\beta_1^t)\,\mathbb{E}[g],$$
    so that dividing by these factors removes the bias. Adam is momentum, divided as in RMSProp, with that
    correction.
    """,
    refuted_by="corrected averages over many runs that differ from the moments of the gradient by more than "
    "three standard errors, or a path that differs from momentum over RMSProp",
    seconds={"quick": 0.5, "standard": 4},
    planted={"factor": 1.05},
    erratum=Erratum(
        quote=r"Adam : combiner AdaGrad et RMSProp […] "
        r"$v_t=\beta_2v_{t-1}+(1-\beta_2)\mathcal{L}(\theta_t)^2$",
        place="weights 1.4",
        written=r"Adam combines AdaGrad and RMSProp; "
        r"$v_t=(1-\beta_2)\sum_i\beta_2^{t-i}\mathcal{L}(\theta_i)^2$, an "
        r"estimator of $\mathbb{E}[\mathcal{L}(\theta_t)^2]$, and $m_t$ one of "
        r"$\mathbb{E}[\mathcal{L}(\theta_t)]$.",
        corrected=r"It combines momentum and RMSProp; $v_t=(1-\beta_2)\sum_i\beta_2^{t-i}(\nabla\mathcal{L}"
        r"(\theta_i))^2$ estimates $\mathbb{E}[(\nabla\mathcal{L})^2]$, and $m_t$ estimates "
        r"$\mathbb{E}[\nabla\mathcal{L}]$.",
        why=r"The gradient sign is missing on three slides. Nothing of AdaGrad's sum, which never falls, "
        r"is in Adam; $\beta_1$ is momentum.",
    ),
    details=r"""
    The check takes noisy gradients $g=\theta+\xi$ of the loss $\frac12(\theta+\xi)^2$ at a fixed $\theta$,
    many runs at once, and reads the averages from the memory of the rule. Without the correction the first
    step would divide by $\sqrt{1-\beta_2}=0.03$ of the gradient's size while the numerator has 0.1 of it: a
    step of $3.2\,\eta$. The composition takes momentum's average and RMSProp's accumulator and divides one
    by the root of the other.
    """,
    references=("Kingma and Ba (2015), Adam: a method for stochastic optimization, section 3",),
)
def bias_correction(run: Running, factor: float = 1.0) -> Evidence:
    """Averages of many runs; `factor` multiplies what the correction divides by."""
    runs, steps, place = run.pick(20_000, 400_000), 8, 2.0
    noise = run.random().standard_normal((steps, runs))
    gradients, losses = place + noise, (place + noise) ** 2 / 2
    average, square = _memory(gradients)
    factors = [factor * adam.bias_factor(beta, steps) for beta in (BETA1, BETA2)]
    second, second_error = place**2 + 1, _error(square / factors[1])
    numbers: list[Number] = [
        agrees("m̂ after 8 steps", float(average.mean()) / factors[0], _error(average / factors[0]), place),
        agrees("v̂ after 8 steps", float(square.mean()) / factors[1], second_error, second),
        at_most("v without correction over E[g²]", float(square.mean()) / second, 0.01),
    ]
    numbers += _composition(run)
    # E[L²] of a noncentral square: (θ⁴ + 6θ² + 3)/4, and E[L] = (θ² + 1)/2.
    squared_loss, loss = (place**4 + 6 * place**2 + 3) / 4, (place**2 + 1) / 2
    written = [
        agrees("v̂ as an estimate of E[L²]", float(square.mean()) / factors[1], second_error, squared_loss),
        agrees(
            "m̂ as an estimate of E[L]", float(average.mean()) / factors[0], _error(average / factors[0]), loss
        ),
        at_least("share of v that stays once gradients vanish", _fall(), 1.0, remark="of AdaGrad's sum: all"),
    ]
    remark = f"Drawn: E[L²] = {float((losses**2).mean()):.3f}, E[g²] = {float((gradients**2).mean()):.3f}."
    return Evidence(numbers, written, [_picture()], remark)


def _memory(gradients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Adam's two averages after given gradients, [steps, runs], of runs that do not move."""
    place = torch.zeros(gradients.shape[1], dtype=torch.float64)
    state = adam_rule.init(place)
    for step, gradient in enumerate(torch.from_numpy(gradients), start=1):
        _, state = adam_rule.step(gradient, state, place, step, adam_rule.defaults)
    return state["average"].numpy(), state["square"].numpy()


def _error(values: np.ndarray) -> float:
    return float(values.std()) / math.sqrt(len(values))


def _fall() -> float:
    """Adam's accumulator 1000 steps after the last of 100 gradients, as a share."""
    gradients = np.zeros((1100, 1))
    gradients[:100] = 1.0
    return float(_memory(gradients)[1][0] / _memory(gradients[:100])[1][0])


def _composition(run: Running) -> list[Number]:
    """Adam's path from momentum's average over the root of RMSProp's accumulator, and PyTorch's."""
    slope = gradient_of(lambda place: place[0].square() + 3 * place[1].square())
    ours = path(adam_rule, slope, [1.5, -1.0], 100, lr=0.05)
    place, velocity, square = np.array([1.5, -1.0]), np.zeros(2), np.zeros(2)
    places = [place]
    for step in range(1, 101):
        gradient = np.array([2.0, 6.0]) * place
        velocity = BETA1 * velocity + (1 - BETA1) * gradient
        square = BETA2 * square + (1 - BETA2) * gradient**2
        ahead = velocity / (1 - BETA1**step) / (np.sqrt(square / (1 - BETA2**step)) + 1e-8)
        place = place - 0.05 * ahead
        places.append(place)
    theirs = torch_path(lambda params: torch.optim.Adam(params, lr=0.05), slope, [1.5, -1.0], 100)
    return [
        at_most("path less momentum over RMSProp, corrected", difference(ours, np.array(places)), 1e-10),
        at_most("path less PyTorch's", difference(ours, theirs), 1e-10),
    ]


def _picture() -> Picture:
    steps = np.unique(np.geomspace(1, 10**4, 80).astype(int))
    lines = [
        Series(f"β = {beta:g}", steps.tolist(), [adam.bias_factor(beta, int(step)) for step in steps])
        for beta in (BETA1, BETA2)
    ]
    panel = Panel("What an average has reached", "step", "share of the expectation", lines, x_log=True)
    return Picture(
        "Averages from 0 reach their expectation after about 1/(1−β) steps.", [panel], "weights 1.4"
    )
