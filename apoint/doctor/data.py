"""The stage `data`. A fault there explains everything that follows.

Signs: `input-scale`, `input-offset`, `constant-features`, `largest-class`, `class-ratio`, `duplicates`, and
those of `targets.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from apoint.doctor import ranges, targets
from apoint.doctor.card import BAD_SIGNAL, BAD_START, card
from apoint.doctor.examination import Examination
from apoint.doctor.examples import Examples
from apoint.doctor.finding import Finding, Treatment
from apoint.doctor.specimens import altered, perceptron
from apoint.doctor.targets import LEAKAGE, sample


def examine(exam: Examination) -> Iterator[Finding]:
    """Findings on the data, the most certain first."""
    train = exam.patient.train
    yield from _finite(train)
    yield from _scale(exam, train)
    yield from _constant(exam, train)
    yield from _balance(exam, train)
    yield from targets.examine(exam, train)
    yield from _duplicates(exam, train)


def _with_nan(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    x[3, 5] = torch.nan
    return x, y


NON_FINITE_INPUT = card(
    "non-finite-input",
    stage="data",
    sees="NaN or infinity in the data",
    cause="One such example turns the loss, every gradient and then every weight into NaN.",
    treatment=Treatment(
        "Drop these examples, or fill in the missing values, before training.",
        code="keep = torch.isfinite(x.flatten(1)).all(1)\nx, y = x[keep], y[keep]",
    ),
    healthy=(None, 0.0),
    level="severe",
    confidence=1.0,
    explains=BAD_START | BAD_SIGNAL | {"unnormalised-input"},
    example=lambda: {"model": perceptron(), "data": altered(_with_nan)},
)


def _finite(train: Examples) -> Iterator[Finding]:
    bad = 0
    for tensor in [*train.whole.tensors, *([train.targets] if train.targets is not None else [])]:
        if tensor.is_floating_point() and len(tensor) == len(train):
            bad = max(bad, int((~torch.isfinite(tensor.reshape(len(tensor), -1))).any(1).sum()))
    if bad:
        yield NON_FINITE_INPUT.finding(f"{bad} of {len(train)} examples hold NaN or infinity.", float(bad))


UNNORMALISED_INPUT = card(
    "unnormalised-input",
    stage="data",
    sees="inputs far from unit scale",
    cause=(
        "Weights are initialised for inputs of about unit scale. Larger inputs make the outputs "
        "and gradients of the first layer too large, smaller ones make them too small."
    ),
    treatment=Treatment(
        "Subtract the mean of the training inputs and divide by their standard deviation.",
        {"data.normalise": True},
        "mean, std = x.mean(0), x.std(0) + 1e-6\nx = (x - mean) / std",
    ),
    sign="input-scale",
    confidence=0.9,
    course=("A6",),
    explains=BAD_START | BAD_SIGNAL | {"batchnorm-statistics", "overfitting"},
    example=lambda: {"model": perceptron(), "data": altered(lambda x, y: (255 * x, y))},
)


def _scale(exam: Examination, train: Examples) -> Iterator[Finding]:
    x = sample(train)
    if x is None:
        return
    x = x[torch.isfinite(x).all(1)]
    if not len(x):
        return
    scale = exam.sign("input-scale", float(x.square().mean().sqrt()))
    spread = float(x.std()) if x.numel() > 1 else math.nan
    exam.sign("input-offset", abs(float(x.mean())) / spread if spread > 0 else None)
    if ranges.too_high("input-scale", scale) or ranges.too_low("input-scale", scale):
        yield UNNORMALISED_INPUT.finding(
            f"Inputs have a root mean square of {scale:.3g}.", float(scale or 0.0)
        )


CONSTANT_FEATURE = card(
    "constant-feature",
    stage="data",
    sees="more constant input features than healthy data have",
    cause=(
        "They carry no information. Often a column was filled wrongly, or part of the input is "
        "lost on the way."
    ),
    treatment=Treatment(
        "Check how these features are made, and drop them if they really are constant.",
        code="x = x[:, x.std(0) > 0]",
    ),
    sign="constant-features",
    confidence=0.85,
    explains=frozenset(),
    example=lambda: {"model": perceptron(), "data": altered(lambda x, y: (x * (torch.arange(64) < 24), y))},
)


def _constant(exam: Examination, train: Examples) -> Iterator[Finding]:
    x = sample(train)
    if x is None or len(x) < 16 or x.shape[1] < 2:
        return
    constant = (x == x[:1]).all(0)
    share = float(constant.double().mean())
    exam.sign("constant-features", share)
    if ranges.too_high("constant-features", share):
        yield CONSTANT_FEATURE.finding(
            f"{int(constant.sum())} of {x.shape[1]} input features have the same value in every example.",
            share,
        )


def _mostly_zeros(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    kept = (y == 0) | (torch.arange(len(y)) % 60 == 0)
    return x[kept].repeat(9, 1), y[kept].repeat(9)


CLASS_IMBALANCE = card(
    "class-imbalance",
    stage="data",
    sees="one class many times more frequent than another",
    cause="Predicting the large classes lowers the mean loss fastest, and accuracy hides it.",
    treatment=Treatment(
        ("Weight the loss by class, or sample the classes equally, and look at the accuracy of each class."),
        code="weight = 1 / torch.bincount(y).float()\n"
        "loss = torch.nn.CrossEntropyLoss(weight=weight / weight.mean())",
    ),
    sign="class-ratio",
    confidence=0.9,
    explains=frozenset(
        {"noisy-gradient", "overfitting", "bad-initial-loss", "shuffled-labels", "label-noise"}
    ),
    example=lambda: {"model": perceptron(), "data": altered(_mostly_zeros), "test": None},
)


def _balance(exam: Examination, train: Examples) -> Iterator[Finding]:
    labels = targets.labels_of(train)
    if labels is None:
        return
    counts = torch.bincount(labels).double()
    present = counts[counts > 0]
    share = float(counts.max() / counts.sum()) * len(present)
    exam.sign("largest-class", share / len(present) if len(present) < 3 else share)
    ratio = exam.sign("class-ratio", float(present.max() / present.min()))
    if ranges.too_high("class-ratio", ratio):
        yield CLASS_IMBALANCE.finding(
            f"The largest class has {ratio:.0f} times as many examples as the smallest.", float(ratio or 0.0)
        )


def _duplicates(exam: Examination, train: Examples) -> Iterator[Finding]:
    test = exam.patient.test
    if test is None:
        exam.leave_out("leakage", "there are no held-out data to compare with; give test=(inputs, targets)")
        return
    seen = {row.numpy().tobytes() for row in _rows(train)}
    rows = _rows(test)
    found = sum(row.numpy().tobytes() in seen for row in rows)
    share = exam.sign("duplicates", found / len(rows)) or 0.0
    if ranges.too_high("duplicates", share):
        yield LEAKAGE.finding(
            f"{found} of {len(rows)} held-out examples are in the training data as well.", share
        )


def _rows(data: Examples) -> Tensor:
    first = data.whole.tensors[0]
    return first.reshape(len(first), -1).detach().cpu()
