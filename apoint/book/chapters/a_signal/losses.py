"""A3: squared error and the two cross-entropies."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from apoint.book.claim import claim
from apoint.book.evidence import Evidence, Number, at_most, close
from apoint.book.running import Running
from apoint.nn.losses import loss

ROUNDING = 1e-12


@claim(
    "A3",
    "Three losses",
    kind="identity",
    statement=r"""
    The squared error of an output $\hat y$ is $(\hat y-y)^2$, averaged over its components. The binary
    cross-entropy of a probability $p=1/(1+e^{-s})$ is $-y\ln p-(1-y)\ln(1-p)$, and the cross-entropy of the
    probabilities $p_c=e^{s_c}/\sum_ie^{s_i}$ is $-\sum_cq_c\ln p_c$, which for a single true class is minus
    the logarithm of its probability. With two classes the second is the third of the difference of scores.
    """,
    refuted_by="a loss that differs from its sum written out, or from PyTorch's, by more than rounding",
    seconds={"quick": 0.1, "standard": 1},
    planted={"factor": 1.05},
    details=r"""
    The sums are taken with Python's own logarithm and exponential, example by example. The check also looks
    at what each loss is for: its slope. That of cross-entropy with respect to the scores is $p-q$, whatever
    the scores, so that a confident mistake still learns; that of the squared error of a probability carries
    $p(1-p)$ and vanishes there.
    """,
    references=("Bishop (2006), Pattern recognition and machine learning, chapters 4 and 5",),
)
def losses_by_hand(run: Running, factor: float = 1.0) -> Evidence:
    """Losses as sums by hand against the product's and PyTorch's; `factor` multiplies the sums."""
    generator, batch = run.generator(), run.pick(40, 400)
    scores = 3 * torch.randn(batch, 5, generator=generator, dtype=torch.float64)
    wanted = torch.randn(batch, 5, generator=generator, dtype=torch.float64)
    classes = torch.randint(5, (batch,), generator=generator)
    answers = torch.randint(2, (batch,), generator=generator).double()
    squares = [factor * _mean_square(*rows) for rows in zip(scores.tolist(), wanted.tolist(), strict=True)]
    surprises = [
        -factor * math.log(_softmax(row)[c]) for row, c in zip(scores.tolist(), classes.tolist(), strict=True)
    ]
    doubts = [factor * _binary(s, y) for s, y in zip(scores[:, 0].tolist(), answers.tolist(), strict=True)]
    pair = torch.stack([torch.zeros(batch, dtype=torch.float64), scores[:, 0]], 1)
    numbers = [
        _gap("squared error, ours", squares, loss("squared-error")(scores, wanted)),
        _gap("squared error, PyTorch", squares, F.mse_loss(scores, wanted, reduction="none").mean(1)),
        _gap("cross-entropy, ours", surprises, loss("cross-entropy")(scores, classes)),
        _gap("cross-entropy, PyTorch", surprises, F.cross_entropy(scores, classes, reduction="none")),
        _gap("binary cross-entropy, ours", doubts, loss("binary-cross-entropy")(scores[:, 0], answers)),
        _gap("the same by two classes", doubts, F.cross_entropy(pair, answers.long(), reduction="none")),
        *_slopes(factor),
    ]
    return Evidence(numbers)


def _mean_square(outputs: list[float], wanted: list[float]) -> float:
    return sum((a - b) ** 2 for a, b in zip(outputs, wanted, strict=True)) / len(outputs)


def _softmax(scores: list[float]) -> list[float]:
    total = sum(math.exp(score) for score in scores)
    return [math.exp(score) / total for score in scores]


def _binary(score: float, answer: float) -> float:
    p = 1 / (1 + math.exp(-score))
    return -math.log(p) if answer else -math.log(1 - p)


def _gap(name: str, by_hand: list[float], found: Tensor) -> Number:
    worst = max(abs(a - b) / max(1.0, abs(a)) for a, b in zip(by_hand, found.tolist(), strict=True))
    return at_most(name, worst, ROUNDING, remark="largest difference over examples")


def _slopes(factor: float) -> list[Number]:
    """The slope of both losses at a confident mistake, score 10 for a true answer of 0."""
    score = torch.tensor(10.0, dtype=torch.float64, requires_grad=True)
    (steep,) = torch.autograd.grad(F.binary_cross_entropy_with_logits(score, torch.zeros_like(score)), score)
    (flat,) = torch.autograd.grad(torch.sigmoid(score) ** 2, score)
    p = 1 / (1 + math.exp(-10))
    return [
        close("slope of cross-entropy at a confident mistake", float(steep), factor * p, 1e-12),
        at_most("slope of the squared error there", float(flat), 1e-4),
    ]
