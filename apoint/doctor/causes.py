"""What follows from what: for each finding, those that it brings about, so that they need not be said too."""

from __future__ import annotations

_NO_LEARNING = frozenset({"lr-too-low", "underfitting", "cannot-overfit-batch"})
_TOO_MUCH = frozenset(
    {"lr-too-high", "missing-warmup", "exploding-gradient", "always-clipping", "non-finite", "noisy-gradient"}
)
_BAD_START = _NO_LEARNING | _TOO_MUCH | {"vanishing-gradient", "bad-initial-loss", "dead-units", "saturation"}
_SIGNAL = frozenset({"exploding-signal", "vanishing-signal", "wrong-gain"})

_BREAKS_OFF = _NO_LEARNING | {"lr-too-high", "non-finite", "noisy-gradient", "missing-warmup"}

CONSEQUENCES: dict[str, frozenset[str]] = {
    # a training step
    "batch-fails": frozenset(),
    "forward-fails": _BREAKS_OFF,
    "loss-fails": _BREAKS_OFF | {"bad-initial-loss"},
    "backward-fails": _BREAKS_OFF | {"no-gradient"},
    "step-fails": _BREAKS_OFF,
    # data
    "non-finite-input": _BAD_START | _SIGNAL | {"unnormalised-input"},
    "unnormalised-input": _BAD_START | _SIGNAL | {"batchnorm-statistics", "overfitting"},
    "shuffled-labels": _NO_LEARNING | {"label-noise", "overfitting", "lr-too-high", "noisy-gradient"},
    "label-noise": frozenset({"overfitting", "underfitting", "noisy-gradient", "lr-too-high", "lr-too-low"}),
    "leakage": frozenset(),
    "class-imbalance": frozenset(  # of a few examples of a class nobody can say whether their labels fit
        {"noisy-gradient", "overfitting", "bad-initial-loss", "shuffled-labels", "label-noise"}
    ),
    "constant-feature": frozenset(),
    # loss
    "double-softmax": _NO_LEARNING | {"bad-initial-loss", "noisy-gradient"},
    "wrong-reduction": _TOO_MUCH | {"bad-initial-loss", "dead-units", "overfitting"},
    "target-shape": _NO_LEARNING | {"bad-initial-loss", "noisy-gradient"},
    "bad-initial-loss": _TOO_MUCH | {"overfitting"},
    # code
    "frozen-parameters": _NO_LEARNING | {"vanishing-gradient", "exploding-gradient", "overfitting"},
    "no-gradient": _NO_LEARNING | {"vanishing-gradient", "exploding-gradient", "dead-units", "overfitting"},
    "not-in-optimizer": frozenset({"lr-too-low", "underfitting", "overfitting", "dead-units"}),
    "symmetric-init": _BAD_START | _SIGNAL | {"no-gradient"},
    "mixed-examples": _BAD_START | _SIGNAL,
    "uncontrolled-seed": frozenset({"dropout-in-eval", "noisy-gradient"}),
    "dropout-in-eval": frozenset({"batchnorm-statistics", "underfitting", "noisy-gradient"}),
    "no-zero-grad": _TOO_MUCH | {"dead-units"},
    "train-eval-mode": _TOO_MUCH | _SIGNAL | {"batchnorm-statistics", "overfitting", "lr-too-low"},
    "always-clipping": frozenset({"lr-too-low", "underfitting"}),
    "schedule-never-peaks": frozenset({"lr-too-low", "underfitting"}),
    "schedule-dead": frozenset({"lr-too-low", "underfitting"}),
    "decay-on-norms": frozenset({"underfitting", "l2-with-adaptive", "lr-too-high", "vanishing-signal"}),
    "l2-with-adaptive": frozenset({"underfitting", "lr-too-low", "lr-too-high", "vanishing-signal"}),
    "batchnorm-small-batch": frozenset(
        {"batchnorm-statistics", "noisy-gradient", "lr-too-high", "lr-too-low", "overfitting"}
    ),
    # signal and gradients
    "non-finite": _BAD_START | _SIGNAL,
    "exploding-signal": _BAD_START,
    "vanishing-signal": _BAD_START,
    "wrong-gain": _BAD_START,
    "dead-units": _NO_LEARNING | {"vanishing-gradient", "vanishing-signal", "wrong-gain", "no-gradient"},
    "saturation": _BAD_START - {"saturation"},
    "vanishing-gradient": _BAD_START | {"vanishing-signal", "wrong-gain"},
    "exploding-gradient": _TOO_MUCH | {"wrong-gain", "cannot-overfit-batch", "underfitting"},
    "noisy-gradient": frozenset({"lr-too-high", "lr-too-low", "underfitting"}),
    # optimisation and generalisation
    "lr-too-high": frozenset(
        {"non-finite", "dead-units", "noisy-gradient", "overfitting", "underfitting", "batchnorm-statistics"}
    ),
    "missing-warmup": frozenset(
        {"non-finite", "noisy-gradient", "dead-units", "lr-too-high", "batchnorm-statistics"}
    ),
    "lr-too-low": frozenset(),
    "underfitting": frozenset({"cannot-overfit-batch", "lr-too-low"}),
    "cannot-overfit-batch": frozenset({"lr-too-low", "underfitting"}),
    "batchnorm-statistics": frozenset({"overfitting"}),
    "overfitting": frozenset(),
}


def explains(cause: str, effect: str) -> bool:
    """Whether one finding brings about another."""
    return effect != cause and effect in CONSEQUENCES.get(cause, frozenset())
