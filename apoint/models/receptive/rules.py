"""The effect of each PyTorch operation on receptive fields, except for windows.

A rule takes an operation's arguments and returns the reaches of its results, one tuple of axes for each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from apoint.errors import UsageError
from apoint.models.receptive.axes import Axis, Reach, small, united

aten = torch.ops.aten
Of = Callable[[Any], Reach | None]
Rule = Callable[[Any, tuple[Any, ...], dict[str, Any], Of, Any], list[Reach]]
RULES: dict[Any, Rule] = {}
LARGEST_PRODUCT = 2**24
"""For a product of two activations: every element of a larger matrix gets the union over all elements."""


def reaches(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], of: Of, out: Any) -> list[Reach]:
    """The reaches of an operation's results, from those of its arguments.

    Args:
        func: The operation.
        args: Its arguments, of which at least one depends on the input.
        kwargs: Its named arguments.
        of: Returns the reach of a tensor, or None if it does not depend on the input.
        out: The results.
    """
    operation = func._overloadpacket
    if operation in RULES:
        return RULES[operation](func, args, kwargs, of, out)
    functional = getattr(aten, func._schema.name.removeprefix("aten::").rstrip("_"), operation)
    tags = {tag for name in functional.overloads() for tag in getattr(functional, name).tags}
    if torch.Tag.pointwise in tags:
        return element_by_element(func, args, kwargs, of, out)
    raise UsageError(f"receptive_field: the operation {func} cannot be followed")


def rule(*operations: Any) -> Callable[[Rule], Rule]:
    """Decorator: register a rule for operations."""

    def enter(made: Rule) -> Rule:
        RULES.update(dict.fromkeys(operations, made))
        return made

    return enter


def arguments(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """All arguments of an operation by name, with their defaults."""
    declared = func._schema.arguments
    defaults = {argument.name: argument.default_value for argument in declared}
    return {**defaults, **dict(zip(defaults, args, strict=False)), **kwargs}


def operations(*names: str) -> list[Any]:
    """Operations by name, those that this PyTorch version has."""
    return [getattr(aten, name) for name in names if hasattr(aten, name)]


# -- nothing, and elements ------------------------------------------------------------------------------


@rule(*operations("zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "new_zeros", "new_ones"))
@rule(*operations("new_empty", "new_full", "sym_size", "sym_stride", "sym_numel"))
def nothing(func: Any, args: Any, kwargs: Any, of: Of, out: Any) -> list[Reach]:
    """Results that take only their shape from the arguments."""
    return []


@rule(*operations("_to_copy", "clone", "detach", "alias", "lift_fresh", "contiguous", "native_dropout"))
def element_by_element(func: Any, args: Any, kwargs: Any, of: Of, out: Any) -> list[Reach]:
    """The union over all arguments, with broadcasting."""
    result = out if isinstance(out, Tensor) else out[0]
    given = [of(tensor) for tensor in (*args, *kwargs.values()) if isinstance(tensor, Tensor)]
    known = [_raised(reach, result.dim()) for reach in given if reach is not None]
    return [united(*known)]


@rule(aten.copy_)
def copied(func: Any, args: Any, kwargs: Any, of: Of, out: Any) -> list[Reach]:
    """A copy into a whole tensor; a copy into a part of a tensor would be lost, so it raises."""
    if args[0]._base is not None:
        raise UsageError("receptive_field: writing into a part of a tensor cannot be followed; use torch.cat")
    return element_by_element(func, args[1:], {}, of, out)


def _raised(reach: Reach, dims: int) -> Reach:
    """Prepend dimensions of size 1."""

    def raised(tensor: Tensor, fill: float) -> Tensor:
        return tensor.view((1,) * (dims - tensor.dim()) + tensor.shape)

    return tuple(axis.each(raised) for axis in reach)


# -- moving elements about ------------------------------------------------------------------------------


@rule(*operations("view", "_unsafe_view", "reshape", "_reshape_alias", "squeeze", "unsqueeze", "flatten"))
def reshaped(func: Any, args: Any, kwargs: Any, of: Of, out: Any) -> list[Reach]:
    """The same elements in another shape."""
    before, after = tuple(args[0].shape), tuple(out.shape)
    reach = reach_of(of, args[0])
    return [tuple(axis.each(lambda tensor, fill: _reshaped(tensor, before, after)) for axis in reach)]


def _reshaped(tensor: Tensor, before: tuple[int, ...], after: tuple[int, ...]) -> Tensor:
    """Reshape; expands only the dimensions between the first and the last that change."""
    shared = min(len(before), len(after))
    head = next((n for n in range(shared) if before[n] != after[n]), shared)
    tail = next((n for n in range(shared - head) if before[-1 - n] != after[-1 - n]), shared - head)
    sizes, end = tensor.shape, len(before) - tail
    first, last = sizes[:head], sizes[end:]
    if all(size == 1 for size in sizes[head:end]):
        return tensor.reshape(*first, *(1,) * (len(after) - head - tail), *last)
    full = tensor.expand(*first, *before[head:end], *last)
    moved = full.reshape(*first, *after[head : len(after) - tail], *last)
    return small(moved, look=moved.data_ptr() != tensor.data_ptr())


@rule(*operations("permute", "transpose", "t", "expand", "select", "flip", "repeat", "unfold"))
@rule(*operations("narrow", "diagonal", "numpy_T", "movedim"))
def rearranged(func: Any, args: Any, kwargs: Any, of: Of, out: Any) -> list[Reach]:
    """The same operation, applied to the intervals."""
    return [_moved(reach_of(of, args[0]), args[0], lambda tensor, fill: func(tensor, *args[1:], **kwargs))]


@rule(aten.roll)
def rolled(func: Any, args: Any, kwargs: Any, of: Of, out: Any) -> list[Reach]:
    """Roll along the given dimensions; the others do not change."""
    given = arguments(func, args, kwargs)
    dims = {dim % out.dim() for dim in given["dims"]} or set(range(out.dim()))

    def roll(tensor: Tensor, fill: float) -> Tensor:
        shape = [out.shape[dim] if dim in dims else size for dim, size in enumerate(tensor.shape)]
        return small(tensor.expand(shape).roll(given["shifts"], given["dims"]), look=True)

    return [tuple(axis.each(roll) for axis in reach_of(of, args[0]))]


@rule(aten.slice)
def sliced(func: Any, args: Any, kwargs: Any, of: Of, out: Any) -> list[Reach]:
    """Every n-th element; places are farther apart."""
    given = arguments(func, args, kwargs)
    (reach,) = rearranged(func, args, kwargs, of, out)
    before = reach_of(of, args[0])
    steps = [given["step"] if axis.place.shape[given["dim"]] > 1 else 1 for axis in before]
    return [tuple(replace(axis, stride=axis.stride * step) for axis, step in zip(reach, steps, strict=True))]


@rule(aten.constant_pad_nd)
def padded(func: Any, args: Any, kwargs: Any, of: Of, out: Any) -> list[Reach]:
    """New elements depend on nothing."""
    return [_moved(reach_of(of, args[0]), args[0], lambda tensor, fill: func(tensor, args[1], fill))]


@rule(*operations("split", "split_with_sizes", "unbind", "chunk"))
def taken_apart(func: Any, args: Any, kwargs: Any, of: Of, out: Any) -> list[Reach]:
    """Split one tensor into several."""
    reach = reach_of(of, args[0])

    def piece(number: int) -> Callable[[Tensor, float], Tensor]:
        return lambda tensor, fill: func(tensor, *args[1:], **kwargs)[number]

    return [_moved(reach, args[0], piece(number)) for number in range(len(out))]


@rule(aten.cat)
def joined(func: Any, args: Any, kwargs: Any, of: Of, out: Any) -> list[Reach]:
    """Concatenate tensors; a tensor without a reach depends on nothing."""
    dim = args[1] % out.dim() if len(args) > 1 else kwargs.get("dim", 0) % out.dim()
    known = next(reach for tensor in args[0] if (reach := of(tensor)) is not None)
    nothing = tuple(axis.each(lambda tensor, fill: torch.full((1,) * out.dim(), fill)) for axis in known)
    pieces = [(tensor.shape[dim], of(tensor) or nothing) for tensor in args[0]]

    def join(number: int, key: str) -> Tensor:
        parts = [(size, getattr(reach[number], key)) for size, reach in pieces]
        sizes = [_without(part, dim) for _, part in parts]
        space = torch.broadcast_shapes(*sizes)  # type: ignore[no-untyped-call]
        shapes = [(*space[:dim], size, *space[dim + 1 :]) for size, _ in parts]
        filled = [part.expand(shape) for shape, (_, part) in zip(shapes, parts, strict=True)]
        return small(torch.cat(filled, dim), look=True)

    return [
        tuple(
            Axis(join(n, "low"), join(n, "high"), join(n, "place"), _largest(pieces, n), axis.length)
            for n, axis in enumerate(known)
        )
    ]


@rule(aten.stack)
def stacked(func: Any, args: Any, kwargs: Any, of: Of, out: Any) -> list[Reach]:
    """Stack tensors along a new dimension."""
    dim = (args[1] if len(args) > 1 else kwargs.get("dim", 0)) % out.dim()
    raised = {id(tensor): tensor.unsqueeze(dim) for tensor in args[0]}
    by_tensor = {
        id(raised[id(tensor)]): tuple(axis.each(lambda t, fill: t.unsqueeze(dim)) for axis in reach)
        for tensor in args[0]
        if (reach := of(tensor)) is not None
    }
    return joined(func, (list(raised.values()), dim), {}, lambda tensor: by_tensor.get(id(tensor)), out)


@rule(*operations("index", "index_select", "gather", "take_along_dim", "embedding"))
def picked(func: Any, args: Any, kwargs: Any, of: Of, out: Any) -> list[Reach]:
    """Indexing by values that are not known here: the union over all that could be picked."""
    reach = reach_of(of, args[0])
    whole = (axis.over(range(args[0].dim())) for axis in reach)
    return [tuple(axis.each(lambda tensor, fill: tensor.reshape((1,) * out.dim())) for axis in whole)]


def reach_of(of: Of, tensor: Any) -> Reach:
    """The reach of an argument that has one."""
    reach = of(tensor)
    if reach is None:
        raise UsageError("receptive_field: picking by what depends on the input cannot be followed")
    return reach


def _moved(reach: Reach, tensor: Tensor, move: Callable[[Tensor, float], Tensor]) -> Reach:
    """Move all elements of a tensor; applied to the intervals at the tensor's full shape."""

    def full(part: Tensor, fill: float) -> Tensor:
        before = part.expand(tensor.shape)
        after = move(before, fill)
        is_copy = after.untyped_storage()._cdata != part.untyped_storage()._cdata
        return small(after, look=is_copy)

    return tuple(axis.each(full) for axis in reach)


