"""A trial step: whether a model's own code runs for all replicas at once and gives the same result.

Everything happens on copies; replicas, generators and the stack's tensors are left unchanged.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from apoint.data import streams
from apoint.engine.replica import Replica
from apoint.engine.stacked.batches import StackedStream
from apoint.engine.stacked.draws import Draws, default_generator
from apoint.engine.stacked.errors import CannotStackError
from apoint.engine.stacked.lifting import without_fallback
from apoint.engine.stacked.losses import example_losses
from apoint.engine.stacked.model import StackedModel, knobs_of
from apoint.engine.stacked.parameters import StackedParameters
from apoint.engine.stream import extremes
from apoint.errors import first_line

TOLERANCE = 1e-2
"""How far a stacked gradient may be from that of the replica alone, relative to its norm.

Both are correct up to rounding, so the distance is near 1e-6 in float32, and at most 1e-3 in very deep
networks; a different computation is off by the order of 1.
"""


@dataclass
class Trial:
    """The result of one pass for one replica: its loss, its gradients and its buffers afterwards."""

    loss: float
    gradients: dict[str, Tensor]
    buffers: dict[str, Tensor]


def rehearse(replicas: list[Replica], parameters: StackedParameters, stream: StackedStream) -> bool:
    """Try the first step with the initial rates, and with each scheduled rate at its highest.

    The first and the last replica are also tried alone, and must give the same result. If they do not, the
    trial is repeated with the faithful layout; see `Scene`.

    Returns:
        Whether the layout must be faithful.

    Raises:
        CannotStackError: The model's code fails for all replicas at once, or gives a different result.
    """
    first = replicas[0]
    peaks = [extremes(rate, first.horizon)[1][0] for _, rate in first.timeline.knobs]
    index_Rb = stream.indices(0).tensor_split(first.recipe.accumulate, dim=1)[-1]
    faithful = False
    for step in dict.fromkeys([0, *peaks]):
        progress = step / first.horizon.total_steps
        x, y = stream.batch(index_Rb, 0, progress)
        together = _together(replicas, parameters, x, y, progress, faithful)
        alone = {row: _alone(replicas[row], index_Rb[row], progress) for row in (0, len(replicas) - 1)}
        if not faithful and any(_difference(together[row], trial) for row, trial in alone.items()):
            faithful = True
            together = _together(replicas, parameters, x, y, progress, faithful)
        for row, trial in alone.items():
            difference = _difference(together[row], trial)
            if difference:
                raise CannotStackError(difference)
    return faithful


def _together(
    replicas: list[Replica],
    parameters: StackedParameters,
    x: Tensor,
    y: Tensor,
    progress: float,
    faithful: bool,
) -> list[Trial]:
    """The result of a stacked pass for each replica."""
    first, leaves = replicas[0], parameters.leaves
    draws = Draws([replica.stream_seed("dropout") for replica in replicas], first.device)
    model = StackedModel([replica.model for replica in replicas], draws, faithful)
    model.template.train()
    for module, rate in knobs_of(first, model.template):
        module.rate = rate(progress)
    draws.begin(0, 0)
    with _as_reason(), without_fallback():
        losses_R = example_losses(first.loss, model(x, leaves), y).sum(1)
        gradients = torch.autograd.grad(losses_R.sum(), list(leaves.values()), allow_unused=True)
    kept = model.keeps_wrapped()
    if kept:
        raise CannotStackError(f"its model keeps a tensor of one step for the next, in {kept}")
    named = {name: g for name, g in zip(leaves, gradients, strict=True) if g is not None}
    buffers = model.buffers(real=True)
    return [Trial(loss, _row(named, row), _row(buffers, row)) for row, loss in enumerate(losses_R.tolist())]


def _row(stacked: Mapping[str, Tensor], row: int) -> dict[str, Tensor]:
    return {name: tensor[row] for name, tensor in stacked.items()}


def _alone(replica: Replica, index_b: Tensor, progress: float) -> Trial:
    """The result of the same pass for one replica, as the engine trains it alone."""
    model = copy.deepcopy(replica.model).train()
    for module, rate in knobs_of(replica, model):
        module.rate = rate(progress)
    trainable = {name: p for name, p in model.named_parameters() if p.requires_grad}
    x, y = replica.stream.batch(index_b, 0, progress)
    with _as_reason(), _seeded(replica):
        loss = replica.loss(model(x), y).sum()
        gradients = torch.autograd.grad(loss, list(trainable.values()), allow_unused=True)
    named = {name: g for name, g in zip(trainable, gradients, strict=True) if g is not None}
    buffers = {name: buffer for name, buffer in model.named_buffers() if buffer.is_floating_point()}
    return Trial(float(loss.detach()), named, buffers)


@contextmanager
def _seeded(replica: Replica) -> Iterator[None]:
    """Seed PyTorch's generator as the engine does for the first step; restore it afterwards."""
    generator = default_generator(replica.device)
    before = generator.get_state()
    generator.manual_seed(streams.key(replica.stream_seed("dropout"), "dropout", 0, 0))
    try:
        yield
    finally:
        generator.set_state(before)


def _difference(together: Trial, alone: Trial) -> str:
    """How the result of a replica in a stack differs from its result alone; empty if it does not."""
    if not math.isfinite(alone.loss):
        return ""
    if abs(together.loss - alone.loss) > TOLERANCE * abs(alone.loss) + 1e-6:
        what = f"another loss than alone, {together.loss:.6g} in place of {alone.loss:.6g}"
    elif _distance(together.gradients, alone.gradients) > TOLERANCE:
        what = "another gradient than alone"
    elif _distance(together.buffers, alone.buffers) > TOLERANCE:
        what = "other buffers than alone"
    else:
        return ""
    return f"for all replicas at once its model gives {what}"


def _distance(mine: Mapping[str, Tensor], its: Mapping[str, Tensor]) -> float:
    """The norm of the difference relative to that of the second; missing tensors count as 0."""
    names = {*mine, *its}
    zero = torch.zeros(())
    difference = sum(float((mine.get(n, zero) - its.get(n, zero)).double().square().sum()) for n in names)
    length = sum(float(its[n].double().square().sum()) for n in its)
    return math.sqrt(difference / length) if length > 0 else math.sqrt(difference)


_REASONS = (
    (
        "data-dependent control flow",
        "its code looks at the value of a tensor, which differs between replicas",
    ),
    (".item()", "its code looks at the value of a tensor, which differs between replicas"),
    ("randomness", "its code draws random numbers by a function that cannot be shared out among replicas"),
    ("atching rule not implemented", "PyTorch cannot run one of its functions for all replicas at once"),
    ("vmap fallback", "PyTorch cannot run one of its functions for all replicas at once"),
)


@contextmanager
def _as_reason() -> Iterator[None]:
    """Turn any error into a reason why the replicas cannot be stacked."""
    try:
        yield
    except CannotStackError:
        raise
    except Exception as error:
        told = next((reason for mark, reason in _REASONS if mark in str(error)), "its model fails")
        raise CannotStackError(f"{told} ({first_line(error)})") from error
