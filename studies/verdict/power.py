"""How many pairs the rule takes, what it shows, and what other points of the same family would give.

`python -m studies.verdict.power` prints the tables and draws the frontier.
"""

from __future__ import annotations

import math
import sys
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.special import stdtr

from apoint.verdict import DEFAULT_LOOKS, default_looks
from apoint.verdict.estimate import adjusted_effect
from apoint.verdict.moments import Moments
from studies.verdict.rule import BETTER, EQUIVALENT, Paths, Result, rows_of_arms, simulate, simulate_arms
from studies.verdict.shapes import SKEWED, Shape

COMPARISONS, MANY = 20_000, 100_000
ONE_ARM = "planned, one arm does not vary"
EFFECTS = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 3.0, 5.0)


def gaussian(name: str, num: int = COMPARISONS, pairs: int = 32) -> np.ndarray:
    return np.random.default_rng(zlib.crc32(name.encode())).standard_normal((num, pairs))


def power_table() -> str:
    """Called better by 32 pairs, and the pairs used, for Gaussian differences."""
    lines = ["| true effect, in deviations | " + " | ".join(f"{effect:g}" for effect in EFFECTS) + " |"]
    lines.append("|---|" + "---:|" * len(EFFECTS))
    for name, looks, anytime in (
        ("planned", DEFAULT_LOOKS, False),
        (ONE_ARM, DEFAULT_LOOKS, False),
        ("planned, 8, 16, 24, 32", (8, 16, 24, 32), False),
        ("at any time", DEFAULT_LOOKS, True),
    ):
        found = [_called(effect, looks, anytime, name != ONE_ARM) for effect in EFFECTS]
        called = " | ".join(f"{100 * each.rate(BETTER):.1f} %" for each in found)
        pairs = " | ".join(f"{each.pairs.mean():.1f}" for each in found)
        lines += [f"| {name}: called better | {called} |", f"| {name}: pairs on average | {pairs} |"]
    return "\n".join(lines)


