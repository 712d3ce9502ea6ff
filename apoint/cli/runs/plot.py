"""Curves drawn with characters, with nothing hidden.

Every point is drawn: where several fall into one column, the column spans from the smallest to the largest.
Non-finite points are counted below the plot and break the line. Nothing is smoothed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from apoint.cli.runs.text import number

LETTERS = "abcdefghijklmnopqrstuvwxyz"
_SEVERAL = "#"
_BRAILLE = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # bit of a dot by its row and column
Dots = set[tuple[int, int]]
Curve = tuple[Sequence[int], Sequence[float]]


@dataclass(frozen=True)
class Frame:
    """The part of the plane that a plot shows."""

    first: int
    last: int
    low: float
    high: float
    log: bool = False

    @classmethod
    def around(cls, curves: Iterable[Curve], log: bool = False) -> Frame | None:
        """The smallest frame that holds all points that can be drawn; None if there are none."""
        points = [
            (step, value)
            for steps, values in curves
            for step, value in zip(steps, values, strict=True)
            if drawable(value, log)
        ]
        if not points:
            return None
        steps, heights = zip(*points, strict=True)
        return cls(min(steps), max(steps), min(heights), max(heights), log)

    def place(self, step: float, value: float, width: int, height: int) -> tuple[int, int]:
        """The dot of a point; row 0 is the top."""
        across = _share(step, self.first, self.last)
        bounds = (self.low, self.high, value)
        low, high, at = (math.log(each) for each in bounds) if self.log else bounds
        return round(across * (width - 1)), round((1 - _share(at, low, high)) * (height - 1))


def drawable(value: float, log: bool) -> bool:
    """Whether a value has a place on the axis."""
    return math.isfinite(value) and (value > 0 or not log)


def _share(value: float, low: float, high: float) -> float:
    span = high / 2 - low / 2  # halves, because the full span may be too large for a float
    return (value / 2 - low / 2) / span if span > 0 else 0.5


def trace(curve: Curve, frame: Frame, width: int, height: int) -> Dots:
    """The dots of a curve on a grid: its points, and lines between neighbours."""
    dots: Dots = set()
    before: tuple[int, int] | None = None
    for step, value in zip(*curve, strict=True):
        if not drawable(value, frame.log):
            before = None
            continue
        here = frame.place(step, value, width, height)
        if here != before:
            dots.update(_line(before or here, here))
        before = here
    return dots


def _line(begin: tuple[int, int], end: tuple[int, int]) -> Iterable[tuple[int, int]]:
    """The dots from one to another, without gaps."""
    (x, y), (to_x, to_y) = begin, end
    count = max(abs(to_x - x), abs(to_y - y), 1)
    for part in range(count + 1):
        yield round(x + (to_x - x) * part / count), round(y + (to_y - y) * part / count)


def plot_one(curve: Curve, width: int, height: int, unicode: bool, log: bool = False) -> list[str]:
    """The lines of a plot of one curve, in braille dots or, without Unicode, in stars."""
    frame = Frame.around([curve], log)
    if frame is None:
        return [f"  nothing to draw: {remark(curve, log)}"]
    margin = _margin(frame)
    inside = max(10, width - margin - 3)
    if unicode:
        dots = trace(curve, frame, inside * 2, height * 4)
        body = [_braille_row(dots, row, inside) for row in range(height)]
    else:
        dots = trace(curve, frame, inside, height)
        body = ["".join("*" if (x, y) in dots else " " for x in range(inside)) for y in range(height)]
    return [*_framed(body, frame, margin, inside, unicode, 4 if unicode else 1), f"  {remark(curve, log)}"]


def _braille_row(dots: Dots, row: int, width: int) -> str:
    cells = []
    for x in range(width):
        bits = (
            _BRAILLE[down][side]
            for down in range(4)
            for side in range(2)
            if (2 * x + side, 4 * row + down) in dots
        )
        cells.append(chr(0x2800 + total) if (total := sum(bits)) else " ")
    return "".join(cells)


def plot_many(
    curves: Sequence[Curve],
    width: int,
    height: int,
    unicode: bool,
    log: bool = False,
    paint: Callable[[int, str], str] = lambda index, text: text,
) -> list[str]:
    """The lines of a plot of several curves, each drawn with its letter; `#` where several meet.

    Args:
        curves: At most as many as there are letters.
        width: The width of the plot with its labels.
        height: The number of rows without the axis.
        unicode: Whether the axes may use line characters.
        log: Whether the values are on a logarithmic axis.
        paint: Colours the mark of the curve with this index.
    """
    frame = Frame.around(curves, log)
    if frame is None:
        return ["  nothing to draw: no finite values"]
    margin = _margin(frame)
    inside = max(10, width - margin - 3)
    traces = [trace(curve, frame, inside, height) for curve in curves]
    body = ["".join(_mark(traces, x, y, paint) for x in range(inside)) for y in range(height)]
    return _framed(body, frame, margin, inside, unicode)


def _mark(traces: Sequence[Dots], x: int, y: int, paint: Callable[[int, str], str]) -> str:
    here = [index for index, dots in enumerate(traces) if (x, y) in dots]
    if len(here) > 1:
        return _SEVERAL
    return paint(here[0], LETTERS[here[0]]) if here else " "


def _margin(frame: Frame) -> int:
    return max(len(number(frame.low)), len(number(frame.high)), 8)


def _framed(
    body: list[str], frame: Frame, margin: int, inside: int, unicode: bool, dots_per_row: int = 1
) -> list[str]:
    """The body with its axes: least and largest value, first and last step."""
    tick, bar, corner, dash = "┤│└─" if unicode else "+|+-"
    labels = {0: number(frame.high), len(body) - 1: number(frame.low)}
    if frame.low == frame.high:  # a flat line runs through the middle
        middle_dot = frame.place(frame.first, frame.low, 1, len(body) * dots_per_row)[1]
        labels = {middle_dot // dots_per_row: number(frame.low)}
    lines = [
        f" {labels.get(row, ''):>{margin}} {tick if row in labels else bar}{text.rstrip()}"
        for row, text in enumerate(body)
    ]
    lines.append(f" {'':>{margin}} {corner}{dash * inside}")
    first, last = f"step {frame.first}", str(frame.last)
    scale = "log scale" if frame.log else ""
    gap = scale.center(max(0, inside - len(first) - len(last)))
    return [*lines, f" {'':>{margin}}  {first}{gap}{last}"]


def remark(curve: Curve, log: bool) -> str:
    """What a reader must know about the points: how many, and which have no place on the axis."""
    steps, values = curve
    odd = [step for step, value in zip(steps, values, strict=True) if not math.isfinite(value)]
    text = f"{len(steps)} points" if len(steps) != 1 else "1 point"
    if odd:
        text += f", {len(odd)} not finite, the first at step {odd[0]}"
    below = sum(1 for value in values if math.isfinite(value) and value <= 0) if log else 0
    return text + (f", {below} not above zero and left out of the log scale" if below else "")
