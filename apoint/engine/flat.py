"""All trainable parameters of a model as views of one buffer, and their gradients likewise.

The update rules are elementwise, so one call on the whole buffer replaces a loop over parameters: a
dozen operations per step instead of a dozen per parameter. The buffer is processed in chunks that
stay in the processor's cache. Norms and checks for non-finite values become single reductions. The
model itself is unaffected: its parameters keep their shapes, strides and names, and autograd adds
into their `.grad` views in place.

A parameter that is unused in a step has gradient 0 here, where `torch.optim` would skip it; its moving
averages and decay therefore continue, as with `zero_grad(set_to_none=False)`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn

from apoint.engine.native import applies, kernel_of
from apoint.errors import UsageError
from apoint.optim import Rule

CHUNK = 1 << 17  # elements; the fastest measured for Adam between 2^12 and 2^20, see bench/engine_overhead.py


ALIGNMENT = 16  # elements: matrix products are a tenth slower on weights that start within a cache line


def _padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True)
class Slot:
    """Where one parameter is in the buffer, and the factor on its learning rate."""

    name: str
    start: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    rate: float = 1.0

    @property
    def stop(self) -> int:
        return self.start + math.prod(self.size)


@dataclass(frozen=True)
class Piece:
    """A contiguous part of the buffer whose parameters are updated alike.

    Attributes:
        start: Where it begins.
        stop: Where it ends, padding included.
        exempt: Whether its parameters are exempt from decay.
        rate: The factor on their learning rate.
    """

    start: int
    stop: int
    exempt: bool
    rate: float

    def of(self, hyper: Mapping[str, Any]) -> Mapping[str, Any]:
        """The hyper-parameters of these parameters, from those of the whole model.

        Decoupled decay scales with the rate, as in PyTorch with a learning rate per parameter group.
        """
        if self.exempt:
            hyper = {**hyper, "weight_decay": 0.0, "l2": 0.0}
        return hyper if self.rate == 1 else {**hyper, "lr": hyper["lr"] * self.rate}


class FlatParameters:
    """A model's trainable parameters in one buffer: first those that decay, then the exempt ones.

    Attributes:
        weights_P: The parameters; the model's own are views of it.
        gradients_P: Their gradients, likewise.
        slots: Where each parameter is, in buffer order.
        boundary: Where the parameters exempt from decay begin.
        num_parameters: How many numbers are trained; the buffer is slightly longer, for alignment.

    Args:
        model: The model, whose parameters become views.
        exempt: The names of the parameters exempt from decay.
        rates: Factors on the learning rate by parameter name; 1 for those not in it.
    """

    def __init__(
        self, model: nn.Module, exempt: Collection[str] = (), rates: Mapping[str, float] | None = None
    ) -> None:
        trainable = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        if not trainable:
            raise UsageError("the model has no parameter to train")
        kinds = {(p.dtype, p.device) for _, p in trainable}
        if len(kinds) > 1:
            shown = ", ".join(sorted(f"{dtype} on {device}" for dtype, device in kinds))
            raise UsageError(f"all parameters must have one type and one device; the model has {shown}")
        trainable.sort(key=lambda pair: pair[0] in exempt)  # stable: order within each part is the model's
        total = sum(_padded(p.numel()) for _, p in trainable)
        like = trainable[0][1]
        self.weights_P = torch.zeros(total, dtype=like.dtype, device=like.device)
        self.gradients_P = torch.zeros_like(self.weights_P)
        self.slots: list[Slot] = []
        start = 0
        self.boundary = total
        for name, parameter in trainable:
            if name in exempt:
                self.boundary = min(self.boundary, start)
            self.slots.append(self._adopt(name, parameter, start, (rates or {}).get(name, 1.0)))
            start += _padded(parameter.numel())
        self.num_parameters = sum(p.numel() for _, p in trainable)

    def _adopt(self, name: str, parameter: nn.Parameter, start: int, rate: float) -> Slot:
        """Move a parameter into the buffer, keeping its strides if they are dense (channels-last is)."""
        dense = parameter.data
        if not dense.is_contiguous() and not dense.is_contiguous(memory_format=torch.channels_last):
            dense = dense.contiguous()
        size, stride = dense.size(), dense.stride()
        view = self.weights_P.as_strided(size, stride, start)
        view.copy_(dense)
        parameter.data = view
        parameter.grad = self.gradients_P.as_strided(size, stride, start)
        return Slot(name, start, tuple(size), stride, rate)

    def named(self, values_P: Tensor) -> dict[str, Tensor]:
        """Views of values laid out like the buffer, by parameter name, in the parameters' shapes."""
        return {
            slot.name: values_P.as_strided(slot.size, slot.stride, values_P.storage_offset() + slot.start)
            for slot in self.slots
        }

    def pieces(self) -> Iterator[Piece]:
        """The buffer in contiguous parts with the same decay and the same factor on the learning rate."""
        alike = groupby(self.slots, lambda slot: (slot.start >= self.boundary, slot.rate))
        groups = [(next(slots).start, *key) for key, slots in alike]
        ends = [start for start, _, _ in groups[1:]] + [len(self.weights_P)]
        for (start, exempt, rate), stop in zip(groups, ends, strict=True):
            yield Piece(start, stop, exempt, rate)

    def chunks(self) -> Iterator[tuple[slice, Piece]]:
        """The buffer in cache-sized slices, each with its piece."""
        for piece in self.pieces():
            for start in range(piece.start, piece.stop, CHUNK):
                yield slice(start, min(start + CHUNK, piece.stop)), piece

    def first_nonfinite(self) -> str | None:
        """The name of the first parameter whose gradient is not finite."""
        for slot in self.slots:
            if not torch.isfinite(self.gradients_P[slot.start : slot.stop]).all():
                return slot.name
        return None


class FlatOptimizer:
    """An update rule applied to a flat buffer, chunk by chunk.

    The rule's memory is one set of tensors per chunk: the rule returns new ones, which replace the old
    without a copy. Where PyTorch has a fused kernel for the rule, it is used; see `apoint.engine.native`.
    """

    def __init__(self, rule: Rule, parameters: FlatParameters, use_kernel: bool = True) -> None:
        self.rule, self.parameters = rule, parameters
        self.kernel = kernel_of(rule, parameters.weights_P) if use_kernel else None
        self.pieces, self.chunks = list(parameters.pieces()), list(parameters.chunks())
        self.memory = [rule.init(parameters.weights_P[place]) for place, _ in self.chunks]

    @torch.no_grad()
    def update(self, gradients_P: Tensor, step: int, hyper: Mapping[str, float]) -> None:
        """Make one update with the given gradient; `step` counts from 1."""
        weights_P = self.parameters.weights_P
        own = {piece: piece.of(hyper) for piece in self.pieces}
        kernel = self.kernel if self.kernel and applies(hyper) else None
        for number, (place, piece) in enumerate(self.chunks):
            weights, chosen, memory = weights_P[place], own[piece], self.memory[number]
            if kernel:
                kernel(weights, gradients_P[place], memory, step, chosen)
                continue
            self.memory[number] = self.rule.apply_(gradients_P[place], memory, weights, step, chosen)

    def state(self) -> dict[str, Tensor]:
        """The rule's memory, each slot laid out like the parameters' buffer."""
        return {slot: torch.cat([memory[slot] for memory in self.memory]) for slot in self.memory[0]}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Load the memory that `state` returned."""
        for memory, (place, _) in zip(self.memory, self.chunks, strict=True):
            for slot, values_P in state.items():
                memory[slot] = values_P[place].clone()
