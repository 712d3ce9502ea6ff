"""The stage `optimisation`: does it learn, and would another learning rate do better? Tested by short runs on
copies.

Signs: `loss-drop`, `update-ratio`, `slower-advantage`, `faster-advantage`, `warmup-advantage`,
`memorised-loss`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator

import torch
from torch import nn

from apoint.doctor import ranges
from apoint.doctor.card import card
from apoint.doctor.copies import rates
from apoint.doctor.examination import Examination
from apoint.doctor.finding import Finding, Treatment
from apoint.doctor.flow import NON_FINITE
from apoint.doctor.running import broken_off
from apoint.doctor.specimens import Applied, perceptron
from apoint.doctor.trial import History

FEW = 8  # examples per batch; with so few, noise may be the reason why the rate does not work
CALIBRATED_STEPS = 120  # of the trials that give the healthy range of `loss-drop`
CLEAR = 0.1  # share of the first loss by which another learning rate is clearly better


def examine(exam: Examination) -> Iterator[Finding]:
    """Findings on optimisation, the cheapest trial first."""
    history = exam.history
    if history is None:
        exam.without_training()
        return
    if not history.steps and history.failure:
        yield from broken_off(exam, history)
        return
    _note(exam, history)
    if exam.thorough:
        exam.sign("faster-advantage", _advantage(history, exam.at_rate(10.0)))
        exam.sign("warmup-advantage", _advantage(history, exam.warmed))
    found = list(_too_high(exam, history))
    found = found or list(_too_low(exam, history))
    found = found or list(_too_noisy(exam, history))
    yield from found
    if not found:
        yield from broken_off(exam, history) if history.failure else _broken(history)
    yield from _memory(exam)


def _note(exam: Examination, history: History) -> None:
    exam.sign("loss-drop", _drop(history))
    ratios = [statistics.median(values) for values in history.updates.values() if _known(values)]
    finite = [ratio for ratio in ratios if math.isfinite(ratio) and ratio > 0]
    exam.sign("update-ratio", math.log10(statistics.median(finite)) if finite else None)


def _known(values: list[float]) -> bool:
    return bool(values) and all(not math.isnan(value) for value in values)


def _scale(history: History) -> float:
    return max(abs(history.first), 1e-12) if math.isfinite(history.first) else 1.0


def _drop(history: History) -> float:
    """The drop in loss, as a share of the first loss; -1 if training diverged."""
    return -1.0 if not math.isfinite(history.last) else (history.first - history.last) / _scale(history)


def _learns_little(exam: Examination, history: History) -> bool:
    """Whether the loss falls less than in any healthy run of the same length."""
    return _drop(history) < ranges.low("loss-drop") * min(1.0, exam.trial_steps / CALIBRATED_STEPS)


def _advantage(base: History, other: History | None) -> float | None:
    """How much lower the other run ends, as a share of the first loss.

    Where only `base` diverges, 1 plus the share by which the loss of the other falls, at least 0.
    """
    if other is None:
        return None
    if not math.isfinite(other.last):
        return -1.0
    if not math.isfinite(base.last):
        return max(0.0, 1.0 + _drop(other))
    return (base.last - other.last) / _scale(base)


LR_TOO_HIGH = card(
    "lr-too-high",
    stage="optimisation",
    sees="a learning rate at which a lower one does clearly better",
    cause=("Steps are too long for the curvature of the loss: each one overshoots what the last one gained."),
    sign="slower-advantage",
    quantity="further loss reduction with a lower learning rate, as a share of the initial loss",
    course=("D4", "F2"),
    explains=frozenset(
        {"non-finite", "dead-units", "noisy-gradient", "overfitting", "underfitting", "batchnorm-statistics"}
    ),
    example=lambda: {"model": perceptron(), "lr": 1.0},
)


def _too_high(exam: Examination, history: History) -> Iterator[Finding]:
    gain = exam.sign("slower-advantage", _advantage(history, exam.at_rate(0.1)))
    if gain is None:
        return
    if not ranges.too_high("slower-advantage", gain) and _learns_little(exam, history):
        gain = _furthest(exam, history, (1e-2, 1e-3, 1e-4), gain)  # a tenth may be too high as well
    if not ranges.too_high("slower-advantage", gain):
        return
    (factor, slower), scale = _best(exam, (0.1, 1e-2, 1e-3)), _scale(history)
    assert slower is not None
    ended = (
        f"training diverges ({history.ended})" if history.ended else f"the loss ends at {history.last:.3g}"
    )
    if exam.patient.train.batch_size <= FEW:
        larger = exam.enlarged
        if larger is not None and larger.last <= slower.last + 0.02 * scale:
            yield _noisy(exam, history, larger, ended)
            return
    warm = None
    if not _warms_up(exam):
        warm = exam.sign("warmup-advantage", _advantage(history, exam.warmed))
    warmed = exam.warmed if warm is not None else None
    if warmed is not None and math.isfinite(warmed.last) and warmed.last <= slower.last + 0.02 * scale:
        yield _no_warmup(history, warmed, ended, float(warm or 0.0))
        return
    rate = rates(exam.patient.optimizer)[0]
    yield LR_TOO_HIGH.finding(
        f"With the learning rate of {rate:g} {ended}; with {rate * factor:g} at {slower.last:.3g}, after "
        f"{slower.steps} steps from the same start.",
        gain,
        treatment=Treatment(
            f"Take a learning rate of {rate * factor:g}, then between that and {rate:g}.",
            {"optimizer.lr": rate * factor},
            f"optimizer = {type(exam.patient.optimizer).__name__}(model.parameters(), lr={rate * factor:g})",
        ),
        level="severe" if history.ended else "warning",
        confidence=0.9 if history.ended else 0.8,
    )


def _too_noisy(exam: Examination, history: History) -> Iterator[Finding]:
    """Small batches that learn nothing at any rate, where larger ones do."""
    if exam.patient.train.batch_size > FEW or not _learns_little(exam, history):
        return
    larger = exam.enlarged
    if larger is not None and (_advantage(history, larger) or 0.0) > CLEAR:
        yield _noisy(exam, history, larger, f"the loss ends at {history.last:.3g}")


NOISY_GRADIENT = card(
    "noisy-gradient",
    stage="optimisation",
    sees="batches so small that larger ones do clearly better at the same learning rate",
    cause=(
        "Most of each step is sampling noise, which the learning rate lets through. Training is a"
        " random walk with a small drift."
    ),
    sign="slower-advantage",
    quantity="further loss reduction with larger batches, as a share of the initial loss",
    confidence=0.8,
    course=("F4", "C4"),
    explains=frozenset({"lr-too-high", "lr-too-low", "underfitting"}),
    example=lambda: {"model": perceptron(), "batch_size": 1, "optimizer": torch.optim.SGD, "lr": 0.3},
)


def _noisy(exam: Examination, history: History, larger: History, ended: str) -> Finding:
    size = exam.patient.train.batch_size
    return NOISY_GRADIENT.finding(
        f"With batches of {size} {ended}; with batches sixteen times as large, at the same rate, at "
        f"{larger.last:.3g}.",
        _advantage(history, larger) or 0.0,
        treatment=Treatment(
            "Take larger batches, or lower the learning rate as much as they are too small.",
            {"batch_size": 16 * size},
            f"loader = DataLoader(dataset, batch_size={16 * size}, shuffle=True)",
        ),
        level="severe" if history.ended else "warning",
    )


def _furthest(exam: Examination, base: History, factors: tuple[float, ...], gain: float) -> float:
    """The largest advantage of other learning rates; the search stops once one clearly helps."""
    for factor in factors:
        if gain >= CLEAR:
            break
        gain = max(gain, _advantage(base, exam.at_rate(factor)) or -1.0)
    return gain


def _best(exam: Examination, factors: tuple[float, ...]) -> tuple[float, History | None]:
    """The factor with the lowest final loss; the search continues while the next factor is better."""
    best, trial = factors[0], exam.at_rate(factors[0])
    for factor in factors[1:]:
        further = exam.at_rate(factor)
        if further is not None and (trial is None or further.last < trial.last):
            best, trial = factor, further
        elif trial is not None and math.isfinite(trial.last):
            break
    return best, trial


def _warms_up(exam: Examination) -> bool:
    factors = exam.patient.factors
    return bool(factors) and factors[0] < 0.5 * max(factors)


def _warms_up_throughout(exam: Examination) -> bool:
    factors = exam.patient.factors
    return bool(factors) and max(factors[: exam.trial_steps]) < 0.5 * max(factors)


MISSING_WARMUP = card(
    "missing-warmup",
    stage="optimisation",
    sees="a learning rate that works only after a warm-up",
    cause=(
        "The learning rate is fine later on, but not for the first steps: the gradients of a "
        "fresh network are large, and an adaptive optimizer has seen too few of them."
    ),
    treatment=Treatment(
        "Raise the learning rate from 0 over the first twentieth of training.",
        {"schedule": {"name": "cosine", "warmup": "5%"}},
        "torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.01, total_iters=warmup_steps)",
    ),
    sign="slower-advantage",
    quantity="further loss reduction with a warm-up, as a share of the initial loss",
    confidence=0.7,
    course=("F10", "J5"),
    explains=frozenset({"non-finite", "noisy-gradient", "dead-units", "lr-too-high", "batchnorm-statistics"}),
    example=lambda: {"model": perceptron(nn.Tanh, depth=10), "lr": 0.03},
)


def _no_warmup(history: History, warmed: History, ended: str, gain: float) -> Finding:
    return MISSING_WARMUP.finding(
        f"Without a warm-up {ended}; with one over half of as many steps at {warmed.last:.3g}, at the same "
        "rate.",
        gain,
        level="severe" if history.ended else "warning",
    )


LR_TOO_LOW = card(
    "lr-too-low",
    stage="optimisation",
    sees="a learning rate at which a higher one does clearly better",
    cause=(
        "Each step changes the weights so little that training would take many times longer than necessary."
    ),
    sign="faster-advantage",
    quantity="further loss reduction with a higher learning rate, as a share of the initial loss",
    confidence=0.85,
    course=("F2",),
    explains=frozenset(),
    example=lambda: {"model": perceptron(), "lr": 1e-7},
)


def _too_low(exam: Examination, history: History) -> Iterator[Finding]:
    if not _learns_little(exam, history):
        return
    if _warms_up_throughout(exam):
        exam.leave_out("a learning rate that is too low", "the warm-up is not over within the short training")
        return
    gain = exam.sign("faster-advantage", _advantage(history, exam.at_rate(10.0)))
    if gain is None:
        return
    gain = _furthest(exam, history, (1e2, 1e3, 1e4), gain)
    if gain < CLEAR:
        return
    (factor, faster), rate = _best(exam, (10.0, 1e2, 1e3, 1e4)), rates(exam.patient.optimizer)[0]
    assert faster is not None
    yield LR_TOO_LOW.finding(
        f"With the learning rate of {rate:g} the loss goes from {history.first:.3g} to {history.last:.3g} "
        f"in {history.steps} steps; with {rate * factor:g} to {faster.last:.3g}.",
        gain,
        treatment=Treatment(
            f"Take a learning rate of {rate * factor:g}, and others near it.",
            {"optimizer.lr": rate * factor},
            f"optimizer = {type(exam.patient.optimizer).__name__}(model.parameters(), lr={rate * factor:g})",
        ),
    )


def _broken(history: History) -> Iterator[Finding]:
    if not history.ended:
        return
    yield NON_FINITE.finding(
        f"Training breaks off: {history.ended}.",
        math.inf,
        cause="Not because of the learning rate: with a tenth of it the same happens.",
        treatment=Treatment(
            "Look for a logarithm or root near 0, a division by something that can be 0, or half precision "
            "without loss scaling.",
            code="torch.autograd.set_detect_anomaly(True)",
        ),
        stage="optimisation",
        level="severe",
        confidence=0.8,
    )


UNDERFITTING = card(
    "underfitting",
    stage="optimisation",
    sees="a network too small to memorise sixteen examples",
    treatment=Treatment("Make it wider or deeper.", {"model.width": 128}, "torch.nn.Linear(inputs, 128)"),
    sign="memorised-loss",
    confidence=0.75,
    explains=frozenset({"cannot-overfit-batch", "lr-too-low"}),
    example=lambda: {"model": perceptron(width=1), "quick": False},
)


CANNOT_OVERFIT_BATCH = card(
    "cannot-overfit-batch",
    stage="optimisation",
    sees="a network that cannot overfit sixteen examples",
    cause=(
        "A network that cannot overfit a handful of examples does not learn. Something between "
        "inputs, loss and weights is broken."
    ),
    treatment=Treatment(
        (
            "Check that inputs and targets belong together, that the last layer can produce every "
            "target, and that forward() does not throw the input away."
        ),
        code="for _ in range(200): step(x[:16], y[:16])  # the loss should go to 0",
    ),
    sign="memorised-loss",
    confidence=0.7,
    explains=frozenset({"lr-too-low", "underfitting"}),
    example=lambda: {
        "model": nn.Sequential(Applied(lambda x: x.mean(1, keepdim=True).sign().expand_as(x)), perceptron())
    },
)


def _memory(exam: Examination) -> Iterator[Finding]:
    history = exam.memorised
    if history is None:
        return
    if not history.steps:
        exam.could_not("overfitting one batch", history.ended)
        return
    share = exam.sign("memorised-loss", history.best / _scale(history)) or 0.0
    if not ranges.too_high("memorised-loss", share):
        return
    small = num_weights(exam) < 50 * 16
    words = (
        f"After {history.steps} steps on the same 16 examples the loss is still {share:.0%} of what it was."
    )
    if small:
        yield UNDERFITTING.finding(
            words,
            share,
            cause=f"With {num_weights(exam)} weights the network is too small even to memorise these.",
        )
        return
    yield CANNOT_OVERFIT_BATCH.finding(words, share)


def num_weights(exam: Examination) -> int:
    """The number of trainable weights."""
    return sum(p.numel() for p in exam.patient.model.parameters() if p.requires_grad)