def _without(tensor: Tensor, dim: int) -> tuple[int, ...]:
    return (*tensor.shape[:dim], 1, *tensor.shape[dim + 1 :])


def _largest(pieces: list[tuple[int, Reach]], number: int) -> float:
    return max(reach[number].stride for _, reach in pieces)


# -- sums over places and channels ----------------------------------------------------------------------


@rule(*operations("mean", "sum", "amax", "amin", "var", "std", "var_mean", "logsumexp", "linalg_vector_norm"))
@rule(*operations("max", "min", "prod", "norm"))
def reduced(func: Any, args: Any, kwargs: Any, of: Of, out: Any) -> list[Reach]:
    """The union over the reduced dimensions."""
    results = [out] if isinstance(out, Tensor) else list(out)
    if len(args) > 1 and isinstance(args[1], Tensor):  # the larger of two tensors
        return element_by_element(func, args, kwargs, of, out)
    dims = arguments(func, args, kwargs).get("dim")
    reach = _reduced(reach_of(of, args[0]), args[0].dim(), dims, results[0].dim() == args[0].dim())
    return [reach] * len(results)


def _reduced(reach: Reach, rank: int, dims: Any, kept: bool) -> Reach:
    chosen = range(rank) if dims is None or dims == [] else [dims] if isinstance(dims, int) else dims
    places = sorted({dim % rank for dim in chosen})
    over = (axis.over(places) for axis in reach)
    if kept:
        return tuple(over)
    return tuple(axis.each(lambda tensor, fill: tensor.squeeze(tuple(places))) for axis in over)


