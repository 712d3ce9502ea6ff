"""Forward and backward passes of a stack: losses and gradients of all replicas, from a tape where possible.

Axis letters: R replicas, b examples of a part.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from apoint.engine.stacked.losses import Loss, example_losses
from apoint.engine.stacked.model import StackedModel
from apoint.engine.stacked.recording import Recorder
from apoint.engine.stacked.tape import Tape

Passed = list[Tensor | None]
"""The sums of the losses [R], then the gradient of each leaf; None for an unused leaf."""


class Passes:
    """The passes of a stack.

    The first pass for inputs of some shape is recorded as a tape. The second is run both ways, and the tape
    is used from the third on only if all results are the same bit for bit. A model is recorded only if it
    computes the same way at every step: it has no rates on a schedule and no hooks, and its modules are all
    from PyTorch or this package, whose code does not depend on earlier calls. Draws are recorded as calls
    with the generators of the replicas, which are seeded for each step as usual.

    Args:
        model: The model.
        leaves: The trainable parameters by name, [R, *shape].
        loss: The loss.
        batch_size: The number of examples of an update, by which gradients are divided.
        fixed: Whether nothing in the model is on a schedule.
        targets: Where the gradient of each leaf belongs, if a tape may write it there directly.
    """

    def __init__(
        self,
        model: StackedModel,
        leaves: Mapping[str, Tensor],
        loss: Loss,
        batch_size: int,
        fixed: bool,
        targets: Sequence[Tensor] | None = None,
    ) -> None:
        self.model, self.leaves, self.loss = model, leaves, loss
        self.targets = None if targets is None else [None, *targets]
        like = next(iter(leaves.values()))
        self.share_R = like.new_full((model.num_replicas,), 1 / batch_size).detach()
        self.may_record = fixed and computes_the_same_way(model.template, loss)
        self.draws = False
        self.tapes: dict[tuple[Any, ...], Tape] = {}
        self.proven: set[tuple[Any, ...]] = set()

    def __call__(self, x: Tensor, y: Tensor) -> Passed:
        """The losses and gradients of a part of a batch, x and y [R, b, …]."""
        shapes = x.shape, y.shape, x.dtype, y.dtype
        if shapes in self.proven:
            return self._replayed(shapes, x, y)
        if not self.may_record:
            return self._passed(x, y)
        return self._proven(shapes, x, y) if shapes in self.tapes else self._recorded(shapes, x, y)

    def _passed(self, x: Tensor, y: Tensor) -> Passed:
        losses_R = example_losses(self.loss, self.model(x, self.leaves), y).sum(1)
        # Each replica's mean, and their sum. Passing the weights to `grad` instead would import sympy.
        total, leaves = torch.dot(losses_R, self.share_R.to(losses_R.dtype)), list(self.leaves.values())
        return [losses_R.detach(), *torch.autograd.grad(total, leaves, allow_unused=True)]

    def _recorded(self, shapes: tuple[Any, ...], x: Tensor, y: Tensor) -> Passed:
        recorder = Recorder([x, y], [self.share_R])
        with recorder:
            passed = self._passed(x, y)
        if recorder.refused or self.model.draws.were_lent:
            self.may_record = False
        else:
            self.tapes[shapes] = Tape(recorder, passed, self.targets)
            self.draws |= self.model.draws.have_drawn
        return passed

    def _replayed(self, shapes: tuple[Any, ...], x: Tensor, y: Tensor) -> Passed:
        if self.draws:
            self.model.draws.seed()
        with torch.no_grad():
            return self.tapes[shapes](x, y)

    def _proven(self, shapes: tuple[Any, ...], x: Tensor, y: Tensor) -> Passed:
        """Run both ways and compare; changes to buffers are applied once."""
        buffers = list(self.model.tensors.values())
        before = [buffer.clone() for buffer in buffers]
        passed = self._passed(x, y)
        after = [buffer.clone() for buffer in buffers]
        with torch.no_grad():
            _copy_all(before, buffers)
            self.model.draws.rewind()
            again = self._replayed(shapes, x, y)
            same = all(map(_same, [*passed, *after], [*again, *buffers]))
            _copy_all(after, buffers)
        if same:
            self.proven.add(shapes)
        else:
            self.may_record = False
        return passed


def computes_the_same_way(template: nn.Module, loss: Loss) -> bool:
    """Whether the code of a model and a loss is known not to depend on earlier calls."""
    function = loss.func if isinstance(loss, functools.partial) else loss
    origins = [getattr(function, "__module__", ""), *(type(m).__module__ for m in template.modules())]
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    hooked = any(getattr(module, name) for module in template.modules() for name in hooks)
    return not hooked and all(origin.partition(".")[0] in ("torch", "apoint") for origin in origins)


def _same(one: Tensor | None, two: Tensor | None) -> bool:
    """Whether two results are the same bit for bit; NaN equals NaN, and -0 is not 0."""
    if one is None or two is None:
        return one is two
    return one.dtype == two.dtype and torch.equal(_bits(one), _bits(two))


def _bits(tensor: Tensor) -> Tensor:
    """The bits of a floating-point tensor as integers, which compare exactly."""
    if not tensor.is_floating_point():
        return tensor
    return tensor.contiguous().view(_INTEGERS[tensor.itemsize])


_INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def _copy_all(sources: list[Tensor], targets: list[Tensor]) -> None:
    for source, target in zip(sources, targets, strict=True):
        target.copy_(source)
