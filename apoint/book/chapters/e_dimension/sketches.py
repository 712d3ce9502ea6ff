"""Figures of chapter E that need no data: balls in three dimensions, and an angle."""

from __future__ import annotations

import math

import numpy as np

from apoint.book.picture import Panel, Picture, Series
from apoint.theory import balls


def balls_by_dimension() -> Picture:
    """The unit ball on a line, in the plane and in space, with their volumes."""
    angles = np.linspace(0, 2 * math.pi, 121)
    x, y = np.cos(angles), np.sin(angles)
    room = Series("", [math.nan, math.nan], [-1, 1], style="points")  # as much above as beside
    interval = [Series("", [-1, 1, 1, -1], [-0.02, -0.02, 0.02, 0.02], style="area"), room]
    flat = [Series("", x.tolist(), y.tolist(), style="area")]
    sphere = [Series("", x.tolist(), y.tolist(), style="area")]
    for height in (-0.6, 0.0, 0.6):  # circles of latitude, seen a little from above; the back is dashed
        radius = math.sqrt(1 - height**2)
        across, up = radius * x, height * math.cos(0.4) + 0.39 * radius * y
        sphere.append(Series("", across[60:].tolist(), up[60:].tolist()))
        sphere.append(Series("", across[:61].tolist(), up[:61].tolist(), style="dashed"))
    panels = []
    for n, series in ((1, interval), (2, flat), (3, sphere)):
        name = {1: "2", 2: "π", 3: "4π/3"}[n]
        value = f"{name}" if n == 1 else f"{name} = {balls.volume(n, 2.0):.4g}"
        upright = {1: "", 2: "second coordinate", 3: "third coordinate"}[n]
        panels.append(
            Panel(f"Dimension {n}: volume {value}", "first coordinate", upright, series, equal=True)
        )
    caption = "Unit balls and their volumes. Up to here the volume rises; E1b shows how it goes on."
    return Picture(caption, panels, "notes fig. C.1")


def angle() -> Picture:
    """Two vectors and the angle between them."""
    first, second = np.array([2.0, 0.5]), np.array([0.9, 1.6])
    ends = [math.atan2(one[1], one[0]) for one in (first, second)]
    arc = np.linspace(ends[0], ends[1], 30)
    cosine = float(first @ second / np.linalg.norm(first) / np.linalg.norm(second))
    series = [
        Series("x", [0, first[0]], [0, first[1]], style="arrow"),
        Series("y", [0, second[0]], [0, second[1]], style="arrow"),
        Series(
            f"angle θ, cos θ = {cosine:.2f}", (0.55 * np.cos(arc)).tolist(), (0.55 * np.sin(arc)).tolist()
        ),
    ]
    panel = Panel("The angle of two vectors", "first coordinate", "second coordinate", series, equal=True)
    caption = (
        r"$\cos\theta=\langle x,y\rangle/(\|x\|\,\|y\|)$; for unit vectors "
        r"$\|x-y\|^2=2(1-\cos\theta)$."
    )
    return Picture(caption, [panel], "notes fig. C.5")
