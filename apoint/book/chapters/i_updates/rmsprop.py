"""I4: RMSProp's accumulator can fall, AdaGrad's cannot."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from apoint.book.chapters.i_updates.paths import difference, gradient_of, path, torch_path
from apoint.book.claim import claim
from apoint.book.evidence import Evidence, Number, at_least, at_most, close, same
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.optim import Rule
from apoint.optim.adaptive import adagrad, rmsprop


def accumulators(rule: Rule, gradients: np.ndarray, **hyper: float) -> np.ndarray:
    """The norm of a rule's accumulator after each of given gradients, [steps]."""
    settings = {**rule.defaults, **hyper}
    place = torch.zeros(gradients.shape[1], dtype=torch.float64)
    state, norms = rule.init(place), []
    for step, gradient in enumerate(torch.from_numpy(gradients), start=1):
        _, state = rule.step(gradient, state, place, step, settings)
        norms.append(float(next(iter(state.values())).norm()))
    return np.array(norms)


@claim(
    "I4",
    "RMSProp forgets",
    kind="shape",
    statement=r"""
    RMSProp divides by the root of a running average $g_{t+1}=\alpha g_t+(1-\alpha)\nabla\mathcal{L}^2$ in
    place of AdaGrad's sum. So its accumulator falls again when gradients do, by the factor $\alpha$ per
    step once they vanish, while AdaGrad's never falls; and its steps do not die out.
    """,
    refuted_by="a step at which AdaGrad's accumulator falls, an RMSProp accumulator that does not fall at "
    "the rate "
    "α, or steps of RMSProp that shrink under a constant gradient",
    seconds={"quick": 0.3},
    planted={"swapped": True},
    details=r"""
    Gradients are drawn with a scale that rises and falls, as during training: large at first, then a
    hundredth. The accumulators are those of our rules, whose paths are compared with PyTorch's. Memory is
    $1/(1-\alpha)$ steps: 10 for the $\alpha=0.9$ of the lecture, 100 for PyTorch's default 0.99.
    """,
    references=("Hinton, Srivastava and Swersky (2012), lecture 6a",),
)
def forgets(run: Running, swapped: bool = False) -> Evidence:
    """Accumulators under gradients that fall; `swapped` exchanges the two rules."""
    random = run.random()
    scale = np.concatenate([np.ones(60), np.full(60, 0.01), np.zeros(30)])[:, None]
    gradients = scale * random.standard_normal((150, 5))
    first = accumulators(rmsprop, gradients, alpha=0.9)
    second = accumulators(adagrad, gradients)
    moving, summed = (second, first) if swapped else (first, second)
    numbers: list[Number] = [
        same("steps at which AdaGrad's accumulator falls", int((np.diff(summed) < 0).sum()), 0),
        at_least("steps at which RMSProp's falls", float((np.diff(moving) < 0).sum()), 50),
        close("RMSProp's factor per step without gradient", float(moving[-1] / moving[-2]), 0.9, 1e-12),
    ]
    numbers += _paths()
    lines = [
        Series("RMSProp, α = 0.9", range(1, 151), moving.tolist()),
        Series("AdaGrad", range(1, 151), summed.tolist()),
    ]
    panel = Panel("Accumulators", "step", "norm of the accumulator (gradient²)", lines, y_log=True)
    caption = "Gradients of scale 1 for 60 steps, 0.01 for 60, then none. One draw of five coordinates."
    return Evidence(numbers, pictures=[Picture(caption, [panel], "weights 1.3")])


def _paths() -> list[Number]:
    """Against PyTorch on a bowl, and the last steps under a constant gradient."""
    slope = gradient_of(lambda place: place[0].square() + 3 * place[1].square())
    ours = path(rmsprop, slope, [1.5, -1.0], 50, lr=0.05, alpha=0.9)
    theirs = torch_path(lambda p: torch.optim.RMSprop(p, lr=0.05, alpha=0.9), slope, [1.5, -1.0], 50)

    def constant(place: Tensor) -> Tensor:
        return torch.full_like(place, 7.0)

    last = -float(np.diff(path(rmsprop, constant, [0.0], 300, lr=0.4, alpha=0.9)[:, 0])[-1])
    dying = -float(np.diff(path(adagrad, constant, [0.0], 300, lr=0.4)[:, 0])[-1])
    return [
        at_most("path less PyTorch's", difference(ours, theirs), 1e-12),
        close("RMSProp's step 300 under a constant gradient", last, 0.4, 1e-6),
        close("AdaGrad's", dying, 0.4 / 300**0.5, 1e-6),
    ]
