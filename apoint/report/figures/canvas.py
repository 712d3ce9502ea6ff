"""The sheet that every figure is drawn on: size, fonts, palette, and what can be pointed at."""

from __future__ import annotations

import io
import math
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from apoint.report.figures.svg import Strip, themed
from apoint.report.palette import light
from apoint.report.words import Digits, clean, short

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

WIDTH = 410  # about that of a phone and of half a page: text has its intended size on both
TITLE_LETTERS = 62
SMALL, NORMAL = 12.0, 13.0
MOST_STRIPS = 120
_ROUNDING = 1e-9  # of the largest tick: anything smaller is 0
_LEGEND_LETTERS = 36  # what fits into one row next to three symbols
_COLUMN_LETTERS = 25  # what fits next to a symbol into half the width
_SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "apoint",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib, so that every machine measures the same
    "font.size": NORMAL,
    "axes.unicode_minus": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "axes.edgecolor": light("edge"),
    "axes.labelcolor": light("soft"),
    "axes.linewidth": 1.0,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": light("rule"),
    "grid.linewidth": 1.0,
    "text.color": light("ink"),
    "text.parse_math": False,  # a name may contain dollar signs
    "xtick.color": light("edge"),
    "ytick.color": light("edge"),
    "xtick.labelcolor": light("soft"),
    "ytick.labelcolor": light("soft"),
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "ytick.major.size": 0.0,
    "ytick.major.pad": 5.0,
    "lines.solid_capstyle": "round",
    "legend.frameon": False,
    "legend.fontsize": SMALL,
    "legend.handlelength": 2.4,
    "legend.columnspacing": 1.4,
    "legend.handletextpad": 0.5,
    "legend.borderpad": 0.0,
    "legend.borderaxespad": 0.2,
}


_NO_METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}


class Drawing:
    """One figure while it is drawn: draw on `axes`, get the result from `svg`.

    Args:
        name: A word that is unique on the page.
        height: The height, in the same unit as the width, which is always `WIDTH`.
        title: What the vertical axis shows, with unit and direction; printed above the figure.
    """

    def __init__(self, name: str, height: float, title: str) -> None:
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine

        self.name = name
        layout = ConstrainedLayoutEngine(w_pad=3 / 72, h_pad=3 / 72)
        self.figure = Figure(figsize=(WIDTH / 72, height / 72), dpi=72, layout=layout)
        lines = [
            line
            for part in clean(title).split("\n")
            for line in textwrap.wrap(part, TITLE_LETTERS, max_lines=2, placeholder=" …")
        ]
        self.figure.suptitle("\n".join(lines), x=0.002, ha="left", fontsize=NORMAL, color=light("soft"))
        self.axes: Axes = self.figure.add_subplot()
        self._marks: dict[str, Mapping[str, str]] = {}
        self._strips: list[tuple[float, Mapping[str, str]]] = []

    def mark(self, artist: Artist, kind: str, tip: str = "", **data: float | str) -> None:
        """Name what an artist draws, so that it can be styled, pointed at and checked.

        Args:
            artist: Any artist.
            kind: Its class on the page.
            tip: The text shown when it is pointed at; empty for none.
            data: Its values, kept as `data-…` attributes; non-finite ones are left out.
        """
        name = f"mark{len(self._marks)}"
        artist.set_gid(name)
        known = {key: value for key, value in data.items() if isinstance(value, str) or math.isfinite(value)}
        values = {f"data-{key.replace('_', '-')}": _spelled(value) for key, value in known.items()}
        tips = {"data-tip": clean(tip)} if tip else {}
        self._marks[name] = {"class": kind, **values, **tips}

    def strip(self, x: float, tip: str) -> None:
        """Let a reader point at the place `x` of the horizontal axis."""
        self._strips.append((x, {"class": "strip", "data-tip": clean(tip)}))

    def legend(self, handles: Sequence[Artist]) -> None:
        """A legend under the figure."""
        letters = [len(str(handle.get_label())) for handle in handles]
        columns = 3 if len(handles) == 3 and sum(letters) <= _LEGEND_LETTERS else 2
        columns = 1 if max(letters) > _COLUMN_LETTERS else columns
        self.figure.legend(handles=list(handles), loc="outside lower left", ncols=columns)

    def settle(self) -> None:
        """Fix the layout, so that positions on the sheet can be queried; a second call does nothing."""
        from matplotlib.layout_engine import ConstrainedLayoutEngine

        engine = self.figure.get_layout_engine()
        if isinstance(engine, ConstrainedLayoutEngine):
            with _without_glyph_warnings():
                engine.execute(self.figure)
            self.figure.set_layout_engine("none")

    def svg(self, label: str) -> str:
        """The finished figure.

        Args:
            label: What it shows, in a sentence, for readers who cannot see it.
        """
        from matplotlib.backends.backend_svg import FigureCanvasSVG

        stream = io.BytesIO()
        self.settle()
        surface: Any = FigureCanvasSVG(self.figure)  # `savefig` would draw everything twice
        with _without_glyph_warnings():
            surface.print_svg(stream, metadata=_NO_METADATA)
        return themed(stream.getvalue().decode(), self.name, clean(label), self._marks, self._placed())

    def _placed(self) -> list[Strip]:
        """The strips in the figure's own coordinates, each reaching halfway to its neighbours."""
        strips = _evenly(sorted(self._strips, key=lambda strip: strip[0]), MOST_STRIPS)
        box = self.axes.get_window_extent()
        top = self.figure.bbox.height - box.y1
        centres = [float(self.axes.transData.transform((x, 0))[0]) for x, _ in strips]
        middles = [(first + second) / 2 for first, second in pairwise(centres)]
        edges = [box.x0, *middles, box.x1]
        return [
            Strip(left, top, max(0.0, right - left), box.height, attributes)
            for (left, right), (_, attributes) in zip(pairwise(edges), strips, strict=False)
        ]


