"""Enter and leave PyTorch's `vmap`, one level below its public function.

Inside `lifted`, a tensor wrapped by `Lifted.wrap` has R values at once, one per replica, and hides the
replica axis: the model's own code runs unchanged. `torch.func.vmap` does the same, but it also flattens and
checks all arguments and results at each call, which for a small model takes a tenth of the whole step. These
functions of PyTorch are not public, so they are used only in this file, and `available` says whether this
PyTorch has them.

Axis letters: R replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch._C import _functorch

from apoint.engine.stacked.errors import CannotStackError

Result = TypeVar("Result")
_NEEDED = (
    "_add_batch_dim",
    "_is_vmap_fallback_enabled",
    "_remove_batch_dim",
    "_set_vmap_fallback_enabled",
    "_vmap_decrement_nesting",
    "_vmap_increment_nesting",
    "get_unwrapped",
    "is_batchedtensor",
    "maybe_current_level",
    "maybe_get_bdim",
    "pop_dynamic_layer_stack",
    "push_dynamic_layer_stack",
)


def check_available() -> None:
    """Raise if this PyTorch lacks a function that this file needs."""
    missing = [name for name in _NEEDED if not hasattr(_functorch, name)]
    if missing:
        raise CannotStackError(f"PyTorch {torch.__version__} has no {missing[0]}, which stacking needs")


@dataclass(frozen=True, slots=True)
class Lifted:
    """A stacked computation in progress: its number of replicas, and its `vmap` level."""

    num_replicas: int
    level: int

    @property
    def is_innermost(self) -> bool:
        """Whether the running code is not inside a further transformation."""
        return bool(_functorch.maybe_current_level() == self.level)

    def wrap(self, stacked: Tensor, axis: int = 0) -> Tensor:
        """A tensor with one value per replica and a hidden replica axis."""
        wrapped: Tensor = _functorch._add_batch_dim(stacked, axis, self.level)
        return wrapped

    def front(self, tensor: Tensor) -> Tensor:
        """The contents of a wrapped tensor, replica axis first; a plain tensor is expanded along it."""
        if not _functorch.is_batchedtensor(tensor):
            return tensor.expand(self.num_replicas, *tensor.shape)
        inside, axis = _functorch.get_unwrapped(tensor), _functorch.maybe_get_bdim(tensor)
        return inside if axis == 0 else inside.movedim(axis, 0)

    def unwrap(self, tensor: Tensor) -> Tensor:
        """The values of all replicas after the computation, replica axis first."""
        out: Tensor = _functorch._remove_batch_dim(tensor, self.level, self.num_replicas, 0)
        return out


@contextmanager
def lifted(num_replicas: int) -> Iterator[Lifted]:
    """A context in which wrapped tensors hold the values of all replicas.

    Random functions that are not intercepted raise: `vmap`'s own would give replicas numbers that depend on
    the other replicas.
    """
    level = _functorch._vmap_increment_nesting(num_replicas, "error")
    try:
        yield Lifted(num_replicas, level)
    finally:
        _functorch._vmap_decrement_nesting()


def axis_of(tensor: Any) -> int | None:
    """The position of the hidden replica axis; None for a plain tensor or anything that is not a tensor."""
    if not isinstance(tensor, Tensor) or not _functorch.is_batchedtensor(tensor):
        return None
    return int(_functorch.maybe_get_bdim(tensor))


def bare(tensor: Tensor) -> Tensor:
    """The contents of a wrapped tensor, with the replica axis left in place."""
    inside: Tensor = _functorch.get_unwrapped(tensor)
    return inside


def outside(function: Callable[..., Result], *arguments: Any) -> Result:
    """Call a function on plain tensors as if there were no `vmap`: autograd functions and draws then work."""
    layer = _functorch.pop_dynamic_layer_stack()
    try:
        return function(*arguments)
    finally:
        _functorch.push_dynamic_layer_stack(layer)


@contextmanager
def without_fallback() -> Iterator[None]:
    """A context in which an operator without a `vmap` rule raises instead of running a slow loop."""
    switch: Any = _functorch
    before = switch._is_vmap_fallback_enabled()
    switch._set_vmap_fallback_enabled(False)
    try:
        yield
    finally:
        switch._set_vmap_fallback_enabled(before)
