"""Curves as blocks of a few hundred points: a row per point is three orders of magnitude slower to read."""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeVar

POINTS = 256
Column = TypeVar("Column", "array[int]", "array[float]")


class Block(NamedTuple):
    """Consecutive points of one curve; the bytes are little-endian 64-bit integers and floats."""

    number: int
    first_step: int
    num_points: int
    steps: bytes
    values: bytes
    low: float | None
    high: float | None


class Curve(NamedTuple):
    """A curve as two arrays, which numpy reads without copying."""

    steps: array[int]
    values: array[float]


def to_blocks(steps: list[int], values: list[float]) -> Iterator[Block]:
    """Cut a curve into blocks, with the smallest and largest finite value of each."""
    for number, start in enumerate(range(0, len(steps), POINTS)):
        part = slice(start, start + POINTS)
        at, height = array("q", steps[part]), array("d", values[part])
        finite = [value for value in height if math.isfinite(value)]
        low, high = (min(finite), max(finite)) if finite else (None, None)
        packed = _little_endian(at).tobytes(), _little_endian(height).tobytes()
        yield Block(number, steps[start], len(at), *packed, low, high)


def from_blocks(parts: Iterable[tuple[bytes, bytes]]) -> Curve:
    """Reassemble one curve from its blocks."""
    steps, values = array("q"), array("d")
    for steps_bytes, values_bytes in parts:
        steps.frombytes(steps_bytes)
        values.frombytes(values_bytes)
    return Curve(_little_endian(steps), _little_endian(values))


def _little_endian(column: Column) -> Column:
    if sys.byteorder == "big":
        column.byteswap()
    return column
