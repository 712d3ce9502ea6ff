"""The charts with their captions; each caption says what is drawn, from what, and in which units."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from apoint.inspection import figures
from apoint.inspection.figures.depth import is_drawable, layers_of
from apoint.inspection.figures.heatmap import Grid, has_logarithm
from apoint.inspection.values import Operation, dead_shares, healthy_of, number, operations
from apoint.report import fields
from apoint.report.frame import figure, section
from apoint.report.markup import Markup, element
from apoint.report.thinning import BUCKETS, THIN_ABOVE
from apoint.report.words import THIN_SPACE, count, short

_SIGNS = {"dead": "dead-share", "saturated": "saturated-share"}


def trainings_section(report: Mapping[str, Any]) -> Markup:
    """Losses of the short training runs, and gradients and updates of the first by layer and step."""
    curves = fields.mapping(report.get("curves"))
    drawn, maps = _losses(curves), _heatmaps(curves)
    if drawn is None and not maps:
        words = "No short training was made, so that there is nothing to draw; why stands under Not checked."
        return section("The short trainings", words)
    lead = "Trained on copies for a few steps; the model and its optimizer are as they were."
    reading = _trainings_reading() if maps else None
    return section("The short trainings", lead, element("div", drawn, reading, maps, class_="grid"))


def _losses(curves: fields.Json) -> Markup | None:
    lines = {
        str(title): [number(value) for value in fields.items(line)]
        for title, line in fields.mapping(curves.get("losses")).items()
    }
    svg = figures.losses(lines)
    return None if svg is None else figure(svg, _losses_caption(lines, curves))


def _losses_caption(lines: Mapping[str, Sequence[float]], curves: fields.Json) -> str:
    total = sum(len(line) for line in lines.values())
    drawn = sum(math.isfinite(value) for line in lines.values() for value in line)
    words = f"Losses: {_points(drawn, total)} of {count(len(lines), 'short training')}."
    if drawn < total:
        words += f" {total - drawn} are not finite; a cross marks where a line ends for that."
    if max(len(line) for line in lines.values()) > THIN_ABOVE:
        words += f" For drawing, each line is thinned to the extremes of {BUCKETS} buckets."
    return f"{words} No smoothing.{_rate_words(curves)} Units: the loss as trained on; steps."


def _rate_words(curves: fields.Json) -> str:
    rates = [number(rate) for rate in fields.items(curves.get("rates"))]
    sound = [rate for rate in rates if math.isfinite(rate)]
    if not sound:
        return ""
    if min(sound) == max(sound):
        return f" Learning rate as it is: {short(sound[0])} throughout."
    return f" Learning rate as it is: {short(min(sound))} to {short(max(sound))}."


def _heatmaps(curves: fields.Json) -> list[Markup]:
    steps = [fields.whole(step) for step in fields.items(curves.get("steps"))]
    found: list[Markup] = []
    for key, quantity in (("gradients", "gradient norm"), ("updates", "update-to-weight ratio")):
        rows = {
            str(layer): [number(value) for value in fields.items(values)]
            for layer, values in fields.mapping(curves.get(key)).items()
        }
        grid = Grid.of(rows, steps)
        svg = None if grid is None else figures.heatmap(grid, quantity, f"heat-{key}")
        if svg is not None and grid is not None:
            found.append(figure(svg, _heat_caption(grid, quantity), "heat"))
    return found


def _heat_caption(grid: Grid, quantity: str) -> str:
    cells = grid.found
    zero = sum(cell.value == 0 for cell in cells)
    other = sum(not has_logarithm(cell.value) for cell in cells) - zero
    words = [f"{quantity.capitalize()}: {_points(len(cells), grid.num_points)}."]
    words.append(f"Rows: {_rows(grid)}.")
    words += [f"All names begin with {grid.beginning}"] if grid.beginning else []
    if len(cells) < grid.num_points:
        words.append(
            "Neighbours that share a cell show the one farthest from the median of all layers at its step."
        )
    words += [f"Rings: {zero} that are 0."] if zero else []
    words += [f"Crosses: {other} that are not finite."] if other else []
    return " ".join([*words, f"No smoothing. Units: log10 of the {quantity}; steps."])


def _rows(grid: Grid) -> str:
    if grid.layers_per_row == 1:
        several = f"all {count(grid.num_layers, 'layer')}, the first on top"
        return several if grid.num_layers > 1 else "the one layer"
    return f"{count(grid.num_layers, 'layer')}, {grid.layers_per_row} to a row, the first on top"


def _trainings_reading() -> Markup:
    rules = [
        ("Loss", "should fall. If a tenth of the learning rate does better, the rate is too high; if ten "
         "times of it does, too low. The network should be able to overfit one batch."),
        ("Gradient norm", "rows of like lightness learn together. Darker towards the top: the gradient "
         "vanishes on its way back. Lighter towards the right: training is running away."),
        ("Update-to-weight ratio", "how far one step moves a layer, relative to its weights: −3 is a "
         "thousandth. Near 0, a step replaces the weights; far below the others, a layer stands still."),
    ]  # fmt: skip
    return _reading(rules)


def depth_section(report: Mapping[str, Any]) -> Markup | None:
    """The signal, the gradient and lost units through depth, before training."""
    rows = operations(report)
    if not rows:
        return None
    layers = layers_of(rows)
    body = [_moments(layers), _gradients(layers), _shares(rows, dead_shares(report))]
    drawn = [each for each in body if each is not None]
    if not drawn:
        return None
    lead = "On one batch, with the weights as they were given."
    reading = _depth_reading() if len(drawn) > 1 else None
    return section("Through depth", lead, element("div", drawn, reading, class_="grid"))


def _moments(layers: Sequence[Operation]) -> Markup | None:
    svg = figures.moments(layers)
    if svg is None:
        return None
    values = [value for row in layers for value in (row.second_moment, row.spread)]
    words = (
        f"Signal: {_log_points(values)} of {count(len(layers), 'layer')}. Second moment: the mean square of "
        "all outputs. Between examples: their variance over examples, averaged over units. Lines join the "
        "geometric means of each depth. Units: those of the outputs, squared; layers."
    )
    return figure(svg, words)


def _gradients(layers: Sequence[Operation]) -> Markup | None:
    svg = figures.gradients(layers)
    if svg is None:
        return None
    words = (
        f"Gradient: {_log_points([row.gradient_norm for row in layers])} of {count(len(layers), 'layer')}. "
        "The norm of the gradient of the loss in each layer's output. Lines join the geometric means of each "
        "depth. Units: loss per unit of output; layers."
    )
    return figure(svg, words)


def _shares(rows: Sequence[Operation], dead: Mapping[str, float]) -> Markup | None:
    activations = [row for row in rows if row.kind == "activation" or row.name in dead]
    limits = {key: healthy_of(sign) for key, sign in _SIGNS.items()}
    svg = figures.shares(activations, dead, limits) if activations else None
    if svg is None:
        return None
    marked = sum(row.name in dead or row.saturation is not None for row in activations)
    others = "; the others can be neither" if marked < len(activations) else ""
    words = (
        f"Lost units: {marked} of {count(len(activations), 'activation')} drawn{others}. Dead: units that "
        "pass no gradient on any example. Saturated: inputs where the activation is all but flat. Dashed "
        "lines: the most that is healthy. Units: shares; layers."
    )
    return figure(svg, words)


def _depth_reading() -> Markup:
    rules = [
        ("Signal", "level lines keep the size of the signal. A straight line that falls or rises is a factor "
         "with every layer: it vanishes or explodes."),
        ("Between examples", "if it falls while the second moment stays, the network forgets its input and "
         "says the same to everything."),
        ("Gradient", "falling towards the left: the first layers hardly learn. Falling towards the right: "
         "they are thrown about by steps that suit the last ones."),
    ]  # fmt: skip
    return _reading(rules)


def _log_points(values: Sequence[float | None]) -> str:
    drawn = sum(is_drawable(value) for value in values)
    left = len(values) - drawn
    return _points(drawn, len(values)) + (f" ({left} are 0, not finite or absent)" if left else "")


def _points(drawn: int, total: int) -> str:
    noun = "point is" if total == 1 else "points are"
    return f"{drawn:,} of {total:,} {noun} drawn".replace(",", THIN_SPACE)


def _reading(rules: Sequence[tuple[str, str]]) -> Markup:
    items = [element("li", element("b", f"{name}: "), words) for name, words in rules]
    return element("div", element("h3", "How to read them"), element("ul", items))
