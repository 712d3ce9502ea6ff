"""A quantity by layer and step: a grid of cells on a log scale, lighter for larger values.

The colour map is matplotlib's cividis, whose lightness increases throughout and which looks alike with or
without colour blindness. It is the same in light and dark mode, so that two readers see the same picture.
Values without a logarithm are drawn as symbols: a ring for 0, a cross for values that are not finite.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product, takewhile
from typing import Any

from apoint.report.figures.canvas import SMALL, WIDTH, Drawing, sheet
from apoint.report.markup import Markup, element, join
from apoint.report.words import clean, short

MOST_ROWS = 60
MOST_COLUMNS = 48
_FIRST = 0.06  # of the colour map: anything darker would vanish on a dark page
_NUM_COLOURS = 64
_LABEL_LETTERS = 18
_LABEL_ROOM = 14.0  # between two labels
_ABOVE, _BELOW = 34.0, 96.0  # the title; the horizontal axis with the bar under it
_UNDER = 0.6  # how far a cell extends under the next
_BAR_HEIGHT, _BAR_ROOM = 11.0, 56.0


@dataclass(frozen=True)
class Cell:
    """A cell of the grid: the value, with its layer and step."""

    layer: str
    step: int
    value: float


@dataclass(frozen=True)
class Grid:
    """What a heatmap shows.

    Attributes:
        cells: By row and column; None where nothing was measured.
        labels: A name for each row, without the common prefix.
        beginning: The common prefix of all names.
        steps: A step for each column.
        num_layers: How many layers there are.
        num_points: How many values there are.
    """

    cells: tuple[tuple[Cell | None, ...], ...]
    labels: tuple[str, ...]
    beginning: str
    steps: tuple[int, ...]
    num_layers: int
    num_points: int

    @classmethod
    def of(cls, by_layer: Mapping[str, Sequence[float]], steps: Sequence[int]) -> Grid | None:
        """The grid of values by layer and step; None if there are none.

        With too many layers or steps to distinguish, neighbours share a cell, which then shows the one of
        them that is farthest from the median of all layers at its step: outliers are never hidden.

        Args:
            by_layer: The values of each layer, in order.
            steps: The steps at which they were measured.
        """
        width = min(len(steps), max((len(row) for row in by_layer.values()), default=0))
        if not width:
            return None
        names = list(by_layer)
        beginning = _common_beginning(names)
        lines = list(by_layer.values())
        columns = [[row[place] for row in lines if place < len(row)] for place in range(width)]
        medians = [_median_log(column) for column in columns]
        row_groups, column_groups = _groups(len(names), MOST_ROWS), _groups(width, MOST_COLUMNS)

        def shown(rows: range, places: range) -> Cell | None:
            found = [
                (_distance(lines[row][place], medians[place]), -row, -place)
                for row, place in product(rows, places)
                if place < len(lines[row])
            ]
            if not found:
                return None
            _, row, place = max(found)  # the first on ties
            return Cell(names[-row], steps[-place], lines[-row][-place])

        return cls(
            tuple(tuple(shown(rows, places) for places in column_groups) for rows in row_groups),
            tuple(names[group[0]].removeprefix(beginning) for group in row_groups),
            beginning,
            tuple(steps[group[0]] for group in column_groups),
            len(names),
            sum(len(column) for column in columns),
        )

    @property
    def found(self) -> list[Cell]:
        """Every cell that holds a value."""
        return [cell for row in self.cells for cell in row if cell is not None]

    @property
    def layers_per_row(self) -> int:
        """The largest number of layers that share a row."""
        return math.ceil(self.num_layers / len(self.cells))


def _groups(number: int, most: int) -> list[range]:
    size = math.ceil(number / most)
    return [range(first, min(first + size, number)) for first in range(0, number, size)]


def _common_beginning(names: Sequence[str]) -> str:
    """The common prefix of all names, up to a dot; empty if there is only one name."""
    if len(names) < 2:
        return ""
    parts = zip(*(name.split(".")[:-1] for name in names), strict=False)
    shared = takewhile(lambda each: len(set(each)) == 1, parts)
    return "".join(f"{each[0]}." for each in shared)


def has_logarithm(value: float) -> bool:
    """Whether a value has a place on a log scale."""
    return math.isfinite(value) and value > 0


def _median_log(values: Sequence[float]) -> float:
    logs = [math.log10(value) for value in values if has_logarithm(value)]
    return statistics.median(logs) if logs else 0.0


def _distance(value: float, median: float) -> float:
    return abs(math.log10(value) - median) if has_logarithm(value) else math.inf


def heatmap(grid: Grid, quantity: str, name: str) -> str | None:
    """The grid as SVG; None if nothing in it is above 0.

    Args:
        grid: What to draw.
        quantity: The name of the quantity, such as `gradient norm`.
        name: A name that is unique on the page.
    """
    logs = [math.log10(cell.value) for cell in grid.found if has_logarithm(cell.value)]
    if not logs:
        return None
    low, high = _at_least_a_decade(min(logs), max(logs))
    row_height = min(40.0, max(8.0, 320 / len(grid.cells)))
    height = row_height * len(grid.cells) + _ABOVE + _BELOW
    with sheet(name, height, f"{quantity} of each layer along training, log10") as drawing:
        _axes(drawing, grid, row_height, height)
        drawing.settle()
        paints = _Paints(low, high)
        over = join(_cells(drawing, grid, paints, quantity), _bar(drawing, paints, quantity))
        label = f"Heatmap of log10 of the {quantity}, {len(grid.cells)} rows by {len(grid.steps)} columns."
        svg = drawing.svg(f"{label} Arrow keys step through the cells.")
        assert svg.endswith("</svg>")
        return f"{svg.removesuffix('</svg>')}{over}</svg>"


def _at_least_a_decade(low: float, high: float) -> tuple[float, float]:
    """Widen a range to at least a decade, so that small differences are not exaggerated."""
    missing = max(0.0, 1.0 - (high - low)) / 2
    return low - missing, high + missing


class _Paints:
    """The colours for a range of logarithms."""

    def __init__(self, low: float, high: float) -> None:
        from matplotlib import colormaps
        from matplotlib.colors import to_hex

        self.low, self.high = low, high
        ramp = colormaps["cividis"]
        places = [_FIRST + (1 - _FIRST) * place / (_NUM_COLOURS - 1) for place in range(_NUM_COLOURS)]
        self.ramp = [to_hex(ramp(place)) for place in places]

    def colour(self, log: float) -> str:
        share = (log - self.low) / (self.high - self.low)
        return self.ramp[round(min(1.0, max(0.0, share)) * (_NUM_COLOURS - 1))]


def _axes(drawing: Drawing, grid: Grid, row_height: float, height: float) -> None:
    """Set the labels of rows and columns, and leave room for the bar under them."""
    from matplotlib.ticker import MaxNLocator

    axes = drawing.axes
    axes.grid(False)
    axes.set_xlim(-0.5, len(grid.steps) - 0.5)
    axes.set_ylim(len(grid.cells) - 0.5, -0.5)
    every = math.ceil(_LABEL_ROOM / row_height)
    shown = range(0, len(grid.cells), every)
    axes.set_yticks(list(shown), [_tail(grid.labels[row]) for row in shown])
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=[1, 2, 4, 5, 10]))
    axes.xaxis.set_major_formatter(lambda place, _: _step_at(grid, place))
    axes.set_xlabel("step")
    axes.set_ylabel("layer")
    axes.spines["bottom"].set_visible(False)
    engine: Any = drawing.figure.get_layout_engine()
    engine.set(rect=(0, _BAR_ROOM / height, 1, 1 - _BAR_ROOM / height))


def _step_at(grid: Grid, place: float) -> str:
    column = round(place)
    return str(grid.steps[column]) if 0 <= column < len(grid.steps) else ""


def _tail(name: str) -> str:
    """The end of a name, which distinguishes layers."""
    words = clean(name).replace("\n", " ")
    return words if len(words) <= _LABEL_LETTERS else f"…{words[1 - _LABEL_LETTERS :]}"


def _cells(drawing: Drawing, grid: Grid, paints: _Paints, quantity: str) -> Markup:
    box = drawing.axes.get_window_extent()
    top = drawing.figure.bbox.height - box.y1
    wide, high = box.width / len(grid.steps), box.height / len(grid.cells)
    clip = (box.x1, top + box.height)
    drawn = [
        _cell(cell, box.x0 + column * wide, top + row * high, (wide, high), clip, paints, quantity)
        for row, line in enumerate(grid.cells)
        for column, cell in enumerate(line)
        if cell is not None
    ]
    frame = element("rect", x=f"{box.x0:.1f}", y=f"{top:.1f}", width=f"{box.width:.1f}",
                    height=f"{box.height:.1f}", class_="frame")  # fmt: skip
    return element("g", element("g", drawn, class_="cells"), frame)


def _cell(
    cell: Cell,
    x: float,
    y: float,
    size: tuple[float, float],
    clip: tuple[float, float],
    paints: _Paints,
    quantity: str,
) -> list[Markup]:
    """A cell; it extends a little under its neighbours, so that no zoom level shows a seam between them."""
    sound = has_logarithm(cell.value)
    wide, high = (min(length + _UNDER, end - start)
                  for length, start, end in zip(size, (x, y), clip, strict=True))  # fmt: skip
    tip = f"{cell.layer}\nstep {cell.step}: {quantity} {short(cell.value)}"
    fill = paints.colour(math.log10(cell.value)) if sound else None
    rectangle = element(
        "rect", x=f"{x:.2f}", y=f"{y:.2f}", width=f"{wide:.2f}", height=f"{high:.2f}", fill=fill,
        class_=None if sound else "none", data_tip=tip,
    )  # fmt: skip
    if sound:
        return [rectangle]
    return [rectangle, _sign(cell.value, x + size[0] / 2, y + size[1] / 2, min(size))]


def _sign(value: float, x: float, y: float, room: float) -> Markup:
    """A ring for 0, a cross for values that are not finite."""
    r = min(4.0, 0.3 * room)
    if value == 0:
        return element("circle", cx=f"{x:.2f}", cy=f"{y:.2f}", r=f"{r:.2f}", class_="sign")
    cross = f"M{x - r:.2f} {y - r:.2f}l{2 * r:.2f} {2 * r:.2f}m0 {-2 * r:.2f}l{-2 * r:.2f} {2 * r:.2f}"
    return element("path", d=cross, class_="sign")


def _bar(drawing: Drawing, paints: _Paints, quantity: str) -> Markup:
    """The colour scale, labelled with logarithms."""
    box = drawing.axes.get_window_extent()
    height = drawing.figure.bbox.height
    y = height - _BAR_ROOM + 8
    left, width = box.x0, min(box.width, WIDTH - box.x0 - 12)
    part = width / _NUM_COLOURS
    parts = [
        element("rect", x=f"{left + place * part:.2f}", y=f"{y:.1f}", width=f"{part + 0.3:.2f}",
                height=f"{_BAR_HEIGHT}", fill=colour)
        for place, colour in enumerate(paints.ramp)
    ]  # fmt: skip
    labels = []
    for log in _ticks(paints.low, paints.high):
        x = left + (log - paints.low) / (paints.high - paints.low) * width
        labels.append(element("path", d=f"M{x:.2f} {y + _BAR_HEIGHT:.1f}v4", class_="tick"))
        labels.append(_text(short(log), x, y + _BAR_HEIGHT + 15, "middle"))
    words = _text(f"log10 of {quantity}; light = large", left, y + _BAR_HEIGHT + 31, "start")
    return element("g", parts, labels, words, class_="bar")


def _text(words: str, x: float, y: float, anchor: str) -> Markup:
    return element("text", words, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor, font_size=f"{SMALL:g}",
                   class_="soft")  # fmt: skip


def _ticks(low: float, high: float) -> list[float]:
    """Whole decades if there are enough of them, otherwise round parts of one."""
    from matplotlib.ticker import MaxNLocator

    found = MaxNLocator(6, steps=[1, 2, 5, 10]).tick_values(low, high)
    return [float(round(tick, 6)) for tick in found if low <= tick <= high]
