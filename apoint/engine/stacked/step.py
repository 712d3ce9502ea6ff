"""One training step of a stack: batch, forward, backward, guard, clip, update; as in `engine.step`.

Axis letters: R replicas, B examples of an update, b examples of a part of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from apoint.engine.stacked.parameters import Parts
from apoint.engine.stacked.stack import Stack
from apoint.engine.step import NonFiniteError, weight_in_average
from apoint.optim import clipping


@dataclass(frozen=True)
class Stepped:
    """The result of a step, by member number.

    Attributes:
        losses: The batch's mean loss before the update, for each member that was updated.
        failures: The members whose loss or gradient was not finite; they leave the stack before the update.
    """

    losses: dict[int, float]
    failures: Mapping[int, NonFiniteError] = field(default_factory=dict)


def stacked_step(stack: Stack, step: int) -> Stepped:
    """Do update number `step`, counted from 0, for all replicas; see `training_step`."""
    progress = step / stack.replicas[0].horizon.total_steps
    stack.apply_schedules(progress)
    index_RB = stack.stream.indices(step)
    losses = _accumulate(stack, index_RB, step, progress)
    with torch.no_grad():
        failures = guard(stack, step, losses, index_RB)
        kept = [row for row in range(stack.num_replicas) if row not in failures]
        made = Stepped(
            {stack.members[row]: losses[row] for row in kept},
            {stack.members[row]: error for row, error in failures.items()},
        )
        if failures:
            stack.keep(kept)
        if kept:
            gradients = clipped(stack, stack.limits(progress))
            stack.optimizer.update(gradients, step + 1, stack.hypers(progress))
            follow_average(stack, progress)
    return made


def _accumulate(stack: Stack, index_RB: Tensor, step: int, progress: float) -> list[float]:
    """Accumulate the gradients of a step in the stack's buffers; return the losses."""
    batch_size, losses = index_RB.shape[1], [0.0] * stack.num_replicas
    accumulate = stack.replicas[0].recipe.accumulate
    parts = (index_RB,) if accumulate == 1 else index_RB.tensor_split(accumulate, dim=1)
    for part, index_Rb in enumerate(parts):
        stack.draws.begin(step, part)
        x, y = stack.stream.batch(index_Rb, step, progress)
        losses_R, *gradients = stack.passes(x, y)
        assert losses_R is not None
        stack.parameters.receive(gradients, add=part > 0)
        losses = [total + value / batch_size for total, value in zip(losses, losses_R.tolist(), strict=True)]
    return losses


def guard(stack: Stack, step: int, losses: list[float], index_RB: Tensor) -> dict[int, NonFiniteError]:
    """The rows whose loss or gradient is not finite, each with the error that a replica alone would raise."""
    sums = [part.sum(1).tolist() for part in stack.parameters.gradients if part.shape[1]]
    if math.isfinite(sum(losses) + sum(map(sum, sums))):
        return {}
    failures = {}
    for row, loss in enumerate(losses):
        if math.isfinite(loss) and all(math.isfinite(of_part[row]) for of_part in sums):
            continue
        first_nonfinite = stack.parameters.first_nonfinite(row)
        if math.isfinite(loss) and first_nonfinite is None:
            continue  # finite values whose sum overflows
        tensor = "the loss" if not math.isfinite(loss) else f"the gradient of {first_nonfinite}"
        failures[row] = NonFiniteError(step, tensor, loss, index_RB[row])
    return failures


def clipped(stack: Stack, limits: float | Tensor) -> Parts:
    """The gradients after clipping; each replica has its own norm, over both parts together."""
    clip: Any = stack.replicas[0].clip
    decayed, exempt = stack.parameters.gradients
    function = getattr(clip, "function", clip)
    if function is clipping.keep:
        return decayed, exempt
    if function is clipping.clip_by_value:
        return clip(decayed, limits), clip(exempt, limits)
    if function is clipping.clip_by_norm:
        norms = [torch.linalg.vector_norm(part, dim=1, keepdim=True) for part in (decayed, exempt)]
        norm_R1 = torch.linalg.vector_norm(torch.cat(norms, dim=1), dim=1, keepdim=True)
        limit = torch.as_tensor(limits, dtype=norm_R1.dtype, device=norm_R1.device)
        factor_R1 = torch.clamp(limit / norm_R1, max=1.0)
        return decayed.mul_(factor_R1), exempt.mul_(factor_R1)
    return stack.parameters.split(clip(torch.cat((decayed, exempt), dim=1), limits))


def follow_average(stack: Stack, progress: float) -> None:
    """Update the moving averages of weights and running statistics; see `engine.step.follow_average`."""
    first = stack.replicas[0]
    average = first.recipe.average
    if average is None or stack.average is None:
        return
    weight = weight_in_average(average, first.horizon, progress)
    for mine, weights in zip(stack.average, stack.parameters.weights, strict=True):
        mine.lerp_(weights, weight)
    buffers = stack.model.buffers(real=True) if stack.average_buffers else {}
    for name, buffer in buffers.items():
        stack.average_buffers[name].lerp_(buffer, weight)
