"""I9: clipping by value turns the gradient, clipping by norm keeps it; and what it does to divergence."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from apoint.book.chapters.i_updates.paths import gradient_of, path
from apoint.book.claim import claim
from apoint.book.evidence import Evidence, Number, at_least, at_most, between, close
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.optim import clip_by_norm, clip_by_value
from apoint.optim.descent import gradient_descent

LIMIT = 1.0


@claim(
    "I9",
    "Clipping bounds, and by norm keeps the direction",
    kind="identity",
    statement=r"""
    Clipping each coordinate to $[-\alpha,\alpha]$ may turn the gradient, by nearly 45° in the plane;
    scaling it to the norm $\alpha$ never does. On $(x-1)^2$ at rate 1.05 plain descent multiplies the error
    by $-1.1$ at each step and diverges; with the norm clipped to $\alpha$ the error stays below
    $0.55\,\alpha$ in the end. It does not go to 0 either: clipping cures divergence, not a rate that is too
    large.
    """,
    refuted_by="a direction changed by clipping the norm, an error that does not grow as 1.1 to the t "
    "without "
    "clipping, or one that leaves 0.5 α to 0.55 α with it",
    seconds={"quick": 0.3},
    planted={"factor": 1.05},
    details=r"""
    Within $|x-1|\le\alpha/2$ the gradient is not clipped and the error grows by 1.1, to at most
    $0.55\,\alpha$; beyond, a step has the fixed length $1.05\,\alpha$ and leads to the other side. So the
    error ends in swinging between $e$ and $1.05\,\alpha-e$. Clipping is compared with `torch.nn.utils`,
    whose norm has $10^{-6}$ added to it.
    """,
    references=(
        "Pascanu, Mikolov and Bengio (2013), On the difficulty of training recurrent neural networks",
    ),
)
def clipping(run: Running, factor: float = 1.0) -> Evidence:
    """Directions before and after, and descent on (x − 1)²; `factor` multiplies what is expected of it."""
    gradients = torch.from_numpy(10 * run.random().standard_normal((2000, 2)))
    turned = _angles(gradients, clip_by_value(gradients, LIMIT))
    kept = _angles(gradients, clip_by_norm(gradients, LIMIT))
    numbers: list[Number] = [
        at_most("largest turn by norm (degrees)", float(kept.max()), 1e-5),
        between("largest turn by value (degrees)", float(turned.max()), 40, 45),
        *_against_torch(gradients),
    ]
    plain, clipped = _errors(1.05, None), _errors(1.05, LIMIT)
    growth = float((plain[-1] / plain[0]) ** (1 / (len(plain) - 1)))
    tail = clipped[-50:]
    numbers += [
        close("growth of the error per step, no clipping", growth, factor * 1.1, 1e-9),
        at_least("smallest error at the end, clipped", float(tail.min()), 0.5 * LIMIT),
        at_most("largest error at the end, clipped", float(tail.max()), 0.55 * LIMIT),
        # Once it swings, the errors of two successive steps add up to the length of a step.
        close("errors of the last two steps together, over α", float(tail[-2:].sum()), factor * 1.05, 1e-9),
    ]
    return Evidence(numbers, pictures=[_arrows(), _descents(plain, clipped)])


def _angles(first: Tensor, second: Tensor) -> np.ndarray:
    cosines = torch.nn.functional.cosine_similarity(first, second, dim=1).clamp(-1, 1)
    return np.asarray(np.degrees(np.arccos(cosines.numpy())))


def _against_torch(gradients: Tensor) -> list[Number]:
    """Our two ways of clipping against PyTorch's, gradient by gradient."""
    worst = [0.0, 0.0]
    for gradient in gradients[:50]:
        weight = torch.zeros(2, dtype=torch.float64, requires_grad=True)
        weight.grad = gradient.clone()
        torch.nn.utils.clip_grad_norm_([weight], LIMIT)
        worst[0] = max(worst[0], float((weight.grad - clip_by_norm(gradient, LIMIT)).abs().max()))
        weight.grad = gradient.clone()
        torch.nn.utils.clip_grad_value_([weight], LIMIT)
        worst[1] = max(worst[1], float((weight.grad - clip_by_value(gradient, LIMIT)).abs().max()))
    return [
        at_most("norm against PyTorch's, which adds 1e-6", worst[0], 1e-5),
        at_most("value against PyTorch's", worst[1], 0.0),
    ]


def _errors(rate: float, limit: float | None) -> np.ndarray:
    """|x − 1| over 100 steps of descent from x = 3.5."""
    slope = gradient_of(lambda place: (place - 1).square().sum())

    def gradient(place: Tensor) -> Tensor:
        return slope(place) if limit is None else clip_by_norm(slope(place), limit)

    return np.asarray(np.abs(path(gradient_descent, gradient, [3.5], 100, lr=rate)[:, 0] - 1))


def _arrows() -> Picture:
    gradient = torch.tensor([3.0, 1.4], dtype=torch.float64)
    ways = (
        ("gradient", gradient),
        ("by value", clip_by_value(gradient, LIMIT)),
        ("by norm", clip_by_norm(gradient, LIMIT)),
    )
    lines = [Series(label, [0.0, float(end[0])], [0.0, float(end[1])], style="arrow") for label, end in ways]
    panel = Panel("Limit 1", "first coordinate", "second coordinate", lines, equal=True)
    return Picture("A gradient, clipped by value and by norm. By value it turns.", [panel], "weights 2.2")


def _descents(plain: np.ndarray, clipped: np.ndarray) -> Picture:
    shown = range(41)
    lines = [
        Series("without clipping", shown, plain[:41].tolist()),
        Series("norm clipped to 1", shown, clipped[:41].tolist()),
    ]
    panel = Panel("(x − 1)² at rate 1.05", "step", "|x − 1| (no unit)", lines, y_log=True)
    return Picture(
        "Descent from x = 3.5. Clipped, it neither diverges nor converges.", [panel], "weights 2.2"
    )