@rule(*operations("_softmax", "_log_softmax", "_safe_softmax", "cumsum", "glu"))
def along(func: Any, args: Any, kwargs: Any, of: Of, out: Any) -> list[Reach]:
    """Each element depends on all along one dimension."""
    return [tuple(axis.over([args[1]]) for axis in reach_of(of, args[0]))]


@rule(*operations("native_layer_norm", "_fused_rms_norm"))
def layer_norm(func: Any, args: Any, kwargs: Any, of: Of, out: Any) -> list[Reach]:
    """Each element depends on all of the normalised dimensions."""
    return [tuple(axis.over(range(-len(args[1]), 0)) for axis in reach_of(of, args[0]))]


@rule(aten.native_group_norm)
def group_norm(func: Any, args: Any, kwargs: Any, of: Of, out: Any) -> list[Reach]:
    """Each element depends on all places."""
    return [tuple(axis.over(range(1, args[0].dim())) for axis in reach_of(of, args[0]))]


@rule(*operations("native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training"))
@rule(*operations("_batch_norm_with_update", "_batch_norm_no_update", "cudnn_batch_norm"))
def batch_norm(func: Any, args: Any, kwargs: Any, of: Of, out: Any) -> list[Reach]:
    """Element by element with running statistics; from all places with batch statistics."""
    reach = reach_of(of, args[0])
    if not arguments(func, args, kwargs).get("training", False):
        return [reach]
    return [tuple(axis.over([0, *range(2, args[0].dim())]) for axis in reach)]


