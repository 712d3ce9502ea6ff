"""Draw pictures: each panel as SVG for pages, a whole picture as SVG and PNG files.

Series differ by marker and dash as well as by colour. Legends are below the axes, where there are no data.
"""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from apoint.book import prose
from apoint.book.diagrams import draw_diagram
from apoint.book.folders import make_folder
from apoint.book.picture import Diagram, Field, Panel, Picture, Series, Values
from apoint.report.figures.canvas import NORMAL, SMALL, WIDTH, Drawing, label_ticks, sheet
from apoint.report.markup import element, raw
from apoint.report.palette import SERIES_ROLES, light
from apoint.report.panels import padded
from apoint.store.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HEIGHT = 270.0  # of the axes with their labels
DOTS_PER_INCH = 200  # of the PNG
_GAP = 24.0  # between panels in a file
_TITLE_LETTERS, _LABEL_LETTERS = 50, 38
_LEGEND_ROW = 18.0
_NAME_LETTERS, _NAME_ANGLE, _LETTER = 26, 38.0, 6.3  # of names on the x axis, and the width of a letter
_MARKERS = "os^Dv<P"
_LARGER = {"^": 1.35, "v": 1.35, "<": 1.35, "P": 1.2, "D": 0.95}  # else these look smaller than a circle
_DASHES: tuple[Any, ...] = ((0, (5, 2)), (0, (1.3, 1.6)), (0, (7, 2, 1.5, 2)), (0, (3, 1.2)))
_MOST_MARKERS = 9  # along a line
_LEVELS = 9
_RAISED = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


Limits = tuple[tuple[float, float], tuple[float, float]]


@dataclass(frozen=True)
class Look:
    """What distinguishes a series from the others.

    Attributes:
        colour: Its colour on white paper.
        marker: The marker of its points.
        dash: The dash pattern of its line, if that is dashed.
    """

    colour: str
    marker: str
    dash: Any


def panel_svg(panel: Panel | Diagram, name: str) -> str:
    """Draw one panel as SVG for a page, with its colours as variables.

    Args:
        panel: What to draw.
        name: A word that is unique on the page.
    """
    with _drawn(panel, name) as drawing:
        return drawing.svg(description(panel))


def description(panel: Panel | Diagram) -> str:
    """Describe a panel in a sentence, for readers who cannot see it."""
    if isinstance(panel, Diagram):
        return f"{prose.plain(panel.title)}. {prose.plain(panel.description)}"
    names = [prose.plain(series.label) for series in panel.series if series.label]
    shown = f": {', '.join(names)}" if names else ""
    return f"{prose.plain(panel.title)}. {_axis_words(panel.y)} against {_axis_words(panel.x)}{shown}."


def picture_svg(picture: Picture, name: str = "picture") -> str:
    """Draw a whole picture as an SVG file: panels from left to right on white paper."""
    drawn = [panel_svg(panel, f"{name}{place}") for place, panel in enumerate(picture.panels)]
    heights = [_viewed_height(svg) for svg in drawn]
    width, height = len(drawn) * (WIDTH + _GAP) + _GAP, max(heights) + 2 * _GAP
    paper = element("rect", width="100%", height="100%", fill=light("paper"))
    placed = [
        svg.replace(
            "<svg ",
            f'<svg x="{_GAP + place * (WIDTH + _GAP):g}" y="{_GAP:g}" width="{WIDTH}" height="{tall:g}" ',
            1,
        )
        for place, (svg, tall) in enumerate(zip(drawn, heights, strict=True))
    ]
    title = element("title", prose.plain(picture.caption))
    return element(
        "svg",
        title,
        paper,
        raw("".join(placed)),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width:g} {height:g}",
        width=f"{width:g}",
        height=f"{height:g}",
    )


def picture_png(picture: Picture) -> bytes:
    """Draw a whole picture as a PNG file: panels from left to right on white paper."""
    from PIL import Image

    panels = [_png(panel) for panel in picture.panels]
    gap = round(_GAP * DOTS_PER_INCH / 72)
    width = sum(one.width + gap for one in panels) + gap
    height = max(one.height for one in panels) + 2 * gap
    whole, left = Image.new("RGB", (width, height), light("paper")), gap
    for one in panels:
        whole.paste(one, (left, gap))
        left += one.width + gap
    stream = io.BytesIO()
    whole.save(stream, format="png", dpi=(DOTS_PER_INCH, DOTS_PER_INCH))
    return stream.getvalue()


