"""The verdict in words: what a reader sees in each case."""

# ruff: noqa: E501  (sentences read better unbroken)

import json
import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from apoint.errors import UsageError
from apoint.report import ComparisonRecord, record_html
from apoint.trials.comparison import told
from apoint.verdict import Verdict, decide, decide_arms
from apoint.verdict.card import Digits
from apoint.verdict.record import LONGEST_NAME

NAMES = ("baseline_name", "candidate_name", "change")

PATTERN = np.tile([-1.0, 1.0, -0.5, 0.5], 8)


def verdict(effect: float, noise: float, margin: float = 0.002, **options):
    return decide(0.9 + 0 * PATTERN, 0.9 + effect + noise * PATTERN, margin, **options)


@pytest.mark.parametrize(
    ("effect", "noise", "higher_is_better", "beginning"),
    [
        (0.012, 0.004, True, "better: test_loss is higher by 0.012 (95 % interval 0.0"),
        (-0.012, 0.004, False, "better: test_loss is lower by 0.012 (95 % interval 0.0"),
        (0.012, 0.004, False, "worse: test_loss is higher by 0.012 (95 % interval 0.0"),
        (-0.012, 0.004, True, "worse: test_loss is lower by 0.012 (95 % interval 0.0"),
        (0.0, 0.0005, True, "equivalent: test_loss differs, if at all, by less than the 0.002 that would matter"),
        (0.001, 0.0002, False, "equivalent: test_loss is higher by 0.0010, which is less than the 0.002 that"),
        (0.001, 0.01, True, "undecided: test_loss is higher by 0.0010 (95 % interval 0.0021 worse to 0.0041 better)"),
        (0.0, 0.01, True, "undecided: test_loss is the same on average (95 % interval"),
    ],
)  # fmt: skip
def test_the_sentence(effect: float, noise: float, higher_is_better: bool, beginning: str) -> None:
    found = verdict(effect, noise, higher_is_better=higher_is_better, metric="test_loss").sentence
    assert found.startswith(beginning)
    assert found.endswith(".")
    assert "0.002" in found
    assert "pairs" in found


def test_the_sentence_of_the_documents() -> None:
    found = decide(np.zeros(16), 0.012 + 0.0115 * PATTERN[:16], 0.002, looks=(16,), metric="test_loss")
    assert found.sentence == (
        "better: test_loss is higher by 0.0120 (95 % interval 0.0074 to 0.0166) over 16 pairs; 0.002 is "
        "the smallest difference that matters."
    )


def test_an_undecided_card_says_what_it_would_take() -> None:
    found = verdict(0.001, 0.01)
    assert f"{found.further_pairs} further pairs would probably settle it" in found.sentence
    assert "with a chance of 80 %" in str(found)
    hopeless = decide(np.zeros(256), np.tile(PATTERN, 8), 1e-6, looks=(256,))
    assert hopeless.further_pairs is None
    assert "over 10,000 further pairs" in str(hopeless)
    assert "further" not in hopeless.sentence


def test_the_card_says_everything_aloud() -> None:
    candidate = np.random.default_rng(0).exponential(size=40)
    candidate[[3, 4]] = math.nan
    card = str(
        decide(
            np.zeros(40), candidate, 0.1, exploratory=("the margin was changed after 8 pairs",), metric="loss"
        )
    )
    for part in (
        "McNemar's test for a difference in failures: p = 0.5 at this look alone",
        "a tail on one side, so the interval reaches",
        "without what stopping early adds on average",
        "may not have shown in",
        "over seeds, on these test examples: new examples or other data are another question",
        "as if this were the only look, and it is number",
        "the margin was changed after 8 pairs",
        "of 40 pairs, made after the look that decided",
        "valid over the planned looks at 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32 pairs",
        "8 pairs: ",
    ):
        assert " ".join(part.split()) in " ".join(card.split()), part


