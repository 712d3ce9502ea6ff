"""Error, power and pairs of the rule beside what is used otherwise, on the same simulated differences.

All methods see the same comparisons: up to 32 paired differences with a known mean, counted in standard
deviations of a difference. *False calls*: better or worse although the mean is 0. *Power*: better, with a
mean above 0. *Pairs*: how many are used on average; what stops early uses fewer. The margin is so small that
nothing can be equivalent. Skewed noise has its long tail above in one half of the comparisons and below in
the other, because tests do not treat both alike.

`confseq` and `baycomp` need not be there; what cannot be imported has a row that says so. Of `confseq` only
the betting part is used, which is plain Python; version 0.0.11 names a type that numpy 2 no longer has, and
cannot be imported with it as it is.
"""

from __future__ import annotations

import functools
import itertools
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special, stats

from apoint.verdict import DEFAULT_LOOKS
from studies.verdict.rule import BETTER, WORSE, simulate
from studies.verdict.shapes import Draw, gamma, gaussian, lognormal, student

ALPHA = 0.05
MARGIN = 0.001
PAIRS = 32
FIXED = (10, 16, 32)
FOUR_LOOKS = (8, 16, 24, 32)
SLOW = 2_000  # comparisons at most of a method that takes them one by one
EFFECTS = (0.0, 0.3, 0.5, 1.0, 2.0, 5.0)
POWER_AT = (0.3, 0.5, 1.0)
PAIRS_AT = (1.0, 2.0, 5.0)
CALIBRATIONS = 200_000
PATTERNS = 2_000  # random sign patterns of a permutation test that cannot try them all
EXACT_PAIRS = 13  # up to here all sign patterns are tried
NOT_INSTALLED = "not installed, or not importable"
BLOCK = 1_000  # comparisons permuted at a time
BOUNDS = (4.0, 8.0)  # `confseq` must be told a range: so many deviations to either side
CLEARLY = 4.0  # standard errors above the declared rate: rarely so by chance, in a hundred cells
EXAMPLES, ACCURACY = 359, 0.97


# -- the comparisons -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """A row of differences for each comparison, with deviation 1, and the resolution of the metric."""

    differences: np.ndarray
    step: float = 0.0

    def first(self, num: int) -> Sample:
        return Sample(self.differences[:num], self.step)


Source = Callable[[np.random.Generator, int, float], Sample]


def shifted(draw: Draw) -> Source:
    """This noise, upside down in every second comparison, plus the effect."""

    def source(random: np.random.Generator, num: int, effect: float) -> Sample:
        side = np.where(np.arange(num) % 2, -1.0, 1.0)[:, None]
        return Sample(side * draw(random, (num, PAIRS)) + effect)

    return source


def accuracies(random: np.random.Generator, num: int, effect: float) -> Sample:
    """Accuracies on some examples; the baseline's is lower by `effect` deviations of a difference."""
    spread = ACCURACY * (1 - ACCURACY)
    # δ is the positive root of examples·δ² = effect²·(variance of both arms' single answers)
    square, linear = EXAMPLES + effect**2, effect**2 * (2 * ACCURACY - 1)
    lower = (linear + math.sqrt(linear**2 + 8 * square * effect**2 * spread)) / (2 * square)
    chance = ACCURACY - lower
    deviation = math.sqrt((spread + chance * (1 - chance)) * EXAMPLES)
    right = [random.binomial(EXAMPLES, each, (num, PAIRS)) for each in (chance, ACCURACY)]
    return Sample((right[1] - right[0]) / deviation, 1 / deviation)


NOISES: dict[str, Source] = {
    "Gaussian": shifted(gaussian),
    "Student's t, 3 degrees of freedom": shifted(student(3)),
    "exponential, skewness 2": shifted(gamma(1)),
    "lognormal ½, skewness 1.75": shifted(lognormal(0.5)),
    "accuracies of 97 % on 359 examples": accuracies,
}


def comparisons(noise: str, effect: float, num: int) -> Sample:
    """The comparisons of a cell: the same whenever they are asked for."""
    return NOISES[noise](np.random.default_rng(zlib.crc32(f"{noise}/{effect}".encode())), num, effect)