def save(pictures: Sequence[Picture], folder: Path, name: str, force: bool = False) -> list[Path]:
    """Write pictures as SVG and PNG files, and return their paths.

    Args:
        pictures: One or more; from the second on, file names have a number.
        folder: The folder to write to; created if it is missing.
        name: The name of the files, without extension.
        force: Whether to overwrite files that this function did not draw.
    """
    stems = [f"{name}-{place + 1}" if place else name for place in range(len(pictures))]
    make_folder(folder, [f"{stem}{ending}" for stem in stems for ending in (".svg", ".png")], force)
    written = []
    for stem, picture in zip(stems, pictures, strict=True):
        svg, png = folder / f"{stem}.svg", folder / f"{stem}.png"
        write_atomically(svg, f"{picture_svg(picture)}\n")
        png.write_bytes(picture_png(picture))
        written += [svg, png]
    return written


def _viewed_height(svg: str) -> float:
    return float(svg.split('viewBox="0 0 ', 1)[1].split('"', 1)[0].split()[1])


def _png(panel: Panel | Diagram) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    with _drawn(panel, "panel") as drawing:
        drawing.settle()
        stream = io.BytesIO()
        FigureCanvasAgg(drawing.figure)
        drawing.figure.savefig(stream, dpi=DOTS_PER_INCH, format="png", facecolor=light("paper"))
        return Image.open(stream).convert("RGB")


# -- one panel ------------------------------------------------------------------------------------------


@contextmanager
def _drawn(panel: Panel | Diagram, name: str) -> Iterator[Drawing]:
    if isinstance(panel, Diagram):
        with draw_diagram(panel, name) as drawing:
            yield drawing
        return
    title = textwrap.fill(prose.plain(panel.title), _TITLE_LETTERS)
    columns, rows = _legend_shape(panel)
    lines = title.count("\n") + 1
    height = HEIGHT + 18 * lines + _LEGEND_ROW * rows + (62 if panel.field else 0)
    if panel.equal:
        height += 60
    if panel.x_names:
        longest = min(max(len(prose.plain(name)) for name in panel.x_names), _NAME_LETTERS)
        height += longest * _LETTER * math.sin(math.radians(_NAME_ANGLE))
    with sheet(name, height, title) as drawing:
        drawing.figure.suptitle(title, x=0.002, ha="left", fontsize=NORMAL, color=light("ink"))
        _label(drawing, panel)
        if panel.field:
            _draw_field(drawing, panel.field)
        limits = _limits(panel)
        looks = _looks(panel.series, first=1 if panel.field else 0)  # the map has the first colour
        _draw_bars(drawing, panel, looks, limits)
        for series, look in zip(panel.series, looks, strict=True):
            _draw(drawing, panel, series, look, limits)
        _fit(drawing.axes, panel, limits)
        if rows:
            _put_legend(drawing, panel, looks, columns)
        yield drawing


def _label(drawing: Drawing, panel: Panel) -> None:
    axes = drawing.axes
    axes.set_xlabel("\n".join(textwrap.wrap(_axis_words(panel.x), _LABEL_LETTERS + 14)))
    axes.set_ylabel("\n".join(textwrap.wrap(_axis_words(panel.y), _LABEL_LETTERS - 12)))
    if panel.equal:
        axes.set_aspect("equal", adjustable="box")


def _axis_words(label: str) -> str:
    """The label without the note "(no unit)", which a pure number does not need."""
    return prose.plain(label).removesuffix(" (no unit)")


def _looks(series: Sequence[Series], first: int = 0) -> list[Look]:
    """A look for each series; one without a name has the look of the one before it."""
    looks: list[Look] = []
    place = first - 1
    for one in series:
        if one.label or not looks:
            place += 1
        colour = light(SERIES_ROLES[place % len(SERIES_ROLES)])
        looks.append(Look(colour, _MARKERS[place % len(_MARKERS)], _DASHES[place % len(_DASHES)]))
    return looks


