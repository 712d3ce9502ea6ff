"""B5: for a small change of the weights, the divergence is half a quadratic form of the Fisher matrix."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from apoint.book.claim import Erratum, claim
from apoint.book.evidence import Evidence, at_least, at_most, close
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.theory import divergence

INPUTS, HIDDEN, CLASSES, EXAMPLES = 4, 6, 3, 12
STEPS = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)


@claim(
    "B5",
    "The divergence to second order",
    kind="identity",
    statement=r"""
    Move the weights of a network from $w$ to $w+\delta$. The mean over inputs of the divergence between its
    predictions before and after is
    $$\mathbb{E}_x D\left(P_w(y|x)\,\|\,P_{w+\delta}(y|x)\right)
      =\tfrac12\,\delta^\top F\delta+o(\lVert\delta\rVert^2),$$
    with the Fisher matrix $F=\mathbb{E}_x\mathbb{E}_{y\sim P_w(y|x)}[\nabla\ln P_w(y|x)\,\nabla\ln
    P_w(y|x)^\top]$. The rest is of the third order.
    """,
    refuted_by="a ratio of the two sides that does not go to 1 as the step shrinks, or a rest that is not of "
    "the third order",
    seconds={"quick": 0.5, "standard": 4},
    planted={"factor": 1.06},
    erratum=Erratum(
        written=r"The expansion is $\delta w\,F(\delta w)+o(\delta w^2)$.",
        corrected=r"It is $\frac12\delta w^\top F\,\delta w+o(\lVert\delta w\rVert^2)$, and $F$ is the mean "
        "over inputs if one matrix is to serve for all of them.",
        why="The gradient of the divergence is 0 at no change, and its second derivative there is $F$: the "
        "Taylor expansion brings the half.",
        quote="= δw F(δw) + o(δw²)",
        place="notes 1.2.1",
    ),
    details=r"""
    A network with a hidden layer of tanh units and a softmax, in double precision. $F$ is computed from the
    scores of all classes for each input, and averaged; the divergence from the predictions themselves. One
    matrix for each input would do as well, but the matrix of a single input says nothing of the others: the
    last number shows how far off it is.
    """,
    references=("Amari and Nagaoka (2000), Methods of information geometry, section 3.2",),
)
def expansion(run: Running, factor: float = 1.0) -> Evidence:
    """Divergences along random directions against the quadratic form; `factor` multiplies the form."""
    generator = run.generator()
    inputs = torch.randn(EXAMPLES, INPUTS, generator=generator, dtype=torch.float64)
    weights = torch.randn(_SIZE, generator=generator, dtype=torch.float64)
    fishers = [divergence.fisher_matrix(lambda w, x=x: _predict(w, x), weights) for x in inputs]  # type: ignore[misc]
    mean = torch.stack(fishers).mean(0)
    ratios, rests, alone = [], [], []
    for _ in range(run.pick(10, 100)):
        step = torch.randn(_SIZE, generator=generator, dtype=torch.float64)
        step /= step.norm()
        found = [_divergence(weights, size * step, inputs) for size in STEPS]
        forms = [factor * divergence.second_order(mean, size * step) for size in STEPS]
        ratios.append([a / b for a, b in zip(found, forms, strict=True)])
        rests.append([abs(a - b) for a, b in zip(found, forms, strict=True)])
        own = factor * divergence.second_order(fishers[0], STEPS[0] * step)
        alone.append([_divergence(weights, STEPS[0] * step, inputs[:1]) / own, found[0] / own])
    ratio, rest = np.array(ratios), np.array(rests).mean(0)
    orders = np.diff(np.log(rest)) / np.diff(np.log(STEPS))
    one = np.array(alone)
    worst = _farthest(ratio[:, 0])
    numbers = [
        close("divergence over ½δᵀFδ, step 0.001, farthest from 1", worst, 1.0, 0.01),
        at_most("the same at step 0.01", abs(_farthest(ratio[:, 2]) - 1), 0.1),
        at_least("order of the rest between 0.001 and 0.03", float(orders[:3].min()), 2.8),
        close("one input with its own matrix", _farthest(one[:, 0]), 1.0, 0.01),
        at_least("all inputs with the matrix of one, farthest off", np.abs(np.log(one[:, 1])).max(), 0.5),
    ]
    written = close("divergence over δᵀFδ, step 0.001", float(ratio[:, 0].mean()) / 2, 1.0, 0.01)
    return Evidence(numbers, [written], [_picture(ratio, rest)])


_SIZE = HIDDEN * (INPUTS + 1) + CLASSES * (HIDDEN + 1)


def _predict(weights: Tensor, inputs: Tensor) -> Tensor:
    """Log-probabilities of the classes; all weights in one vector."""
    first, bias, second, last = torch.split(weights, [HIDDEN * INPUTS, HIDDEN, CLASSES * HIDDEN, CLASSES])
    hidden = torch.tanh(inputs @ first.view(HIDDEN, INPUTS).T + bias)
    return F.log_softmax(hidden @ second.view(CLASSES, HIDDEN).T + last, -1)


def _divergence(weights: Tensor, step: Tensor, inputs: Tensor) -> float:
    before, after = _predict(weights, inputs).exp(), _predict(weights + step, inputs).exp()
    pairs = zip(before.numpy(), after.numpy(), strict=True)
    return float(np.mean([divergence.kullback_leibler(p, q) for p, q in pairs]))


def _farthest(ratios: np.ndarray) -> float:
    return float(ratios[np.abs(ratios - 1).argmax()])


def _picture(ratio: np.ndarray, rest: np.ndarray) -> Picture:
    half = Series("½ δᵀFδ", STEPS, ratio.mean(0), ratio.min(0), ratio.max(0))
    printed = Series("δᵀFδ, as printed", STEPS, ratio.mean(0) / 2, ratio.min(0) / 2, ratio.max(0) / 2)
    one = Series("", [STEPS[0], STEPS[-1]], [1.0, 1.0], style="dashed")
    cubic = rest[2] * (np.array(STEPS) / STEPS[2]) ** 3
    panels = [
        Panel("Divergence over the form", "length of the step ‖δ‖", "ratio", [half, printed, one], True),
        Panel(
            "What is left over",
            "length of the step ‖δ‖",
            "|divergence - ½ δᵀFδ| (nats)",
            [
                Series("mean over directions", STEPS, rest.tolist()),
                Series("‖δ‖³", STEPS, cubic.tolist(), style="dashed"),
            ],
            True,
            True,
        ),
    ]
    caption = f"{len(ratio)} random directions: mean and whole range."
    return Picture(caption, panels)
