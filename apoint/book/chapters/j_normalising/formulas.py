"""The norms written out with small operations, what they cost, and a counter of operations.

Each formula is un-fused: every operation reads its tensors and writes its result, so that costs can be
counted and compared. PyTorch's own modules fuse them.

Shapes: n observations in rows, d features in columns.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

_VIEWS = ("t", "diagonal")
_SUMS = ("sum", "mean")


def whiten(x_nd: Tensor, iterations: int) -> Tensor:
    """The observations times the inverse root of their covariance, by Newton's and Schulz's iteration.

    The iteration takes three products of d × d matrices a turn. It converges for every covariance, the
    slower the larger its condition number.

    Args:
        x_nd: The observations.
        iterations: How many turns.
    """
    centred_nd = x_nd - x_nd.mean(0)
    covariance_dd = (centred_nd.t() @ centred_nd) / len(x_nd)
    trace = covariance_dd.diagonal().sum()
    root_dd, inverse_dd = covariance_dd / trace, torch.eye(x_nd.shape[1], dtype=x_nd.dtype)
    triple_dd = 3 * inverse_dd
    for _ in range(iterations):
        turn_dd = (triple_dd - inverse_dd @ root_dd) / 2
        root_dd, inverse_dd = root_dd @ turn_dd, turn_dd @ inverse_dd
    return centred_nd @ (inverse_dd / trace.sqrt())


def whitening_operations(n: int, d: int, iterations: int) -> int:
    """Leading terms of the multiply-adds of `whiten`: 2nd² for the covariance and the product, 3d³ a turn."""
    return 2 * n * d**2 + 3 * iterations * d**3


def batch_norm(x_nd: Tensor, gamma_d: Tensor, beta_d: Tensor, eps: float) -> Tensor:
    """γ(x - μ)/√(v + ε) + β with mean and variance over the observations, v divided by n."""
    return _centred_norm(x_nd, 0, gamma_d, beta_d, eps)


def layer_norm(x_nd: Tensor, gamma_d: Tensor, beta_d: Tensor, eps: float) -> Tensor:
    """γ(x - μ)/√(v + ε) + β with mean and variance over the features of each observation."""
    return _centred_norm(x_nd, 1, gamma_d, beta_d, eps)


def _centred_norm(x_nd: Tensor, axis: int, gamma_d: Tensor, beta_d: Tensor, eps: float) -> Tensor:
    centred = x_nd - x_nd.mean(axis, keepdim=True)
    variance = (centred * centred).mean(axis, keepdim=True)
    return centred * (variance + eps).rsqrt() * gamma_d + beta_d


def rms_norm(x_nd: Tensor, gamma_d: Tensor, eps: float) -> Tensor:
    """γ x/√(mean(x²) + ε) with the mean over the features of each observation."""
    square = (x_nd * x_nd).mean(1, keepdim=True)
    return x_nd * (square + eps).rsqrt() * gamma_d


def centred_norm_operations(n: int, d: int, num_statistics: int) -> int:
    """Operations of batch norm (d statistics) and layer norm (n of them): 7nd, and 2 for each statistic."""
    return 7 * n * d + 2 * num_statistics


def rms_norm_operations(n: int, d: int) -> int:
    """Operations of RMSNorm: 4nd, and 2 for each observation."""
    return 4 * n * d + 2 * n


class Counting(TorchFunctionMode):
    """Counts what PyTorch is asked to compute in a `with` block.

    Attributes:
        operations: Multiply-adds of matrix products, elements that sums and means take in, and elements that
            all other operations give out. Views cost nothing.
        words: Elements read and written by all of them together.
    """

    def __init__(self) -> None:
        super().__init__()
        self.operations, self.words = 0, 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        given = [value for value in args if isinstance(value, Tensor)]
        if not isinstance(result, Tensor) or not given or name in _VIEWS:
            return result
        if name == "matmul":
            self.operations += math.prod(given[0].shape) * given[1].shape[1]
        else:
            self.operations += given[0].numel() if name in _SUMS else result.numel()
        self.words += sum(value.numel() for value in given) + result.numel()
        return result