# -- the methods ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Calls:
    """Of each comparison: 1 if the candidate is called better, −1 if worse, else 0; and the pairs used."""

    sign: np.ndarray
    pairs: np.ndarray


@dataclass(frozen=True)
class Method:
    """A way to call comparisons; `slow` if it takes them one by one, `call` None if it cannot be had."""

    name: str
    call: Callable[[Sample], Calls] | None
    slow: bool = False


def fixed(sign: np.ndarray, pairs: int) -> Calls:
    return Calls(sign, np.full(len(sign), pairs))


def stopped(signs: Sequence[np.ndarray], points: Sequence[int]) -> Calls:
    """The first look that calls; `signs` has the call of each look."""
    found = np.array(signs)
    place = np.where((found != 0).any(0), (found != 0).argmax(0), len(points) - 1)
    return Calls(found[place, np.arange(found.shape[1])], np.asarray(points)[place])


def ours(sample: Sample, anytime: bool = False) -> Calls:
    """The rule that is measured."""
    found = simulate(sample.differences, MARGIN, DEFAULT_LOOKS, ALPHA, anytime=anytime, step=sample.step)
    return Calls((found.outcome == BETTER).astype(int) - (found.outcome == WORSE), found.pairs)


def two_means(sample: Sample, pairs: int) -> Calls:
    """Whichever mean is higher."""
    return fixed(np.sign(sample.differences[:, :pairs].mean(1)), pairs)


def t_test(sample: Sample, pairs: int) -> Calls:
    """Scipy's, which `ttest_rel` applies to the differences."""
    found = stats.ttest_1samp(sample.differences[:, :pairs], 0.0, axis=1)
    return fixed(np.where(found.pvalue <= ALPHA, np.sign(found.statistic), 0), pairs)


def wilcoxon(sample: Sample, pairs: int) -> Calls:
    """Scipy's, as two one-sided tests. Few pairs are permuted here, as scipy does too, slowly, for ties."""
    differences = sample.differences[:, :pairs]
    if pairs <= EXACT_PAIRS:
        return fixed(flipped(signed_ranks(differences)), pairs)
    p = [stats.wilcoxon(differences, axis=1, alternative=side).pvalue for side in ("greater", "less")]
    return fixed((p[0] <= ALPHA / 2).astype(int) - (p[1] <= ALPHA / 2), pairs)


def signed_ranks(differences: np.ndarray) -> np.ndarray:
    """The ranks of the sizes among those that are not 0, with the signs of the differences."""
    sizes = np.where(differences == 0, np.nan, np.abs(differences))
    ranks = np.nan_to_num(stats.rankdata(sizes, axis=1, nan_policy="omit"))
    return np.asarray(np.sign(differences) * ranks)


def permutation(sample: Sample, pairs: int) -> Calls:
    """The signs of the differences are flipped at random; the statistic is their mean."""
    return fixed(flipped(sample.differences[:, :pairs]), pairs)


def flipped(values: np.ndarray) -> np.ndarray:
    """What the sign-flip test of each row's sum calls."""
    sums, patterns = values.sum(1), sign_patterns(values.shape[1])
    least = np.abs(sums) - 1e-9 * np.abs(values).sum(1)
    parts = [slice(start, start + BLOCK) for start in range(0, len(values), BLOCK)]
    above = [(np.abs(values[part] @ patterns) >= least[part, None]).mean(1) for part in parts]
    return np.where(np.concatenate(above) <= ALPHA, np.sign(sums), 0)


@functools.cache
def sign_patterns(pairs: int) -> np.ndarray:
    """All sign patterns of so many pairs, or random ones with the observed pattern among them; in columns."""
    if pairs <= EXACT_PAIRS:
        return np.array(list(itertools.product((1.0, -1.0), repeat=pairs))).T
    random = np.random.default_rng(zlib.crc32(f"patterns/{pairs}".encode()))
    patterns = random.choice([-1.0, 1.0], (pairs, PATTERNS))
    patterns[:, 0] = 1.0
    return patterns


