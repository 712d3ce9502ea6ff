"""Shared by the kernel functions: the pair of kernels, checks of inputs, and blocks of a matrix."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from apoint.errors import UsageError

BUDGET_BYTES = 512 * 2**20
"""Default limit on the memory used in addition to the result."""
CACHE_BYTES = 2 * 2**20
"""Largest size of one temporary matrix: elementwise work is fastest on what fits in a cache."""


class Kernels(NamedTuple):
    """The two kernels of a network of infinite width, [n1, n2].

    Attributes:
        ntk: The tangent kernel, which is the kernel of training by gradient descent.
        nngp: The covariance of the outputs at initialisation, a Gaussian process.
    """

    ntk: Tensor
    nngp: Tensor


def check_settings(depth: int, weight_variance: float, bias_variance: float, budget: int) -> None:
    """Check the settings of an infinitely wide network."""
    if isinstance(depth, bool) or int(depth) != depth or depth < 0:
        raise UsageError(
            f"infinite width: depth must be a whole number of hidden layers from 0 on, got {depth}"
        )
    if not (weight_variance > 0 and math.isfinite(weight_variance)):
        raise UsageError(
            f"infinite width: weight_variance must be positive and finite, got {weight_variance}"
        )
    if not (bias_variance >= 0 and math.isfinite(bias_variance)):
        raise UsageError(f"infinite width: bias_variance must be at least 0 and finite, got {bias_variance}")
    if budget < 1:
        raise UsageError(f"infinite width: budget_bytes must be positive, got {budget}")


def checked_inputs(x1: Tensor, x2: Tensor | None, axes: int | None = None) -> tuple[Tensor, Tensor | None]:
    """Return both sets of inputs after checking that they can be compared."""
    for x in (x1, x2):
        if x is None:
            continue
        if not (isinstance(x, Tensor) and x.dtype in (torch.float32, torch.float64)):
            kind = x.dtype if isinstance(x, Tensor) else type(x).__name__
            raise UsageError(f"infinite width: inputs must be tensors of float32 or float64, got {kind}")
        if x.dim() < 2 or (axes is not None and x.dim() != axes) or x.numel() == 0:
            wanted = "[n, channels, height, width]" if axes == 4 else "[n, features]"
            raise UsageError(f"infinite width: inputs must have the shape {wanted}, got {tuple(x.shape)}")
        if not bool(x.isfinite().all()):
            raise UsageError("infinite width: inputs must be finite, got NaN or infinity")
    if x2 is not None and (x1.shape[1:] != x2.shape[1:] or x1.dtype != x2.dtype):
        raise UsageError(
            f"infinite width: both sets must have inputs of one shape and type, got {tuple(x1.shape[1:])} "
            f"{x1.dtype} and {tuple(x2.shape[1:])} {x2.dtype}"
        )
    return x1, x2


def row_blocks(rows: int, bytes_per_row: int, budget: int) -> Iterator[slice]:
    """Blocks of rows that fit the budget, with at least one row each."""
    step = max(1, min(rows, budget // max(1, bytes_per_row)))
    return (slice(begin, min(begin + step, rows)) for begin in range(0, rows, step))


def mirror(matrix: Tensor, rows: slice) -> None:
    """Copy rows, filled from their diagonal on, to the columns under them, in place."""
    square = matrix[rows, rows]
    upper = square.triu()
    square.copy_(upper + upper.triu(1).mT)
    matrix[rows.stop :, rows] = matrix[rows, rows.stop :].mT
