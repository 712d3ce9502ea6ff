"""The noise of the test examples: against brute force and the analysis of variance, and in verdicts."""

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apoint.errors import UsageError
from apoint.verdict import DEFAULT_LOOKS, ExampleNoise, Verdict, decide, example_noise
from studies.verdict import examples as study
from studies.verdict.examples import PAIRS, Scene, draw_pairs, measure, settled, table
from studies.verdict.rule import NAMES, simulate

SEEDS = st.integers(0, 2**32 - 1)
EVEN = np.tile([1.0, -1.0], 50)  # a hundred examples: half of them favour each arm


def crossed(random: np.random.Generator, pairs: int, size: int, spread: float = 1.0) -> np.ndarray:
    """D[s, i] of one test set: a seed's luck, an example's leaning, and the rest."""
    luck, leaning = random.normal(0, 0.3, (pairs, 1)), random.normal(0, spread, size)
    return luck + leaning + random.normal(0, 1, (pairs, size))


def by_hand(differences: list[np.ndarray], rows: list[np.ndarray]) -> float:
    """The added variance, by its definition: pair by pair and example by example."""
    products = terms = weights = 0.0
    couples = list(itertools.combinations(range(len(rows)), 2))
    for s, t in couples:
        common = sorted(set(rows[s].tolist()) & set(rows[t].tolist()))
        m, other, k = len(rows[s]), len(rows[t]), len(common)
        for example in common:
            first = differences[s][rows[s].tolist().index(example)] - np.mean(differences[s])
            second = differences[t][rows[t].tolist().index(example)] - np.mean(differences[t])
            products += first * second
        terms += k - k / m - k / other + k * k / (m * other)
        weights += k / (m * other)
    return max(0.0, products / terms) * weights / len(couples) if terms > 0 else 0.0


@given(SEEDS, st.integers(2, 7), st.integers(3, 25))
@settings(max_examples=60, deadline=None)
def test_splits_drawn_by_the_seed_are_as_by_hand(seed: int, pairs: int, pool: int) -> None:
    random = np.random.default_rng(seed)
    leaning = random.normal(0, 1, pool)
    rows = [random.permutation(pool)[: random.integers(2, pool + 1)] for _ in range(pairs)]
    differences = [leaning[own] + random.normal(0, 0.5, len(own)) for own in rows]
    noise = example_noise(differences, [10 * own + 3 for own in rows])
    assert noise.error(pairs) == pytest.approx(math.sqrt(by_hand(differences, rows)), abs=1e-9)
    assert noise.pool == len(set(np.concatenate(rows).tolist()))
    assert noise.size == max(map(len, rows))


@given(SEEDS, st.integers(2, 12), st.integers(2, 60))
@settings(max_examples=60, deadline=None)
def test_one_test_set_is_as_in_the_analysis_of_variance(seed: int, pairs: int, size: int) -> None:
    """Two-way layout without repeats: the example's variance is (MS of examples − MS of the rest) / pairs."""
    d = crossed(np.random.default_rng(seed), pairs, size)
    rest = d - d.mean(0) - d.mean(1, keepdims=True) + d.mean()
    mean_square = pairs * d.mean(0).var(ddof=1), (rest**2).sum() / ((pairs - 1) * (size - 1))
    expected = max(0.0, (mean_square[0] - mean_square[1]) / pairs) / size
    noise = example_noise(list(d))
    assert noise.error(pairs) ** 2 == pytest.approx(expected, abs=1e-12)
    assert (noise.size, noise.pool, noise.redrawn) == (size, size, False)


@given(SEEDS, st.integers(2, 8))
@settings(max_examples=30, deadline=None)
def test_a_look_sees_the_pairs_up_to_it_and_nothing_else(seed: int, pairs: int) -> None:
    d = crossed(np.random.default_rng(seed), 8, 30)
    assert example_noise(list(d)).error(pairs) == pytest.approx(example_noise(list(d[:pairs])).error(pairs))


@given(SEEDS)
@settings(max_examples=30, deadline=None)
def test_neither_order_nor_sign_nor_names_nor_a_pairs_own_level_matter(seed: int) -> None:
    random = np.random.default_rng(seed)
    d, order = crossed(random, 6, 40), random.permutation(40)
    error = example_noise(list(d)).error(6)
    orders = [random.permutation(40) for _ in d]
    shuffled = [pair[own] for pair, own in zip(d, orders, strict=True)]
    assert example_noise(list(-d)).error(6) == pytest.approx(error)
    assert example_noise(list(d + random.normal(0, 9, (6, 1)))).error(6) == pytest.approx(error, abs=1e-9)
    assert example_noise(list(d[:, order])).error(6) == pytest.approx(error)
    assert example_noise(shuffled, orders).error(6) == pytest.approx(error)
    assert example_noise(list(3 * d)).error(6) == pytest.approx(3 * error)


