"""The stage `code`: what is trained around the model, its mode, its gradients, its random numbers.

Signs: `frozen-share`, `unreached-share`, `left-out-share`, `stale-steps`, `eval-steps`, `clipped-factor`,
`clipped-share`, `schedule-peak`, `schedule-alive`, `norm-decay`, `adaptive-l2`, `batch-norm-examples`,
`mixed-examples`.
"""

from __future__ import annotations

import functools
import random
import statistics
from collections.abc import Iterator
from typing import Any

import numpy
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from apoint.doctor import ranges
from apoint.doctor.card import BAD_SIGNAL, BAD_START, NO_LEARNING, TOO_MUCH, card
from apoint.doctor.examination import Examination
from apoint.doctor.finding import Finding, Treatment
from apoint.doctor.specimens import Applied, Functional, changed, convolutional, perceptron, step
from apoint.optim import RuleOptimizer
from apoint.optim.base import is_adaptive
from apoint.probes import Subject, preserve_state

NORMS = (
    nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.LocalResponseNorm, nn.RMSNorm,
)  # fmt: skip
ADAPTIVE_WITH_L2 = ("Adam", "NAdam", "RAdam", "Adamax", "RMSprop", "Adagrad", "Adadelta")  # in PyTorch
HARMLESS_L2 = 1e-4  # a common value; adaptive methods hardly notice it

MIXED = 8  # batch size of the test for mixed examples
MIXED_CHANGE = 1e-3


def examine(exam: Examination) -> Iterator[Finding]:
    """Findings on the code, by inspection and by experiment."""
    yield from _frozen(exam)
    yield from _unreached(exam)
    yield from _left_out(exam)
    yield from _symmetric(exam)
    yield from _mixed(exam)
    yield from _draws(exam)
    yield from _loop(exam)
    yield from _schedule(exam)
    yield from _decay(exam)
    yield from _small_batches(exam)


def _shares(model: nn.Module, names: list[str]) -> float:
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    return sum(sizes[name] for name in names) / max(1, sum(sizes.values()))


def _listed(names: list[str]) -> str:
    layers = list(dict.fromkeys(name.rpartition(".")[0] or name for name in names))
    return ", ".join(layers[:4]) + (f" and {len(layers) - 4} more" if len(layers) > 4 else "")


FROZEN_PARAMETERS = card(
    "frozen-parameters",
    stage="code",
    sees="parameters with requires_grad=False",
    cause=(
        "They keep their initial values. In fine-tuning this may be intended; otherwise only the "
        "rest of the network learns."
    ),
    treatment=Treatment(
        "Set requires_grad on these parameters, and pass them to the optimizer.",
        code="for parameter in model.parameters():\n    parameter.requires_grad_(True)",
    ),
    healthy=(None, 0.0),
    confidence=0.9,
    explains=NO_LEARNING | {"vanishing-gradient", "exploding-gradient", "overfitting"},
    example=lambda: {"model": changed(perceptron(), lambda m: m[0].requires_grad_(False))},
)


def _frozen(exam: Examination) -> Iterator[Finding]:
    model = exam.patient.model
    frozen = [name for name, parameter in model.named_parameters() if not parameter.requires_grad]
    share = exam.sign("frozen-share", _shares(model, frozen)) or 0.0
    if frozen:
        yield FROZEN_PARAMETERS.finding(
            f"{len(frozen)} parameters ({share:.0%} of all weights) want no gradient: {_listed(frozen)}.",
            share,
            layer=frozen[0].rpartition(".")[0],
        )


NO_GRADIENT = card(
    "no-gradient",
    stage="code",
    sees="parameters that the loss does not depend on",
    cause=(
        "A .detach(), .item(), a no_grad block, or a layer that is created but never called, cuts"
        " them off, so they never learn."
    ),
    treatment=Treatment(
        ("Look in forward() at what happens to the output of these layers, and remove what cuts the graph."),
        code="x = self.layer(x)  # not self.layer(x).detach()",
    ),
    healthy=(None, 0.0),
    confidence=0.97,
    explains=NO_LEARNING | {"vanishing-gradient", "exploding-gradient", "dead-units", "overfitting"},
    example=lambda: {"model": Functional(lambda x: F.relu(x).detach())},
)