def _draw(
    drawing: Drawing,
    panel: Panel,
    series: Series,
    look: Look,
    limits: Limits,
) -> None:
    x, y = _shown(series.x, panel.x_log), _shown(series.y, panel.y_log)
    axes, floor = drawing.axes, limits[1][0] if panel.y_log else -math.inf
    tip = prose.plain(series.label)
    if series.style == "bars":
        return
    if series.style == "area":
        (area,) = axes.fill(x, y, color=look.colour, alpha=0.16, linewidth=0)
        axes.plot(np.append(x, x[:1]), np.append(y, y[:1]), color=look.colour, linewidth=1.4)
        drawing.mark(area, "mark series", tip)
        return
    if series.low is not None and series.high is not None:
        _draw_spread(drawing, series, look, x, y, np.maximum(series.low, floor), np.asarray(series.high))
    (line,) = axes.plot(x, y, **_line_style(panel, series, look))
    drawing.mark(line, "mark series", tip)
    if series.style == "arrow":
        _draw_heads(axes, x, y, look.colour)


def _draw_heads(axes: Axes, x: np.ndarray, y: np.ndarray, colour: str) -> None:
    """Draw an arrow head at the end of a line, and before every gap in it."""
    known = np.isfinite(x + y)
    ends = [
        place
        for place in range(1, len(x))
        if known[place - 1] and known[place] and not known[place + 1 : place + 2].any()
    ]
    for end in ends:
        way = {
            "arrowstyle": "-|>",
            "color": colour,
            "linewidth": 2.0,
            "mutation_scale": 13,
            "shrinkA": 0,
            "shrinkB": 0,
        }
        axes.annotate("", (x[end], y[end]), (x[end - 1], y[end - 1]), arrowprops=way, zorder=4)


def _line_style(panel: Panel, series: Series, look: Look) -> dict[str, Any]:
    style: dict[str, Any] = {
        "color": look.colour,
        "linewidth": 2.0,
        "markersize": 5.5 * _LARGER.get(look.marker, 1.0),
        "markeredgecolor": light("paper"),
        "markeredgewidth": 0.8,
        "zorder": 3,
    }
    if series.style == "points":
        return {**style, "linestyle": "none", "marker": look.marker, "zorder": 4} | _size(panel, series, look)
    if series.style == "dashed":
        return {**style, "linestyle": look.dash}
    if series.style == "steps":
        style["drawstyle"] = "steps-post"
    lines = [one for one in panel.series if one.style in ("line", "steps") and one.label]
    if series.label and len(lines) > 1:
        every = max(1, math.ceil(len(series.x) / _MOST_MARKERS))
        style |= {"marker": look.marker, "markevery": every}
    return style


def _size(panel: Panel, series: Series, look: Look) -> dict[str, Any]:
    """Marker size: smaller for later series, so that points at one place all show, and small for a cloud."""
    larger = _LARGER.get(look.marker, 1.0)
    if len(series.x) > 80:
        return {"markersize": 3.2 * larger, "markeredgewidth": 0.3}
    named = [one for one in panel.series if one.style == "points" and one.label]
    before = named.index(series) if series in named else 0
    size = max(4.5, 5.5 + 1.5 * (len(named) - 1) - 2 * before) if len(named) > 1 else 6.0
    return {"markersize": size * larger}


def _draw_spread(
    drawing: Drawing,
    series: Series,
    look: Look,
    x: np.ndarray,
    y: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
) -> None:
    if series.style == "points":
        _whiskers(drawing, np.where(np.isfinite(y), x, np.nan), low, high, look.colour)
    else:
        step: Literal["post"] | None = "post" if series.style == "steps" else None
        band = drawing.axes.fill_between(
            x, low, high, color=look.colour, alpha=0.17, linewidth=0, step=step, zorder=1
        )
        drawing.mark(band, "spread")


def _whiskers(drawing: Drawing, x: np.ndarray, low: np.ndarray, high: np.ndarray, colour: str) -> None:
    keep = np.isfinite(x + low + high)
    axes = drawing.axes
    lines = axes.vlines(x[keep], low[keep], high[keep], color=colour, linewidth=1.4, zorder=3)
    drawing.mark(lines, "spread")
    for ends in (low, high):
        axes.plot(
            x[keep], ends[keep], linestyle="none", marker="_", markersize=6, color=colour, markeredgewidth=1.2
        )


