"""D5: the constants β and L of a loss, measured, where they are known."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from apoint.book.claim import claim
from apoint.book.evidence import Evidence, Number, at_least, at_most, close
from apoint.book.running import Running
from apoint.probes.curvature import sharpness
from apoint.probes.reading import Reading
from apoint.probes.smoothness import smoothness
from apoint.theory import regularity

EXAMPLES, FEATURES = 200, 6


def half_square(outputs: Tensor, targets: Tensor) -> Tensor:
    """Half of the mean squared error."""
    return (outputs - targets).square().mean() / 2


def _linear(weights: np.ndarray) -> nn.Linear:
    model = nn.Linear(weights.shape[1], len(weights), bias=False, dtype=torch.float64)
    with torch.no_grad():
        model.weight.copy_(torch.from_numpy(weights))
    return model


def _value(reading: Reading) -> float:
    assert reading.value is not None, reading
    return reading.value


def _top(inputs: np.ndarray) -> np.ndarray:
    """The direction of the largest eigenvalue of XᵀX/n."""
    return np.asarray(np.linalg.eigh(inputs.T @ inputs)[1][:, -1])


@claim(
    "D5",
    "The constants of one's own loss, measured",
    kind="identity",
    statement=r"""
    The smoothness $\beta$ that the probes measure is the one that is known: for least squares the largest
    eigenvalue of $X^{\top}X/n$, everywhere; for logistic regression a quarter of it, at $w=0$ and nowhere
    more; for the cross-entropy of two classes half of it at $W=0$. The Lipschitz constant found along the
    gradient is the longest gradient on the way, and never exceeds the known $L$.
    """,
    refuted_by="a probe that reads another number than the known constant where that is attained, or a "
    "larger one anywhere",
    seconds={"quick": 1, "standard": 3},
    planted={"factor": 1.05},
    details=r"""
    `sharpness` finds the largest eigenvalue of the Hessian by Lanczos' method; `smoothness` compares
    gradients along the gradient, which gives $\|Hg\|/\|g\|$ on a quadratic: all of $\beta$ if the gradient
    points along the steepest direction, as it is made to do here, and less elsewhere. On Huber's loss,
    which is flat in curvature beyond its knee, $L$ is the mean length of an example.
    """,
    references=("Santurkar et al. (2018), How does batch normalization help optimization?, section 3",),
)
def probes_agree(run: Running, factor: float = 1.0) -> Evidence:
    """Readings of two probes against eigenvalues by numpy; `factor` makes the expected constants wrong."""
    random = run.random()
    inputs = random.standard_normal((EXAMPLES, FEATURES)) * np.array([3, 2, 1, 1, 0.5, 0.2])
    x = torch.from_numpy(inputs)
    best = random.standard_normal(FEATURES)
    largest, _ = regularity.least_squares(inputs)
    return Evidence(
        [
            *_squares(x, inputs, best, largest * factor),
            *_logistic(x, inputs, random, factor),
            *_softmax(x, inputs, random, factor),
            *_huber(x, inputs, best, factor),
        ]
    )


def _squares(x: Tensor, inputs: np.ndarray, best: np.ndarray, beta: float) -> list[Number]:
    targets = torch.from_numpy(inputs @ best)[:, None]
    steepest, elsewhere = _linear((best + 2 * _top(inputs))[None]), _linear(best[None] + 1.0)
    along = smoothness(steepest, (x, targets), half_square)
    beside = smoothness(elsewhere, (x, targets), half_square)
    curvature = sharpness(elsewhere, (x, targets), half_square)
    return [
        # The probes stop at a relative 1e-3 or so of the eigenvalue; gradients are exact to rounding.
        close("least squares: sharpness", _value(curvature), beta, 2e-3),
        close("least squares: smoothness along the steepest direction", _value(along), beta, 1e-6),
        at_most("least squares: smoothness elsewhere", _value(beside), beta * (1 + 1e-9)),
        close(
            "least squares: L along the way over ‖Hd‖ at its beginning",
            along.details["lipschitz"],
            2 * beta,
            1e-6,
        ),
    ]


def _logistic(x: Tensor, inputs: np.ndarray, random: np.random.Generator, factor: float) -> list[Number]:
    labels = torch.from_numpy((random.random((EXAMPLES, 1)) < 0.5).astype(float))
    beta, lipschitz = (factor * one for one in regularity.logistic_regression(inputs))
    loss = nn.BCEWithLogitsLoss()
    flat = sharpness(_linear(np.zeros((1, FEATURES))), (x, labels), loss)
    away = [_linear(random.standard_normal((1, FEATURES))) for _ in range(4)]
    readings = [smoothness(model, (x, labels), loss) for model in away]
    return [
        close("logistic regression at w = 0: sharpness", _value(flat), beta, 2e-3),
        at_most("logistic regression elsewhere: largest smoothness", max(_value(r) for r in readings), beta),
        at_most("logistic regression: largest L", max(r.details["lipschitz"] for r in readings), lipschitz),
    ]


def _softmax(x: Tensor, inputs: np.ndarray, random: np.random.Generator, factor: float) -> list[Number]:
    labels = torch.from_numpy(random.integers(2, size=EXAMPLES))
    reading = sharpness(_linear(np.zeros((2, FEATURES))), (x, labels), nn.CrossEntropyLoss())
    beta = factor * regularity.softmax_regression(inputs, 2)
    return [close("cross-entropy of two classes at W = 0: sharpness", _value(reading), beta, 2e-3)]


def _huber(x: Tensor, inputs: np.ndarray, best: np.ndarray, factor: float) -> list[Number]:
    """Far beyond the knee on one side the gradient is the mean example; L is its length."""
    shifted = np.abs(inputs)
    targets = torch.from_numpy(shifted @ best - 1e4)[:, None]
    reading = smoothness(
        _linear(best[None]), (torch.from_numpy(shifted), targets), nn.HuberLoss(), reach=0.01
    )
    expected = float(np.linalg.norm(shifted.mean(0)))
    return [
        close("Huber's loss beyond the knee: L", reading.details["lipschitz"], expected * factor, 1e-9),
        at_most("Huber's loss beyond the knee: smoothness", _value(reading), 1e-9),
        at_least(
            "mean length of an example, which bounds L",
            float(np.linalg.norm(shifted, axis=1).mean()),
            expected,
        ),
    ]
