"""What happens through depth: the signal, the gradient that flows back, and the units that are lost."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from apoint.inspection.figures.lines import HEIGHT, STYLES, End, name_ends, set_limits
from apoint.inspection.values import Ends, Operation
from apoint.report.figures.canvas import Drawing, key_line, sheet
from apoint.report.palette import light
from apoint.report.words import percent, short

Measure = Callable[[Operation], float | None]
MOST_NAMED = 4  # layers that are named on hovering over their depth
_LOW_HEIGHT = 240
_MOST_STEMS = 40  # above this, marks are small and have no stems
_APART = 0.1  # of a layer, by which each of two marks of the same depth is moved


def layers_of(rows: Sequence[Operation]) -> list[Operation]:
    """The operations with weights that mix units; all operations if there are none."""
    return [row for row in rows if row.kind == "linear"] or list(rows)


def moments(rows: Sequence[Operation], name: str = "moments") -> str | None:
    """The size of the signal after each layer, and how far examples differ there, as SVG.

    Args:
        rows: The layers.
        name: A name that is unique on the page.
    """
    series: dict[str, Measure] = {
        "second moment": lambda row: row.second_moment,
        "between examples": lambda row: row.spread,
    }
    return _over_depth(rows, series, "signal after each layer (squared), log scale", "Signal", name)


def gradients(rows: Sequence[Operation], name: str = "gradients") -> str | None:
    """The norm of the gradient that arrives at each layer's output, as SVG.

    Args:
        rows: The layers.
        name: A name that is unique on the page.
    """
    title = "norm of the gradient at each layer's output, log scale"
    return _over_depth(rows, {"gradient norm": lambda row: row.gradient_norm}, title, "Gradient norm", name)


def is_drawable(value: float | None) -> bool:
    """Whether a value has a place on a logarithmic axis."""
    return value is not None and math.isfinite(value) and value > 0


def _over_depth(
    rows: Sequence[Operation], series: Mapping[str, Measure], title: str, what: str, name: str
) -> str | None:
    found = {
        key: [(row.depth, float(value)) for row in rows if is_drawable(value := measure(row)) and value]
        for key, measure in series.items()
    }
    values = [value for points in found.values() for _, value in points]
    if not values:
        return None
    with sheet(name, HEIGHT, title) as drawing:
        set_limits(drawing, values, logarithmic=True)
        _depth_axis(drawing, [row.depth for row in rows])
        drawn = [(key, place, points) for place, (key, points) in enumerate(found.items()) if points]
        depths = sorted({row.depth for row in rows})
        name_ends(drawing, [_draw(drawing, key, place, points, depths) for key, place, points in drawn])
        _tell(drawing, rows, series)
        return drawing.svg(f"{what} against depth, {len(rows)} layers. Arrow keys step through depth.")


def _depth_axis(drawing: Drawing, depths: Sequence[int]) -> None:
    from matplotlib.ticker import MaxNLocator

    air = max(0.4, 0.03 * (max(depths) - min(depths)))
    drawing.axes.set_xlim(min(depths) - air, max(depths) + air)
    drawing.axes.xaxis.set_major_locator(MaxNLocator(7, integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))
    drawing.axes.set_xlabel("depth (layers from the input)")


def _draw(
    drawing: Drawing, key: str, place: int, points: Sequence[tuple[int, float]], depths: Sequence[int]
) -> End:
    """Mark every layer; draw a line through the geometric mean at each depth, broken where there is none."""
    role, dashes, shape = STYLES[place]
    (dots,) = drawing.axes.plot(
        [depth for depth, _ in points], [value for _, value in points], linestyle="none", marker=shape,
        markersize=6 if len(points) <= _MOST_STEMS else 3.5, color=light(role),
        markeredgecolor=light("paper"), markeredgewidth=0.6, zorder=5,
    )  # fmt: skip
    drawing.mark(dots, "layers", series=key, points=str(len(points)))
    by_depth: dict[int, list[float]] = {}
    for depth, value in points:
        by_depth.setdefault(depth, []).append(math.log(value))
    means = {depth: math.exp(math.fsum(logs) / len(logs)) for depth, logs in sorted(by_depth.items())}
    drawing.axes.plot(
        depths, [means.get(depth, math.nan) for depth in depths], color=light(role), linestyle=dashes,
        linewidth=1.8, zorder=4,
    )  # fmt: skip
    return End(key, role, float(max(means)), means[max(means)])


def _tell(drawing: Drawing, rows: Sequence[Operation], series: Mapping[str, Measure]) -> None:
    for depth in sorted({row.depth for row in rows}):
        here = [row for row in rows if row.depth == depth]
        lines = [
            f"{row.name}: " + ", ".join(f"{key} {_told(measure(row))}" for key, measure in series.items())
            for row in here[:MOST_NAMED]
        ]
        lines += [f"and {len(here) - MOST_NAMED} more"] if len(here) > MOST_NAMED else []
        drawing.strip(depth, "\n".join([f"Depth {depth}", *lines]))


def _told(value: float | None) -> str:
    return "none" if value is None else short(value)


def shares(
    rows: Sequence[Operation], dead: Mapping[str, float], limits: Mapping[str, Ends], name: str = "shares"
) -> str | None:
    """The shares of dead units and of saturated inputs of each activation, as SVG.

    Args:
        rows: The activations, in order.
        dead: The share of dead units by the activation's name.
        limits: The healthy ranges of `dead` and `saturated`.
        name: A name that is unique on the page.
    """
    found = {
        "dead": [(row, dead[row.name]) for row in rows if math.isfinite(dead.get(row.name, math.nan))],
        "saturated": [(row, row.saturation) for row in rows if row.saturation is not None],
    }
    known = {key: points for key, points in found.items() if points}
    if not known:
        return None
    title = "share of units (dead) or of inputs (saturated), by activation"
    with sheet(name, _LOW_HEIGHT, title) as drawing:
        drawing.axes.set_ylim(-0.03, 1.03)
        drawing.axes.yaxis.set_major_formatter(lambda value, _: percent(value))
        _depth_axis(drawing, [row.depth for row in rows])
        apart = _APART if len(known) == 2 and len(rows) <= _MOST_STEMS else 0.0
        names = [
            _draw_shares(drawing, key, points, limits[key], apart if key == "saturated" else -apart)
            for key, points in known.items()
        ]
        drawing.legend(names)
        _tell_shares(drawing, rows, dead)
        return drawing.svg(f"Shares of lost units of {len(rows)} activations against depth.")


def _draw_shares(
    drawing: Drawing, key: str, points: Sequence[tuple[Operation, float]], healthy: Ends, shift: float
) -> Any:
    """Mark each activation, on a stem if there are few; draw the healthy maximum as a line."""
    role, _, shape = STYLES[0 if key == "saturated" else 1]
    depths, values = [row.depth + shift for row, _ in points], [value for _, value in points]
    if len(points) <= _MOST_STEMS:
        drawing.axes.vlines(depths, 0, values, color=light(role), linewidth=1.4, zorder=3)
    (dots,) = drawing.axes.plot(
        depths, values, linestyle="none", marker=shape, markersize=6.5 if len(points) <= _MOST_STEMS else 4,
        color=light(role), markeredgecolor=light("paper"), markeredgewidth=0.6, zorder=5,
    )  # fmt: skip
    drawing.mark(dots, "shares", series=key, points=str(len(points)))
    most = healthy[1]
    if most is not None:
        drawing.axes.axhline(most, color=light(role), linewidth=1.1, linestyle=(0, (6, 3)), zorder=2)
    limit = f", healthy ≤ {percent(most)}" if most is not None else ""
    return key_line(f"{key}{limit}", role, linestyle="none", marker=shape, markersize=6.5)


def _tell_shares(drawing: Drawing, rows: Sequence[Operation], dead: Mapping[str, float]) -> None:
    for depth in sorted({row.depth for row in rows}):
        here = [row for row in rows if row.depth == depth]
        lines = []
        for row in here[:MOST_NAMED]:
            parts = [f"dead {percent(dead[row.name])}"] if row.name in dead else []
            parts += [f"saturated {percent(row.saturation)}"] if row.saturation is not None else []
            lines.append(f"{row.name}: {', '.join([*parts, f'zeros {percent(row.zeros)}'])}")
        lines += [f"and {len(here) - MOST_NAMED} more"] if len(here) > MOST_NAMED else []
        drawing.strip(depth, "\n".join([f"Depth {depth}", *lines]))