def test_a_pair_with_a_failed_replica_has_no_part_in_it() -> None:
    d = list(crossed(np.random.default_rng(0), 5, 50))
    noise = example_noise([d[0], None, *d[1:]])
    assert noise.error(6) == pytest.approx(example_noise(d).error(5))
    assert math.isnan(noise.error(2)), "one pair alone tells nothing"
    assert math.isnan(example_noise([None, None]).error(2))


def test_pairs_that_share_no_example_need_nothing_added() -> None:
    d = list(crossed(np.random.default_rng(0), 3, 4))
    noise = example_noise(d, [np.arange(4) + 4 * pair for pair in range(3)])
    assert noise.error(3) == 0
    assert noise.redrawn


def test_both_sources_together_are_the_variance_of_the_mean() -> None:
    """Over many draws of seeds and examples, on one test set and on splits drawn again."""
    random = np.random.default_rng(1)
    for pool, size in ((30, 30), (30, 10)):
        means, parts = [], []
        for _ in range(1_000):
            leaning, luck = random.normal(0, 0.7, pool), random.normal(0, 0.2, 6)
            rows = [random.permutation(pool)[:size] for _ in range(6)]
            d = [luck[s] + leaning[rows[s]] + random.normal(0, 0.5, size) for s in range(6)]
            own = np.array([pair.mean() for pair in d])
            means.append(own.mean())
            parts.append((own.var(ddof=1) / 6, example_noise(d, rows).error(6) ** 2))
        over_seeds, added = np.mean(parts, axis=0)
        assert over_seeds + added == pytest.approx(np.var(means), rel=0.12)
        assert over_seeds < 0.8 * np.var(means)


# -- in a verdict ----------------------------------------------------------------------------------------


def leaning(effect: float, lean: float, pairs: int = 16) -> tuple[np.ndarray, ExampleNoise]:
    """Pairs that agree on `effect`, with examples that favour one arm or the other by `lean`."""
    random = np.random.default_rng(3)
    d = effect + lean * EVEN + random.normal(0, 0.02, (pairs, 100))
    return d.mean(1), example_noise(list(d))


def test_what_is_better_here_can_be_undecided_on_new_examples() -> None:
    scores, noise = leaning(0.01, 0.2)
    found = decide(np.zeros(16), scores, 0.001, examples=noise, metric="test_accuracy")
    assert (found.outcome, found.both_outcome) == ("better", "undecided")
    assert found.both_interval[0] < 0 < found.interval[0]
    assert (found.test_examples, found.test_pool, found.test_noise) == (100, 100, "beside")
    assert "better on these 100 test examples; on new ones from the same source undecided" in " ".join(
        str(found).split()
    )
    without = decide(np.zeros(16), scores, 0.001, metric="test_accuracy")
    assert found.interval == without.interval
    assert found.looks[-1].pairs == without.looks[-1].pairs
    assert (without.both_outcome, without.both_interval) == ("", (-math.inf, math.inf))


def test_if_examples_are_included_their_interval_decides() -> None:
    scores, noise = leaning(0.01, 0.2)
    found = decide(np.zeros(16), scores, 0.001, examples=noise, test_noise="include")
    assert found.outcome == found.both_outcome == "undecided"
    assert found.interval == found.both_interval
    assert found.pairs == 16
    assert found.further_pairs is None, "more seeds do not make up for few examples"
    assert "or more test examples" in " ".join(str(found).split())
    scores, noise = leaning(0.3, 0.2)
    found = decide(np.zeros(16), scores, 0.001, examples=noise, test_noise="include")
    assert found.outcome == "better"
    assert math.isnan(found.adjusted_effect)
    assert "adjusted effect" not in str(found)
    assert "over seeds and test examples" in str(found)


def test_with_no_noise_of_examples_both_intervals_are_the_same() -> None:
    d = np.random.default_rng(0).normal(0.01, 0.02, (16, 1)) + EVEN * 0
    found = decide(np.zeros(16), d.mean(1), 0.001, examples=example_noise(list(d)))
    assert found.both_interval == found.interval
    assert found.both_outcome == found.outcome


def test_splits_drawn_by_the_seed_are_named() -> None:
    random = np.random.default_rng(0)
    rows = [random.permutation(300)[:100] for _ in range(8)]
    d = [0.1 + random.normal(0, 0.1, 100) for _ in rows]
    noise = example_noise(d, rows)
    for test_noise in ("beside", "include"):
        scores = [pair.mean() for pair in d]
        found = decide(np.zeros(8), scores, 0.01, examples=noise, test_noise=test_noise)
        assert "the 100 test examples that each seed draws from one data set" in " ".join(str(found).split())
        assert found.test_pool == noise.pool > 100


