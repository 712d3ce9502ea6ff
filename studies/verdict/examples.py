"""Verdicts over seeds and over test examples: how often each is wrong when both are drawn at random.

`python -m studies.verdict.examples` prints the table of docs/verdict.md. The truth is the difference of two
recipes on the population that the examples are drawn from. The recipes get different examples right: on
example i they are right with probabilities that differ by `effect` + δᵢ, where δᵢ has mean 0 and standard
deviation `spread`. So one test set favours one of them by chance.
"""

from __future__ import annotations

import sys
import zlib
from dataclasses import dataclass

import numpy as np

from apoint.verdict import DEFAULT_LOOKS
from apoint.verdict.examples import example_noise
from studies.verdict.rule import Paths, rule_of, simulate

PAIRS = DEFAULT_LOOKS[-1]
COMPARISONS = 10_000
FEWER, LARGE = 2_000, 10_000  # so many comparisons for test sets of this size, which take longer
EASIEST, HARDEST = 0.95, 0.6  # the probabilities that both recipes have in common
LUCK = 0.005  # how much a seed moves a recipe's probability on all examples, standard deviation
ALIKE = 0.5  # in so many cases the two replicas of a pair are right or wrong together
NO_MARGIN = 1e-9  # so small that equivalence cannot be called


@dataclass(frozen=True)
class Scene:
    """A test set, and two recipes that differ on it.

    Attributes:
        examples: On how many examples a pair is measured.
        pool: From how many they are drawn again with each seed; as many as `examples` for one fixed test set.
        spread: The standard deviation over examples of the difference in the probability of being right.
        effect: The difference on the population.
    """

    examples: int
    pool: int
    spread: float
    effect: float = 0.0

    @property
    def name(self) -> str:
        """The scene in a few words."""
        drawn = f"{self.examples:,} of {self.pool:,} drawn by the seed"
        return f"{self.examples:,} fixed" if self.pool == self.examples else drawn


SCENES = tuple(
    Scene(*sizes, spread, effect)
    for sizes in ((359, 359), (1_000, 1_000), (10_000, 10_000), (359, 1_797))
    for spread, effect in ((0.0, 0.0), (0.05, 0.0), (0.1, 0.0), (0.1, 0.01))
)


@dataclass(frozen=True)
class Rates:
    """How often each verdict calls a difference, its coverage of the truth, and the widths.

    Attributes:
        seeds_calls: By the interval over seeds, if that decides.
        both_calls: By the interval over seeds and examples, if that decides at each look.
        seeds_coverage: Of the interval over seeds, at the look that it decided.
        both_coverage: Of the interval over both, at the look that it decided.
        beside_coverage: Of the interval over both, at the look that the interval over seeds decided.
        width: How many times as wide the interval over both is after the last pair, on average.
    """

    scene: Scene
    seeds_calls: float
    both_calls: float
    seeds_coverage: float
    both_coverage: float
    beside_coverage: float
    width: float
    comparisons: int = 0

    @property
    def beyond(self) -> bool:
        """Whether a rate of the interval over both is beyond its limit."""
        called_wrongly = self.scene.effect == 0 and self.both_calls > 0.055
        return called_wrongly or min(self.both_coverage, self.beside_coverage) < 0.94


def draw_pairs(scene: Scene, random: np.random.Generator) -> tuple[list[np.ndarray], list[np.ndarray | None]]:
    """One comparison: for each pair the differences on its examples, and which examples these are."""
    delta = random.uniform(-np.sqrt(3), np.sqrt(3), scene.pool) * scene.spread + scene.effect
    middle = random.uniform(HARDEST, EASIEST, scene.pool)
    chances = np.stack([middle - delta / 2, middle + delta / 2]).astype(np.float32)
    differences, rows = [], []
    for _ in range(PAIRS):
        fixed = scene.pool == scene.examples
        own = None if fixed else random.choice(scene.pool, scene.examples, replace=False)
        luck = random.normal(0, LUCK, (2, 1)).astype(np.float32)
        bars = random.random((2, scene.examples), dtype=np.float32)
        together = random.random(scene.examples, dtype=np.float32) < ALIKE
        bars[1] = np.where(together, bars[0], bars[1])
        baseline, candidate = bars < (chances if own is None else chances[:, own]) + luck
        differences.append(candidate.astype(float) - baseline)
        rows.append(own)
    return differences, rows


