"""The figure of mini-batches: the gradients of single examples, and their mean."""

from __future__ import annotations

import math

import numpy as np

from apoint.book.picture import Panel, Picture, Series


def batch_arrows(random: np.random.Generator) -> Picture:
    """Negative gradients of least squares at one point: of eight examples, of their mean, of all.

    Args:
        random: Draws the examples.
    """
    inputs = random.standard_normal((200, 2))
    answers = inputs @ [1.5, -0.5] + 0.8 * random.standard_normal(200)
    weights = np.array([0.2, 0.6])
    steps = (answers - inputs @ weights)[:, None] * inputs
    batch, whole = steps[:8], steps.mean(0)
    gap = math.nan
    single = Series(
        "one example", [v for x in batch[:, 0] for v in (0, x, gap)],
        [v for y in batch[:, 1] for v in (0, y, gap)], style="arrow",
    )  # fmt: skip
    mean = Series("their mean", [0, batch[:, 0].mean()], [0, batch[:, 1].mean()], style="arrow")
    full = Series("all 200 examples", [0, whole[0]], [0, whole[1]], style="arrow")
    reach = 1.05 * float(np.abs(batch).max())
    room = Series("", [-reach, reach, gap, gap], [gap, gap, -reach, reach], style="points")
    axes = ("first coordinate", "second coordinate")
    panels = [
        Panel("A batch of eight", *axes, [single, room], equal=True),
        Panel("The step", *axes, [mean, full, room], equal=True),
    ]
    caption = (
        "Negative gradients of least squares with two weights, all at one point. Left: of each example of a "
        "batch. Right: their mean, which is the step, beside that of all examples."
    )
    return Picture(caption, panels, "llm annex")
