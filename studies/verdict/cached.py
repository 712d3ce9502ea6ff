"""`python -m studies.verdict.cached`: error rates and power with further replicas of the baseline.

The candidate is c = spread·(ρ·b + √(1 − ρ²)·e), with b and e of the same noise. The rule's constant was
chosen on `CHOICE`; `CASES` were measured after that. As in `rates`, a cell beyond its limit is measured again
with ten times as many comparisons on new seeds, and that counts.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import sys
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from scipy.special import stdtrit

from apoint.verdict import DEFAULT_LOOKS
from apoint.verdict.further import DOUBT
from studies.verdict import shapes
from studies.verdict.rule import (
    BETTER,
    EQUIVALENT,
    WORSE,
    Moments,
    Paths,
    Result,
    central_moments,
    masked,
    parts_of_skewness,
    points_of,
    rule_of,
    running_sums,
    simulate,
    walk,
)
from studies.verdict.shapes import Draw

COMPARISONS = 10_000
PAIRS = {False: 32, True: 64}
NEVER = math.inf
EFFECTS = (0.5, 1.0, 2.0)


class CachedPaths(Paths):
    """Mean, standard error and skewness with further replicas of the baseline, written a second time.

    Args:
        baseline: A row for each comparison.
        candidate: The same.
        further: Numbers of further replicas.
        joins: From which number of pairs on each is part of a pair; `NEVER`, or −1 if it is not there at all.
        points: The numbers of pairs.
        step: The metric's resolution.
        doubt: The constant of the rule, to see what another one would do.
    """

    def __init__(
        self,
        baseline: np.ndarray,
        candidate: np.ndarray,
        further: np.ndarray,
        joins: np.ndarray,
        points: Sequence[int],
        step: float = 0.0,
        doubt: float = DOUBT,
    ) -> None:
        super().__init__(candidate - baseline, points, step, baseline=baseline)
        self.hidden = np.zeros_like(self.mean)
        centre = baseline.mean(1, keepdims=True)
        b, d, self._f = baseline - centre, candidate - baseline, further - centre
        self._sums = running_sums(d - d.mean(1, keepdims=True), b)
        self._joins, self._floor, self._doubt = np.broadcast_to(joins, further.shape), step / 2, doubt
        self._all_beyond = self._further_sums(0) if (self._joins == NEVER).all() else None
        for place, n in enumerate(self.points):
            self._sharpen(place, n)

    def _further_sums(self, n: int) -> list[np.ndarray]:
        """How many further replicas a look at n pairs has, and the sums of their powers."""
        there = self._joins >= n
        f = np.where(there, self._f, 0.0)
        return [there.sum(1), f.sum(1), (f * f).sum(1), (f * f * f).sum(1)]

    def _sharpen(self, place: int, n: int) -> None:
        m, *powers = self._all_beyond or self._further_sums(n)
        e = {key: each[:, n - 1] / n for key, each in self._sums.items()}
        first, second, third = (
            (n * e[0, k] + power) / (n + m) for k, power in zip((1, 2, 3), powers, strict=True)
        )
        c = central_moments(e)
        sample = n / (n - 1)
        s_dd, s_db, s_bb = c[2, 0] * sample, c[1, 1] * sample, c[0, 2] * sample
        spread = np.maximum(second - first**2, 0.0)
        s_all = spread * (n + m) / np.maximum(n + m - 1, 1)
        usable = (m > 0) & (s_bb > 1e-20) & (s_dd > 1e-20) & (s_db != 0)
        r2 = np.minimum(np.where(usable, s_db**2 / np.where(usable, s_bb * s_dd, 1.0), 0.0), 1.0)
        share = 1 - np.where(usable, self._doubt, 1.0) * (1 - r2) / np.where(usable, (n - 2) * r2, 1.0)
        usable &= share > 0
        share, ratio = np.where(usable, share, 0.0), n / np.maximum(m, 1)
        q = np.where(usable, s_bb + ratio * s_all, 1.0)
        w = -share * s_db / q
        own = w**2 * ratio * s_all
        variance = own + np.maximum(s_dd - share**2 * s_db**2 / q - own, self._floor**2)
        own_parts = _with_weight(c, w)
        alone = np.maximum(own_parts[2, 0], 0.0)
        squares = alone + w**2 * ratio * spread
        squares = np.where(squares > 0, squares, 1.0)
        beyond = -(w**3) * ratio**2 * (third - 3 * first * second + 2 * first**3) / squares**1.5
        scale = (alone / squares) ** 1.5
        parts = [*(scale * part for part in parts_of_skewness(own_parts, n)), beyond]
        self.mean[place] += w * (e[0, 1] - powers[0] / np.maximum(m, 1))
        self.error[place] = np.where(usable, np.sqrt(variance / n), self.error[place])
        self.skew[place] = np.where(usable, sum(parts), self.skew[place])
        self.masked[place] = np.where(usable, masked(*parts), self.masked[place])
        constant = s_dd <= 1e-20
        varied = np.where(constant, s_bb, np.where(usable & (1 - r2 <= 1e-12), s_all, 0.0))
        self.hidden[place] = np.sqrt(2 * np.maximum(varied, 0.0))

    def touching(self, place: int, value: np.ndarray | float, scale: float = 1.0) -> np.ndarray:
        """As ever; where nothing varies, the interval also holds what the pairs cannot have shown."""
        found, hidden, n = super().touching(place, value, scale), self.hidden[place], self.points[place]
        if not hidden.any():
            return found
        share = np.abs(self.mean[place] - value) / np.where(hidden > 0, hidden, 1.0)
        level = np.where(share < 1, 1 - share, 1.0) ** n
        unseen = np.where(share < 1, -stdtrit(n - 1, level / 2), np.inf)
        return np.where(hidden > 0, np.sign(found) * np.minimum(np.abs(found), unseen), found)


def _with_weight(c: Moments, w: np.ndarray) -> Moments:
    """The central moments of d + w·b and (1 − w)·b."""
    left = 1 - w
    return {
        (2, 0): c[2, 0] + 2 * w * c[1, 1] + w**2 * c[0, 2],
        (1, 1): left * (c[1, 1] + w * c[0, 2]),
        (0, 2): left**2 * c[0, 2],
        (3, 0): c[3, 0] + 3 * w * c[2, 1] + 3 * w**2 * c[1, 2] + w**3 * c[0, 3],
        (2, 1): left * (c[2, 1] + 2 * w * c[1, 2] + w**2 * c[0, 3]),
    }


# -- cases ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Noise:
    """A kind of noise in both arms; with a step, numbers lie on that grid, and a deviation is one step."""

    name: str
    draw: Draw
    skewed: bool = False
    step: float = 0.0


@dataclass(frozen=True)
class Case:
    """Two arms and what is known of the baseline beforehand.

    `further` replicas lie beyond the pairs. `known`: the baseline's first so many seeds, which become pairs.
    `earlier`: as many as an earlier comparison left, of an independent candidate with this effect.
    """

    noise: Noise
    rho: float
    spread: float
    further: int = 0
    known: int = 0
    earlier: float | None = None
    anytime: bool = False

    @property
    def name(self) -> str:
        cached = f"{self.further} beyond" if self.further else f"{self.known} among the pairs' seeds"
        if self.earlier is not None:
            cached = f"left by a comparison with effect {self.earlier:g}"
        how = ", anytime" if self.anytime else ""
        return f"{self.noise.name}, correlation {self.rho:g}, spread {self.spread:g}, {cached}{how}"

    @property
    def limits(self) -> tuple[float, float, float]:
        """The highest rate of false calls, the lowest coverage, the highest rate of false equivalence."""
        return (0.065 if self.noise.skewed else 0.055), 0.94, 0.05


@dataclass
class Arms:
    """Simulated numbers of a case: rows are comparisons."""

    baseline: np.ndarray
    candidate: np.ndarray
    further: np.ndarray
    joins: np.ndarray


def draw_arms(case: Case, random: np.random.Generator, num: int) -> Arms:
    """Numbers of a case without an effect."""
    pairs, draw, scale = PAIRS[case.anytime], case.noise.draw, case.noise.step or 1.0
    b, e = draw(random, (num, pairs)), draw(random, (num, pairs))
    further, joins = draw(random, (num, case.further)), np.full((1, case.further), NEVER)
    c = case.spread * (case.rho * b + math.sqrt(1 - case.rho**2) * e)
    if case.earlier is not None:
        other = draw(random, (num, pairs)) - b
        used = simulate(other + case.earlier * math.sqrt(2), 0.5 * math.sqrt(2), DEFAULT_LOOKS).pairs
        places = np.arange(pairs)[None, :]
        further, joins = b, np.where(places < used[:, None], places, -1)
    elif case.known:
        further, joins = b[:, : case.known], np.arange(case.known)[None, :]
    parts = (b * scale, c * scale, further * scale)
    if case.noise.step:
        parts = tuple(np.round(each / case.noise.step) * case.noise.step for each in parts)  # type: ignore[assignment]
    return Arms(*parts, joins)


# -- measuring -----------------------------------------------------------------------------------------------


def paths_of(case: Case, arms: Arms, doubt: float = DOUBT) -> Paths:
    """What each look sees with further replicas; an infinite doubt is the rule without them."""
    points, step = points_of(DEFAULT_LOOKS, case.anytime, arms.baseline.shape[1]), case.noise.step
    joins = np.array([[-1.0]]) if math.isinf(doubt) else arms.joins
    return CachedPaths(arms.baseline, arms.candidate, arms.further, joins, points, step, doubt)


def judged(case: Case, paths: Paths, margin: float, effect: float = 0.0) -> Result:
    """The outcomes if this effect is added to the candidate, which moves the mean and nothing else."""
    moved = copy.copy(paths)
    moved.mean = paths.mean + effect
    return walk(moved, rule_of(DEFAULT_LOOKS, 0.05, case.anytime), margin, effect)


def measure(case: Case, num: int = COMPARISONS, seed: int = 0, doubt: float = DOUBT) -> dict[str, float]:
    """The error rates of a case, and its power at ½, 1 and 2 deviations of the paired difference."""
    arms = draw_arms(case, np.random.default_rng(zlib.crc32(f"{case.name}/{seed}".encode())), num)
    deviation, paths = float((arms.candidate - arms.baseline).std()), paths_of(case, arms, doubt)

    def result(effect: float, margin: float) -> Result:
        return judged(case, paths, margin * deviation, effect * deviation)

    same = [result(side * margin, margin) for margin in (0.5, 1.0) for side in (1, -1)]
    found = {
        "false_calls": result(0.0, 1e-6).rate(BETTER, WORSE),
        "coverage": min(float(result(effect, 0.5).covered.mean()) for effect in (0.0, 0.5, -0.5)),
        "false_equivalent": max(each.rate(EQUIVALENT) for each in same),
    }
    for effect in EFFECTS:
        called = result(effect, 1e-6)
        found |= {f"calls {effect:g}": called.rate(BETTER), f"pairs {effect:g}": float(called.pairs.mean())}
    return found


def beyond(case: Case, cell: dict[str, float]) -> bool:
    """Whether a rate is beyond its limit."""
    calls, coverage, equivalent = case.limits
    return cell["false_calls"] > calls or cell["coverage"] < coverage or cell["false_equivalent"] > equivalent


def settled(case: Case) -> dict[str, float]:
    """A case; measured again, ten times as long and on new seeds, if a rate is beyond its limit."""
    cell, num = measure(case), COMPARISONS
    if beyond(case, cell):
        parts = [measure(case, seed=seed) for seed in range(1, 11)]
        cell, num = {name: float(np.mean([part[name] for part in parts])) for name in cell}, 10 * num
    return {**cell, "comparisons": num}


GRID = Noise("Gaussian, on a grid of one deviation", shapes.gaussian, step=1 / 359)
GAUSSIAN = Noise("Gaussian", shapes.gaussian)
NOISES = (
    GAUSSIAN,
    Noise("Student's t, 3 degrees of freedom", shapes.student(3)),
    Noise("lognormal ½", shapes.lognormal(0.5), skewed=True),
    Noise("chi-square, 3 degrees of freedom", shapes.gamma(1.5), skewed=True),
    GRID,
)
CHOICE = tuple(
    Case(noise, rho, spread, further)
    for noise, rho, spread, further in product(
        (
            GAUSSIAN,
            Noise("Laplace", shapes.laplace),
            Noise("exponential", shapes.gamma(1), skewed=True),
            Noise("Weibull 1.2", shapes.weibull(1.2), skewed=True),
        ),
        (0.15, 0.75, 0.95),
        (0.5, 1.0, 2.0),
        (20,),
    )
)
CORRELATIONS, SPREADS, FURTHER = (-0.3, 0.0, 0.3, 0.6, 0.9, 0.99), (0.3, 1.0, 3.0), (8, 26, 90)
CASES = (
    *(Case(*each) for each in product(NOISES, CORRELATIONS, SPREADS, FURTHER)),
    *(Case(n, r, 1.0, known=32) for n, r in product(NOISES, (0.0, 0.3, 0.6, 0.9))),
    *(Case(n, r, 1.0, earlier=e) for n, r, e in product(NOISES[:4], (0.0, 0.6), (0.5, 1.0))),
    *(Case(n, r, s, 26, anytime=True) for n, r, s in product(NOISES, (0.0, 0.6, 0.9), SPREADS)),
)


# -- tables --------------------------------------------------------------------------------------------------


def rates_table(cells: dict[str, dict[str, float]]) -> str:
    """The worst of each noise and way of looking, with the replicas and, in brackets, from pairs alone."""
    lines = ["| noise | false calls | coverage | false equivalent |", "|---|---|---|---|"]
    groups = [(noise, anytime) for anytime in (False, True) for noise in NOISES]
    for noise, anytime in groups:
        rows = [cells[c.name] for c in CASES if c.noise == noise and c.anytime == anytime]
        texts = []
        for name in ("false_calls", "coverage", "false_equivalent"):
            worst = min if name == "coverage" else max
            with_, alone = (100 * worst(row[key] for row in rows) for key in (name, f"paired {name}"))
            texts.append(f"{with_:.1f} % ({alone:.1f} %)")
        how = ", at any time" if anytime else ""
        lines.append(f"| {noise.name}{how} ({len(rows)} cases) | " + " | ".join(texts) + " |")
    return "\n".join(lines)


def gain_table(cells: dict[str, dict[str, float]]) -> str:
    """Gaussian noise: power at ½ deviation and mean pairs at 1 deviation, by correlation and spread."""
    head = ["correlation", "candidate's spread", "pairs alone", *(f"{m} further" for m in FURTHER)]
    lines = ["| " + " | ".join(head) + " |", "|---|---|" + "---|" * (len(FURTHER) + 1)]
    for spread, rho in product(SPREADS, CORRELATIONS):
        rows = [cells[Case(GAUSSIAN, rho, spread, m).name] for m in FURTHER]
        alone = [float(np.mean([row[f"paired {key}"] for row in rows])) for key in ("calls 0.5", "pairs 1")]
        texts = [_gain(*alone), *(_gain(row["calls 0.5"], row["pairs 1"]) for row in rows)]
        lines.append(f"| {rho:g} | {spread:g} | " + " | ".join(texts) + " |")
    return "\n".join(lines)


def _gain(calls: float, pairs: float) -> str:
    return f"{100 * calls:.0f} %, {pairs:.1f} pairs"


def bent_table(num: int = 20_000) -> str:
    """False calls where the candidate follows the baseline along a curve; 90 further replicas."""
    random = np.random.default_rng(5)
    bends: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
        "exp(b/2)": lambda b, e: np.exp(b / 2) - math.exp(1 / 8),
        "exp(b/2) + e": lambda b, e: np.exp(b / 2) - math.exp(1 / 8) + e,
        "b²/2 + e": lambda b, e: (b**2 - 1) / 2 + e,
        "b²": lambda b, e: b**2 - 1,
        "e·exp(b/2)": lambda b, e: e * np.exp(b / 2),
    }
    lines = ["| candidate | with further replicas | pairs alone |", "|---|---|---|"]
    for name, bend in bends.items():
        b, e = random.standard_normal((2, num, 32))
        arms = Arms(b, bend(b, e), random.standard_normal((num, 90)), np.full((1, 90), NEVER))
        case = Case(GAUSSIAN, 0.0, 1.0, 90)
        calls = [judged(case, paths_of(case, arms, doubt), 1e-6).calls for doubt in (DOUBT, math.inf)]
        lines.append(f"| {name} | {100 * calls[0]:.1f} % | {100 * calls[1]:.1f} % |")
    return "\n".join(lines)


def main() -> int:
    """Measure the cases, one JSON line each, and print the tables; 1 if one is beyond its limits."""
    parser = argparse.ArgumentParser(prog="python -m studies.verdict.cached")
    parser.add_argument("--results", type=Path, default=Path(".cached-study.jsonl"))
    parser.add_argument(
        "--choice", action="store_true", help="Measure other constants on the cases of choice."
    )
    options = parser.parse_args()
    if options.choice:
        return _choose()
    kept = options.results.read_text().splitlines() if options.results.exists() else []
    cells = {cell["case"]: cell for cell in map(json.loads, kept)}
    with options.results.open("a") as file:
        for case in (each for each in CASES if each.name not in cells):
            cell = settled(case)
            alone = {f"paired {name}": value for name, value in measure(case, doubt=math.inf).items()}
            cells[case.name] = {"case": case.name, **cell, **alone}
            file.write(json.dumps(cells[case.name]) + "\n")
            file.flush()
    wrong = [case.name for case in CASES if beyond(case, cells[case.name])]
    print(rates_table(cells), gain_table(cells), bent_table(), *wrong, sep="\n\n")
    print(f"\n{len(CASES)} cases, {len(wrong)} beyond their limits")
    return 1 if wrong else 0


def _choose() -> int:
    """The worst rates of the cases of choice, for several constants."""
    for doubt in (math.inf, 1.0, 2.0, 3.0):
        cells = [(case.noise.skewed, measure(case, doubt=doubt)) for case in CHOICE]
        for skewed in (False, True):
            group = [cell for lean, cell in cells if lean == skewed]
            calls, equivalent = (max(cell[n] for cell in group) for n in ("false_calls", "false_equivalent"))
            coverage, pairs = (
                worst(cell[n] for cell in group) for worst, n in ((min, "coverage"), (_mean, "pairs 1"))
            )
            words = (
                f"{100 * calls:.1f} % · {100 * coverage:.1f} % · {100 * equivalent:.1f} %, {pairs:.1f} pairs"
            )
            print(f"doubt {doubt:g}, {'skewed' if skewed else 'symmetric'}: {words}", flush=True)
    return 0


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


if __name__ == "__main__":
    sys.exit(main())
