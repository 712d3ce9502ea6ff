"""K3: do all seeds end at the same loss?"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from apoint.book.claim import claim
from apoint.book.evidence import Evidence, Number, at_least, at_most
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running

WIDTHS = (2, 3, 4, 8, 16, 32)
SEEDS = 200


@claim(
    "K3c",
    "The same loss whatever the seed, if the network is wide",
    kind="shape",
    statement=r"""
    Descent from different random weights ends at points of vanishing gradient. For a wide network they all
    have the same loss; for a narrow one they do not. On the exclusive or, networks of two hidden units end
    at several different losses, depending on the seed; networks of 32 end at 0 from every one of 200 seeds.
    """,
    refuted_by="a wide network whose final losses differ by more than a thousandth of the initial loss, or a "
    "narrow one without at least three different values, each reached by 5 % of the seeds",
    seconds={"quick": 8, "standard": 15},
    planted={"widest": 2},
    details=r"""
    The source reports that training generally reaches critical points of the same value, independently of the
    initialisation. That holds where it was observed, in networks with far more weights than the task needs.
    Here $f(x)=\sum_ja_j\max(0,w_j\cdot x+b_j)+c$ fits the four points $(\pm1,\pm1)$ with targets
    $x_1x_2$ by the mean squared error. Weights begin with He's variance and biases at 0, and full gradients
    at a falling rate are followed until the gradient is gone. Two hidden units are enough to fit the points
    exactly, so that a loss above 0 is a point where descent is stuck. All 200 networks of a width are trained
    at once, as one sum of independent losses.
    """,
    references=("Choromanska et al. (2015), The loss surfaces of multilayer networks",),
)
def final_values(run: Running, widest: int = 32) -> Evidence:
    """Final losses over seeds by width; `widest` stands for the wide network."""
    widths = sorted({*(width for width in WIDTHS if width < widest), 2, widest})
    steps = run.pick(3000, 10_000)
    losses, slopes = {}, {}
    for width in widths:
        losses[width], slopes[width] = _ends(width, steps, run.generator(f"{width}"))
    values, shares = np.unique(losses[2].round(1), return_counts=True)
    common = int((shares >= 0.05 * SEEDS).sum())
    numbers: list[Number] = [
        at_least("different final losses of two units, each from 5 % of seeds", common, 3),
        at_most("range of final losses of the widest", float(np.ptp(losses[widest])), 1e-3),
        at_most("highest final loss of the widest", float(losses[widest].max()), 1e-3),
        at_most("median of the final gradient's norm, two units", float(np.median(slopes[2])), 1e-2),
        at_most("the same, the widest", float(np.median(slopes[widest])), 1e-2),
    ]
    stuck = {width: float((found > 0.05).mean()) for width, found in losses.items()}
    error = {width: (share * (1 - share) / SEEDS) ** 0.5 for width, share in stuck.items()}
    panels = [
        Panel(
            "Two hidden units: where 200 seeds end",
            "final loss",
            "share of seeds",
            [Series("", values.tolist(), (shares / SEEDS).tolist(), style="bars")],
        ),
        Panel(
            "Seeds that end above the minimum",
            "hidden units",
            "share of seeds",
            [
                Series(
                    "", list(stuck), list(stuck.values()),
                    [max(0.0, stuck[width] - 2 * error[width]) for width in stuck],
                    [stuck[width] + 2 * error[width] for width in stuck], "points",
                )
            ],
            x_log=True,
        ),
    ]  # fmt: skip
    caption = "The exclusive or. Left: final losses, rounded to a tenth. Right: with two standard errors."
    return Evidence(numbers, pictures=[Picture(caption, panels)])


def _ends(width: int, steps: int, generator: torch.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The final losses of all seeds, and the norms of their gradients."""
    inputs = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    targets = inputs.prod(1)
    weights = [
        torch.randn(SEEDS, 2, width, generator=generator),  # He's variance of two inputs is 1
        torch.zeros(SEEDS, 1, width),
        torch.randn(SEEDS, width, 1, generator=generator) * (2 / width) ** 0.5,
        torch.zeros(SEEDS, 1, 1),
    ]
    weights = [weight.requires_grad_() for weight in weights]

    def each_loss() -> Tensor:
        hidden = torch.relu(inputs @ weights[0] + weights[1])
        misses: Tensor = (hidden @ weights[2] + weights[3]).squeeze(-1) - targets
        return misses.square().mean(1)

    for step in range(steps):
        rate = 0.1 / (1 + 4 * step / steps) if width < 16 else 0.05
        slopes = torch.autograd.grad(each_loss().sum(), weights)
        with torch.no_grad():
            for weight, slope in zip(weights, slopes, strict=True):
                weight -= rate * slope
    slopes = torch.autograd.grad(each_loss().sum(), weights)
    norm = torch.stack([slope.flatten(1).square().sum(1) for slope in slopes]).sum(0).sqrt()
    return each_loss().detach().double().numpy(), norm.double().numpy()
