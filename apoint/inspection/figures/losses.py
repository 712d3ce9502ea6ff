"""The losses of all short training runs, each with its name at the end of its line."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from apoint.inspection.figures.lines import HEIGHT, STYLES, End, is_wide, name_ends, set_limits
from apoint.report.figures.canvas import Drawing, sheet
from apoint.report.palette import light
from apoint.report.thinning import thin
from apoint.report.words import short


def losses(curves: Mapping[str, Sequence[float]], name: str = "losses") -> str | None:
    """The loss at each step of each run, as SVG; None if there is no finite loss.

    Args:
        curves: The losses by the name of the run.
        name: A name that is unique on the page.
    """
    values = [value for line in curves.values() for value in line if math.isfinite(value)]
    if not values:
        return None
    logarithmic = is_wide(values)
    title = "loss of each step's batch, lower is better" + (", log scale" if logarithmic else "")
    with sheet(name, HEIGHT, title) as drawing:
        set_limits(drawing, values, logarithmic)
        last = max(len(line) for line in curves.values()) - 1
        drawing.axes.set_xlim(0, max(last, 1))
        drawing.axes.set_xlabel("step")
        found = [_draw(drawing, place, title, line) for place, (title, line) in enumerate(curves.items())]
        name_ends(drawing, [end for end in found if end is not None])
        _tell(drawing, curves, last)
        return drawing.svg(_label(curves))


def _draw(drawing: Drawing, place: int, title: str, line: Sequence[float]) -> End | None:
    """Draw a curve, a cross where it stops being finite, and a thin line from its end to its name."""
    role, dashes, _ = STYLES[place % len(STYLES)]
    values = np.array([value if math.isfinite(value) else np.nan for value in line], dtype=np.float64)
    sound = np.flatnonzero(~np.isnan(values))
    if not len(sound):
        return None
    x, (drawn,) = thin(np.arange(len(values), dtype=np.float64), values)
    (path,) = drawing.axes.plot(
        x, drawn, color=light(role), linestyle=dashes, linewidth=2.2 if place == 0 else 1.6, zorder=9 - place,
        marker="o" if len(sound) == 1 else None,
    )  # fmt: skip
    end = int(sound[-1])
    drawing.mark(path, "loss", title=title, points=str(len(sound)), last=float(values[end]))
    if end < len(values) - 1:
        drawing.axes.plot([end], [values[end]], marker="x", markersize=8, markeredgewidth=2.2,
                          color=light(role), zorder=10, clip_on=False)  # fmt: skip
    drawing.axes.hlines(values[end], end, drawing.axes.get_xlim()[1], color=light("edge"), linewidth=0.8,
                        linestyle=(0, (1, 3)), zorder=1)  # fmt: skip
    return End(title, role, float(end), float(values[end]))


def _tell(drawing: Drawing, curves: Mapping[str, Sequence[float]], last: int) -> None:
    for step in range(last + 1):
        lines = [f"{title}: {short(line[step], 4)}" for title, line in curves.items() if step < len(line)]
        drawing.strip(step, "\n".join([f"Step {step}", *lines]))


def _label(curves: Mapping[str, Sequence[float]]) -> str:
    ends = ", ".join(f"{title} ends at {short(line[-1], 4)}" for title, line in curves.items() if line)
    return f"Loss along the short trainings: {ends}. Arrow keys step along training."
