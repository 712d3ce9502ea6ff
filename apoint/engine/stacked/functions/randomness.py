"""Everything random in a stack: each replica draws from its own generator, in the order of its own calls.

A replica's generator is seeded as the engine seeds PyTorch's for the replica alone, and is asked for the same
shapes in the same order. So it gives the same numbers, independent of the other replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from apoint.engine.stacked.errors import CannotStackError
from apoint.engine.stacked.functions.table import TABLE, Scene, stacked_form
from apoint.engine.stacked.lifting import axis_of, bare, outside

_TAKES_GENERATOR: tuple[Callable[..., Any], ...] = (
    torch.bernoulli,
    torch.multinomial,
    torch.normal,
    torch.poisson,
    torch.rand,
    torch.randint,
    torch.randn,
    torch.randperm,
    Tensor.bernoulli,
    Tensor.multinomial,
    Tensor.bernoulli_,
    Tensor.cauchy_,
    Tensor.exponential_,
    Tensor.geometric_,
    Tensor.log_normal_,
    Tensor.normal_,
    Tensor.random_,
    Tensor.uniform_,
)
_TAKES_NONE: tuple[Callable[..., Any], ...] = (
    torch.rand_like,
    torch.randint_like,
    torch.randn_like,
    torch.dropout,
    torch.alpha_dropout,
    torch.feature_dropout,
    torch.feature_alpha_dropout,
    torch.rrelu,
    F.alpha_dropout,
    F.dropout1d,
    F.dropout2d,
    F.dropout3d,
    F.feature_alpha_dropout,
    F.gumbel_softmax,
    F.rrelu,
)
_ROWS = torch.contiguous_format


@stacked_form(F.dropout)
def dropout(
    scene: Scene, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """`F.dropout` for all replicas, with the mask that each would have alone."""
    axis = axis_of(input)
    if not training or p == 0:
        return input
    if axis is None or p >= 1 or scene.draws.device.type != "cpu":  # elsewhere one kernel does it all
        out: Tensor = each_replica(scene, F.dropout, (input, p, training, inplace), {})
        return out
    dropped = outside(_dropout, scene, bare(input), axis, 1 - p, inplace)
    return input if inplace else scene.lifted.wrap(dropped, axis)


def _dropout(scene: Scene, x: Tensor, axis: int, keep: float, inplace: bool) -> Tensor:
    front = x.movedim(axis, 0)
    mask_R = torch.empty_like(front) if _as_alone(scene, front[0]) else front.new_empty(front.shape)
    for row, generator in enumerate(scene.draws.generators):
        mask_R[row].bernoulli_(keep, generator=generator)
    mask = mask_R.div_(keep).movedim(0, axis)
    return x.mul_(mask) if inplace else x * mask


def _as_alone(scene: Scene, x: Tensor) -> bool:
    """Whether a replica's part of a tensor has the layout it has alone; if not, that layout is row by row."""
    return scene.faithful or x.dim() == 4


def each_replica(
    scene: Scene, function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]
) -> Any:
    """Call a random function for one replica after the other, each with its own generator."""
    if named.get("generator") is not None:
        raise CannotStackError("its model draws from a generator of its own, which replicas cannot share")
    if not function.__name__.endswith("_"):
        return scene.lifted.wrap(outside(_each_replica, scene, function, arguments, named))
    if axis_of(arguments[0]) is None:
        raise CannotStackError(f"its model fills a tensor that all replicas share, by {function.__name__}")
    front = scene.lifted.front(arguments[0])
    drawn_R = outside(_each_replica, scene, function, arguments, named)
    outside(front.copy_, drawn_R)
    return arguments[0]


def _each_replica(
    scene: Scene, function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]
) -> Tensor:
    values, structure = tree_flatten((arguments, named))
    parts = [_shared_out(scene, value) for value in values]
    takes_generator, results = function in _TAKES_GENERATOR, []
    for row, generator in enumerate(scene.draws.generators):
        own, own_named = tree_unflatten([part[row] for part in parts], structure)
        if takes_generator:
            results.append(function(*own, **{**own_named, "generator": generator}))
        else:
            with scene.draws.as_default(row):
                results.append(function(*own, **own_named))
    return torch.stack(results)


def _shared_out(scene: Scene, value: Any) -> Sequence[Any]:
    """Each replica's part of an argument, copied in the layout it has alone."""
    axis = axis_of(value)
    if axis is None:
        return [value] * scene.lifted.num_replicas
    parts = bare(value).unbind(axis)
    return [part.clone() if _as_alone(scene, part) else part.clone(memory_format=_ROWS) for part in parts]


def _enter(function: Callable[..., Any]) -> None:
    @stacked_form(function)
    def form(scene: Scene, *arguments: Any, **named: Any) -> Any:
        return each_replica(scene, function, arguments, named)


for _function in (*_TAKES_GENERATOR, *_TAKES_NONE):
    if _function not in TABLE:
        _enter(_function)
