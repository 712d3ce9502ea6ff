"""The stages `signal` and `gradients`: the forward signal and the backward gradient, before training.

Signs: `forward-growth`, `spread-growth`, `backward-growth` (e-folds from the first layer to the last),
`forward-slope`, `spread-slope`, `backward-slope` (per layer), `dead-share`, `saturated-share`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator

import torch
from torch import nn

from apoint.doctor import ranges
from apoint.doctor.card import BAD_SIGNAL, BAD_START, NO_LEARNING, TOO_MUCH, card
from apoint.doctor.examination import Examination
from apoint.doctor.finding import Finding, Treatment
from apoint.doctor.specimens import Functional, changed, perceptron, with_weights
from apoint.probes import Reading

FEW_UNITS = 4  # with fewer, a dead unit is no surprise, and the small number is the fault


def examine_signal(exam: Examination) -> Iterator[Finding]:
    """Findings on the signal."""
    reading = exam.reading("signal")
    if reading.value is None:
        exam.leave_out("the signal through depth", reading.how)
    else:
        _note_growth(exam, reading)
        yield from _finite(exam, reading)
        yield from _forward(exam, reading)
    yield from _dead(exam)
    yield from _saturated(exam)


def _note_growth(exam: Examination, reading: Reading) -> None:
    """Record growth over the hidden layers; the initial loss judges the last layer's scale."""
    table = reading.details["operations"]
    last = max(table["depth"])
    hidden = [i for i, kind in enumerate(table["kind"]) if kind == "linear" and table["depth"][i] < last]
    squares = [None if norm is None else norm**2 for norm in table["gradient_norm"]]
    columns = {"forward": table["second_moment"], "spread": table["spread"], "backward": squares}
    for name, values in columns.items():
        found = slope_and_growth([(table["depth"][i], values[i]) for i in hidden])
        if found is not None:
            exam.sign(f"{name}-slope", found[0])
            exam.sign(f"{name}-growth", found[1])


def slope_and_growth(points: list[tuple[int, float | None]]) -> tuple[float, float] | None:
    """The least-squares slope of the logarithm over depth, and slope times depth; None if undefined."""
    known = [(depth, math.log(max(value, 1e-300))) for depth, value in points if value is not None]
    known = [(depth, value) for depth, value in known if math.isfinite(value)]
    depths = [depth for depth, _ in known]
    if len(set(depths)) < 2:
        return None
    slope = statistics.linear_regression(depths, [value for _, value in known]).slope
    return slope, slope * (max(depths) - min(depths))


NON_FINITE = card(
    "non-finite",
    stage="signal",
    sees="NaN or infinity produced by the model itself",
    cause=(
        "The logarithm or root of a negative number, a division by 0, or numbers too large for their type."
    ),
    treatment=Treatment(
        (
            "Bound the inputs of such operations: add a small constant under roots and in "
            "denominators, use log_softmax instead of log(softmax), clamp exponents."
        ),
        code="x = torch.log(x.clamp_min(1e-6))",
    ),
    level="severe",
    confidence=0.97,
    explains=BAD_START | BAD_SIGNAL,
    example=lambda: {"model": Functional(torch.log)},
)


def _finite(exam: Examination, reading: Reading) -> Iterator[Finding]:
    """The first operation whose output is not finite, unless it is infinite on purpose.

    Attention masks are minus infinity before a softmax: an infinity that does not reach the output, and
    never becomes NaN, is not a fault.
    """
    table = reading.details["operations"]
    moments = table["second_moment"]
    if not any(map(math.isnan, moments)) and (not moments or math.isfinite(moments[-1])):
        return
    for name, value in zip(table["name"], table["second_moment"], strict=True):
        if not math.isfinite(value):
            yield NON_FINITE.finding(
                f"The output of {name} is not finite on finite inputs.",
                math.inf if math.isnan(value) else value,
                layer=name,
            )
            return


def _forward(exam: Examination, reading: Reading) -> Iterator[Finding]:
    growth, slope = exam.signs.get("forward-growth"), exam.signs.get("forward-slope")
    spread, back = exam.signs.get("spread-growth"), exam.signs.get("backward-growth")
    if growth is None or slope is None:
        return
    bounded = any(value is not None for value in reading.details["operations"]["saturation"])
    if ranges.too_high("forward-growth", growth):
        yield _growing(growth, slope, reading)
    elif ranges.too_low("forward-growth", growth):
        yield _shrinking(growth, slope, reading, "forward-growth")
    elif ranges.too_low("spread-growth", spread) and not (
        bounded and ranges.too_high("backward-growth", back)
    ):
        yield _shrinking(spread or 0.0, exam.signs["spread-slope"], reading, "spread-growth")
    elif ranges.too_high("forward-slope", slope) or ranges.too_low("forward-slope", slope):
        yield _wrong_gain(slope)


