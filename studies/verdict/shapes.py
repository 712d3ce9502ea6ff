"""Where simulated differences come from. All have 0 as the truth, and most a deviation of 1.

The constants of the rule were chosen while looking at `SYMMETRIC`, `SKEWED` and `APART`. The `FRESH_…` shapes
were written down after that. One thing was changed after they had been measured: masked tails were added to
the rule, chosen while looking at `UNEQUAL` and at none of the fresh shapes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


@dataclass(frozen=True)
class Shape:
    """A kind of noise.

    Attributes:
        name: What the table calls it.
        draw: Draws the differences of one arm.
        shared: Draws a baseline's noise that all arms share, if there is one, and `draw` an arm's own noise.
        step: The metric's resolution; 0 if it has none.
    """

    name: str
    draw: Draw
    shared: Draw | None = None
    step: float = 0.0

    def arms(
        self, random: np.random.Generator, num: int, arms: int, pairs: int
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Differences of several arms from one baseline, [races, arms, pairs], and it: [races, 1, pairs].

        None for a baseline that does not vary.
        """
        own = self.draw(random, (num, arms, pairs))
        if self.shared is None:
            return own, None
        baseline = self.shared(random, (num, 1, pairs))
        return own - baseline, baseline


# -- noise of one arm, or of a difference --------------------------------------------------------------------


