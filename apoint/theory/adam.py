"""How far a step of Adam can go, and what its bias correction undoes.

Adam keeps m_t = (1−β1)·Σ_i β1^(t−i)·g_i and v_t = (1−β2)·Σ_i β2^(t−i)·g_i² of the gradients g_1 … g_t of a
coordinate, and steps by η·(m_t/(1−β1^t))/√(v_t/(1−β2^t)).

Reference: Kingma and Ba (2015), Adam: a method for stochastic optimization, arXiv 1412.6980, section 2.1,
whose bound (1−β1)/√(1−β2) is that of a gradient which is 0 but once; `largest_step` is that of any gradients.
"""

from __future__ import annotations

import math

import numpy as np

from apoint.errors import UsageError


def average_weights(beta: float, steps: int) -> np.ndarray:
    """The weights (1−β)·β^(t−i) of the gradients of steps i = 1 … t in a running average.

    Args:
        beta: β, at least 0 and below 1.
        steps: t, at least 1.
    """
    _check("average_weights", steps, beta=beta)
    return np.asarray((1 - beta) * beta ** np.arange(steps - 1, -1, -1.0))


def bias_factor(beta: float, steps: int) -> float:
    """1 − β^t: the share of its expectation that a running average from 0 has reached after t steps.

    It is the sum of `average_weights`; Adam divides by it.

    Args:
        beta: β, at least 0 and below 1.
        steps: t, at least 1.
    """
    _check("bias_factor", steps, beta=beta)
    return 1.0 if beta == 0 else -math.expm1(steps * math.log(beta))


def sparse_step(lr: float, beta1: float, beta2: float, steps: int | None = None) -> float:
    """The step at t on the first gradient of a coordinate that had none before.

    η·(1−β1)/√(1−β2) · √(1−β2^t)/(1−β1^t), which for t → ∞ is η·(1−β1)/√(1−β2).

    Args:
        lr: η, above 0.
        beta1: β1, at least 0 and below 1.
        beta2: β2, at least 0 and below 1.
        steps: t, at least 1; None for the limit.
    """
    _check("sparse_step", 1 if steps is None else steps, lr, beta1=beta1, beta2=beta2)
    limit = lr * (1 - beta1) / math.sqrt(1 - beta2)
    if steps is None:
        return limit
    return limit * math.sqrt(bias_factor(beta2, steps)) / bias_factor(beta1, steps)


def largest_step(lr: float, beta1: float, beta2: float, steps: int | None = None) -> float:
    """The largest step at t over all gradients, by Cauchy-Schwarz; `worst_gradients` attain it.

    `sparse_step` times √(Σ_(j<t) r^j) with r = β1²/β2, since
    |m_t| ≤ (1−β1)·√(Σ r^j)·√(Σ β2^(t−i)·g_i²). For t → ∞ that is η·(1−β1)/√((1−β2)·(1−r)), and infinite for
    β1² ≥ β2. With the usual betas it is 7.27·η, not 3.16·η.

    Args:
        lr: η, above 0.
        beta1: β1, at least 0 and below 1.
        beta2: β2, above 0 and below 1.
        steps: t, at least 1; None for the limit.
    """
    _check("largest_step", 1 if steps is None else steps, lr, beta1=beta1, beta2=beta2)
    if beta2 == 0:
        raise UsageError("largest_step: beta2 must be above 0, or only the last square counts; got 0")
    ratio = beta1 * beta1 / beta2
    if steps is None:
        total = 1 / (1 - ratio) if ratio < 1 else math.inf
    else:
        total = float(np.sum(ratio ** np.arange(float(steps))))
    return sparse_step(lr, beta1, beta2, steps) * math.sqrt(total)


def worst_gradients(beta1: float, beta2: float, steps: int) -> np.ndarray:
    """Gradients of t steps whose last step is `largest_step`: each β2/β1 times the one before.

    They are g_i = (β1/β2)^(t−i), the last one 1. With the usual β each is 11 % larger than the one before.

    Args:
        beta1: β1, above 0 and below 1.
        beta2: β2, above 0 and below 1.
        steps: t, at least 1.
    """
    _check("worst_gradients", steps, beta1=beta1, beta2=beta2)
    if beta1 == 0 or beta2 == 0:
        raise UsageError(f"worst_gradients: both betas must be above 0, got {beta1:g} and {beta2:g}")
    return np.asarray((beta1 / beta2) ** np.arange(steps - 1, -1, -1.0))


def _check(who: str, steps: int, lr: float = 1.0, **betas: float) -> None:
    for name, value in betas.items():
        if not 0 <= value < 1:
            raise UsageError(f"{who}: {name} must be at least 0 and below 1, got {value:g}")
    if int(steps) != steps or steps < 1:
        raise UsageError(f"{who}: steps must be a whole number from 1 on, got {steps}")
    if not (lr > 0 and math.isfinite(lr)):
        raise UsageError(f"{who}: lr must be positive and finite, got {lr:g}")