def test_the_drawing_is_to_scale() -> None:
    found = decide(np.zeros(8), 1 + 0.2 * PATTERN[:8], 0.5, looks=(8,))
    line = next(line for line in str(found).splitlines() if line.startswith("  worse "))
    line = line.removeprefix("  worse ")
    zero, effect, margin = line.index("|"), line.index("o"), line.index("]")
    assert margin - zero == zero - line.index("[")
    assert (effect - zero) / (margin - zero) == pytest.approx(2, abs=0.1)
    assert line.count("=") / (effect - zero) == pytest.approx(found.interval[1] - found.interval[0], abs=0.1)


def test_looks_at_will_show_the_last_ones() -> None:
    card = str(verdict(0.001, 0.01, anytime=True))
    assert "the last 4 of 27:" in card
    assert "valid however often one looks" in card
    assert "28 pairs" not in card
    assert "29 pairs" in card


def test_a_number_of_many_arms_says_its_own_level() -> None:
    from apoint.verdict import decide_arms

    arms = dict.fromkeys("abcde", 0.01 * PATTERN)
    card = str(decide_arms(0 * PATTERN, arms, 0.001)["c"])
    assert "99 % interval" in card
    assert "one of 5 arms: the chance of any false call among them all is at most" in card


@pytest.mark.parametrize(
    ("interval", "value", "text"),
    [
        ((0.004, 0.02), 0.012, "0.012"),
        ((0.0004, 0.02), 0.012, "0.0120"),
        ((-300.0, 500.0), 123.4, "123"),
        ((1e-12, 2e-12), 1.5e-12, "1.5e-12"),
        ((0.5, 0.5), 0.5, "0.50"),
        ((0.0, 0.0), 0.0, "0.0"),
        ((-math.inf, math.inf), 0.25, "0.25"),
        ((-1.0, 1.0), -0.01, "0.0"),
    ],
)
def test_digits_follow_the_interval(interval: tuple[float, float], value: float, text: str) -> None:
    assert Digits(interval, value)(value) == text


@given(
    st.lists(st.one_of(st.floats(-1e6, 1e6), st.just(math.nan)), min_size=2, max_size=12),
    st.floats(1e-6, 1e3),
    st.booleans(),
    st.text("abc_", max_size=12),
)
@settings(deadline=None, max_examples=80)
def test_every_card_fits_the_terminal(values: list[float], margin: float, anytime: bool, metric: str) -> None:
    found = decide(
        np.arange(len(values)), values, margin, looks=(3, 8), anytime=anytime, cap=0.0, metric=metric
    )
    lines = str(found).splitlines()
    assert max(map(len, lines)) <= 100
    assert not any(line != line.rstrip() for line in lines)
    assert lines[0].startswith(found.outcome)
    assert "nan" not in found.sentence
    assert "inf" not in found.sentence


# -- names of the arms ----------------------------------------------------------------------------------

BASELINE = [0.912, 0.905, 0.918, 0.909, 0.901, 0.914, 0.907, 0.911]
CANDIDATE = [0.921, 0.917, 0.922, 0.919, 0.915, 0.921, 0.918, 0.919]


def test_the_sentence_says_what_was_changed() -> None:
    found = decide(
        CANDIDATE, BASELINE, 0.005, looks=(8,), metric="test_loss",
        baseline_name="adamw", candidate_name="lion",
    )  # fmt: skip
    assert found.sentence == (
        "worse: with lion instead of adamw, test_loss is lower by 0.0094 (95 % interval 0.0060 to 0.0122) over "
        "8 pairs; 0.005 is the smallest difference that matters."
    )
    assert "(above 0: lion is better)" in str(found)
    other = decide(BASELINE, CANDIDATE, 0.005, looks=(8,), change="optimizer.lr 3e-4 instead of 1e-3")
    assert other.sentence.startswith("better: with optimizer.lr 3e-4 instead of 1e-3, the score is higher by")
    assert "(above 0: the candidate is better)" in str(other)