def _fold(efolds: float) -> str:
    return f"{math.exp(min(abs(efolds), 600)):.2g}"


EXPLODING_SIGNAL = card(
    "exploding-signal",
    stage="signal",
    sees="activations that grow through depth",
    cause=(
        "Weights are too large for the activation. Outputs and gradients are huge, and the first "
        "steps throw the network far away."
    ),
    treatment=Treatment(
        "Initialise with the gain of the activation (He for ReLU, Glorot for tanh), or normalise.",
        {"init": "he"},
        "torch.nn.init.kaiming_normal_(layer.weight, nonlinearity='relu')",
    ),
    sign="forward-growth",
    level="severe",
    confidence=0.95,
    course=("A6", "A8"),
    unit="e-folds",
    explains=BAD_START,
    example=lambda: {"model": with_weights(perceptron(depth=12), 0.6)},
)


def _growing(growth: float, slope: float, reading: Reading) -> Finding:
    return EXPLODING_SIGNAL.finding(
        f"The signal's square grows {_fold(growth)} times from the first layer to the last, {_fold(slope)} "
        "times with each layer.",
        growth,
    )


VANISHING_SIGNAL = card(
    "vanishing-signal",
    stage="signal",
    sees="activations that shrink through depth",
    cause=("The last layers see almost nothing of the input, and the first ones get almost no gradient."),
    treatment=Treatment(
        "Initialise with the gain of the activation (He for ReLU, Glorot for tanh), add skip "
        "connections, or normalise.",
        {"init": "he"},
        "torch.nn.init.kaiming_normal_(layer.weight, nonlinearity='relu')",
    ),
    level="severe",
    confidence=0.95,
    course=("A6", "A8"),
    unit="e-folds",
    explains=BAD_START,
    example=lambda: {"model": with_weights(perceptron(depth=12), 0.01)},
)


def _shrinking(growth: float, slope: float, reading: Reading, sign: str) -> Finding:
    what = "signal's square" if sign == "forward-growth" else "difference between examples (squared)"
    return VANISHING_SIGNAL.finding(
        f"The {what} shrinks {_fold(growth)} times from the first layer to the last, {_fold(slope)} times "
        "with each layer.",
        growth,
        healthy=ranges.healthy(sign),
    )


WRONG_GAIN = card(
    "wrong-gain",
    stage="signal",
    sees="an initialisation that does not match the activation",
    cause=(
        "The initialisation does not match the activation: with n inputs, ReLU needs weights of "
        "variance 2/n and tanh 1/n. A few layers tolerate a mismatch, many do not."
    ),
    treatment=Treatment(
        "Initialise with the gain of the activation.",
        {"init": "he"},
        "torch.nn.init.kaiming_normal_(layer.weight, nonlinearity='relu')",
    ),
    sign="forward-slope",
    confidence=0.8,
    course=("A8", "A9"),
    unit="per layer",
    explains=BAD_START,
    example=lambda: {"model": with_weights(perceptron(depth=3), 1.0)},
)


def _wrong_gain(slope: float) -> Finding:
    return WRONG_GAIN.finding(
        f"With each layer the signal's square changes {math.exp(slope):.2f} times.", slope
    )


DEAD_UNITS = card(
    "dead-units",
    stage="signal",
    sees="units that pass no gradient on any example",
    cause=(
        "A ReLU whose input is always negative outputs 0 and passes no gradient back, so it never"
        " recovers. Large negative biases, or one step that was too large, cause this."
    ),
    treatment=Treatment(
        ("Start biases at 0, lower the learning rate, or use an activation with a slope on both sides."),
        {"model.activation": "leaky-relu"},
        "torch.nn.init.zeros_(layer.bias)  # or torch.nn.LeakyReLU(0.01)",
    ),
    sign="dead-share",
    course=("A5",),
    explains=NO_LEARNING | {"vanishing-gradient", "vanishing-signal", "wrong-gain", "no-gradient"},
    example=lambda: {"model": changed(perceptron(), lambda m: m[2].bias.fill_(-30))},
)