def _unreached(exam: Examination) -> Iterator[Finding]:
    """Parameters at which no gradient arrives on a batch."""
    patient = exam.patient
    subject = patient.subject(exam.batch)
    if not subject.parameters:
        return
    with preserve_state(patient.model, patient.seed, mode=True):
        gradients = torch.autograd.grad(subject.loss(), list(subject.parameters.values()), allow_unused=True)
    missing = [n for n, g in zip(subject.parameters, gradients, strict=True) if g is None]
    share = exam.sign("unreached-share", _shares(patient.model, missing)) or 0.0
    if missing:
        yield NO_GRADIENT.finding(
            f"The loss does not depend on {len(missing)} parameters ({share:.0%} of all weights): "
            f"{_listed(missing)}.",
            share,
            layer=missing[0].rpartition(".")[0],
        )


def _without_head() -> dict[str, Any]:
    model = perceptron()
    return {"model": model, "optimizer": torch.optim.Adam(model[:-1].parameters(), lr=1e-3)}


NOT_IN_OPTIMIZER = card(
    "not-in-optimizer",
    stage="code",
    sees="parameters that the optimizer does not hold",
    cause=(
        "They get gradients but are never updated. This happens when a layer is added, replaced "
        "or moved to another device after the optimizer was created, or kept in a plain list."
    ),
    treatment=Treatment(
        "Create the optimizer after the model is complete, with all of its parameters.",
        code="optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)",
    ),
    healthy=(None, 0.0),
    level="severe",
    confidence=0.98,
    explains=frozenset({"lr-too-low", "underfitting", "overfitting", "dead-units"}),
    example=_without_head,
)


def _left_out(exam: Examination) -> Iterator[Finding]:
    patient = exam.patient
    if "optimizer" not in patient.given or patient.optimizer is None:
        exam.leave_out("the optimizer", "none was given")
        return
    held = {id(p) for group in patient.optimizer.param_groups for p in group["params"]}
    named = patient.model.named_parameters()
    missing = [name for name, p in named if p.requires_grad and id(p) not in held]
    share = exam.sign("left-out-share", _shares(patient.model, missing)) or 0.0
    if missing:
        yield NOT_IN_OPTIMIZER.finding(
            f"The optimizer does not hold {len(missing)} parameters ({share:.0%} of all weights): "
            f"{_listed(missing)}.",
            share,
            layer=missing[0].rpartition(".")[0],
        )


SYMMETRIC_INIT = card(
    "symmetric-init",
    stage="code",
    sees="units with identical weights and gradients",
    cause=(
        "They compute the same thing and get the same updates, so the layer acts as a single "
        "unit, however wide it is."
    ),
    treatment=Treatment(
        "Initialise weights at random. Only biases may all be 0.",
        {"init": "he"},
        "torch.nn.init.kaiming_normal_(layer.weight)",
    ),
    healthy=(None, 0.0),
    level="severe",
    confidence=0.97,
    course=("A7", "A8"),
    explains=BAD_START | BAD_SIGNAL | {"no-gradient"},
    example=lambda: {
        "model": changed(perceptron(), lambda m: [layer.weight.fill_(0.05) for layer in m[::2]])
    },
)


def _symmetric(exam: Examination) -> Iterator[Finding]:
    """Units with the same weights and the same gradients stay the same forever."""
    patient = exam.patient
    subject = patient.subject(exam.batch)
    matrices = {name: p for name, p in subject.parameters.items() if p.dim() >= 2 and p.shape[0] >= 2}
    if not matrices:
        return
    with preserve_state(patient.model, patient.seed, mode=False):
        gradients = torch.autograd.grad(subject.loss(), list(matrices.values()), allow_unused=True)
    twins = [
        name
        for (name, weight), gradient in zip(matrices.items(), gradients, strict=True)
        if gradient is not None and _rows_agree(weight.detach()) and _rows_agree(gradient)
    ]
    if twins:
        yield SYMMETRIC_INIT.finding(
            f"All units of {_listed(twins)} have the same weights and the same gradient.",
            float(len(twins)),
            layer=twins[0].rpartition(".")[0],
        )


def _rows_agree(matrix: Tensor) -> bool:
    rows = matrix.reshape(len(matrix), -1).double()
    size = float(rows.abs().max())
    return float((rows - rows[:1]).abs().max()) <= 1e-5 * size  # also if all are 0