@pytest.mark.parametrize(
    ("baseline", "candidate", "beginning"),
    [
        ([0.5] * 4, [0.7] * 4, "undecided: with b instead of a, 4 pairs are too few to say anything"),
        ([0.5] * 8, [0.5] * 8, "undecided: with b instead of a, all scores are the same"),
        (0.5 + 0.01 * PATTERN[:8], 0.5 + 0.01 * PATTERN[1:9],
         "undecided: with b instead of a, the score is the same on average"),
        (0.9 + 0 * PATTERN, 0.9 + 0.0005 * PATTERN, "equivalent: with b instead of a, the score differs, if at all"),
    ],
)  # fmt: skip
def test_every_outcome_names_the_change(baseline, candidate, beginning: str) -> None:
    found = decide(baseline, candidate, 0.002, baseline_name="a", candidate_name="b")
    assert found.sentence.startswith(beginning)


def test_accuracies_are_told_in_points_and_kept_as_they_are() -> None:
    found = decide(BASELINE, CANDIDATE, 0.01, looks=(8,), metric="test_accuracy")
    assert found.sentence == (
        "better: test_accuracy is higher by 0.94 points (95 % interval 0.60 to 1.22; 1 point is 0.01) over 8 "
        "pairs; 1 point is the smallest difference that matters."
    )
    assert found.effect == pytest.approx(0.009375)
    assert "+0.0094" in str(found)


def test_accuracies_in_per_cent_are_not_taken_for_shares() -> None:
    found = decide(
        100 * np.array(BASELINE), 100 * np.array(CANDIDATE), 0.5, looks=(8,), metric="test_accuracy"
    )
    assert "higher by 0.94 (95 % interval 0.60 to 1.22) over" in found.sentence
    assert "point" not in found.sentence


def test_names_survive_the_record_and_are_kept_short() -> None:
    found = decide(BASELINE, CANDIDATE, 0.005, looks=(8,), baseline_name="NaN", candidate_name="b" * 200)
    again = Verdict.from_dict(json.loads(json.dumps(found.to_dict())))
    assert again == found
    assert again.baseline_name == "NaN", "a column may be called so"
    assert len(again.candidate_name) == LONGEST_NAME
    older = {key: value for key, value in found.to_dict().items() if key not in NAMES}
    assert Verdict.from_dict(older).sentence.startswith("better: the score is")


def test_several_arms_are_named_by_their_keys() -> None:
    arms = {"lion": CANDIDATE, "sgd": BASELINE}
    found = decide_arms(BASELINE, arms, 0.005, looks=(8,), baseline_name="adamw")
    assert found["lion"].change == "lion instead of adamw"
    told = decide_arms(BASELINE, arms, 0.005, looks=(8,), changes={"lion": "lion at lr 1e-4"})
    assert (told["lion"].change, told["sgd"].change) == ("lion at lr 1e-4", "")
    assert decide_arms(BASELINE, arms, 0.005, looks=(8,))["lion"].candidate_name == ""


# -- numbers that mean nothing --------------------------------------------------------------------------

MEANINGLESS = re.compile(r"\b(inf|infinity|nan)\b|e-1[3-9]", re.IGNORECASE)
scores = st.sampled_from([math.nan, 0.5, 0.3, 0.1 + 0.2]) | st.floats(0.1, 1)


@given(
    st.lists(st.tuples(scores, scores), min_size=2, max_size=10),
    st.sampled_from([0.3, 0.01]),
    st.sampled_from([0.0, None]),
    st.booleans(),
    st.sampled_from(["test_accuracy", "loss"]),
)
@settings(deadline=None, max_examples=150)
def test_no_surface_shows_what_is_no_number(pairs, margin, cap, anytime: bool, metric: str) -> None:
    baseline, candidate = zip(*pairs, strict=True)
    try:
        found = decide(baseline, candidate, margin, looks=(3, 6, 10), anytime=anytime, cap=cap, metric=metric)
    except UsageError:
        return
    for text in (found.sentence, str(found), told(found)):
        assert not MEANINGLESS.search(text), text