@contextmanager
def sheet(name: str, height: float, title: str) -> Iterator[Drawing]:
    """A drawing under this package's settings alone; the user's matplotlib settings have no effect."""
    from matplotlib import style

    with style.context(["default", _SETTINGS]):
        yield Drawing(name, height, title)


@contextmanager
def _without_glyph_warnings() -> Iterator[None]:
    """Ignore letters of names that matplotlib's font lacks; the browser's fonts have them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        yield


def key_line(label: str, role: str, **style: Any) -> Any:
    """A legend entry: a line, a marker, or both."""
    from matplotlib.lines import Line2D

    return Line2D([], [], label=label, color=light(role), markeredgecolor=light("paper"), **style)


def key_area(label: str, role: str) -> Any:
    """A legend entry: an area."""
    from matplotlib.patches import Patch

    return Patch(label=label, color=light(role), linewidth=0)


def _spelled(value: float | str) -> str:
    return clean(value) if isinstance(value, str) else repr(float(value))


def _evenly(items: list[Any], most: int) -> list[Any]:
    """At most `most` of the items, evenly spaced, including the first and the last."""
    if len(items) <= most:
        return items
    return [items[round(place * (len(items) - 1) / (most - 1))] for place in range(most)]


def label_ticks(axis: Axis, signed: bool = False) -> None:
    """Label a linear axis with as many digits as its ticks need, with signs where they mean something."""

    def words(value: float, _: float) -> str:
        return tick_words(value, axis.get_majorticklocs().tolist(), signed)

    axis.set_major_formatter(words)


def tick_words(value: float, ticks: Sequence[float], signed: bool = False) -> str:
    """A tick's label, with enough digits to distinguish all ticks."""
    largest = max(map(abs, ticks))
    if abs(value) <= _ROUNDING * largest:
        return "0"
    if not 1e-6 <= largest < 1e7:
        shown = short(value)
    else:
        exact = (places for places in range(10) if all(_is_exact(tick, places, largest) for tick in ticks))
        shown = Digits(next(exact, 10)).plain(value)
    return f"+{shown}" if signed and value > 0 else shown


def _is_exact(tick: float, places: int, largest: float) -> bool:
    return abs(round(tick, places) - tick) <= _ROUNDING * largest


def finite(values: Sequence[float]) -> list[float]:
    """The finite values."""
    return [value for value in values if math.isfinite(value)]