def _draw_bars(drawing: Drawing, panel: Panel, looks: Sequence[Look], limits: Limits) -> None:
    """Draw the bars of several series side by side, in the order of the legend."""
    rows = [(one, look) for one, look in zip(panel.series, looks, strict=True) if one.style == "bars"]
    foot = limits[1][0] if panel.y_log else 0.0
    for place, (series, look) in enumerate(rows):
        x, y = _shown(series.x, panel.x_log), _shown(series.y, panel.y_log)
        room = 0.4 * x if panel.x_log else np.full(len(x), 0.8 * _spacing(panel))
        widths = room / len(rows)
        centres = x + (place - (len(rows) - 1) / 2) * widths
        for centre, height, width in zip(centres, y, widths, strict=True):
            if math.isfinite(centre + height):
                (bar,) = drawing.axes.bar(
                    centre, height - foot, width * 0.94, foot, color=look.colour, edgecolor=look.colour,
                    alpha=_strength(place), linewidth=1.0,
                )  # fmt: skip
                drawing.mark(bar, "mark series", f"{prose.plain(series.label)} {height:.4g}".strip())
        if series.low is not None and series.high is not None:
            ends = np.maximum(series.low, foot) if panel.y_log else np.asarray(series.low)
            _whiskers(drawing, centres, ends, np.asarray(series.high), light("ink"))


def _strength(place: int) -> float:
    """The opacity of a row of bars; later rows are fainter."""
    return max(0.35, 0.85 - 0.2 * place)


def _spacing(panel: Panel) -> float:
    """The smallest distance between bars."""
    places = sorted({x for series in panel.series if series.style == "bars" for x in series.x})
    return min((b - a for a, b in pairwise(places)), default=1.0)


def _draw_field(drawing: Drawing, field: Field) -> None:
    """Draw a map in steps of one colour, stronger for larger values, with lines between them and a scale."""
    from matplotlib.colors import to_rgb
    from matplotlib.ticker import MaxNLocator

    heights = np.ma.masked_invalid(np.asarray(field.z, dtype=float))
    low, high = float(heights.min()), float(heights.max())
    wide = low > 0 and high / low > 300
    if wide:
        heights, low, high = np.ma.log10(heights), math.log10(low), math.log10(high)
    if not high > low:
        low, high = low - 0.5, high + 0.5
    levels = MaxNLocator(_LEVELS).tick_values(low, high)
    colour = to_rgb(light("series-1"))
    strengths = np.linspace(0.0, 0.55, len(levels) - 1)
    axes = drawing.axes
    axes.grid(False)
    bands = axes.contourf(field.x, field.y, heights, levels, colors=[(*colour, one) for one in strengths])
    axes.contour(field.x, field.y, heights, levels, colors=light("edge"), linewidths=0.8, linestyles="solid")
    bar = drawing.figure.colorbar(bands, ax=axes, location="bottom", aspect=32, pad=0.02, shrink=0.96)
    bar.set_label(prose.plain(field.label), color=light("soft"), fontsize=SMALL)
    bar.outline.set_edgecolor(light("edge"))
    bar.ax.grid(False)
    if wide:
        bar.ax.xaxis.set_major_formatter(lambda value, _: power_words(10**value))
    else:
        label_ticks(bar.ax.xaxis)


# -- axes -----------------------------------------------------------------------------------------------


def _shown(values: Values, logarithmic: bool) -> np.ndarray:
    """Values as they can be drawn; a value that has no place on the axis leaves a gap."""
    array = np.asarray(values, dtype=float)
    sound = np.isfinite(array) & (array > 0 if logarithmic else True)
    return np.where(sound, array, np.nan)


def _limits(panel: Panel) -> Limits:
    x = [_shown(series.x, panel.x_log) for series in panel.series]
    y = [_shown(series.y, panel.y_log) for series in panel.series]
    for series in panel.series:
        y += [_shown(end, panel.y_log) for end in (series.low, series.high) if end is not None]
        if series.style == "bars":
            own = _shown(series.x, panel.x_log)
            x += [own * 1.25**side if panel.x_log else own + side * _spacing(panel) / 2 for side in (-1, 1)]
            y.append(np.zeros(0 if panel.y_log else 1))
    if panel.field:
        return (min(panel.field.x), max(panel.field.x)), (min(panel.field.y), max(panel.field.y))
    return _ends(x, panel.x_log, 0.03), _ends(y, panel.y_log, 0.06)