def t_deviates(differences: np.ndarray, pairs: int) -> np.ndarray:
    """The t statistic as a normal deviate with the same tail probability; 0 if all differences are 0."""
    part = differences[:, :pairs]
    with np.errstate(divide="ignore", invalid="ignore"):
        t = math.sqrt(pairs) * part.mean(1) / part.std(1, ddof=1)
    t = np.where(np.isnan(t), 0.0, t)
    return np.asarray(-np.sign(t) * special.ndtri(special.stdtr(pairs - 1, -np.abs(t))))


def repeated_t(sample: Sample, looks: Sequence[int], limits: Sequence[float]) -> Calls:
    """A t-test at each look; `limits` are the normal deviates at which it calls."""
    signs = []
    for pairs, limit in zip(looks, limits, strict=True):
        z = t_deviates(sample.differences, pairs)
        signs.append(np.where(np.abs(z) >= limit, np.sign(z), 0))
    return stopped(signs, looks)


@functools.cache
def boundary(looks: tuple[int, ...], power: float) -> tuple[float, ...]:
    """Wang and Tsiatis' limits, in proportion to (n/last)^(power − ½): with Gaussian noise they err at α.

    A power of ½ is Pocock's test and 0 O'Brien and Fleming's. The factor is simulated with t statistics.
    """
    weights = (np.asarray(looks) / looks[-1]) ** (power - 0.5)
    noise = np.random.default_rng(zlib.crc32(b"boundary")).standard_normal((CALIBRATIONS, looks[-1]))
    largest = np.zeros(CALIBRATIONS)
    for pairs, weight in zip(looks, weights, strict=True):
        largest = np.maximum(largest, np.abs(t_deviates(noise, pairs)) / weight)
    return tuple(float(limit) for limit in weights * np.quantile(largest, 1 - ALPHA))


def naive(sample: Sample) -> Calls:
    """A t-test at each of the rule's looks, as if it were the only one."""
    return repeated_t(sample, DEFAULT_LOOKS, [float(special.ndtri(1 - ALPHA / 2))] * len(DEFAULT_LOOKS))


def group_sequential(sample: Sample, looks: tuple[int, ...], power: float) -> Calls:
    return repeated_t(sample, looks, boundary(looks, power))


def find_confseq(bound: float) -> Callable[[Sample], Calls] | None:
    """The betting confidence sequence, looked at after every pair, or None if it cannot be had.

    0 has left it as soon as the capital of a bet against a mean of 0, upwards or downwards, is above 2/α.
    What lies beyond the range that it is told is taken to its end.
    """
    try:
        from confseq.betting import betting_mart  # type: ignore[import-not-found]
    except (ImportError, AttributeError):  # the latter: a numpy too new for it
        return None

    def bet(values: np.ndarray, up: int) -> np.ndarray:
        return np.asarray(betting_mart(values, 0.5, alpha=ALPHA / 2, theta=up) > 2 / ALPHA)

    def call(sample: Sample) -> Calls:
        inside = np.clip(sample.differences / (2 * bound) + 0.5, 0.0, 1.0)
        signs = np.array([bet(row, 1).astype(int) - bet(row, 0) for row in inside])
        return stopped(list(signs.T), range(1, PAIRS + 1))

    return call


def find_baycomp() -> Callable[[Sample, int], Calls] | None:
    """The correlated t-test, as it is called without further arguments, or None if it cannot be had."""
    try:
        from baycomp import two_on_single  # type: ignore[import-not-found]
    except ImportError:
        return None

    def call(sample: Sample, pairs: int) -> Calls:
        baseline = np.zeros(pairs)
        found = [two_on_single(baseline, row, rope=MARGIN) for row in sample.differences[:, :pairs]]
        worse, _, better = (np.array(each) > 1 - ALPHA for each in zip(*found, strict=True))
        return fixed(better.astype(int) - worse, pairs)

    return call


def at(call: Callable[[Sample, int], Calls] | None, pairs: int) -> Callable[[Sample], Calls] | None:
    """A method for a fixed number of pairs, at so many."""
    return None if call is None else lambda sample: call(sample, pairs)