def gaussian(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return random.standard_normal(shape)


def student(degrees: float) -> Draw:
    return lambda random, shape: random.standard_t(degrees, shape) / math.sqrt(degrees / (degrees - 2))


def laplace(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return random.laplace(size=shape) / math.sqrt(2)


def uniform(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return (random.random(shape) - 0.5) * math.sqrt(12)


def arcsine(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return (random.beta(0.5, 0.5, shape) - 0.5) * math.sqrt(8)


def gamma(degrees: float, sign: int = 1) -> Draw:
    """Skewness 2/√degrees."""
    return lambda random, shape: sign * (random.gamma(degrees, size=shape) - degrees) / math.sqrt(degrees)


def lognormal(sigma: float, sign: int = 1) -> Draw:
    mean, factor = math.exp(sigma**2 / 2), math.exp(sigma**2)
    deviation = math.sqrt((factor - 1) * factor)
    return lambda random, shape: sign * (random.lognormal(sigma=sigma, size=shape) - mean) / deviation


def weibull(power: float) -> Draw:
    mean = math.gamma(1 + 1 / power)
    deviation = math.sqrt(math.gamma(1 + 2 / power) - mean**2)
    return lambda random, shape: (random.weibull(power, shape) - mean) / deviation


def gumbel(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return (random.gumbel(size=shape) - np.euler_gamma) / (math.pi / math.sqrt(6))


def wald(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Inverse Gaussian, skewness 1.9."""
    return (random.wald(1.0, 2.5, shape) - 1) * math.sqrt(2.5)


def beta(first: float, second: float, sign: int = 1) -> Draw:
    total = first + second
    deviation = math.sqrt(first * second / (total**2 * (total + 1)))
    return lambda random, shape: sign * (random.beta(first, second, shape) - first / total) / deviation


def skew_normal(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Skewness 0.95."""
    half, other = np.abs(random.standard_normal(shape)), random.standard_normal(shape)
    weight = 8 / math.sqrt(65)
    mean = weight * math.sqrt(2 / math.pi)
    return (weight * half + math.sqrt(1 - weight**2) * other - mean) / math.sqrt(1 - mean**2)


def clusters(share: float, apart: float, width: float = 1.0) -> Draw:
    """A share of the seeds lies lower by `apart`."""

    def draw(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        low = np.where(random.random(shape) < share, -apart, 0.0) + share * apart
        return (low + width * random.standard_normal(shape)) / math.sqrt(
            share * (1 - share) * apart**2 + width**2
        )

    return draw


def scaled(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Gaussian with a deviation of its own for each seed."""
    return random.standard_normal(shape) * np.exp(0.6 * random.standard_normal(shape)) / math.exp(0.36)


def growing(times: float) -> Draw:
    """Gaussian with a deviation that grows over the seeds, evenly."""

    def draw(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        deviation = np.linspace(1.0, times, shape[-1])
        return random.standard_normal(shape) * deviation / math.sqrt(float((deviation**2).mean()))

    return draw


# -- two arms of the same kind ------------------------------------------------------------------------------


def half(draw: Draw) -> Draw:
    """One of two arms whose difference has deviation 1."""
    return lambda random, shape: draw(random, shape) / math.sqrt(2)


def diverging(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """A replica diverges with probability 10 % and counts as the cap, five deviations down."""
    return np.where(random.random(shape) < 0.1, -5.0, random.standard_normal(shape)) / math.sqrt(3.4)


def accuracy(examples: int, share: float, spread: float = 0.0) -> Draw:
    """Accuracies on some test examples; `spread` is what seeds add."""

    def draw(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        chance = np.clip(share + spread * random.standard_normal(shape), 0, 1)
        return random.binomial(examples, chance) / examples

    return draw


def tied(share: float, examples: int) -> Draw:
    """Most pairs are equal; the others differ by one example, either way."""

    def draw(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        moved = random.random(shape) < share
        return np.where(moved, random.choice([-1.0, 1.0], shape), 0.0) / examples

    return draw


def same(name: str, draw: Draw, step: float = 0.0) -> Shape:
    """Arms that do not differ: each has this noise."""
    return Shape(name, draw, shared=draw, step=step)


SYMMETRIC = (
    Shape("Gaussian", gaussian),
    Shape("Student's t, 3 degrees of freedom", student(3)),
    Shape("uniform", uniform),
    Shape("Student's t, 5 degrees of freedom", student(5)),
    Shape("Laplace", laplace),
    Shape("arcsine", arcsine),
    Shape("two clusters of seeds, half in each", clusters(0.5, 4)),
    Shape("deviation differs from seed to seed", scaled),
    same("A/A, Gaussian", half(gaussian)),
    same("A/A, exponential noise in each arm", half(gamma(1))),
    same("A/A, lognormal noise in each arm", half(lognormal(1))),
    same("A/A, chi-square noise in each arm", half(gamma(0.5))),
    same("A/A, each replica diverges with probability 10 %, capped", diverging),
    same("A/A, one seed in five is bad, in each arm", half(clusters(0.2, 5))),
    same("A/A, accuracies of 97 % on 200 examples", accuracy(200, 0.97), 1 / 200),
    same("A/A, accuracies of 94 % on 359 examples, seeds differ", accuracy(359, 0.94, 0.01), 1 / 359),
    same("A/A, accuracies near the ceiling, 99.8 % of 359", accuracy(359, 0.998), 1 / 359),
    Shape("88 % ties, else one example of 359 either way", tied(0.12, 359), step=1 / 359),
)
SKEWED = (
    Shape("exponential, skewness 2", gamma(1)),
    Shape("lognormal ½, skewness 1.75", lognormal(0.5)),
    Shape("Weibull 0.8, skewness 2.8", weibull(0.8)),
    Shape("chi-square with 1 degree, skewness 2.8", gamma(0.5)),
    Shape("one seed in five lies lower by 3 deviations", clusters(0.2, 3)),
    Shape(
        "exponential baseline, tight candidate",
        lambda random, shape: 0.3 * gaussian(random, shape),
        shared=gamma(1),
    ),
    Shape("lognormal 0.7, skewness 3.0", lognormal(0.7)),
    Shape("lognormal ½, to the left", lognormal(0.5, -1)),
    Shape("gamma 0.7, to the left, skewness 2.4", gamma(0.7, -1)),
    Shape("gamma 2, skewness 1.4", gamma(2)),
    Shape("Gumbel, skewness 1.1", gumbel),
    Shape("inverse Gaussian, skewness 1.9", wald),
    Shape("beta (1, 6), skewness 1.2", beta(1, 6)),
    Shape("beta (5, ½), to the left, skewness 1.9", beta(5, 0.5)),
    Shape("skew normal, skewness 0.95", skew_normal),
    Shape("Weibull 1.2, skewness 1.5", weibull(1.2)),
    Shape("lognormal baseline, Gaussian candidate", half(gaussian), shared=half(lognormal(0.7))),
    Shape("one seed in three lies lower by 4 deviations", clusters(1 / 3, 4)),
)
APART = (  # rare large losses balance frequent small gains: few pairs may show no loss at all
    Shape("lognormal 1, skewness 6.2", lognormal(1)),
    Shape("one seed in ten is bad, by 3 deviations", clusters(0.1, 3)),
    Shape("one seed in ten is bad, by 5 deviations", clusters(0.1, 5)),
    Shape("one seed in ten is bad, by 10 deviations", clusters(0.1, 10)),
    Shape("two values: one seed in five is bad", clusters(0.2, 1, 0.05)),
    Shape("deviation grows threefold over the seeds", growing(3)),
)


# -- never looked at while the rule was made -----------------------------------------------------------------


def logistic(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return random.logistic(size=shape) / (math.pi / math.sqrt(3))


def triangular(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    return random.triangular(-1, 0, 1, shape) * math.sqrt(6)


def contaminated(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """One seed in ten has three times the deviation."""
    wide = np.where(random.random(shape) < 0.1, 3.0, 1.0)
    return random.standard_normal(shape) * wide / math.sqrt(1.8)


def half_normal(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    mean = math.sqrt(2 / math.pi)
    return (np.abs(random.standard_normal(shape)) - mean) / math.sqrt(1 - mean**2)


def log_gamma(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """To the left, skewness −0.87."""
    return (np.log(random.gamma(1.5, size=shape)) - 0.03649) / math.sqrt(0.9348)


FRESH_SYMMETRIC = (
    Shape("logistic", logistic),
    Shape("Student's t, 4 degrees of freedom", student(4)),
    Shape("Student's t, 7 degrees of freedom", student(7)),
    Shape("triangular", triangular),
    Shape("one seed in ten with three times the deviation", contaminated),
    Shape("two clusters of seeds, half in each, nearer", clusters(0.5, 2.5)),
    Shape("deviation grows by half over the seeds", growing(1.5)),
    same("A/A, gamma noise in each arm", half(gamma(0.7))),
    same("A/A, Weibull noise in each arm", half(weibull(0.9))),
    same("A/A, Student's t noise in each arm", half(student(3))),
    same("A/A, one seed in ten is bad, in each arm", half(clusters(0.1, 4))),
    same("A/A, accuracies of 90 % on 500 examples", accuracy(500, 0.90), 1 / 500),
    same("A/A, accuracies of 85 % on 359 examples, seeds differ", accuracy(359, 0.85, 0.02), 1 / 359),
    same("A/A, accuracies near the ceiling, 99.9 % of 1000", accuracy(1000, 0.999), 1 / 1000),
    Shape("75 % ties, else one example of 100 either way", tied(0.25, 100), step=1 / 100),
)
FRESH_SKEWED = (
    Shape("gamma 1.5, skewness 1.6", gamma(1.5)),
    Shape("gamma 0.8, to the left, skewness 2.2", gamma(0.8, -1)),
    Shape("lognormal 0.4, skewness 1.3", lognormal(0.4)),
    Shape("lognormal 0.6, to the left, skewness 2.3", lognormal(0.6, -1)),
    Shape("Weibull 0.9, skewness 2.3", weibull(0.9)),
    Shape("Weibull 1.5, skewness 1.1", weibull(1.5)),
    Shape("half normal, skewness 1.0", half_normal),
    Shape("log-gamma, to the left", log_gamma),
    Shape("beta (2, 8), skewness 0.8", beta(2, 8)),
    Shape("beta (0.7, 4), skewness 1.6", beta(0.7, 4)),
    Shape("one seed in four lies lower by 2.5 deviations", clusters(0.25, 2.5)),
    Shape("exponential baseline, Gaussian candidate", half(gaussian), shared=half(gamma(1))),
    Shape("Gaussian baseline, gamma candidate", half(gamma(1)), shared=half(gaussian)),
    Shape("gamma baseline, tight candidate", lambda r, s: 0.2 * gaussian(r, s), shared=gamma(1.5)),
)
FRESH_APART = (
    Shape("one seed in eight is bad, by 4 deviations", clusters(0.125, 4)),
    Shape("two values: one seed in six is bad", clusters(1 / 6, 1, 0.1)),
)


def times(share: float, draw: Draw) -> Draw:
    """The same noise with a share of the spread."""
    return lambda random, shape: share * draw(random, shape)


def both(name: str, noise: Draw, candidate: float, baseline: float) -> Shape:
    """The same skewed noise in both arms, with different spreads: one tail masks a part of the other."""
    return Shape(name, times(candidate, noise), shared=times(baseline, noise))


# Written down after a study of cached baselines had met such noise; the masked part of the rule was chosen
# while looking at them.
UNEQUAL = (
    both("both arms exponential, baseline with half the spread", gamma(1), 1, 0.5),
    both("both arms exponential, baseline with a third of the spread", gamma(1), 1, 1 / 3),
    both("both arms gamma 2, baseline with half the spread", gamma(2), 1, 0.5),
    both("both arms chi-square with 3 degrees, baseline with half the spread", gamma(1.5), 1, 0.5),
    both("both arms lognormal ½, baseline with half the spread", lognormal(0.5), 1, 0.5),
    both("both arms Gumbel, baseline with half the spread", gumbel, 1, 0.5),
    both("both arms Weibull 0.8, baseline with a third of the spread", weibull(0.8), 1, 1 / 3),
    both("both arms chi-square with 1 degree, baseline with a third of the spread", gamma(0.5), 1, 1 / 3),
)


def with_luck(share: float, draw: Draw) -> Draw:
    """Noise of an arm that is in part symmetric."""
    rest = math.sqrt(1 - share)
    return lambda random, shape: math.sqrt(share) * draw(random, shape) + rest * random.standard_normal(shape)


# Written down after that choice, and nothing was changed after they had been measured.
FRESH_UNEQUAL = (
    both("both arms inverse Gaussian, candidate with half the spread", wald, 0.5, 1),
    both("both arms exponential, candidate with 40 % of the spread", gamma(1), 0.4, 1),
    both("both arms gamma 0.7, baseline with 60 % of the spread", gamma(0.7), 1, 0.6),
    both("both arms gamma 0.7, to the left, baseline with a quarter of the spread", gamma(0.7, -1), 1, 0.25),
    both("both arms lognormal 0.6, baseline with 40 % of the spread", lognormal(0.6), 1, 0.4),
    both("both arms lognormal 0.6, to the left, candidate with 60 %", lognormal(0.6, -1), 0.6, 1),
    both("both arms Weibull 0.9, candidate with a third of the spread", weibull(0.9), 1 / 3, 1),
    both("both arms half normal, baseline with half the spread", half_normal, 1, 0.5),
    both("both arms beta (0.7, 4), candidate with 70 % of the spread", beta(0.7, 4), 0.7, 1),
    both("one seed in four lies lower, in both arms, half the spread", clusters(0.25, 2.5), 1, 0.5),
    Shape("exponential candidate, Gumbel baseline with half the spread", gamma(1), shared=times(0.5, gumbel)),
    Shape("lognormal ½ candidate to the left, gamma 2 baseline", lognormal(0.5, -1), shared=gamma(2)),
    Shape("gamma 1.5 candidate, to the left, half as wide a baseline to the right", gamma(1.5, -1),
          shared=times(0.5, gamma(1.5))),
    both("both arms half exponential, half Gaussian, 40 % of the spread", with_luck(0.5, gamma(1)), 1, 0.4),
)  # fmt: skip
EVERY = (*SYMMETRIC, *SKEWED, *APART, *FRESH_SYMMETRIC, *FRESH_SKEWED, *FRESH_APART, *UNEQUAL, *FRESH_UNEQUAL)