@rule(*operations("mm", "bmm", "mv", "dot"))
def product(func: Any, args: Any, kwargs: Any, of: Of, out: Any) -> list[Reach]:
    """Each element depends on a row of the first matrix and a column of the second."""
    return [_product(args[0], args[1], of, out.dim())]


@rule(*operations("addmm", "baddbmm", "addbmm"))
def product_and_sum(func: Any, args: Any, kwargs: Any, of: Of, out: Any) -> list[Reach]:
    """A product of the last two, plus the first."""
    known = [_raised(reach, out.dim()) for reach in [of(args[0])] if reach is not None]
    if of(args[1]) is not None or of(args[2]) is not None:
        known.insert(0, _product(args[1], args[2], of, out.dim()))
    return [united(*known)]


@rule(*operations("linear"))
def linear(func: Any, args: Any, kwargs: Any, of: Of, out: Any) -> list[Reach]:
    """Each element depends on all of the last dimension."""
    return [tuple(axis.over([-1]) for axis in reach_of(of, args[0]))]


def _product(first: Tensor, second: Tensor, of: Of, rank: int) -> Reach:
    if first.dim() != second.dim():
        raise UsageError("receptive_field: products of a matrix with a vector cannot be followed")
    both = of(first) is not None and of(second) is not None
    too_large = both and first.shape[-2] * second.shape[-1] > LARGEST_PRODUCT
    known = []
    for matrix, summed in ((first, [-1]), (second, [-2])):
        if (reach := of(matrix)) is not None:
            known.append(tuple(axis.over([-2, -1] if too_large else summed) for axis in reach))
    return united(*known)


@rule(*operations("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention"))
@rule(*operations("_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention"))
def attention(func: Any, args: Any, kwargs: Any, of: Of, out: Any) -> list[Reach]:
    """Each query's own reach, and that of all keys and values."""
    known = []
    for tensor, summed in zip(args[:3], ([-1], [-2, -1], [-2]), strict=True):
        if (reach := of(tensor)) is not None:
            known.append(tuple(axis.over(summed) for axis in reach))
    return [united(*known)]
