"""Draw diagrams: boxes that fit their text, and arrows that end at the boxes' edges.

All positions are converted to points on the sheet first, so letters, boxes and arrow heads keep their sizes
for any number of columns.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from apoint.book import prose
from apoint.book.picture import Arrow, Box, Diagram
from apoint.report.figures.canvas import NORMAL, SMALL, WIDTH, Drawing, sheet
from apoint.report.palette import SERIES_ROLES, light

ROW = 46.0  # height of a row
WIDEST_COLUMN = 120.0
_TITLE_LETTERS, _TITLE_LINE, _TITLE_GAP = 50, 18.0, 14.0
_MARGIN = 6.0
_LINE = 16.0  # height of a line of text
_DOT = 6.0
_HEAD = 11.0  # size of an arrow head


@dataclass(frozen=True)
class _Placed:
    """A box in points on the sheet."""

    box: Box
    x: float
    y: float
    width: float
    height: float

    @property
    def round(self) -> bool:
        return self.box.shape in ("circle", "dot")


@contextmanager
def draw_diagram(diagram: Diagram, name: str) -> Iterator[Drawing]:
    """Context manager that yields a sheet with the diagram.

    Args:
        diagram: What to draw.
        name: A word that is unique on the page.
    """
    title = textwrap.fill(prose.plain(diagram.title), _TITLE_LETTERS)
    head = _TITLE_LINE * (title.count("\n") + 1) + _TITLE_GAP
    placed, corners, tall = _layout(diagram)
    with sheet(name, head + tall, title) as drawing:
        figure, axes = drawing.figure, drawing.axes
        figure.set_layout_engine("none")
        figure.suptitle(
            title, x=0.002, y=1 - 5 / (head + tall), va="top", ha="left", fontsize=NORMAL, color=light("ink")
        )
        axes.set_position((0.0, 0.0, 1.0, tall / (head + tall)))
        axes.set_axis_off()
        axes.set_xlim(0, WIDTH)
        axes.set_ylim(0, tall)
        for one in placed.values():
            if one.box.shape == "frame":
                _draw_frame(drawing, one)
        for arrow, via in zip(diagram.arrows, corners, strict=True):
            _draw_arrow(drawing, arrow, [placed[arrow.start], *via, placed[arrow.end]])
        for one in placed.values():
            if one.box.shape != "frame":
                _draw_box(drawing, one)
        yield drawing


# -- places ---------------------------------------------------------------------------------------------


def _layout(diagram: Diagram) -> tuple[dict[str, _Placed], list[list[tuple[float, float]]], float]:
    """The boxes and the corners of arrows in points, and the total height."""
    sizes = {box.name: _size(box) for box in diagram.boxes}
    corners = [corner for arrow in diagram.arrows for corner in arrow.via]
    # How far each extends to either side of its centre: in columns, and in points beyond those.
    reach = [(box.x, box.width / 2, 0.0 if box.width else sizes[box.name][0] / 2) for box in diagram.boxes]
    reach += [(x, 0.0, 2.0) for x, _ in corners]
    room = WIDTH - 2 * _MARGIN
    column = WIDEST_COLUMN
    for right, right_columns, right_points in reach:
        for left, left_columns, left_points in reach:
            between = (right + right_columns) - (left - left_columns)
            if between > 0:
                column = min(column, (room - right_points - left_points) / between)
    first = min(x * column - wide * column - points for x, wide, points in reach)
    last = max(x * column + wide * column + points for x, wide, points in reach)
    shift = (WIDTH - first - last) / 2
    bottom = min(box.y * ROW - (box.height * ROW or sizes[box.name][1]) / 2 for box in diagram.boxes)
    top = max(box.y * ROW + (box.height * ROW or sizes[box.name][1]) / 2 for box in diagram.boxes)
    bottom, top = min([bottom, *(y * ROW for _, y in corners)]), max([top, *(y * ROW for _, y in corners)])
    rise = _MARGIN - bottom

    def at(x: float, y: float) -> tuple[float, float]:
        return x * column + shift, y * ROW + rise

    placed = {
        box.name: _Placed(
            box,
            *at(box.x, box.y),
            width=box.width * column or sizes[box.name][0],
            height=box.height * ROW or sizes[box.name][1],
        )
        for box in diagram.boxes
    }
    return placed, [[at(x, y) for x, y in arrow.via] for arrow in diagram.arrows], top - bottom + 2 * _MARGIN


def _lines(box: Box) -> list[str]:
    text = box.name if box.text is None else box.text
    return [prose.plain(line) for line in text.split("\n")]


def _size(box: Box) -> tuple[float, float]:
    """Width and height in points that the text needs."""
    lines = _lines(box)
    wide, high = max(_text_width(line) for line in lines), _LINE * len(lines)
    match box.shape:
        case "dot":
            return _DOT, _DOT
        case "circle":
            size = max(20.0, wide + 12, high + 8)
            return size, size
        case "text":
            return wide + 6, high + 2
        case "frame":
            assert min(box.width, box.height) > 0, f"the frame {box.name!r} needs a width and a height"
            return 0.0, 0.0
    return max(wide + 18, 30.0), high + 12


@lru_cache(maxsize=1024)
def _text_width(text: str) -> float:
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    if not text:
        return 0.0
    font = FontProperties(family="DejaVu Sans")
    return float(TextPath((0, 0), text, size=SMALL, prop=font).get_extents().width)


def _edge(one: _Placed, towards: tuple[float, float]) -> tuple[float, float]:
    """The point where the line from the centre of a box towards a place leaves the box."""
    away = np.subtract(towards, (one.x, one.y))
    if not away.any():
        return one.x, one.y
    if one.round:
        share = one.width / 2 / float(np.hypot(*away))
    else:
        with np.errstate(divide="ignore"):
            share = float(np.min(np.divide((one.width / 2, one.height / 2), np.abs(away))))
    return one.x + share * float(away[0]), one.y + share * float(away[1])


# -- drawing --------------------------------------------------------------------------------------------


def _colour(number: int) -> str:
    return light(SERIES_ROLES[(number - 1) % len(SERIES_ROLES)]) if number else light("edge")


def _draw_arrow(drawing: Drawing, arrow: Arrow, stations: Sequence[Any]) -> None:
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path

    start, *via, end = stations
    centre = (end.x, end.y)
    points = [
        _edge(start, via[0] if via else centre),
        *via,
        _edge(end, via[-1] if via else (start.x, start.y)),
    ]
    colour = _colour(arrow.colour) if arrow.colour else light("soft")
    style = "-" if arrow.style == "line" or end.box.shape == "dot" else "-|>"
    drawn = FancyArrowPatch(
        path=Path(points),
        arrowstyle=style,
        mutation_scale=_HEAD,
        color=colour,
        linewidth=1.0 if arrow.style == "line" else 1.4,
        linestyle=(0, (4, 2.5)) if arrow.style == "dashed" else "solid",
        joinstyle="round",
        shrinkA=0,
        shrinkB=0,
    )
    drawing.axes.add_patch(drawn)
    drawing.mark(drawn, "arrow")
    if arrow.text:
        _write_beside(drawing, points, prose.plain(arrow.text), _colour(arrow.colour))


def _write_beside(drawing: Drawing, points: Sequence[tuple[float, float]], text: str, colour: str) -> None:
    """Write above the longest part of an arrow if that part is level, else to its right."""
    parts = [(np.asarray(a), np.asarray(b)) for a, b in pairwise(points)]
    first, second = max(parts, key=lambda part: float(np.hypot(*(part[1] - part[0]))))
    x, y = (first + second) / 2
    run, rise = np.abs(second - first)
    level = run >= rise
    drawing.axes.text(
        x + (0 if level else 5),
        y + (3 if level else 0),
        text,
        ha="center" if level else "left",
        va="bottom" if level else "center",
        fontsize=SMALL,
        color=light("soft") if colour == light("edge") else colour,
    )


def _draw_frame(drawing: Drawing, one: _Placed) -> None:
    from matplotlib.patches import FancyBboxPatch

    left, bottom = one.x - one.width / 2, one.y - one.height / 2
    frame = FancyBboxPatch(
        (left, bottom), one.width, one.height, boxstyle="round,pad=0,rounding_size=8", facecolor="none",
        edgecolor=_colour(one.box.colour), linewidth=1.2, linestyle=(0, (4, 3)),
    )  # fmt: skip
    drawing.axes.add_patch(frame)
    drawing.mark(frame, "frame")
    text = "\n".join(_lines(one.box))
    colour = _colour(one.box.colour) if one.box.colour else light("soft")
    drawing.axes.text(
        left + 8, bottom + one.height - 5, text, ha="left", va="top", fontsize=SMALL, color=colour
    )


def _draw_box(drawing: Drawing, one: _Placed) -> None:
    from matplotlib.patches import Circle, Patch

    axes, box, colour = drawing.axes, one.box, _colour(one.box.colour)
    if box.shape == "dot":
        axes.add_patch(Circle((one.x, one.y), _DOT / 2, color=light("soft"), linewidth=0))
        return
    if box.shape != "text":
        outlines: list[Patch] = []
        for paint in ({"facecolor": light("paper")}, {"facecolor": colour, "alpha": 0.14}):
            # The colour is translucent, so arrows and frames behind the box must be covered first.
            look: dict[str, Any] = {**paint, "edgecolor": "none", "linewidth": 0.0}
            outlines.append(_outline(one, **look))
        outlines.append(_outline(one, facecolor="none", edgecolor=colour, linewidth=1.4))
        for outline in outlines:
            axes.add_patch(outline)
        drawing.mark(outlines[-1], "box")
    text = "\n".join(_lines(box))
    ink = colour if box.shape == "text" and box.colour else light("ink")
    axes.text(one.x, one.y - 0.5, text, ha="center", va="center", fontsize=SMALL, color=ink, linespacing=1.15)


def _outline(one: _Placed, **look: Any) -> Any:
    from matplotlib.patches import Circle, FancyBboxPatch

    if one.round:
        return Circle((one.x, one.y), one.width / 2, **look)
    return FancyBboxPatch(
        (one.x - one.width / 2, one.y - one.height / 2), one.width, one.height,
        boxstyle="round,pad=0,rounding_size=5", **look,
    )  # fmt: skip
