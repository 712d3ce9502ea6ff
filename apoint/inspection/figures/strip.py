"""A number against its healthy range: a strip with the range as a band and the number as a diamond.

Shapes and words carry all information; colour only repeats it. The scale is logarithmic if everything on it
is above 0 and spans decades.
"""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass

from apoint.inspection.values import Ends, range_words
from apoint.report.markup import Markup, element
from apoint.report.words import clean, short

WIDTH, HEIGHT = 340, 66
MARGIN = 12  # on both sides, for half a diamond
_LOG_ABOVE = 30.0
_LARGEST = 1e150  # beyond this, differences would no longer be numbers
_LETTER = 6.6  # the usual width of a letter at this size
_MOST_LETTERS = 46
_WORD = 50.0  # the width of the word "healthy"
_TRACK, _LABELS = 34, 61


@dataclass(frozen=True)
class Scale:
    """The positions of numbers on a strip; `place` ranges from 0 to 1."""

    low: float
    high: float
    logarithmic: bool

    @classmethod
    def of(cls, value: float, healthy: Ends) -> Scale:
        """The scale that shows a value, its range, and part of the range's open side."""
        points = [each for each in (value, *healthy) if each is not None and math.isfinite(each)]
        logarithmic = min(points) > 0 and max(points) / min(points) > _LOG_ABOVE
        spots = [_spot(each, logarithmic) for each in points]
        low, high = min(spots), max(spots)
        air = 0.3 * ((high - low) or abs(high) or 1.0)
        if not logarithmic and low >= 0 and low - air < 0:
            return cls(0.0, high + air, False)
        return cls(low - air, high + air, logarithmic)

    def place(self, value: float) -> float:
        """The position of a value, clamped to the strip."""
        if math.isinf(value):
            return 1.0 if value > 0 else 0.0
        share = (_spot(value, self.logarithmic) - self.low) / (self.high - self.low)
        return min(1.0, max(0.0, share))


def _spot(value: float, logarithmic: bool) -> float:
    return math.log10(value) if logarithmic else min(_LARGEST, max(-_LARGEST, value))


def against(value: float, healthy: Ends, unit: str = "", level: str = "warning") -> Markup | None:
    """The strip as a figure; None if there is no healthy range.

    Args:
        value: The number; may be infinite or NaN.
        healthy: The ends of the range; None for an open end.
        unit: The unit of the number.
        level: How severe it is.
    """
    if healthy == (None, None):
        return None
    scale = Scale.of(value, healthy)
    left, right = _band(scale, healthy)
    parts = [
        _track(scale, healthy, left, right),
        _word(value, scale, left, right),
        _end_labels(scale, healthy),
    ]
    if not math.isnan(value):
        parts.append(_diamond(value, scale, unit, level))
    words = f"{short(value)} {unit}".strip()
    label = f"The number is {words}; healthy is {range_words(healthy)}."
    svg = element("svg", parts, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=label, font_size=12)
    return element("figure", svg, element("figcaption", _caption(value, healthy, scale)), class_="against")


def _x(scale: Scale, value: float) -> float:
    return MARGIN + scale.place(value) * (WIDTH - 2 * MARGIN)


def _band(scale: Scale, healthy: Ends) -> tuple[float, float]:
    low, high = healthy
    left = float(MARGIN) if low is None else _x(scale, low)
    right = float(WIDTH - MARGIN) if high is None else _x(scale, high)
    return (left, right) if right - left >= 4 else ((left + right) / 2 - 2, (left + right) / 2 + 2)


def _track(scale: Scale, healthy: Ends, left: float, right: float) -> list[Markup]:
    """The line of all numbers, the healthy band, and a bar at each end that the band has."""
    line = f"M{MARGIN} {_TRACK}H{WIDTH - MARGIN}"
    bars = "".join(f"M{_x(scale, end):.1f} {_TRACK - 12}v24" for end in healthy if end is not None)
    band = element(
        "rect", x=f"{left:.1f}", y=str(_TRACK - 9), width=f"{right - left:.1f}", height="18", class_="band"
    )
    return [element("path", d=line, class_="track"), band, element("path", d=bars, class_="ends")]


def _word(value: float, scale: Scale, left: float, right: float) -> Markup | None:
    """The word in the band, if there is room next to the diamond."""
    if not math.isnan(value) and left - 8 < _x(scale, value) < right + 8:
        x = _x(scale, value)
        left, right = (left, x - 8) if x - left > right - x else (x + 8, right)
    if right - left < _WORD:
        return None
    return element("text", "healthy", x=f"{(left + right) / 2:.1f}", y=str(_TRACK + 4), text_anchor="middle")


def _end_labels(scale: Scale, healthy: Ends) -> list[Markup]:
    """The ends of the range in numbers; one label for both if two would touch."""
    known = [end for end in healthy if end is not None]
    if len(known) == 2:
        room = (_x(scale, known[1]) - _x(scale, known[0])) - _half(short(known[0])) - _half(short(known[1]))
        if room < 8:
            return [_text(range_words(healthy), (_x(scale, known[0]) + _x(scale, known[1])) / 2, _LABELS)]
    return [_text(short(end), _x(scale, end), _LABELS) for end in known]


def _half(words: str) -> float:
    return len(words) * _LETTER / 2


def _text(words: str, x: float, y: float, class_: str = "soft") -> Markup:
    """Words centred at a position, moved if they would leave the drawing, and cut if they are too long."""
    words = textwrap.shorten(clean(words), _MOST_LETTERS, placeholder="…")
    half = _half(words)
    centre = min(WIDTH - half, max(half, x))
    return element("text", words, x=f"{centre:.1f}", y=str(y), text_anchor="middle", class_=class_)


def _diamond(value: float, scale: Scale, unit: str, level: str) -> list[Markup]:
    x = _x(scale, value)
    kind = "number" if level == "note" else "number worse"
    words = f"{short(value)} {unit}".strip()
    shape = element("path", d=f"M{x:.1f} {_TRACK - 8}l7 8l-7 8l-7 -8z", class_=kind)
    return [shape, _text(words, x, 14, "ink")]


def _caption(value: float, healthy: Ends, scale: Scale) -> str:
    words = f"Healthy: {range_words(healthy)}."
    if math.isnan(value):
        words += " The number itself is not known."
    elif math.isinf(value):
        words += " The number is infinite and stands at the edge."
    return words + (" Log scale." if scale.logarithmic else "")
