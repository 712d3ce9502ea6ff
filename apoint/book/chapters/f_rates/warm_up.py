"""F8: warm-up, then a linear or cosine decay."""

from __future__ import annotations

import numpy as np
import torch

from apoint.book.chapters.f_rates.cycles import ROUNDING, by_torch
from apoint.book.claim import claim
from apoint.book.evidence import Evidence, at_most, close, same
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.schedules import cosine, warmup_linear

STEPS, WARMUP = 1000, 100


@claim(
    "F8",
    "Warm-up, then linear or cosine decay",
    kind="identity",
    statement=r"""
    Over the first $\tau$ of $T$ steps the rate rises in a straight line to its maximum; then, with
    $x=(t-\tau)/(T-\tau)$, it falls to the floor as $1-x$ or as $\frac{1}{2}(1+\cos\pi x)$. Both lose half
    of the way by the middle of the decay; the cosine stays higher before, and lower after.
    """,
    refuted_by="a step at which one of the two differs from PyTorch's schedulers put one after the other",
    seconds={"quick": 1, "standard": 1},
    planted={"factor": 1.05},
    details=r"""
    PyTorch builds them with `SequentialLR` out of `LambdaLR` for the rise (since its `LinearLR` cannot start
    at 0), `LinearLR` and `CosineAnnealingLR`.
    """,
    references=(
        "Goyal et al. (2017), Accurate, large minibatch SGD: training ImageNet in 1 hour",
        "Popel and Bojar (2018), Training tips for the transformer model",
    ),
)
def two_decays(run: Running, factor: float = 1.0) -> Evidence:
    """Both decays against PyTorch's, times `factor`, and their order before and after the middle."""
    share = WARMUP / STEPS
    linear = np.array(warmup_linear(warmup=share, floor=0.1).values(STEPS))
    round_ = np.array(cosine(warmup=share, floor=0.1).values(STEPS))
    middle = (STEPS + WARMUP) // 2
    before, after = slice(WARMUP + 1, middle), slice(middle + 1, STEPS)
    places = list(range(0, STEPS, 5))
    panel = Panel(
        "Warm-up of a tenth, down to a tenth",
        "step (count)",
        "rate over its maximum (no unit)",
        [Series("linear", places, linear[::5].tolist()), Series("cosine", places, round_[::5].tolist())],
    )
    return Evidence(
        [
            at_most("linear: largest difference from PyTorch", _off(linear, "linear", factor), ROUNDING),
            at_most("cosine: largest difference from PyTorch", _off(round_, "cosine", factor), ROUNDING),
            close("linear, in the middle of the decay", float(linear[middle]), factor * 0.55, 0, ROUNDING),
            close("cosine, in the middle of the decay", float(round_[middle]), factor * 0.55, 0, ROUNDING),
            same("the cosine is higher before the middle", bool((round_ > linear)[before].all()), True),
            same("and lower after it", bool((round_ < linear)[after].all()), True),
        ],
        pictures=[Picture("The two decays.", [panel], "llm 1.2, linear and cosine decay with warm-up")],
    )


def _off(ours: np.ndarray, kind: str, factor: float) -> float:
    def make(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
        schedulers = torch.optim.lr_scheduler
        rise = schedulers.LambdaLR(optimizer, lambda step: step / WARMUP)
        fall: torch.optim.lr_scheduler.LRScheduler
        if kind == "linear":
            fall = schedulers.LinearLR(optimizer, 1.0, 0.1, STEPS - WARMUP)
        else:
            fall = schedulers.CosineAnnealingLR(optimizer, STEPS - WARMUP, eta_min=0.1)
        return schedulers.SequentialLR(optimizer, [rise, fall], [WARMUP])

    return float(np.abs(ours - factor * by_torch(make, STEPS)).max())