def two_arms(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Differences of deviation 1, and the baseline, if both arms vary alike and independently.

    The usual case. An arm that does not vary masks nothing, which is why it takes slightly fewer pairs.
    """
    arms = (gaussian(f"{name}, {arm}", MANY) / math.sqrt(2) for arm in ("candidate", "baseline"))
    candidate, baseline = arms
    return candidate - baseline, baseline


def _called(effect: float, looks: tuple[int, ...], anytime: bool, both_vary: bool) -> Result:
    differences, baseline = two_arms("power")
    base = baseline if both_vary else None
    return simulate(differences + effect, 1e-6, looks, anytime=anytime, baseline=base)


def shown_table() -> str:
    """The effect that is shown and the adjusted one, on average: over all comparisons, and those called."""
    lines = [
        "| true effect | shown | adjusted | shown, if called better | adjusted, if called better |",
        "|---:|---:|---:|---:|---:|",
    ]
    for effect in (0.3, 0.5, 0.8, 1.0, 2.0):
        differences = gaussian("shown", 5_000) + effect
        found = simulate(differences, 1e-6, DEFAULT_LOOKS)
        adjusted = np.array(
            [
                adjusted_effect(
                    Moments(int(n), float(mean), float(row[:n].std(ddof=1)), 0.0), int(n), DEFAULT_LOOKS, 0.05
                )
                for row, n, mean in zip(differences, found.pairs, found.effect, strict=True)
            ]
        )
        called = found.outcome == BETTER
        cells = (
            found.effect.mean(), adjusted.mean(), found.effect[called].mean(), adjusted[called].mean()
        )  # fmt: skip
        lines.append(f"| {effect:g} | " + " | ".join(f"{cell:.2f}" for cell in cells) + " |")
    return "\n".join(lines)


def equivalence_table() -> str:
    """Arms without a difference: called equivalent by 32 pairs, and the pairs used."""
    lines = ["| margin, in deviations of the differences | ½ | ¾ | 1 |", "|---|---:|---:|---:|"]
    differences, baseline = two_arms("equal")
    for name, anytime in (("planned", False), ("at any time", True)):
        found = [
            simulate(differences, margin, DEFAULT_LOOKS, anytime=anytime, baseline=baseline)
            for margin in (0.5, 0.75, 1.0)
        ]
        cells = [f"{100 * each.rate(EQUIVALENT):.0f} %, {each.pairs.mean():.1f} pairs" for each in found]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def first_look_of_six() -> float:
    """One arm of six with five deviations: how often it is called at its first look."""
    looks = default_looks(6)
    baseline = gaussian("six, baseline", 5_000)[:, None] / math.sqrt(2)
    noise = gaussian("six", 5_000 * 6).reshape(5_000, 6, 32) / math.sqrt(2) - baseline
    effects = np.array([5.0, 0, 0, 0, 0, 0])[:, None]
    races = simulate_arms(noise + effects, 1e-6, looks, baseline=baseline)
    return float(((races.outcome[:, 0] == BETTER) & (races.pairs[:, 0] == looks[0])).mean())


# -- other points of the family -----------------------------------------------------------------------------


@dataclass
class Point:
    """A rule with levels ∝ nᵖ and the skewness term times `scale`: its errors, and what it takes."""

    exponent: float
    scale: float
    worst: float
    half: float
    pairs: dict[float, float]


class Family:
    """Draws that all points are measured on."""

    def __init__(self, num: int) -> None:
        self.null = Paths(gaussian("null", 4 * num), DEFAULT_LOOKS)
        self.effects = {
            effect: Paths(gaussian("effect", num) + effect, DEFAULT_LOOKS) for effect in (0.5, 1.0, 2.0, 5.0)
        }
        random = np.random.default_rng(5)
        self.skewed = [_paths(shape, random, num) for shape in SKEWED]

    def point(self, exponent: float, scale: float) -> Point:
        """The rates of one rule, calibrated to 5 % on Gaussian differences."""
        weights = (np.array(DEFAULT_LOOKS) / 32) ** exponent
        limit = float(np.quantile((_p_values(self.null, scale) / weights[:, None]).min(0), 0.05))
        worst = max(
            float(((_p_values(paths, scale) / weights[:, None]).min(0) <= limit).mean())
            for paths in self.skewed
        )
        pairs, power = {}, {}
        for effect, paths in self.effects.items():
            calls = _p_values(paths, scale) / weights[:, None] <= limit
            power[effect] = float(calls.any(0).mean())
            calls[-1] = True
            pairs[effect] = float(np.array(DEFAULT_LOOKS)[calls.argmax(0)].mean())
        return Point(exponent, scale, worst, power[0.5], pairs)


def _paths(shape: Shape, random: np.random.Generator, num: int) -> Paths:
    noise, baseline = shape.arms(random, num, 1, 32)
    return Paths(noise[:, 0], DEFAULT_LOOKS, baseline=rows_of_arms(baseline, 1))


def _p_values(paths: Paths, scale: float) -> np.ndarray:
    rows = [
        2 * stdtr(n - 1, -np.abs(paths.touching(place, 0.0, scale))) for place, n in enumerate(paths.points)
    ]
    return np.array(rows)


def frontier(num: int = COMPARISONS) -> list[Point]:
    family = Family(num)
    return [
        family.point(exponent, scale)
        for scale in (0.0, 0.5, 1.0, 2.0)
        for exponent in (1.0, 1.5, 2.0, 2.5, 3.0)
    ]


def frontier_table(points: list[Point]) -> str:
    lines = [
        "| levels ∝ nᵖ, p | skewness term × | worst skewed shape | power at ½ | pairs at 1 | at 2 | at 5 |",
        "|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for point in points:
        pairs = " | ".join(f"{point.pairs[effect]:.1f}" for effect in (1.0, 2.0, 5.0))
        rates = f"{100 * point.worst:.1f} % | {100 * point.half:.0f} %"
        lines.append(f"| {point.exponent:g} | {point.scale:g} | {rates} | {pairs} |")
    return "\n".join(lines)


def draw_frontier(points: list[Point], path: Path) -> None:
    """Error on skewed shapes against pairs at two deviations, a line for each size of the skewness term."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.subplots()
    for scale in sorted({point.scale for point in points}):
        line = [point for point in points if point.scale == scale]
        xs, ys = [point.pairs[2.0] for point in line], [100 * point.worst for point in line]
        axes.plot(xs, ys, marker="o", markersize=4, label=f"skewness term × {scale:g}")
        offset = (-8, -11) if scale == 2 else (4, 4)
        for point, x, y in zip(line, xs, ys, strict=True):
            axes.annotate(
                f"n^{point.exponent:g}", (x, y), textcoords="offset points", xytext=offset, fontsize=7
            )
    chosen = next(point for point in points if (point.exponent, point.scale) == (2.0, 1.0))
    axes.plot([chosen.pairs[2.0]], [100 * chosen.worst], "o", markersize=11, fillstyle="none", color="black")
    axes.axhline(6.5, color="grey", linewidth=0.8, linestyle="--")
    axes.annotate(
        "limit, 6.5 %", (axes.get_xlim()[1], 6.5), ha="right", va="bottom", fontsize=8, color="grey"
    )
    axes.set_xlabel("pairs on average, true effect of 2 standard deviations")
    axes.set_ylabel("false calls on the worst skewed shape (%)")
    axes.set_title("Error against cost; the ring is the rule as it is")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=8)
    with rc_context({"svg.hashsalt": "verdict"}):  # the same figure is the same file
        figure.savefig(path, format="svg", metadata={"Date": None})


def main() -> int:
    print(power_table(), "", shown_table(), "", equivalence_table(), "", sep="\n")
    print(f"one of six arms, 5 deviations, called at its first look: {100 * first_look_of_six():.1f} %\n")
    points = frontier()
    print(frontier_table(points))
    draw_frontier(points, Path(__file__).resolve().parents[2] / "docs" / "verdict-frontier.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
