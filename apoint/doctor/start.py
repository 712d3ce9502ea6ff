"""The stage `loss`: outputs and loss before the first step.

Signs: `initial-loss-ratio`, `doubled-loss`, `order-matters`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from apoint.doctor import ranges
from apoint.doctor.card import NO_LEARNING, TOO_MUCH, card
from apoint.doctor.examination import Examination
from apoint.doctor.finding import Finding, Treatment
from apoint.doctor.specimens import altered, changed, perceptron
from apoint.errors import UsageError
from apoint.probes import Subject, preserve_state


def examine(exam: Examination) -> Iterator[Finding]:
    """Findings on the initial loss."""
    patient = exam.patient
    subject = patient.subject(exam.batch)
    with preserve_state(patient.model, patient.seed, mode=False), torch.no_grad():
        raw = subject.raw_outputs()
        loss = float(subject.loss_of(raw, subject.batch))
        outputs = subject.outputs() if not subject.has_own_loss else None
        doubled = _doubled(subject)
        shuffled = _reordered(subject)
    starting = _in_training(exam, loss)
    if outputs is not None and not bool(torch.isfinite(outputs).all()):
        exam.could_not("the loss at the start", "outputs are not finite")
        return
    found = [*_double_softmax(exam, subject, outputs), *_reduction(exam, loss, doubled)]
    found += _shape(exam, subject, outputs, loss, shuffled)
    yield from found
    yield from _initial(exam, subject, outputs, starting, bool(found))


def _in_training(exam: Examination, evaluated: float) -> float:
    """The loss as training sees it: with batch norm, the loss in train mode.

    Before the first step the running statistics do not match the data, and a deep network in eval mode
    has a huge loss that never occurs in training.
    """
    patient = exam.patient
    if not any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in patient.model.modules()):
        return evaluated
    with preserve_state(patient.model, patient.seed, mode=True), torch.no_grad():
        return float(patient.subject(exam.batch).loss())


def _doubled(subject: Subject) -> float:
    """The loss of the batch with every example included twice."""
    size = subject.batch.size
    index = torch.arange(size).repeat(2)
    return float(subject.loss(subject.batch.select(index)))


def _reordered(subject: Subject) -> float | None:
    """The loss with each target moved to another example."""
    batch = subject.batch
    if not isinstance(batch.targets, Tensor) or batch.size < 4:
        return None
    return float(subject.loss(batch.with_targets(batch.targets.roll(1, 0))))


DOUBLE_SOFTMAX = card(
    "double-softmax",
    stage="loss",
    sees="probabilities where the loss expects logits",
    cause=(
        "The softmax of probabilities is nearly uniform, so the loss cannot fall far below its "
        "initial value, and gradients are a fraction of what they should be."
    ),
    treatment=Treatment(
        (
            "Return logits from the model: remove its last softmax, and apply softmax only to show "
            "probabilities."
        ),
        code="return self.head(x)  # not softmax(self.head(x))",
    ),
    healthy=(None, 0.0),
    level="severe",
    confidence=0.98,
    course=("A3",),
    explains=NO_LEARNING | {"bad-initial-loss", "noisy-gradient"},
    example=lambda: {"model": nn.Sequential(perceptron(), nn.Softmax(-1))},
)


def _double_softmax(exam: Examination, subject: Subject, outputs: Tensor | None) -> Iterator[Finding]:
    targets = subject.batch.targets
    if outputs is None or outputs.dim() < 2 or outputs.shape[-1] < 2 or not isinstance(targets, Tensor):
        return
    axis = subject.class_axis(outputs)
    sums = outputs.double().sum(axis)
    are_probabilities = bool(outputs.min() >= 0) and float((sums - 1).abs().max()) < 1e-3
    if not are_probabilities or targets.is_floating_point() or not _takes_logits(subject, outputs):
        return
    yield DOUBLE_SOFTMAX.finding(
        "Outputs are probabilities already (each example's sum to 1), and the loss applies a softmax to "
        "them.",
        1.0,
    )


def _takes_logits(subject: Subject, outputs: Tensor) -> bool:
    """Whether adding a constant to all outputs of an example leaves the loss unchanged, as with a softmax."""
    batch = subject.batch
    try:
        one, two = (float(subject.loss_of(values, batch)) for values in (outputs, outputs + 3.0))
    except UsageError:  # the loss takes everything that the model returns
        return False
    return math.isclose(one, two, rel_tol=1e-3, abs_tol=1e-5)


WRONG_REDUCTION = card(
    "wrong-reduction",
    stage="loss",
    sees="a loss that is summed over examples instead of averaged",
    treatment=Treatment(
        "Average the loss over examples.",
        code='loss = torch.nn.CrossEntropyLoss(reduction="mean")',
    ),
    healthy=(0.95, 1.05),
    confidence=0.97,
    explains=TOO_MUCH | {"bad-initial-loss", "dead-units", "overfitting"},
    example=lambda: {"model": perceptron(), "loss": nn.CrossEntropyLoss(reduction="sum")},
)


def _reduction(exam: Examination, loss: float, doubled: float) -> Iterator[Finding]:
    if loss == 0 or not math.isfinite(loss):
        return
    ratio = exam.sign("doubled-loss", doubled / loss) or 1.0
    if abs(ratio - 2) > 0.1:
        return
    size = exam.patient.train.batch_size
    yield WRONG_REDUCTION.finding(
        f"A batch with every example in it twice has {ratio:.2f} times the loss: it is summed over examples.",
        ratio,
        cause=f"Gradients are as many times too large as there are examples in a batch ({size}), so the "
        "learning rate means something else for every batch size.",
    )


def _broadcast(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).square().mean()


TARGET_SHAPE = card(
    "target-shape",
    stage="loss",
    sees="outputs and targets that broadcast against each other",
    cause=(
        "The shapes broadcast against each other, so every output is compared with every target. "
        "The best answer is then the mean of all targets, for every input."
    ),
    treatment=Treatment(
        "Give outputs and targets the same shape.",
        code="loss = loss_function(outputs.squeeze(-1), targets)",
    ),
    level="severe",
    confidence=0.98,
    explains=NO_LEARNING | {"bad-initial-loss", "noisy-gradient"},
    example=lambda: {
        "model": nn.Sequential(perceptron(), nn.Linear(10, 1)),
        "data": altered(lambda x, y: (x, x[:, :3].sum(1))),
        "loss": _broadcast,
    },
)


def _shape(
    exam: Examination, subject: Subject, outputs: Tensor | None, loss: float, shuffled: float | None
) -> Iterator[Finding]:
    """A loss that does not depend on which target belongs to which example compares all with all."""
    targets = subject.batch.targets
    if outputs is None or shuffled is None or not isinstance(targets, Tensor):
        return
    varied = float(outputs.double().std(0).max()) > 0 and not bool((targets == targets[:1]).all())
    mixed = outputs.shape != targets.shape and targets.is_floating_point()
    same = math.isclose(loss, shuffled, rel_tol=1e-6, abs_tol=1e-9)
    if not (varied and same and mixed):
        return
    yield TARGET_SHAPE.finding(
        f"Outputs have shape {tuple(outputs.shape)}, targets {tuple(targets.shape)}, and the loss is the "
        "same whichever target goes with which example.",
        0.0,
    )


BAD_INITIAL_LOSS = card(
    "bad-initial-loss",
    stage="loss",
    sees="an initial loss far above that of a constant prediction",
    cause=(
        "Before training, a network should be about as good as predicting the class frequencies. "
        "This one is confidently wrong, and the first steps are spent on undoing that."
    ),
    treatment=Treatment(
        "Initialise the last layer with smaller weights, and its bias to the mean prediction.",
        {"init": "he"},
        "torch.nn.init.normal_(model.head.weight, std=0.01)\ntorch.nn.init.zeros_(model.head.bias)",
    ),
    sign="initial-loss-ratio",
    confidence=0.8,
    course=("A7", "A8"),
    explains=TOO_MUCH | {"overfitting"},
    example=lambda: {"model": changed(perceptron(), lambda m: m[-1].weight.mul_(60))},
)


def _initial(
    exam: Examination, subject: Subject, outputs: Tensor | None, loss: float, explained: bool
) -> Iterator[Finding]:
    expected = constant_loss(subject, outputs)
    if expected is None or expected <= 0:
        exam.leave_out("the loss at the start", "what it should be is not known for this loss")
        return
    ratio = exam.sign("initial-loss-ratio", loss / expected) or 0.0
    if not ranges.too_high("initial-loss-ratio", ratio) or explained:
        return
    yield BAD_INITIAL_LOSS.finding(
        f"The loss starts at {loss:.3g}, {ratio:.1f} times that of a constant answer ({expected:.3g}).", ratio
    )


def constant_loss(subject: Subject, outputs: Tensor | None) -> float | None:
    """The loss of the best prediction that ignores the input; None if that is not known."""
    targets = subject.batch.targets
    if targets is None:
        targets = next(
            (subject.batch.kwargs[k] for k in ("labels", "targets") if k in subject.batch.kwargs), None
        )
    if not isinstance(targets, Tensor):
        return None
    if subject.has_own_loss or outputs is None:
        return None if targets.is_floating_point() else math.log(int(targets.max()) + 1)
    if not targets.is_floating_point():
        axis = subject.class_axis(outputs)
        if outputs.dim() < 2 or outputs.shape[axis] < 2:
            return None
        shares = torch.bincount(targets.flatten().clamp_min(0), minlength=outputs.shape[axis]).double()
        logits = torch.log((shares + 1) / (shares + 1).sum()).to(outputs.dtype)
        shape = [1] * outputs.dim()
        shape[axis] = -1
        answer = logits.view(shape).expand_as(outputs)
        return _loss_of(subject, answer)
    if outputs.shape != targets.shape:
        return None
    mean = targets.mean(0, keepdim=True).expand_as(targets)
    if subject.likelihood(outputs) == "bernoulli":
        share = mean.clamp(1e-3, 1 - 1e-3)
        return float(F.binary_cross_entropy(share, targets))
    return _loss_of(subject, mean.to(outputs.dtype))


def _loss_of(subject: Subject, answer: Tensor) -> float | None:
    try:
        with torch.no_grad():
            value = float(subject.loss_of(answer, subject.batch))
    except UsageError:  # the loss takes everything that the model returns
        return None
    return value if math.isfinite(value) else None
