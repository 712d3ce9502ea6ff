"""Pictures as plain values: panels of series with labelled axes, kept in records and drawn from them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Style = Literal["line", "dashed", "points", "bars", "area", "steps"]


@dataclass(frozen=True)
class Series:
    """One line, set of points, row of bars or area of a panel.

    Attributes:
        label: Its name; empty for what belongs to another series.
        x: Places on the level axis.
        y: Heights; NaN leaves a gap.
        low: The lower end of the uncertainty of each, if there is one.
        high: The upper end.
        style: How it is drawn; an area is the polygon through its points.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
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
        x: Places of the columns.
        y: Places of the rows.
        z: Heights by row and column.
        label: What the height is, with its unit.
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
        x: The level axis, with its unit.
        y: The upright axis, with its unit.
        series: What is drawn.
        x_log: Whether the level axis is logarithmic.
        y_log: The same of the upright one.
        equal: Whether a unit is equally long on both.
        field: A map under the series.
        x_names: What stands at 0, 1, 2 and so on of the level axis, if those are no numbers.
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
class Picture:
    """A figure of one or more panels.

    Attributes:
        caption: What is seen, with the uncertainty that is drawn, in a sentence or two.
        panels: From left to right.
        figure: The figure of the course that it redraws, such as `notes fig. C.2`; empty if none.
    """

    caption: str
    panels: Sequence[Panel] = field(default_factory=tuple)
    figure: str = ""

    def to_plain(self) -> dict[str, Any]:
        """Values that JSON can hold; what is not finite as None."""
        plain: dict[str, Any] = _finite(asdict(self))
        return plain

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Picture:
        """Back from `to_plain`."""
        return cls(plain["caption"], [_panel(panel) for panel in plain["panels"]], plain["figure"])


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