def methods() -> Iterator[Method]:
    """All methods, in the order of the table."""
    yield Method(f"this rule, {len(DEFAULT_LOOKS)} planned looks", ours)
    yield Method("this rule, anytime", functools.partial(ours, anytime=True))
    yield Method("two means of 10 seeds, the higher one wins", at(two_means, 10))
    for name, test in (("t-test", t_test), ("Wilcoxon", wilcoxon), ("permutation test", permutation)):
        for pairs in FIXED:
            yield Method(f"paired {name}, {pairs} pairs", at(test, pairs))
    yield Method("t-test repeated at this rule's looks", naive)
    for name, power in (("Pocock", 0.5), ("O'Brien-Fleming", 0.0), ("Wang-Tsiatis ¼", 0.25)):
        for looks, where in ((FOUR_LOOKS, "8, 16, 24, 32"), (DEFAULT_LOOKS, "this rule's looks")):
            call = functools.partial(group_sequential, looks=looks, power=power)
            yield Method(f"{name} with t, {where}", call)
    for bound in BOUNDS:
        yield Method(f"confseq, betting, range ±{bound:g} deviations", find_confseq(bound), slow=True)
    for pairs in FIXED:
        yield Method(f"baycomp, correlated t, {pairs} pairs", at(find_baycomp(), pairs), slow=True)


# -- the table -----------------------------------------------------------------------------------------------


def measure(method: Method, samples: dict[float, Sample]) -> dict[str, object]:
    """The rates of a method; `samples` has the comparisons of each effect."""
    if method.call is None:
        return {"method": method.name, "note": NOT_INSTALLED}
    num = len(samples[0.0].differences)
    num = min(num, SLOW) if method.slow else num
    found = {effect: method.call(sample.first(num)) for effect, sample in samples.items()}
    return {
        "method": method.name,
        "comparisons": num,
        "false calls": float((found[0.0].sign != 0).mean()),
        **{f"power at {effect:g}": float((found[effect].sign > 0).mean()) for effect in POWER_AT},
        **{f"pairs at {effect:g}": float(found[effect].pairs.mean()) for effect in PAIRS_AT},
    }


def table(num: int = 10_000) -> list[dict[str, object]]:
    """A row for each noise and method, from `num` comparisons for each effect; from fewer if it is slow."""
    rows = []
    for noise in NOISES:
        samples = {effect: comparisons(noise, effect, num) for effect in EFFECTS}
        rows += [{"noise": noise, **measure(method, samples)} for method in methods()]
    return rows


def markdown(rows: list[dict[str, object]], before: str = "") -> str:
    """A table for each noise; false calls clearly above the declared rate are bold.

    A method that is not installed keeps its row of the document `before`, in which it was measured.
    """
    groups = itertools.groupby(rows, key=lambda row: row["noise"])
    return "\n\n".join(
        f"**{noise}**\n\n{_lines(list(group), _measured_rows(before, str(noise)))}" for noise, group in groups
    )


def _measured_rows(document: str, noise: str) -> dict[str, str]:
    """The rows of a noise's table by method, those without a measurement left out."""
    _, _, section = document.partition(f"**{noise}**\n")
    table = [line for line in section.partition("\n\n**")[0].splitlines() if line.startswith("| ")]
    return {line.split(" | ")[0][2:]: line for line in table if NOT_INSTALLED not in line}


def _lines(rows: list[dict[str, object]], before: dict[str, str]) -> str:
    columns = ["comparisons", "false calls", *(f"power at {each:g}" for each in POWER_AT)]
    columns += [f"pairs at {each:g}" for each in PAIRS_AT]
    lines = [f"| method | {' | '.join(columns)} |", f"|---|{'---:|' * len(columns)}"]
    for row in rows:
        if "note" in row and row["method"] in before:
            lines.append(before[str(row["method"])])
            continue
        cells = [_cell(row, column) for column in columns] if "note" not in row else [str(row["note"])]
        cells += [""] * (len(columns) - len(cells))
        lines.append(f"| {row['method']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(row: dict[str, object], column: str) -> str:
    value, num = float(str(row[column])), int(str(row["comparisons"]))
    if column == "comparisons":
        return f"{num:,}"
    if column.startswith("pairs"):
        return f"{value:.1f}"
    text = f"{100 * value:.1f} %"
    clearly = ALPHA + CLEARLY * math.sqrt(ALPHA * (1 - ALPHA) / num)
    return f"**{text}**" if column == "false calls" and value > clearly else text


if __name__ == "__main__":
    print(markdown(table()))
