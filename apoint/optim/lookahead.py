"""Lookahead: a rule that wraps another rule."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field
from torch import Tensor

from apoint.errors import UsageError
from apoint.optim.base import Configured, Rule, State, Updated, Weight, running_average
from apoint.registry import register, registry, split_spec
from apoint.settings import Count, OptimizerSpec, Positive, Schedulable

Pull = Annotated[float, Field(gt=0, le=1), Schedulable()]
"""The share of the distance that slow weights move towards fast ones. May be put on a schedule."""

_PREFIX = "base."
_SHARED = ("lr", "weight_decay", "l2")
"""Hyper-parameters of the base that are written next to it, so that schedules and searches find them."""


@register("optimizer", "lookahead", family="other")
def lookahead(
    *,
    base: OptimizerSpec = "adam",
    every: Count = 5,
    alpha: Pull = 0.5,
    lr: Positive | None = None,
    weight_decay: Weight | None = None,
    l2: Weight | None = None,
) -> Configured:
    """Lookahead: slow weights that follow fast ones every few steps, which stabilises any other rule.

    The fast weights θ take the base's steps, with its weight decay; every k steps the slow weights φ move
    part of the way to them, and the fast ones restart from there. φ starts at the first θ.

        φ ← θ if t == 1 else φ
        θ ← base(θ)
        φ ← (1 − α)·φ + α·θ if t % k == 0 else φ
        θ ← φ if t % k == 0 else θ

    with k `every`, α `alpha`, base `base` and t the step.

    The base's state is kept when the fast weights restart, as in the paper's main experiments. PyTorch has
    no counterpart.

    Args:
        base: The rule that moves the fast weights, any but lookahead itself: a name, or a name and settings.
        every: The number k of fast steps per slow step.
        alpha: The share α of the distance that the slow weights move.
        lr: The learning rate of the base; by default the base's own default.
        weight_decay: Decoupled weight decay of the fast weights; by default the base's own default.
        l2: The penalty in the loss of the fast weights; by default the base's own default.

    Reference:
        Zhang et al., 2019, Lookahead optimizer: k steps forward, 1 step back, arXiv 1907.08610.
    """
    name, inner = split_spec(base, "optimizer")
    if name == "lookahead":
        raise UsageError("optimizer 'lookahead': base must be another rule, got 'lookahead'")
    for key in _SHARED:
        if key in inner:
            raise UsageError(
                f"optimizer 'lookahead': write {key} beside base, not inside it, got {inner[key]!r}"
            )
    given = {"lr": lr, "weight_decay": weight_decay, "l2": l2}
    given = {key: value for key, value in given.items() if value is not None}
    chosen: Configured = registry("optimizer").build(base, **given)
    hyper = {"every": every, "alpha": alpha, **_prefixed(chosen.hyper)}
    return Configured(lookahead_over(name), hyper)


@functools.cache
def lookahead_over(base_name: str) -> Rule:
    """The rule `lookahead` for a base, with the base's slots and hyper-parameters under a prefix."""
    base: Rule = registry("optimizer").build(base_name).rule
    slots = {"slow": 0.0, **{_PREFIX + slot: start for slot, start in base.slots.items()}}
    defaults = {"every": 5, "alpha": 0.5, **_prefixed(base.defaults)}
    return Rule("lookahead", functools.partial(_update, base), slots, defaults, applies_decay=True)


def _update(
    base: Rule,
    gradient: Tensor,
    state: State,
    param: Tensor,
    step: int,
    *,
    every: int,
    alpha: float,
    **base_hyper: Any,
) -> Updated:
    """The base's step on the fast weights; every k-th step jumps to the slow ones instead."""
    inner = {slot: state[_PREFIX + slot] for slot in base.slots}
    hyper = {key.removeprefix(_PREFIX): value for key, value in base_hyper.items()}
    delta, inner = base.step(gradient, inner, param, step, hyper)
    slow = param.clone() if step == 1 else state["slow"]
    if step % every == 0:
        slow = running_average(param + delta, slow, alpha)
        delta = slow - param
    return delta, {"slow": slow, **{_PREFIX + slot: value for slot, value in inner.items()}}


def _prefixed(hyper: Mapping[str, Any]) -> dict[str, Any]:
    return {key if key in _SHARED else _PREFIX + key: value for key, value in hyper.items()}
