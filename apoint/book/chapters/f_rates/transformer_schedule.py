"""F5: the schedule of the original transformer."""

from __future__ import annotations

import numpy as np
import torch

from apoint.book.claim import Erratum, claim
from apoint.book.evidence import Evidence, at_least, at_most, close, same
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.schedules import noam
from apoint.units import Horizon

WIDTH, WARMUP, STEPS = 512, 4000, 100_000
"""Of the paper's base model: model width, warm-up steps and all steps."""
PAIRS, TOKENS = 4_500_000, 25_000
"""Of its data: sentence pairs, and source tokens in a batch."""


def published(t: np.ndarray) -> np.ndarray:
    """Equation 3 of the paper, as it stands there."""
    return np.asarray(WIDTH**-0.5 * np.minimum(t**-0.5, t * WARMUP**-1.5))


@claim(
    "F5",
    "The transformer's own schedule",
    kind="identity",
    statement=r"""
    The schedule of the original transformer is $\eta_t=d^{-1/2}\min(t^{-1/2},t\tau^{-3/2})$, where $t$ counts
    *steps* and $\tau$ is the warm-up in steps: it rises in a straight line up to $t=\tau$, where it peaks at
    $(d\tau)^{-1/2}$, and then falls as $t^{-1/2}$. A shorter warm-up is a higher one too.
    """,
    refuted_by="a step at which the schedule differs from the published formula, or a peak elsewhere",
    seconds={"quick": 1, "standard": 2},
    planted={"factor": 1.05},
    erratum=Erratum(
        quote="Époques de warmup = 4000",
        place="llm 1.2",
        written=r"$t$ is the epoch, with 4000 epochs of warm-up.",
        corrected=r"$t$ is the step, with 4000 steps of warm-up.",
        why="The paper trains for 100,000 steps on 4.5 million sentence pairs with 25,000 tokens in a batch: "
        "even with a single token to a sentence that is fewer than 560 epochs, and the warm-up of 4000 would "
        "never end.",
    ),
    details=r"""
    The schedule of the library, over the paper's 100,000 steps, is compared with the formula at every step,
    and with PyTorch's `LambdaLR` driving an optimiser. The picture has three widths and warm-ups.
    """,
    references=("Vaswani et al. (2017), Attention is all you need, section 5.3, equation 3",),
)
def original_schedule(run: Running, factor: float = 1.0) -> Evidence:
    """The library's schedule against formula and PyTorch; `factor` multiplies the formula."""
    schedule = noam(Horizon(STEPS, 1000), model_dim=WIDTH, warmup=f"{WARMUP} steps")
    ours = np.array(schedule.values(STEPS))
    t = np.arange(1, STEPS + 1, dtype=float)
    peak = int(np.argmax(ours)) + 1
    late = np.polyfit(np.log(t[50_000:]), np.log(ours[50_000:]), 1)[0]
    epochs = STEPS * TOKENS / PAIRS  # at most, with one token to a pair
    reached = epochs * WARMUP**-1.5 / WARMUP**-0.5
    return Evidence(
        [
            at_most(
                "largest relative difference from the formula",
                _difference(ours, factor * published(t)),
                1e-12,
            ),
            at_most("the same from PyTorch's LambdaLR, first 6000 steps", _by_torch(ours, factor), 1e-12),
            same("step of the peak", peak, WARMUP),
            close("the peak", float(ours.max()), factor * (WIDTH * WARMUP) ** -0.5, 1e-12),
            close("power of t after the peak", float(late), -0.5, 1e-6),
        ],
        [at_least("share of the peak reached by the end if t counted epochs, at most", reached, 1.0)],
        [_picture()],
    )


def _difference(ours: np.ndarray, theirs: np.ndarray) -> float:
    return float(np.abs(ours / theirs - 1).max())


def _by_torch(ours: np.ndarray, factor: float) -> float:
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: factor * float(published(np.array([step + 1.0]))[0])
    )
    rates = []
    for _ in range(6000):
        rates.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    return _difference(ours[:6000], np.array(rates))


def _picture() -> Picture:
    places = np.unique(np.linspace(0, 20_000 - 1, 200).astype(int))
    lines = []
    for width, warmup in ((512, 4000), (512, 8000), (256, 4000)):
        schedule = noam(Horizon(20_000, 1000), model_dim=width, warmup=f"{warmup} steps")
        values = np.array(schedule.values(20_000))[places]
        lines.append(Series(f"d = {width}, τ = {warmup}", (places + 1).tolist(), values.tolist()))
    panel = Panel("Original transformer", "step t (count)", "learning rate (no unit)", lines)
    return Picture("A longer warm-up makes a lower peak.", [panel], "llm 1.2, transformer schedule")
