"""Pictures as plain values, stored in records and drawn from them: panels of series and diagrams of boxes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from numpy.typing import NDArray

Values = Sequence[float] | NDArray[Any]  # what an author may give; stored as a list of floats
Style = Literal["line", "dashed", "points", "bars", "area", "steps", "arrow"]
Shape = Literal["box", "circle", "dot", "text", "frame"]
Line = Literal["arrow", "line", "dashed"]


@dataclass(frozen=True)
class Series:
    """One line, set of points, row of bars or area of a panel.

    Attributes:
        label: Its name; empty if it belongs to another series.
        x: Positions on the x axis.
        y: Values on the y axis; NaN leaves a gap.
        low: The lower end of each value's uncertainty, if there is one.
        high: The upper end.
        style: How it is drawn. An area is the polygon through its points; an arrow is a line with a head
            at its end, or at the end of each part if gaps divide it.
    """

    label: str
    x: Values
    y: Values
    low: Values | None = None
    high: Values | None = None
    style: Style = "line"

    def __post_init__(self) -> None:
        for name in ("x", "y", "low", "high"):
            values = getattr(self, name)
            if values is not None:
                object.__setattr__(self, name, [float(value) for value in values])
        assert len(self.x) == len(self.y), f"{self.label}: {len(self.x)} places and {len(self.y)} heights"


@dataclass(frozen=True)
class Field:
    """A function of two variables on a grid, drawn as a map with level lines.

    Attributes:
        x: Positions of the columns.
        y: Positions of the rows.
        z: Values by row and column.
        label: What the value is, with its unit.
    """

    x: Sequence[float]
    y: Sequence[float]
    z: Sequence[Sequence[float]]
    label: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "x", [float(value) for value in self.x])
        object.__setattr__(self, "y", [float(value) for value in self.y])
        object.__setattr__(self, "z", [[float(value) for value in row] for row in self.z])


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Attributes:
        title: What it shows.
        x: The label of the x axis, with its unit.
        y: The label of the y axis, with its unit.
        series: What is drawn.
        x_log: Whether the x axis is logarithmic.
        y_log: Whether the y axis is logarithmic.
        equal: Whether a unit has the same length on both axes.
        field: A map under the series.
        x_names: Names at 0, 1, 2 and so on of the x axis, if those are not numbers.
    """

    title: str
    x: str
    y: str
    series: Sequence[Series] = ()
    x_log: bool = False
    y_log: bool = False
    equal: bool = False
    field: Field | None = None
    x_names: Sequence[str] = ()


@dataclass(frozen=True)
class Box:
    """One box of a diagram.

    Attributes:
        name: How arrows refer to it; unique in the diagram.
        x: The column of its centre, counted from the left; fractions are fine.
        y: The row of its centre, counted from the bottom.
        text: Its text, one line after the other; the name if not given.
        shape: A `box`, a `circle`, a `dot` where lines branch, `text` without an outline, or a dashed
            `frame` around other boxes with its text at the top.
        width: In columns; 0 for as wide as the text.
        height: In rows; 0 for as high as the text.
        colour: 0 for grey, 1 to 7 for the colours of series.
    """

    name: str
    x: float
    y: float
    text: str | None = None
    shape: Shape = "box"
    width: float = 0.0
    height: float = 0.0
    colour: int = 0


@dataclass(frozen=True)
class Arrow:
    """One arrow of a diagram.

    Attributes:
        start: The name of the box it leaves.
        end: The name of the box it points to.
        text: The text next to it.
        via: Corners along its way, as columns and rows.
        style: With a head (`arrow`), without (`line`), or with one and `dashed`.
        colour: 0 for grey, 1 to 7 for the colours of series.
    """

    start: str
    end: str
    text: str = ""
    via: Sequence[tuple[float, float]] = ()
    style: Line = "arrow"
    colour: int = 0


@dataclass(frozen=True)
class Diagram:
    """Boxes and arrows, in place of a panel.

    Columns are as wide as the page allows, rows have a fixed height, and boxes fit their text. Frames are
    drawn first, then arrows, then the other boxes.

    Attributes:
        title: What it shows.
        description: The same in a few sentences, for readers who cannot see it.
        boxes: The boxes, with unique names.
        arrows: The arrows between boxes.
    """

    title: str
    description: str
    boxes: Sequence[Box]
    arrows: Sequence[Arrow] = ()

    def __post_init__(self) -> None:
        names = [box.name for box in self.boxes]
        assert len(set(names)) == len(names), f"{self.title}: two boxes have the same name"
        for arrow in self.arrows:
            missing = {arrow.start, arrow.end} - set(names)
            assert not missing, f"{self.title}: an arrow to a box that is not there, {missing}"


@dataclass(frozen=True)
class Picture:
    """A figure of one or more panels.

    Attributes:
        caption: What the figure shows, with the uncertainty that is drawn, in a sentence or two.
        panels: The panels from left to right; may include diagrams.
        figure: The figure of the course that it redraws, such as `notes fig. C.2`; empty if none.
    """

    caption: str
    panels: Sequence[Panel | Diagram] = field(default_factory=tuple)
    figure: str = ""

    def to_plain(self) -> dict[str, Any]:
        """Convert to values that JSON can hold; non-finite numbers become None."""
        plain: dict[str, Any] = _finite(asdict(self))
        return plain

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Picture:
        """Convert back from `to_plain`."""
        panels = [_diagram(panel) if "boxes" in panel else _panel(panel) for panel in plain["panels"]]
        return cls(plain["caption"], panels, plain["figure"])


def _panel(plain: dict[str, Any]) -> Panel:
    series = [Series(**{key: _numbers(value) for key, value in one.items()}) for one in plain["series"]]
    field_ = plain["field"]
    return Panel(
        **{
            **plain,
            "series": series,
            "field": Field(**{**field_, "z": [_numbers(row) for row in field_["z"]]}) if field_ else None,
        }
    )


def _diagram(plain: dict[str, Any]) -> Diagram:
    boxes = [Box(**box) for box in plain["boxes"]]
    arrows = [Arrow(**{**arrow, "via": [(x, y) for x, y in arrow["via"]]}) for arrow in plain["arrows"]]
    return Diagram(plain["title"], plain["description"], boxes, arrows)


def _numbers(value: Any) -> Any:
    return [math.nan if one is None else one for one in value] if isinstance(value, list) else value


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
