"""The stage `generalisation`: what carries over to held-out data and to eval mode.

Signs: `generalisation-gap`, `held-out-loss`, `mode-gap`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from apoint.doctor import ranges
from apoint.doctor.card import card
from apoint.doctor.examination import Examination
from apoint.doctor.finding import Finding, Treatment
from apoint.doctor.specimens import altered, convolutional, perceptron
from apoint.doctor.start import constant_loss
from apoint.probes import Batch, Subject, preserve_state

MOST = 512
SETTLED_STEPS = 40  # by then running statistics have forgotten their initial values, at PyTorch's momentum


def examine(exam: Examination) -> Iterator[Finding]:
    """Findings on generalisation, from the model at the end of the trial."""
    history = exam.history
    if history is None:
        exam.without_training()
        return
    if not math.isfinite(history.last):
        exam.skip("the short training broke off")
        return
    patient = exam.patient
    seen = patient.train.some(min(MOST, len(patient.train)), patient.seed)
    scale = _scale(exam, seen)
    evaluated = _loss(exam, history.model, seen, mode=False)
    yield from _modes(exam, history.model, seen, evaluated, scale)
    yield from _gap(exam, history.model, evaluated, scale)


def _loss(exam: Examination, model: nn.Module, batch: Batch, mode: bool) -> float:
    subject = Subject(model, batch, exam.patient.loss)
    with preserve_state(model, exam.patient.seed, mode=mode), torch.no_grad():
        return float(subject.loss())


def _scale(exam: Examination, batch: Batch) -> float:
    """The loss of a constant prediction, or the initial loss if that is not known."""
    subject = Subject(exam.patient.model, batch, exam.patient.loss)
    with preserve_state(exam.patient.model, mode=False), torch.no_grad():
        outputs = None if subject.has_own_loss else subject.outputs()
        known = constant_loss(subject, outputs)
    assert exam.history is not None
    return known if known and known > 0 else max(abs(exam.history.first), 1e-12)


BATCHNORM_STATISTICS = card(
    "batchnorm-statistics",
    stage="generalisation",
    sees="batch norm statistics that do not match the data",
    cause=(
        "The running statistics of batch norm do not match the data: the momentum is too low, "
        "there were too few steps, or other data was seen in between."
    ),
    treatment=Treatment(
        "Set the momentum of batch norm to 0.1, or recompute the statistics before evaluating.",
        code="for module in model.modules():\n    if isinstance(module, torch.nn.BatchNorm2d):\n"
        "        module.momentum = 0.1",
    ),
    sign="mode-gap",
    quantity="gap between eval and train mode, as a share of the loss of a constant prediction",
    confidence=0.85,
    course=("J1",),
    explains=frozenset({"overfitting"}),
    example=lambda: {"model": convolutional(momentum=1e-4), "quick": False},
)


def _modes(
    exam: Examination, model: nn.Module, seen: Batch, evaluated: float, scale: float
) -> Iterator[Finding]:
    norms = [n for n, m in model.named_modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    if not norms:
        return
    if exam.history is not None and exam.history.steps < SETTLED_STEPS:
        exam.leave_out("running statistics", f"{exam.history.steps} steps are too few for them to settle")
        return
    size = exam.patient.train.batch_size
    parts = [seen.select(slice(i, i + size)) for i in range(0, min(seen.size, 4 * size) - size + 1, size)]
    trained = [_loss(exam, model, part, mode=True) for part in parts]
    if not trained or not math.isfinite(evaluated):
        return
    gap = exam.sign("mode-gap", (evaluated - sum(trained) / len(trained)) / scale) or 0.0
    if ranges.too_high("mode-gap", gap):
        yield BATCHNORM_STATISTICS.finding(
            f"On the same training examples the loss is {evaluated:.3g} in eval mode and "
            f"{sum(trained) / len(trained):.3g} in train mode.",
            gap,
            layer=norms[0],
        )


def _few_again_and_again(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    few = torch.arange(1400) % 24
    return torch.cat([x[few], x[1400:]]), torch.cat([y[few], y[1400:]])


OVERFITTING = card(
    "overfitting",
    stage="generalisation",
    sees="a loss on held-out data far above that on training data",
    treatment=Treatment(
        (
            "Try more data or augmentation first, then weight decay, dropout, a smaller network, or "
            "early stopping."
        ),
        {"optimizer.weight_decay": 0.1},
        "optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)",
    ),
    sign="generalisation-gap",
    quantity="gap to held-out data, as a share of the loss of a constant prediction",
    confidence=0.8,
    course=("K11", "I7"),
    explains=frozenset(),
    example=lambda: {
        "model": perceptron(width=128),
        "data": altered(_few_again_and_again),
        "quick": False,
        "lr": 3e-3,
    },
)


def _gap(exam: Examination, model: nn.Module, evaluated: float, scale: float) -> Iterator[Finding]:
    test = exam.patient.test
    if test is None:
        exam.leave_out("generalisation", "there are no held-out data; give test=(inputs, targets)")
        return
    held = _loss(exam, model, test.some(min(MOST, len(test)), exam.patient.seed), mode=False)
    gap = exam.sign("generalisation-gap", (held - evaluated) / scale) or 0.0
    exam.sign("held-out-loss", held / scale)
    if ranges.too_high("generalisation-gap", gap):
        yield OVERFITTING.finding(
            f"After the short training the loss is {evaluated:.3g} on training examples and {held:.3g} on "
            "others.",
            gap,
            cause=f"The network memorises its {len(exam.patient.train)} examples.",
        )
