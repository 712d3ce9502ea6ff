"""Receptive fields of any module: which pixels an output can depend on, found by following a forward pass.

Every tensor that depends on the input carries, for each of its elements and each axis of the image, the
interval of pixels that it depends on, and its place, the pixel that it corresponds to. Operations transform
these as they transform values: a convolution or pooling takes the union over its window, an addition the
union of both sides, a matrix product or a mean the union over the elements it sums, a reshape rearranges
them (`rules` and `windows`). The model itself needs only shapes, so its weights may be on the meta device.

Windows that extend beyond the edge of an image are followed as if the image continued: the field of a deep
network is often larger than its images. A sum over places that covers the whole image (global average
pooling, attention) counts as seeing all of it. Masks are not read: masked attention counts as attention.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from apoint.errors import UsageError
from apoint.models.counting import evaluating, example, parts_of
from apoint.models.receptive.axes import Axis, Field, Reach
from apoint.models.receptive.rules import reaches


def receptive_field(model: nn.Module, input_shape: Sequence[int]) -> tuple[Field, ...]:
    """The receptive field of a model's output, along each axis of an image or signal.

    A chain of windows of sizes kᵢ, strides sᵢ and dilations dᵢ has the field 1 + Σᵢ (kᵢ − 1)·dᵢ·s₁⋯sᵢ₋₁.

    Args:
        model: Any module that maps [B, C, *space] to a tensor; its weights may be on the meta device.
        input_shape: The shape of an example without the batch, such as (3, 224, 224).

    Returns:
        For each axis, the field of the output in the middle of the image.

    Example:
        >>> field = receptive_field(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3)), (3, 32, 32))[0]
        >>> field.size, field.stride
        (5.0, 1.0)
    """
    return receptive_fields(model, input_shape)[""]


def receptive_fields(model: nn.Module, input_shape: Sequence[int]) -> dict[str, tuple[Field, ...]]:
    """The receptive fields of a model's parts (see `counting.parts_of`), and of its output under ""."""
    inputs = example(model, input_shape)
    follower = _Follower(inputs)
    found: dict[str, tuple[Field, ...]] = {}

    def keep(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, given: Any, out: Any) -> None:
            if isinstance(out, Tensor) and (reach := follower.of(out)) is not None:
                found[name] = tuple(axis.field() for axis in reach)

        return hook

    handles = [part.register_forward_hook(keep(name)) for name, part in parts_of(model).items()]
    with _removed_afterwards(handles), evaluating(model), torch.no_grad(), follower:
        out = model(inputs)
    reach = follower.of(out)
    if reach is None:
        raise UsageError("receptive_field: the output does not depend on the input")
    return {**found, "": tuple(axis.field() for axis in reach)}


@contextmanager
def _removed_afterwards(handles: Iterable[Any]) -> Iterator[None]:
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class _Follower(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Propagates the reach of every tensor through each PyTorch operation."""

    def __init__(self, inputs: Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._known: dict[int, tuple[Tensor, Reach]] = {}  # with the tensors, or an id could be reused
        self._known[id(inputs)] = inputs, _of_input(inputs)

    def of(self, tensor: Any) -> Reach | None:
        """The reach of a tensor; None if it does not depend on the input."""
        found = self._known.get(id(tensor))
        return found[1] if found else None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if any(self.of(given) is not None for given in tree_leaves((args, kwargs))):
            results = [result for result in tree_leaves(out) if isinstance(result, Tensor)]
            for result, reach in zip(results, reaches(func, args, kwargs, self.of, out), strict=False):
                self._known[id(result)] = result, reach
        return out


def _of_input(inputs: Tensor) -> Reach:
    """Each pixel depends on itself and corresponds to itself."""
    axes = []
    for dim in range(2, inputs.dim()):
        length = inputs.shape[dim]
        shape = [length if other == dim else 1 for other in range(inputs.dim())]
        pixels = torch.arange(float(length), device="cpu").view(shape)
        axes.append(Axis(pixels, pixels, pixels, 1.0, length))
    if not axes:
        raise UsageError(
            f"receptive fields are of images and signals, got examples of shape {tuple(inputs.shape[1:])}"
        )
    return tuple(axes)