def _ends(found: list[np.ndarray], logarithmic: bool, share: float) -> tuple[float, float]:
    values = np.concatenate(found) if found else np.zeros(0)
    values = values[np.isfinite(values)]
    if not len(values):
        return (0.1, 10.0) if logarithmic else (0.0, 1.0)
    if not logarithmic:
        low, high = padded(float(values.min()), float(values.max()), share)
        return (0.0 if values.min() == 0 and share > 0.05 else low), high
    low, high = padded(math.log10(values.min()), math.log10(values.max()), share)
    if high - low < 0.3:  # a range below a factor of two would exaggerate small differences
        low, high = (low + high) / 2 - 0.15, (low + high) / 2 + 0.15
    return 10 ** max(low, -305), 10 ** min(high, 305)


def _fit(axes: Axes, panel: Panel, limits: Limits) -> None:
    for axis, logarithmic, ends in (
        (axes.xaxis, panel.x_log, limits[0]),
        (axes.yaxis, panel.y_log, limits[1]),
    ):
        if logarithmic:
            _set_log(axes, axis, ends)
        else:
            _set_linear(axis)
    if panel.x_names:
        _set_names(axes, panel.x_names)
    axes.set_xlim(*limits[0])
    axes.set_ylim(*limits[1])
    axes.tick_params(axis="x", length=3, pad=6)  # else labels of both axes meet in the corner of a map


def _set_linear(axis: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    label_ticks(axis)


def _set_names(axes: Axes, names: Sequence[str]) -> None:
    """Label ticks with words in place of numbers, slanted, each ending under its tick."""
    shown = [textwrap.shorten(prose.plain(name), _NAME_LETTERS, placeholder=" …") for name in names]
    axes.set_xticks(range(len(shown)), shown, rotation=_NAME_ANGLE, ha="right", rotation_mode="anchor")


def _set_log(axes: Axes, axis: Any, ends: tuple[float, float]) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

    (axes.set_xscale if axis is axes.xaxis else axes.set_yscale)("log")
    decades = math.log10(ends[1] / ends[0])
    subs = (1.0, 2.0, 5.0) if decades < 2.2 else (1.0,)
    axis.set_major_locator(LogLocator(10, subs=subs, numticks=7))
    axis.set_major_formatter(lambda value, _: power_words(value))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


def power_words(value: float) -> str:
    """A number on a logarithmic axis: plain near 1, as a power of ten elsewhere."""
    if not value > 0:
        return "0"
    power = math.floor(math.log10(value) + 1e-9)
    if -3 <= power < 4:
        return f"{value:.4g}"
    digit = value / 10**power if power > -300 else 1.0
    raised = f"10{str(power).translate(_RAISED)}"
    return raised if abs(digit - 1) < 1e-6 else f"{digit:.2g}·{raised}"


# -- legend ---------------------------------------------------------------------------------------------


def _legend_shape(panel: Panel) -> tuple[int, int]:
    """Columns and rows of the legend; no rows if there is nothing to distinguish."""
    names = [prose.plain(series.label) for series in panel.series if series.label]
    if not names or (len(names) == 1 and len(panel.series) == 1):
        return 1, 0
    longest = max(map(len, names))
    columns = min(len(names), 3 if longest <= 13 else 2 if longest <= 24 else 1)
    lines = [len(textwrap.wrap(name, 54)) or 1 for name in names]
    return columns, sum(lines) if columns == 1 else math.ceil(len(names) / columns)


def _put_legend(drawing: Drawing, panel: Panel, looks: Sequence[Look], columns: int) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = []
    bars = 0
    for series, look in zip(panel.series, looks, strict=True):
        if not series.label:
            continue
        label = "\n".join(textwrap.wrap(prose.plain(series.label), 54))
        if series.style in ("bars", "area"):
            strength = _strength(bars) if series.style == "bars" else 0.16
            bars += series.style == "bars"
            handles.append(Patch(label=label, facecolor=look.colour, alpha=strength, edgecolor=look.colour))
        else:
            style = _line_style(panel, series, look)
            style.pop("markevery", None)
            handles.append(Line2D([], [], label=label, **style))
    drawing.figure.legend(handles=handles, loc="outside lower left", ncols=columns)
