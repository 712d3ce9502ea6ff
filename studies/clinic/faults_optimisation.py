"""Faults of the optimizer, its rate, its schedule and its decay."""

from __future__ import annotations

import math

from studies.clinic.faults import fault
from studies.clinic.patients import Draft
from studies.clinic.planting import resize, use

VARIED = "mlp/digits cnn-group-norm/images encoder/waves regression-mlp/teacher lstm-lm/text"
TOO_HIGH = {"sgd": 100.0, "momentum": 100.0, "nesterov": 100.0}


@fault("lr-too-high", on=f"{VARIED} deep-mlp/colours")
def lr_too_high(draft: Draft) -> None:
    """A hundred times the rate."""
    draft.plan.lr *= TOO_HIGH.get(draft.plan.name, 200.0)


@fault("lr-too-low", on=f"{VARIED} mixer/colours")
def lr_too_low(draft: Draft) -> None:
    """A thousandth of the rate."""
    draft.plan.lr *= 1e-3


def endless_warmup(progress: float) -> float:
    """A warm-up forty times as long as the training."""
    return (progress + 1e-3) / 40


@fault("schedule-never-peaks", on=f"{VARIED} cnn-1d/curves")
def never_peaks(draft: Draft) -> None:
    """A warm-up that does not end."""
    draft.schedule = endless_warmup


def sudden_decay(progress: float) -> float:
    """Down by e with each hundredth of the training."""
    return math.exp(-100 * progress)


@fault("schedule-dead", on=f"{VARIED} convnext/colours")
def dead_schedule(draft: Draft) -> None:
    """A rate that is nothing after a few steps, by a function or by PyTorch's scheduler."""
    draft.schedule = "torch-dead" if draft.seed % 2 else sudden_decay


def _warmed_up(draft: Draft) -> None:
    """Prepare a network that needs a warm-up, and has one.

    PyTorch's RMSprop does not correct its bias: its first updates are ten times the rate in size, which the
    norms on the sums do not forgive.
    """
    resize(draft, width=48, depth=6, dropout=0.0)
    use("rmsprop", 4e-3)(draft)
    draft.schedule, draft.batch_size = "warmup-cosine", 32


@fault(
    "missing-warmup",
    on="post-norm-mlp/digits post-norm-mlp/waves post-norm-mlp/colours post-norm-mlp/images",
    accepted=("missing-warmup", "lr-too-high"),
    prepare=_warmed_up,
    elsewhere="networks that bear the full rate from the start, which is most small ones",
)
def missing_warmup(draft: Draft) -> None:
    """The full rate from the first step."""
    draft.schedule = "cosine"


@fault(
    "noisy-gradient",
    on="mlp/digits functional-mlp/waves regression-mlp/teacher tanh-mlp/digits tanh-mlp/waves",
    accepted=("noisy-gradient", "lr-too-high"),
    prepare=use("momentum", 0.05),
    elsewhere="batch norm, which cannot take one example",
)
def noisy_gradient(draft: Draft) -> None:
    """One example per update, at the rate of a large batch."""
    draft.batch_size = 1


@fault(
    "decay-on-norms",
    on="residual-mlp/digits cnn-batch-norm/images vit/digits cnn-group-norm/digits mixer/colours",
    prepare=use("adamw", 2e-3),
    elsewhere="networks without norms",
)
def decay_on_norms(draft: Draft) -> None:
    """The two groups swapped: strong decay of gains and biases, none of the weights."""
    draft.plan.decay_of_rest = 20.0


@fault(
    "l2-with-adaptive",
    on="mlp/digits tanh-mlp/waves residual-mlp/digits regression-mlp/teacher functional-mlp/digits",
    prepare=use("adam", 2e-3),
    elsewhere="descent, where both decays are the same",
)
def l2_with_adaptive(draft: Draft) -> None:
    """A strong L2 term in the gradient that Adam then divides by its own size."""
    draft.plan.weight_decay = 0.5
