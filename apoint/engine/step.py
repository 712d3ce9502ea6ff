"""One training step: batch, forward, backward, guard, clip, update."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from apoint.data import streams
from apoint.engine.replica import Replica, real_buffers
from apoint.errors import DivergedError
from apoint.recipe import Average
from apoint.units import Horizon


class NonFiniteError(DivergedError):
    """A loss or gradient that is not finite, found before it reached the weights."""

    def __init__(self, step: int, tensor: str, loss: float, index_B: Tensor) -> None:
        self.step, self.tensor, self.loss = step, tensor, loss
        self.examples = index_B.tolist()
        shown = ", ".join(map(str, self.examples[:8])) + (", …" if len(self.examples) > 8 else "")
        super().__init__(
            f"training diverged at step {step}: {tensor} is not finite (loss {loss:g}); the update was not "
            f"made. The batch held training examples {shown}. Try a lower learning rate, clipping or a "
            "warm-up"
        )


def training_step(replica: Replica, step: int) -> float:
    """Make update number `step`, counted from 0; return the batch's mean loss before it."""
    recipe, stream, parameters = replica.recipe, replica.stream, replica.parameters
    progress = step / replica.horizon.total_steps
    replica.timeline.apply_schedules(progress)
    index_B = stream.indices(step)
    parameters.gradients_P.zero_()
    loss = 0.0
    for part, index_b in enumerate(index_B.tensor_split(recipe.accumulate)):
        reseed(replica, step, part)
        x, y = stream.batch(index_b, step, progress)
        partial = replica.loss(replica.model(x), y).sum() / len(index_B)
        partial.backward()  # type: ignore[no-untyped-call]
        loss += float(partial.detach())
    guard(replica, step, loss, index_B)
    gradients_P = replica.clip(parameters.gradients_P, replica.timeline.clip_limit(progress))
    replica.optimizer.update(gradients_P, step + 1, replica.timeline.hyper(progress))
    follow_average(replica, progress)
    return loss


def reseed(replica: Replica, step: int, part: int) -> None:
    """Seed PyTorch's generator for this step's draws inside the model (dropout and the like)."""
    key = streams.key(replica.stream_seed("dropout"), "dropout", step, part)
    if replica.device.type == "cpu":
        torch.default_generator.manual_seed(key)
    else:
        torch.manual_seed(key)


def guard(replica: Replica, step: int, loss: float, index_B: Tensor) -> None:
    """Raise before clipping and update if the loss or any gradient is not finite."""
    if math.isfinite(loss) and math.isfinite(float(replica.parameters.gradients_P.sum())):
        return
    first_nonfinite = replica.parameters.first_nonfinite()
    if math.isfinite(loss) and first_nonfinite is None:
        return  # finite values whose sum overflows
    tensor = "the loss" if not math.isfinite(loss) else f"the gradient of {first_nonfinite}"
    raise NonFiniteError(step, tensor, loss, index_B)


@torch.no_grad()
def follow_average(replica: Replica, progress: float) -> None:
    """Update the moving average of weights and running statistics, if the recipe has one."""
    average = replica.recipe.average
    if average is None or replica.average_P is None:
        return
    weight = weight_in_average(average, replica.horizon, progress)
    replica.average_P.lerp_(replica.parameters.weights_P, weight)
    if replica.average_buffers:
        for name, buffer in real_buffers(replica.model).items():
            replica.average_buffers[name].lerp_(buffer, weight)


def weight_in_average(average: Average, horizon: Horizon, progress: float) -> float:
    """The weight 1 − d of the newest parameters in the moving average; 1 before it begins.

    d is the recipe's decay; with a warm-up min(decay, (1 + t)/(10 + t)), where t counts the updates averaged
    before this one: 0.1, 0.18, 0.25, … at first, and 0.999 after 8990 updates.
    """
    begin = average.begin.as_share(horizon, "begin of average")
    if progress < begin:
        return 1.0
    if not average.warmup:
        return 1 - average.decay
    done = math.floor((progress - begin) * horizon.total_steps + 1e-6)  # a whole number up to rounding
    return 1 - min(average.decay, (1 + done) / (10 + done))
