"""One update of all replicas, with hyper-parameters that may differ between them.

Axis letters: R replicas, P parameters of a part.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from apoint.engine.flat import CHUNK, Piece
from apoint.engine.native import Kernel, applies, kernel_of
from apoint.engine.stacked.parameters import Parts, StackedParameters
from apoint.optim import Rule

Hyper = Mapping[str, Any]


@dataclass(frozen=True)
class Block:
    """A part of one piece that stays in the cache: some rows, and some columns if one row is too long."""

    piece: Piece
    rows: slice
    columns: slice


class StackedOptimizer:
    """An update rule applied to all replicas, block by block; its state is kept block by block too.

    Args:
        rule: The rule, which all replicas share.
        parameters: What it updates.
    """

    def __init__(self, rule: Rule, parameters: StackedParameters) -> None:
        self.rule, self.parameters = rule, parameters
        self.kernel = kernel_of(rule, parameters.weights[0])
        self._begin()

    def _begin(self) -> None:
        self.blocks = [block for piece in self.parameters.pieces for block in self._blocks(piece)]
        self.memory = [self.rule.init(_piece(self.parameters.weights, block)) for block in self.blocks]

    def _blocks(self, piece: Piece) -> Iterator[Block]:
        """Split a piece into blocks.

        A kernel passes over the memory once, so blocks would only add calls. But it assumes contiguous
        tensors, and several rows of a piece are contiguous only if the piece is a whole part.
        """
        num_rows, start = self.parameters.num_replicas, piece.start - self.parameters.boundary * piece.exempt
        length, whole = piece.stop - piece.start, self.parameters.weights[piece.exempt].shape[1]
        height = max(1, CHUNK // length)
        if self.kernel is not None:
            height = num_rows if length == whole else 1
        width = length if height > 1 or self.kernel is not None else CHUNK
        for first in range(0, num_rows, height):
            for column in range(start, start + length, width):
                columns = slice(column, min(column + width, start + length))
                yield Block(piece, slice(first, min(first + height, num_rows)), columns)

    def update(self, gradients: Parts, step: int, hypers: Sequence[Hyper]) -> None:
        """Do one update; `step` counts from 1, and `hypers` has each replica's hyper-parameters, in order.

        A single mapping applies to all replicas.
        """
        for number, block in enumerate(self.blocks):
            weights, gradient = _piece(self.parameters.weights, block), _piece(gradients, block)
            own = hypers if len(hypers) == 1 else hypers[block.rows]
            self._update(number, weights, gradient, step, [block.piece.of(hyper) for hyper in own])

    def _update(
        self, number: int, weights: Tensor, gradient: Tensor, step: int, hypers: Sequence[Hyper]
    ) -> None:
        memory, alike = self.memory[number], all(hyper == hypers[0] for hyper in hypers)
        kernel = self.kernel if self.kernel and all(map(applies, hypers)) else None
        if kernel and alike:
            kernel(weights, gradient, memory, step, hypers[0])
        elif kernel:
            _row_by_row(kernel, weights, gradient, memory, step, hypers)
        else:
            hyper = hypers[0] if alike else _as_columns(hypers, gradient, self.rule)
            self.memory[number] = self.rule.apply_(gradient, memory, weights, step, hyper)

    def state(self) -> dict[str, Parts]:
        """The rule's state, each slot in the layout of the parameters."""
        return {slot: self._gathered(slot) for slot in self.memory[0]}

    def _gathered(self, slot: str) -> Parts:
        weights = self.parameters.weights
        parts = torch.empty_like(weights[0]), torch.empty_like(weights[1])
        for block, memory in zip(self.blocks, self.memory, strict=True):
            _piece(parts, block).copy_(memory[slot])
        return parts

    def of_row(self, row: int) -> dict[str, Tensor]:
        """One replica's part of the state, each slot in the layout of its flat buffer."""
        own = [
            {slot: values[row - block.rows.start] for slot, values in memory.items()}
            for block, memory in zip(self.blocks, self.memory, strict=True)
            if block.rows.start <= row < block.rows.stop
        ]
        return {slot: torch.cat([piece[slot] for piece in own]) for slot in self.memory[0]}

    def restore(self, state: Mapping[str, Parts]) -> None:
        """Load a state returned by `state`, for the same number of replicas."""
        self._begin()
        for block, memory in zip(self.blocks, self.memory, strict=True):
            for slot, parts in state.items():
                memory[slot] = _piece(parts, block).clone()


def _piece(parts: Parts, block: Block) -> Tensor:
    return parts[block.piece.exempt][block.rows, block.columns]


def _row_by_row(
    kernel: Kernel,
    weights: Tensor,
    gradient: Tensor,
    memory: dict[str, Tensor],
    step: int,
    hypers: Sequence[Hyper],
) -> None:
    """Call the kernel, which takes only plain numbers, for each run of rows with the same ones."""
    first = 0
    for row in range(1, len(hypers) + 1):
        if row < len(hypers) and hypers[row] == hypers[first]:
            continue
        rows = slice(first, row)
        own = {slot: values[rows] for slot, values in memory.items()}
        kernel(weights[rows], gradient[rows], own, step, hypers[first])
        first = row


def _as_columns(hypers: Sequence[Hyper], like: Tensor, rule: Rule) -> dict[str, Any]:
    """Hyper-parameters with one value per row where they differ, [R, 1] in the gradient's dtype."""
    columns: dict[str, Any] = {}
    for name, value in hypers[0].items():
        values = [hyper[name] for hyper in hypers]
        if all(other == value for other in values):
            columns[name] = value
            continue
        assert name in rule.per_replica, name
        columns[name] = torch.tensor(values, dtype=like.dtype, device=like.device)[:, None]
    return columns
