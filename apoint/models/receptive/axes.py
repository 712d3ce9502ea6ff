"""Intervals of pixels along one axis of an image, for all elements of a tensor at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Field:
    """The receptive field of the output in the middle of an image, along one axis.

    Attributes:
        low: The first pixel; negative if it is outside the image, −∞ if the output depends on all pixels.
        high: The last pixel.
        stride: The distance in pixels between neighbouring outputs; None if there is only one output.
    """

    low: float
    high: float
    stride: float | None

    @property
    def size(self) -> float:
        """The number of pixels; ∞ if the field is all of them, for any image size."""
        return self.high - self.low + 1


@dataclass(frozen=True)
class Axis:
    """Intervals and places along one axis of the image.

    The tensors have the dimensions of the tensor they belong to, with size 1 along dimensions where they are
    constant, most often the channels.

    Attributes:
        low: The first pixel that each element depends on; +∞ if it depends on none.
        high: The last pixel; −∞ if it depends on none.
        place: The pixel that it corresponds to; NaN if none.
        stride: The distance in pixels between neighbours.
        length: The length of the image.
    """

    low: Tensor
    high: Tensor
    place: Tensor
    stride: float
    length: int

    def each(self, move: Callable[[Tensor, float], Tensor]) -> Axis:
        """Apply `move` to all three; it also gets the value of an element that depends on nothing."""
        moved = move(self.low, math.inf), move(self.high, -math.inf), move(self.place, math.nan)
        return Axis(*moved, self.stride, self.length)

    def over(self, dims: Sequence[int]) -> Axis:
        """The union over dimensions, kept with size 1; if it covers the image, all pixels."""
        place = self.place.nanmean(list(dims), keepdim=True)
        varying = [dim for dim in dims if max(self.low.shape[dim], self.high.shape[dim]) > 1]
        if not varying:
            return Axis(self.low, self.high, place, self.stride, self.length)
        low, high = self.low.amin(varying, keepdim=True), self.high.amax(varying, keepdim=True)
        covered = (low <= 0) & (high >= self.length - 1)
        low, high = low.masked_fill(covered, -math.inf), high.masked_fill(covered, math.inf)
        return Axis(low, high, place, self.stride, self.length)

    def united(self, other: Axis) -> Axis:
        """The union with another, element by element; this axis's places have priority."""
        place = self.place
        if place.isnan().any():
            place, theirs = torch.broadcast_tensors(place, other.place)  # type: ignore[no-untyped-call]
            place = torch.where(place.isnan(), theirs, place)
        low, high = torch.minimum(self.low, other.low), torch.maximum(self.high, other.high)
        return Axis(low, high, place, max(self.stride, other.stride), self.length)

    def field(self) -> Field:
        """The field of the place nearest to the middle of the image; the first if there are two."""
        low, high, place = torch.broadcast_tensors(self.low, self.high, self.place)  # type: ignore[no-untyped-call]
        places = torch.unique(self.place[~self.place.isnan()])
        middle = places[(places - (self.length - 1) / 2).abs().argmin()]
        there = (place == middle) & (low <= high)
        stride = float(places.diff().median()) if len(places) > 1 else None
        return Field(float(low[there].min()), float(high[there].max()), stride)


Reach = tuple[Axis, ...]
"""One axis for a signal, two for an image."""


def united(first: Reach, *others: Reach) -> Reach:
    """The union of reaches, axis by axis."""
    for other in others:
        first = tuple(mine.united(theirs) for mine, theirs in zip(first, other, strict=True))
    return first


def small(tensor: Tensor, look: bool) -> Tensor:
    """Reduce constant dimensions to size 1, as found from strides or, with `look`, from values."""
    for dim in range(tensor.dim()):
        if tensor.shape[dim] > 1:
            first = tensor.narrow(dim, 0, 1)
            if tensor.stride(dim) == 0 or (look and _equal(tensor, first)):
                tensor = first
    return tensor


def _equal(tensor: Tensor, first: Tensor) -> bool:
    return bool(((tensor == first) | (tensor.isnan() & first.isnan())).all())