def measure(scene: Scene, comparisons: int | None = None, seed: int = 0) -> Rates:
    """The rates of a scene."""
    comparisons = comparisons or (COMPARISONS if scene.examples < LARGE else FEWER)
    random = np.random.default_rng(zlib.crc32(f"{scene}/{seed}".encode()))
    means, errors = np.empty((comparisons, PAIRS)), np.empty((len(DEFAULT_LOOKS), comparisons))
    for place in range(comparisons):
        differences, rows = draw_pairs(scene, random)
        means[place] = [pair.mean() for pair in differences]
        noise = example_noise(differences, rows)
        errors[:, place] = [noise.error(n) for n in DEFAULT_LOOKS]
    return _rates(scene, means, errors)


def _rates(scene: Scene, means: np.ndarray, errors: np.ndarray) -> Rates:
    step = 1 / scene.examples
    seeds = simulate(means, NO_MARGIN, DEFAULT_LOOKS, truth=scene.effect, step=step)
    both = simulate(means, NO_MARGIN, DEFAULT_LOOKS, truth=scene.effect, step=step, example_error=errors)
    seeds_error = means.std(1, ddof=1) / np.sqrt(PAIRS)
    return Rates(
        scene,
        seeds.calls,
        both.calls,
        float(seeds.covered.mean()),
        float(both.covered.mean()),
        _beside_coverage(scene, seeds.pairs, Paths(means, DEFAULT_LOOKS, step, errors)),
        float((np.hypot(seeds_error, errors[-1]) / seeds_error).mean()),
        len(means),
    )


def settled(scene: Scene) -> list[Rates]:
    """The rates of a scene, and once more with ten times as many comparisons if one is beyond its limit.

    Then the last counts, which has new seeds; both are shown.
    """
    first = measure(scene)
    return [first, measure(scene, 10 * first.comparisons, seed=1)] if first.beyond else [first]


def _beside_coverage(scene: Scene, pairs: np.ndarray, paths: Paths) -> float:
    """How often the interval over both holds the truth at the look where another rule stopped."""
    wide = rule_of(DEFAULT_LOOKS, 0.05, anytime=False).critical(np.array(DEFAULT_LOOKS, dtype=float))
    covered = np.array(
        [np.abs(paths.touching(place, scene.effect)) <= wide[place] for place in range(len(DEFAULT_LOOKS))]
    )
    stopped = np.searchsorted(DEFAULT_LOOKS, pairs)
    return float(np.take_along_axis(covered, stopped[None], 0).mean())


HEAD = (
    "test examples",
    "comparisons",
    "spread",
    "effect",
    "called, seeds",
    "called, both",
    "coverage, seeds",
)
HEAD += ("coverage, both", "coverage, both beside", "width")


def table(cells: list[Rates]) -> str:
    """The rates in percent, a row for each scene."""
    lines = ["| " + " | ".join(HEAD) + " |", "|---|" + "---:|" * (len(HEAD) - 1)]
    for cell in cells:
        names = ("seeds_calls", "both_calls", "seeds_coverage", "both_coverage", "beside_coverage")
        rates = [f"{100 * getattr(cell, name):.1f} %" for name in names]
        row = [
            cell.scene.name,
            f"{cell.comparisons:,}",
            f"{cell.scene.spread:g}",
            f"{cell.scene.effect:g}",
            *rates,
        ]
        lines.append("| " + " | ".join([*row, f"{cell.width:.2f}"]) + " |")
    return "\n".join(lines)


def main() -> int:
    """Measure all scenes and print the table; what is done goes to the other stream."""
    cells: list[Rates] = []
    for scene in SCENES:
        cells += settled(scene)
        print(cells[-1], file=sys.stderr, flush=True)
    print(table(cells))
    return 0


if __name__ == "__main__":
    sys.exit(main())