MIXED_EXAMPLES = card(
    "mixed-examples",
    stage="code",
    sees="predictions that depend on the other examples in the batch, even in eval mode",
    cause=(
        "Something reduces, normalises or reshapes over the batch axis. Examples are mixed, and "
        "the network cannot distinguish them."
    ),
    treatment=Treatment(
        "Look for a mean, softmax, view or permute over axis 0 in forward().",
        code="x = x.mean(dim=1)  # over positions, not over examples",
    ),
    healthy=(None, MIXED_CHANGE),
    level="severe",
    confidence=0.97,
    explains=BAD_START | BAD_SIGNAL,
    example=lambda: {"model": nn.Sequential(perceptron(), Applied(lambda x: x - x.mean(0)))},
)


def _mixed(exam: Examination) -> Iterator[Finding]:
    """Does the output for an example depend on the others in its batch, with batch norm in eval mode?"""
    patient, size = exam.patient, min(MIXED, exam.batch.size // 2)
    if size < 2 or patient.subject(exam.batch).has_own_loss:
        return
    first = torch.arange(size)
    second = torch.cat([first[:1], torch.arange(size, 2 * size - 1)])  # the same example among others
    answers = [
        _predicted(patient.subject(exam.batch.select(rows)), patient.seed, mode=False, others=0)
        for rows in (first, first, second)
    ]
    if any(len(answer) != size for answer in answers if answer.dim()):
        return
    one, again, other = (answer[0].double() for answer in answers)
    if not _equal(one, again):
        return  # it draws random numbers, which is a separate finding
    change = float((one - other).abs().max() / one.abs().max().clamp_min(1e-6))
    exam.sign("mixed-examples", change)
    if change > MIXED_CHANGE:
        yield MIXED_EXAMPLES.finding(
            f"In eval mode the answer to an example changes by {change:.1%} with the other examples of its "
            "batch.",
            change,
        )


DROPOUT_IN_EVAL = card(
    "dropout-in-eval",
    stage="code",
    sees="random numbers drawn in eval mode",
    cause=(
        "Random numbers are drawn in eval mode too, usually by F.dropout without "
        "training=self.training. Predictions and test metrics are then those of a network with "
        "units missing."
    ),
    treatment=Treatment(
        "Pass training=self.training to functional dropout, or use the module.",
        code="x = F.dropout(x, 0.5, training=self.training)",
    ),
    healthy=(None, 0.0),
    confidence=0.97,
    course=("C1",),
    explains=frozenset({"batchnorm-statistics", "underfitting", "noisy-gradient"}),
    example=lambda: {"model": Functional(lambda x: F.dropout(F.relu(x), 0.5))},
)


UNCONTROLLED_SEED = card(
    "uncontrolled-seed",
    stage="code",
    sees="random numbers from generators other than PyTorch's",
    cause=(
        "Something in the model draws from Python's or NumPy's generator, the clock or the "
        "system. No run can be reproduced, and comparisons are noisier than they need to be."
    ),
    treatment=Treatment(
        "Draw with PyTorch, or from your own generator that you seed and save.",
        code="mask = torch.rand_like(x) < 0.5  # not random.random()",
    ),
    healthy=(None, 0.0),
    confidence=0.95,
    explains=frozenset({"dropout-in-eval", "noisy-gradient"}),
    example=lambda: {"model": Functional(lambda x: F.relu(x) * (1 + 0.3 * random.random()))},
)


def _draws(exam: Examination) -> Iterator[Finding]:
    """Does the model draw random numbers where it should not, or from generators that are not seeded?"""
    patient = exam.patient
    subject = patient.subject(exam.batch.select(slice(0, 16)))
    still = [_predicted(subject, patient.seed, mode=False, others=other) for other in (0, 0, 1)]
    moving = [_predicted(subject, patient.seed, mode=True, others=other) for other in (0, 0, 1)]
    if not (_equal(still[0], still[1]) and _equal(moving[0], moving[1])) or not (
        _equal(still[0], still[2]) and _equal(moving[0], moving[2])
    ):
        yield UNCONTROLLED_SEED.finding(
            "With PyTorch's generator at the same seed, the same batch gives other outputs each time.", 1.0
        )
        return
    again = _predicted(subject, patient.seed + 1, mode=False, others=0)
    if not _equal(still[0], again):
        yield DROPOUT_IN_EVAL.finding(
            "In eval mode the same batch gives other outputs with another seed.", 1.0
        )


def _predicted(subject: Subject, seed: int, mode: bool, others: int) -> Tensor:
    """Outputs with PyTorch's generator at one seed and those of Python and NumPy at another."""
    with preserve_state(subject.model, seed, mode=mode), torch.no_grad():
        random.seed(1234 + others)
        numpy.random.seed(1234 + others)
        return subject.outputs() if not subject.has_own_loss else subject.loss().reshape(1)


def _equal(one: Tensor, two: Tensor) -> bool:
    return torch.equal(torch.nan_to_num(one), torch.nan_to_num(two))


NO_ZERO_GRAD = card(
    "no-zero-grad",
    stage="code",
    sees="gradients that accumulate over steps",
    cause=(
        "backward() adds to .grad. Without zero_grad(), each update follows the sum of all gradients so far."
    ),
    treatment=Treatment(
        "Clear gradients before each backward pass.",
        code="optimizer.zero_grad()\nloss.backward()\noptimizer.step()",
    ),
    healthy=(None, 0.0),
    level="severe",
    confidence=0.98,
    explains=TOO_MUCH | {"dead-units"},
    example=lambda: {"model": perceptron(), "step": functools.partial(step, zero_grad=False)},
)


def _loop(exam: Examination) -> Iterator[Finding]:
    """Findings on the user's own training step, from its trial."""
    if "step" not in exam.patient.given:
        exam.leave_out("your training loop", "no step was given; pass step=… to have it examined")
        return
    history = exam.history
    if history is None or not history.steps:
        return
    stale = exam.sign("stale-steps", history.stale / history.steps) or 0.0
    if stale > 0.5:
        yield NO_ZERO_GRAD.finding(
            f"At {history.stale} of {history.steps} steps gradients were added to those of earlier steps.",
            stale,
        )
    yield from _mode(exam)
    yield from _clipping(exam)


TRAIN_EVAL_MODE = card(
    "train-eval-mode",
    stage="code",
    sees="training in eval mode",
    cause=(
        "In eval mode, batch norm uses running statistics that are never updated, and dropout "
        "does nothing. This happens when an evaluation calls eval() and nothing calls train() "
        "afterwards."
    ),
    treatment=Treatment("Call model.train() before each training step or epoch.", code="model.train()"),
    healthy=(None, 0.0),
    confidence=0.97,
    course=("J1",),
    explains=TOO_MUCH | BAD_SIGNAL | {"batchnorm-statistics", "overfitting", "lr-too-low"},
    example=lambda: {"model": convolutional(), "step": functools.partial(step, training=False)},
)


def _mode(exam: Examination) -> Iterator[Finding]:
    history = exam.history
    assert history is not None
    share = exam.sign("eval-steps", history.evaluating / history.steps) or 0.0
    minds = [n for n, m in exam.patient.model.named_modules() if _minds_the_mode(m)]
    if share > 0.5 and minds:
        yield TRAIN_EVAL_MODE.finding(
            f"The model was in eval mode at {history.evaluating} of {history.steps} training steps, and "
            f"{len(minds)} of its layers mind ({minds[0]} and others)."
            if len(minds) > 1
            else f"The model was in eval mode at {history.evaluating} of {history.steps} training steps, and "
            f"{minds[0]} minds.",
            share,
        )


def _minds_the_mode(module: nn.Module) -> bool:
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        return module.track_running_stats
    rate = getattr(module, "p", getattr(module, "rate", 0.0))
    return "drop" in type(module).__name__.lower() and isinstance(rate, float) and rate > 0


ALWAYS_CLIPPING = card(
    "always-clipping",
    stage="code",
    sees="nearly every gradient clipped to a small fraction of its norm",
    cause=(
        "Clipping is meant for rare large gradients. At every step, it removes the gradient's "
        "magnitude and leaves a fixed step length, so the learning rate loses its meaning."
    ),
    sign="clipped-factor",
    confidence=0.9,
    course=("I9",),
    explains=frozenset({"lr-too-low", "underfitting"}),
    example=lambda: {
        "model": perceptron(),
        "step": functools.partial(step, clip=1e-3),
        "optimizer": torch.optim.SGD,
        "lr": 0.1,
    },
)


def _clipping(exam: Examination) -> Iterator[Finding]:
    history = exam.history
    assert history is not None
    pairs = [(a, b) for a, b in zip(history.applied, history.arising, strict=False) if b > 0]
    if len(pairs) < 5:
        return
    factors = [applied / arising for applied, arising in pairs]
    clipped = sum(factor < 0.98 for factor in factors) / len(factors)
    factor = exam.sign("clipped-factor", statistics.median(factors)) or 0.0
    exam.sign("clipped-share", clipped)
    if clipped > 0.9 and ranges.too_low("clipped-factor", factor):
        yield ALWAYS_CLIPPING.finding(
            f"The gradient is clipped at {clipped:.0%} of the steps, to {factor:.2g} of its size.",
            factor,
            treatment=Treatment(
                "Raise the limit to about twice the median gradient norm, "
                f"{2 * statistics.median(b for _, b in pairs):.2g}, or lower the learning rate instead.",
                {"clip": {"name": "norm", "limit": round(2 * statistics.median(b for _, b in pairs), 2)}},
                "torch.nn.utils.clip_grad_norm_(model.parameters(), "
                f"{2 * statistics.median(b for _, b in pairs):.2g})",
            ),
        )


SCHEDULE_DEAD = card(
    "schedule-dead",
    stage="code",
    sees="a learning rate near 0 for most of training",
    cause=(
        "It decays far too fast, often because a decay meant for epochs is applied at every step."
        " Most of training changes nothing."
    ),
    sign="schedule-alive",
    confidence=0.95,
    course=("F9",),
    explains=frozenset({"lr-too-low", "underfitting"}),
    example=lambda: {"model": perceptron(), "scheduler": lambda progress: 0.1 ** (99 * progress)},
)


SCHEDULE_NEVER_PEAKS = card(
    "schedule-never-peaks",
    stage="code",
    sees="a warm-up that is longer than training",
    cause=(
        "The warm-up is longer than training, often because it was counted in steps for a longer "
        "run, or the scheduler is stepped once per epoch."
    ),
    sign="schedule-peak",
    confidence=0.95,
    course=("F8", "F10"),
    explains=frozenset({"lr-too-low", "underfitting"}),
    example=lambda: {"model": perceptron(), "scheduler": lambda progress: progress / 9, "total_steps": 500},
)


def _schedule(exam: Examination) -> Iterator[Finding]:
    factors = exam.patient.factors
    if not factors:
        exam.leave_out("the schedule", "none was given")
        return
    peak, total = max(factors), len(factors)
    exam.sign("schedule-peak", peak)
    place = factors.index(peak)
    alive = exam.sign("schedule-alive", sum(f > 0.01 * max(peak, 1e-12) for f in factors) / total) or 0.0
    if peak > 0 and ranges.too_low("schedule-peak", peak) and place > 0.9 * total:
        yield SCHEDULE_NEVER_PEAKS.finding(
            f"The learning rate still rises when training ends, at {peak:.0%} of what it was meant to reach.",
            peak,
            treatment=Treatment(
                f"Warm up over a twentieth of training: {max(1, total // 20)} of {total} steps.",
                {"schedule": {"name": "cosine", "warmup": "5%"}},
                f"torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr, total_steps={total}, "
                "pct_start=0.05)",
            ),
        )
    if ranges.too_low("schedule-alive", alive):
        yield SCHEDULE_DEAD.finding(
            f"The learning rate is under a hundredth of its peak for {1 - alive:.0%} of training.",
            alive,
            treatment=Treatment(
                "Let the decay last as long as training, as one cosine cycle does.",
                {"schedule": "cosine"},
                f"torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max={total})",
            ),
        )


DECAY_ON_NORMS = card(
    "decay-on-norms",
    stage="code",
    sees="strong weight decay on the gains and biases of norms",
    cause=(
        "A gain of 0 silences its layer. Weight decay is meant for weight matrices, whose scale "
        "normalisation makes irrelevant, not for gains and biases."
    ),
    treatment=Treatment(
        "Put gains and biases into a parameter group without weight decay.",
        {"exempt_from_decay": ["bias", "norm"]},
        "plain = [p for p in model.parameters() if p.dim() < 2]\n"
        "optimizer = torch.optim.AdamW([{'params': matrices}, "
        "{'params': plain, 'weight_decay': 0.0}])",
    ),
    sign="norm-decay",
    confidence=0.85,
    course=("I7",),
    explains=frozenset({"underfitting", "l2-with-adaptive", "lr-too-high", "vanishing-signal"}),
    example=lambda: {
        "model": convolutional(),
        "optimizer": functools.partial(torch.optim.AdamW, weight_decay=1.0),
    },
)


def _decay(exam: Examination) -> Iterator[Finding]:
    patient = exam.patient
    if "optimizer" not in patient.given or patient.optimizer is None:
        return
    optimizer = patient.optimizer
    kind = type(optimizer).__name__
    norms = {
        id(p) for m in patient.model.modules() if isinstance(m, NORMS) or _is_norm(m) for p in m.parameters()
    }
    pull = 0.0
    for group in optimizer.param_groups:
        decay = float(group.get("weight_decay", 0.0) or 0.0)
        if any(id(p) in norms for p in group["params"]):
            pull = max(pull, decay * float(group["lr"]) * patient.total_steps)
    exam.sign("norm-decay", pull)
    if ranges.too_high("norm-decay", pull):
        yield DECAY_ON_NORMS.finding(
            f"Weight decay pulls the gains of normalisation layers to 0 as well (strength {pull:.2g} over "
            "training).",
            pull,
        )
    adaptive = (
        is_adaptive(optimizer.rule.name) if isinstance(optimizer, RuleOptimizer) else kind in ADAPTIVE_WITH_L2
    )
    if adaptive:
        yield from _l2(exam, optimizer, kind)


def _is_norm(module: nn.Module) -> bool:
    return "norm" in type(module).__name__.lower() and not list(module.children())


L2_WITH_ADAPTIVE = card(
    "l2-with-adaptive",
    stage="code",
    sees="L2 regularisation added to the gradient of an adaptive optimizer",
    cause=(
        "An adaptive optimizer divides it by the gradient's size again. Weights with small "
        "gradients decay most, those with large gradients hardly at all. That is not weight "
        "decay."
    ),
    healthy=(None, 0.0),
    confidence=0.85,
    course=("I7",),
    explains=frozenset({"underfitting", "lr-too-low", "lr-too-high", "vanishing-signal"}),
    example=lambda: {
        "model": perceptron(),
        "optimizer": functools.partial(torch.optim.Adam, weight_decay=0.1),
    },
)


def _l2(exam: Examination, optimizer: torch.optim.Optimizer, kind: str) -> Iterator[Finding]:
    key = "l2" if isinstance(optimizer, RuleOptimizer) else "weight_decay"
    strength = max(float(group.get(key, 0.0) or 0.0) for group in optimizer.param_groups)
    exam.sign("adaptive-l2", strength)
    decoupled = any(group.get("decoupled_weight_decay", False) for group in optimizer.param_groups)
    if not strength or decoupled:
        return
    rate = float(optimizer.param_groups[0]["lr"])
    yield L2_WITH_ADAPTIVE.finding(
        f"{kind} is given weight_decay={strength:g}, which it adds to the gradient.",
        strength,
        treatment=Treatment(
            "Use decoupled decay, AdamW, with a decay of about 0.01.",
            {"optimizer": {"name": "adamw", "lr": rate, "weight_decay": 0.01}},
            f"torch.optim.AdamW(model.parameters(), lr={rate:g}, weight_decay=0.01)",
        ),
        level="warning" if strength > max(ranges.high("adaptive-l2"), HARMLESS_L2) else "note",
    )


BATCHNORM_SMALL_BATCH = card(
    "batchnorm-small-batch",
    stage="code",
    sees="batch norm over very few examples",
    cause=(
        "With so few examples, mean and variance are mostly noise. Each output depends on the "
        "other examples in its batch, and the running statistics fit none of the batches."
    ),
    treatment=Treatment(
        "Use group norm or layer norm, or larger batches.",
        {"model.norm": "group"},
        "torch.nn.GroupNorm(8, channels)",
    ),
    sign="batch-norm-examples",
    confidence=0.9,
    course=("J3",),
    explains=frozenset(
        {"batchnorm-statistics", "noisy-gradient", "lr-too-high", "lr-too-low", "overfitting"}
    ),
    example=lambda: {"model": convolutional(), "batch_size": 2},
)


def _small_batches(exam: Examination) -> Iterator[Finding]:
    patient = exam.patient
    norms = [
        name
        for name, module in patient.model.named_modules()
        if isinstance(module, nn.modules.batchnorm._BatchNorm)
    ]
    if not norms:
        return
    size = exam.sign("batch-norm-examples", float(patient.train.batch_size)) or 0.0
    if ranges.too_low("batch-norm-examples", size):
        yield BATCHNORM_SMALL_BATCH.finding(
            f"Batch norm ({norms[0]} and {len(norms) - 1} more) takes its statistics from {size:.0f} "
            "examples.",
            size,
            layer=norms[0],
        )