@given(SEEDS, st.booleans())
@settings(max_examples=25, deadline=None)
def test_the_interval_over_both_is_never_the_narrower_one(seed: int, anytime: bool) -> None:
    d = crossed(np.random.default_rng(seed), 12, 20)
    found = decide(np.zeros(12), d.mean(1), 0.1, (6, 12), anytime=anytime, examples=example_noise(list(d)))
    assert found.looks
    for look in found.looks:
        assert look.both_interval[0] <= look.interval[0]
        assert look.both_interval[1] >= look.interval[1]


def test_a_verdict_survives_json_and_old_ones_are_read() -> None:
    scores, noise = leaning(0.01, 0.2)
    found = decide(np.zeros(16), scores, 0.001, examples=noise)
    values = json.loads(json.dumps(found.to_dict()))
    assert Verdict.from_dict(values) == found
    for name in ("test_noise", "both_outcome", "both_interval", "both_unknown", "test_examples", "test_pool"):
        values.pop(name)
    for look in values["looks"]:
        look.pop("both_interval")
        look.pop("both_outcome")
    old = Verdict.from_dict(values)
    assert (old.both_outcome, old.test_noise, old.interval) == ("", "beside", found.interval)
    assert "new examples or other data are another question" in " ".join(str(old).split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"test_noise": "include"}, "needs the differences on single examples"),
        ({"test_noise": "both"}, "test_noise must be 'beside' or 'include', got 'both'"),
        ({"examples": example_noise([np.zeros(3)] * 5)}, "for 5 pairs, and there are 8 pairs"),
    ],
)
def test_wrong_arguments_of_decide(arguments: dict, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        decide(np.zeros(8), np.arange(8.0), 0.1, **arguments)


@pytest.mark.parametrize(
    ("differences", "rows", "words"),
    [
        ([[0.0, math.nan]], None, "pair 1 must be finite"),
        ([[[0.0]]], None, "pair 1 must be finite"),
        ([[0.0, 1.0], [0.0, 1.0]], [[0, 1], [2, 2]], "pair 2 has 2 differences for 1 different examples"),
        ([[0.0, 1.0]], [[0, 1, 2]], "pair 1 has 2 differences for 3 different examples"),
    ],
)
def test_wrong_examples(differences: list, rows: list | None, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        example_noise(differences, rows)


# -- error rates -----------------------------------------------------------------------------------------


def test_the_simulated_rule_is_the_rule_with_examples_too() -> None:
    random, scene = np.random.default_rng(4), Scene(60, 60, 0.2, 0.05)
    drawn = [draw_pairs(scene, random) for _ in range(40)]
    means = np.array([[pair.mean() for pair in differences] for differences, _ in drawn])
    noises = [example_noise(*each) for each in drawn]
    errors = np.array([[noise.error(n) for noise in noises] for n in DEFAULT_LOOKS])
    result = simulate(means, 0.05, DEFAULT_LOOKS, truth=0.05, step=1 / 60, example_error=errors)
    assert len(set(result.outcome)) > 1
    for k, noise in enumerate(noises):
        found = decide(
            np.zeros(PAIRS), means[k], 0.05, resolution=1 / 60, examples=noise, test_noise="include"
        )
        assert found.outcome == NAMES[result.outcome[k]]
        assert found.pairs == result.pairs[k]
        assert (found.interval[0] <= 0.05 <= found.interval[1]) == result.covered[k]


def test_equally_good_recipes_are_called_different_on_one_test_set_but_not_over_examples() -> None:
    rates = measure(Scene(359, 359, 0.1), 300)
    assert rates.seeds_calls > 0.11
    assert rates.both_calls <= 0.055
    assert min(rates.both_coverage, rates.beside_coverage) >= 0.94


def test_a_scene_beyond_its_limit_is_measured_again_and_both_are_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(study, "COMPARISONS", 20)
    quiet, loud = Scene(40, 40, 0.0), Scene(40, 40, 0.0, 0.5)
    assert [each.comparisons for each in settled(loud)] == [20], "calling a true effect is no error"
    monkeypatch.setattr(study, "NO_MARGIN", 10.0)  # everything is equivalent, so that nothing is called
    assert [each.comparisons for each in settled(quiet)] == [20]
    monkeypatch.setattr(study.Rates, "beyond", property(lambda rates: rates.comparisons == 20))
    twice = settled(quiet)
    assert [each.comparisons for each in twice] == [20, 200]
    assert len(table(twice).splitlines()) == 4


def test_without_an_effect_of_examples_little_is_added() -> None:
    rates = measure(Scene(359, 359, 0.0), 100)
    assert 1 <= rates.width < 1.05
    assert measure(Scene(359, 1_797, 0.0), 100).width < 1.05
