"""Error rates of the rule, for each shape of noise, number of arms, and way of looking.

A cell is repeated once with ten times as many comparisons and new seeds if it is above its limit, and then
that counts. *False calls*: some arm is better or worse although all means are 0; the margin is so small that
equivalence cannot help. *Coverage*: of an arm's final interval, the lowest over effects of 0 and ±½
deviation. *False equivalent*: some arm is called equivalent although each lies exactly at the margin, ½ or 1
deviation; the highest, over both signs.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from apoint.verdict import default_looks
from studies.verdict.rule import (
    BETTER,
    EQUIVALENT,
    WORSE,
    Paths,
    Races,
    critical_values,
    points_of,
    race,
    rows_of_arms,
)
from studies.verdict.shapes import APART, FRESH_APART, FRESH_SKEWED, FRESH_UNEQUAL, SKEWED, UNEQUAL, Shape

ARMS = (1, 3, 6, 10)
COMPARISONS = 10_000
PAIRS = {False: 32, True: 64}
BLOCK = 20_000  # arms simulated at a time
NAMES = ("false_calls", "coverage", "false_equivalent")
TITLES = ("false calls", "coverage", "false equivalent")


@dataclass
class Cell:
    """The rates of a shape with some arms."""

    shape: str
    arms: int
    anytime: bool
    false_calls: float
    coverage: float
    false_equivalent: float
    races: int

    @property
    def sentence(self) -> str:
        """The cell in one line."""
        how = "at any time" if self.anytime else "planned"
        calls, coverage, equivalent = (100 * getattr(self, name) for name in NAMES)
        rates = f"false calls {calls:.2f} %, coverage {coverage:.2f} %, false equivalent {equivalent:.2f} %"
        return f"{self.shape}, {self.arms} arms, {how}: {rates}"

    def above(self, shape: Shape) -> bool:
        """Whether a rate is beyond its limit."""
        limit = 0.065 if shape in (*SKEWED, *FRESH_SKEWED, *UNEQUAL, *FRESH_UNEQUAL) else 0.055
        return self.false_calls > limit or self.coverage < 0.94 or self.false_equivalent > 0.05


def measure(shape: Shape, arms: int, anytime: bool, races: int = COMPARISONS, seed: int = 0) -> Cell:
    """The rates of a cell, all of them on the same draws."""
    deviation = float(shape.arms(np.random.default_rng(7), 20_000, 1, 10)[0].std())
    looks = default_looks(arms)
    points = points_of(looks, anytime, PAIRS[anytime], arms)
    criticals = critical_values(looks, points, arms, 0.05, anytime)
    random = np.random.default_rng(zlib.crc32(f"{shape.name}/{arms}/{anytime}/{seed}".encode()))
    size, found = max(1, BLOCK // arms), []
    for start in range(0, races, size):
        num = min(size, races - start)
        noise, baseline = shape.arms(random, num, arms, PAIRS[anytime])
        rows, base = noise.reshape(num * arms, PAIRS[anytime]), rows_of_arms(baseline, arms)
        paths = Paths(rows, points, shape.step, baseline=base)
        found.append(num * _rates(paths, num, criticals, deviation))
    calls, *rest = np.sum(found, 0) / races
    return Cell(shape.name, arms, anytime, calls, min(rest[:3]), max(rest[3:]), races)


def _rates(paths: Paths, num: int, criticals: tuple[np.ndarray, np.ndarray], deviation: float) -> np.ndarray:
    """False calls, coverage at three effects, and false equivalence at two margins on both sides."""

    def run(effect: float, margin: float) -> Races:
        shift = effect * deviation
        return race(paths.shifted(shift), num, criticals, margin * deviation, shift)

    calls = run(0.0, 1e-6).family(BETTER, WORSE)
    coverage = [float(run(effect, 0.5).covered.mean()) for effect in (0.0, 0.5, -0.5)]
    equivalent = [run(side * margin, margin).family(EQUIVALENT) for margin in (0.5, 1.0) for side in (1, -1)]
    return np.array([calls, *coverage, *equivalent])


def settled(shape: Shape, arms: int, anytime: bool) -> Cell:
    """The rates of a cell; measured again, ten times as long and on new seeds, if one is beyond its limit.

    Not so where no limit is claimed.
    """
    cell = measure(shape, arms, anytime)
    if shape in (*APART, *FRESH_APART) or not cell.above(shape):
        return cell
    return measure(shape, arms, anytime, 10 * COMPARISONS, seed=1)


Cells = list[dict[str, object]]


def summary(cells: Cells, groups: dict[str, tuple[Shape, ...]]) -> str:
    """The worst cell of each group, for each number of arms."""
    return _rows(cells, {f"{title} ({len(group)})": group for title, group in groups.items()})


def table(cells: Cells, shapes: tuple[Shape, ...]) -> str:
    """A row for each shape."""
    return _rows(cells, {shape.name: (shape,) for shape in shapes})


def _rows(cells: Cells, groups: dict[str, tuple[Shape, ...]]) -> str:
    by_place = {(cell["shape"], cell["arms"], cell["anytime"]): cell for cell in cells}
    head = [f"{title}, {how}" for how in ("planned", "anytime") for title in TITLES]
    lines = ["| differences | " + " | ".join(head) + " |", "|---|" + "---|" * len(head)]
    for title, shapes in groups.items():
        row = [title]
        for anytime in (False, True):
            for name in NAMES:
                worst = min if name == "coverage" else max
                cells_of = ([by_place.get((shape.name, arms, anytime)) for shape in shapes] for arms in ARMS)
                row.append(" · ".join(_worst(group, name, worst) for group in cells_of))
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def _worst(cells: list[dict[str, object] | None], name: str, worst: Callable[..., float]) -> str:
    """The worst rate in percent; a dash if a cell has not been measured."""
    known = [float(str(cell[name])) for cell in cells if cell is not None]
    return f"{100 * worst(known):.1f}" if len(known) == len(cells) else "–"


def beyond(cells: Cells, shapes: tuple[Shape, ...]) -> list[str]:
    """The cells beyond their limits, in words; shapes that are reported apart are left out."""
    known = {shape.name: shape for shape in shapes if shape not in (*APART, *FRESH_APART)}
    found = [Cell(**cell) for cell in cells if cell["shape"] in known]  # type: ignore[arg-type]
    return [cell.sentence for cell in found if cell.above(known[cell.shape])]