def _dead(exam: Examination) -> Iterator[Finding]:
    reading = exam.reading("dead-units")
    if reading.value is None:
        exam.leave_out("dead units", reading.how)
        return
    table = reading.details["activations"]
    shares = [
        share if units >= FEW_UNITS else None
        for share, units in zip(table["dead"], table["num_units"], strict=True)
    ]
    worst, layer = _largest(table["name"], shares)
    exam.sign("dead-share", worst, layer)
    if ranges.too_high("dead-share", worst):
        yield DEAD_UNITS.finding(
            f"{worst:.0%} of the units of {layer} give no gradient on any example.",
            worst,
            confidence=0.97 if worst > 0.9 else 0.9,
            layer=layer,
        )


def _largest(names: list[str], values: list[float | None]) -> tuple[float, str]:
    known = [(value, name) for name, value in zip(names, values, strict=True) if value is not None]
    return max(known, default=(0.0, ""))


SATURATION = card(
    "saturation",
    stage="signal",
    sees="bounded activations in their flat region",
    cause=(
        "Far from 0, a sigmoid or tanh has almost no slope: its units hardly respond and pass "
        "almost no gradient back."
    ),
    treatment=Treatment(
        "Initialise with smaller weights (Glorot), normalise before the activation, or use ReLU.",
        {"init": "glorot"},
        "torch.nn.init.xavier_normal_(layer.weight)",
    ),
    sign="saturated-share",
    confidence=0.9,
    course=("A4", "A7"),
    explains=BAD_START - {"saturation"},
    example=lambda: {"model": with_weights(perceptron(nn.Tanh), 3.0)},
)


def _saturated(exam: Examination) -> Iterator[Finding]:
    reading = exam.reading("signal")
    table = reading.details.get("operations", {})
    if not table or not any(value is not None for value in table["saturation"]):
        return
    worst, layer = _largest(table["name"], table["saturation"])
    exam.sign("saturated-share", worst, layer)
    if ranges.too_high("saturated-share", worst):
        yield SATURATION.finding(
            f"{worst:.0%} of the inputs of {layer} lie where it is all but flat.", worst, layer=layer
        )


_BETTER_PATHS = Treatment(
    "Use ReLU or GELU in place of sigmoids, the matching initialisation, skip connections or normalisation.",
    {"model.activation": "relu", "init": "he"},
    "x = x + block(norm(x))",
)

VANISHING_GRADIENT = card(
    "vanishing-gradient",
    stage="gradients",
    sees="gradients that shrink on the way back",
    cause=(
        "Each layer multiplies the gradient by the slope of its activation (at most 1/4 for a "
        "sigmoid) and its weights, so the first layers hardly learn."
    ),
    treatment=_BETTER_PATHS,
    sign="backward-growth",
    level="severe",
    course=("A4",),
    unit="e-folds",
    explains=BAD_START | {"vanishing-signal", "wrong-gain"},
    example=lambda: {"model": with_weights(perceptron(nn.Sigmoid, depth=10), 0.2)},
)

EXPLODING_GRADIENT = card(
    "exploding-gradient",
    stage="gradients",
    sees="gradients that grow on the way back",
    cause=(
        "Each layer multiplies the gradient by the slope of its activation and its weights. At a "
        "learning rate that suits the last layers, the first layers take steps that are far too "
        "long."
    ),
    treatment=_BETTER_PATHS,
    sign="backward-growth",
    level="severe",
    course=("A4",),
    unit="e-folds",
    explains=TOO_MUCH | {"wrong-gain", "cannot-overfit-batch", "underfitting"},
    example=lambda: {"model": perceptron(depth=40, norm=nn.BatchNorm1d)},
)


def examine_gradients(exam: Examination) -> Iterator[Finding]:
    """Findings on gradients."""
    growth = exam.signs.get("backward-growth")
    missing = [note for note in exam.reading("signal").notes if note.startswith("there are no gradients")]
    if missing:
        exam.could_not("gradients through depth", missing[0])
    if growth is not None and ranges.too_high("backward-growth", growth):
        yield VANISHING_GRADIENT.finding(_on_its_way("shrinks", growth), growth)
    elif growth is not None and ranges.too_low("backward-growth", growth):
        yield EXPLODING_GRADIENT.finding(_on_its_way("grows", growth), growth)


def _on_its_way(verb: str, growth: float) -> str:
    way = "on its way back from the last layer to the first"
    return f"The gradient's square {verb} {_fold(growth)} times {way}."
