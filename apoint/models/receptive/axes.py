"""Intervals of pixels along one axis of an image, for all elements of a tensor at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Field:
    """What the output in the middle of an image depends on, along one axis.

    Attributes:
        low: The first pixel; negative if it lies outside of the image, −∞ if all pixels are seen.
        high: The last pixel.
        stride: How many pixels lie between neighbouring outputs; None if there is one output for all places.
    """

    low: float
    high: float
    stride: float | None

    @property
    def size(self) -> float:
        """The number of pixels; ∞ if it is all of them, however many there are."""
        return self.high - self.low + 1


@dataclass(frozen=True)
class Axis:
    """Intervals and places along one axis of the image.

    The tensors have the dimensions of the one that they belong to, with size 1 along those that they do not
    vary with, most often the channels.

    Attributes:
        low: The first pixel that each element depends on; +∞ if it depends on none.
        high: The last pixel; −∞ if it depends on none.
        place: The pixel that it stands for; NaN if none.
        stride: The pixels between neighbours.
        length: The length of the image.
    """

    low: Tensor
    high: Tensor
    place: Tensor
    stride: float
    length: int

    def each(self, move: Callable[[Tensor, float], Tensor]) -> Axis:
        """The same move of all three; it is also told what an element that depends on nothing holds."""
        moved = move(self.low, math.inf), move(self.high, -math.inf), move(self.place, math.nan)
        return Axis(*moved, self.stride, self.length)

    def over(self, dims: Sequence[int]) -> Axis:
        """The union over dimensions, which stay with size 1; all of the image if it covers it."""
        place = self.place.nanmean(list(dims), keepdim=True)
        varying = [dim for dim in dims if max(self.low.shape[dim], self.high.shape[dim]) > 1]
        if not varying:
            return Axis(self.low, self.high, place, self.stride, self.length)
        low, high = self.low.amin(varying, keepdim=True), self.high.amax(varying, keepdim=True)
        covered = (low <= 0) & (high >= self.length - 1)
        low, high = low.masked_fill(covered, -math.inf), high.masked_fill(covered, math.inf)
        return Axis(low, high, place, self.stride, self.length)

    def united(self, other: Axis) -> Axis:
        """The union with another, element by element; places are ours where we have one."""
        place = self.place
        if place.isnan().any():
            place, theirs = torch.broadcast_tensors(place, other.place)  # type: ignore[no-untyped-call]
            place = torch.where(place.isnan(), theirs, place)
        low, high = torch.minimum(self.low, other.low), torch.maximum(self.high, other.high)
        return Axis(low, high, place, max(self.stride, other.stride), self.length)

    def field(self) -> Field:
        """The field of the place nearest to the image's middle, the first if two are."""
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
    """With size 1 along what it does not vary with, as its strides tell or, on request, its values."""
    for dim in range(tensor.dim()):
        if tensor.shape[dim] > 1:
            first = tensor.narrow(dim, 0, 1)
            if tensor.stride(dim) == 0 or (look and _equal(tensor, first)):
                tensor = first
    return tensor


def _equal(tensor: Tensor, first: Tensor) -> bool:
    return bool(((tensor == first) | (tensor.isnan() & first.isnan())).all())