@pytest.mark.parametrize(
    ("baseline", "candidate"),
    [
        ([0.1 + 0.2, 0.3, 0.4, 0.5], [0.3, 0.1 + 0.2, 0.4, 0.5]),  # they differ by rounding, too few pairs
        ([0.5, 0.5, 0.5], [0.6, 0.7, 0.2]),  # the mean difference is -1.85e-17, and should be 0
        ([0.3] * 8, [0.1 + 0.2] * 8),
        ([0.5] * 8, [0.5] * 8),
        ([0.4, 0.5, 0.6], [0.5, 0.6, 0.7]),
    ],
)
def test_open_equal_and_tiny_differences(baseline: list[float], candidate: list[float]) -> None:
    found = decide(baseline, candidate, 0.01, metric="loss")
    page = visible(record_html(ComparisonRecord.from_result({"verdict": found.to_dict()})))
    for text in (found.sentence, str(found), told(found), page):
        assert not MEANINGLESS.search(text), text


def visible(page: str) -> str:
    """What a reader of the page can see, hear or point at; not the numbers kept for tests of the drawing."""
    body = page.partition("<main>")[2].partition("<script>")[0]
    return re.sub(
        r' data-(?!tip)[a-z-]+="[^"]*"| d="[^"]*"| (id|href|clip-path|style|points)="[^"]*"', "", body
    )


def test_tails_that_mask_each_other_are_told_on_card_and_page() -> None:
    draw = np.random.default_rng(3)
    candidate, baseline = draw.exponential(size=24), draw.exponential(0.6, size=24)
    found = decide(baseline, candidate, 0.1, looks=(24,))
    assert found.masked_skewness > 0.2
    words = f"masks the other's by {found.masked_skewness:.2f}, so both sides of the interval are longer"
    assert words in " ".join(str(found).split())
    assert Verdict.from_dict(json.loads(json.dumps(found.to_dict()))) == found
    page = visible(record_html(ComparisonRecord.from_result({"verdict": found.to_dict()})))
    assert f"mask each other by {found.masked_skewness:.2f}" in page
    assert "mask" not in str(decide(np.zeros(24), candidate - baseline, 0.1, looks=(24,)))


def test_a_margin_from_few_seeds_says_how_well_it_is_known() -> None:
    """It used to look as sure as one that was given, and the same effect was better or equivalent by luck."""
    draw = np.random.default_rng(0)
    baseline = draw.normal(0.9, 0.01, 8)
    candidate = baseline + 0.0035 + draw.normal(0, 0.001, 8)
    found = decide(baseline, candidate, looks=(8,), resolution=0.0)
    low, high = found.margin_interval
    sums = 7 * baseline.var(ddof=1)
    assert (low, high) == pytest.approx(np.sqrt(sums / stats.chi2(7).ppf([0.95, 0.05])) / 2)
    assert low < found.margin < high
    assert {decide(baseline, candidate, end, looks=(8,)).outcome for end in (low, high)} == {
        "better",
        "equivalent",
    }
    other = "better" if found.outcome == "equivalent" else "equivalent"
    card = " ".join(str(found).split())
    assert f"8 seeds put it between {low:.3g} and {high:.3g} (90 % interval)" in card
    assert f"the verdict would be {other} with" in card
    assert "the verdict would be" in visible(
        record_html(ComparisonRecord.from_result({"verdict": found.to_dict()}))
    )
    assert Verdict.from_dict(json.loads(json.dumps(found.to_dict()))) == found
    given_margin = decide(baseline, candidate, 0.02, looks=(8,))
    assert given_margin.margin_interval is None
    assert "put it between" not in str(given_margin)


def test_further_replicas_tell_the_margin_better() -> None:
    draw = np.random.default_rng(1)
    baseline, candidate, further = draw.normal(0, 1, 6), draw.normal(2, 1, 6), draw.normal(0, 1, 60)
    alone, more = (decide(baseline, candidate, looks=(6,), further_baseline=each) for each in ((), further))
    assert more.margin == pytest.approx(np.concatenate([baseline, further]).std(ddof=1) / 2)
    widths = [high / low for low, high in (alone.margin_interval, more.margin_interval)]
    assert widths[1] < 1.5 < 2.5 < widths[0]
