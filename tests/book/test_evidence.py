"""What numbers say: met, not met, or not known; and what a claim's numbers say together."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apoint.book import claims
from apoint.book.evidence import (
    SIGMAS,
    Evidence,
    Number,
    agrees,
    all_hold,
    at_least,
    at_most,
    between,
    close,
    ruled,
    same,
)
from apoint.book.outcome import outcome, rule
from apoint.verdict import decide

finite = st.floats(-1e6, 1e6)


@given(finite, finite)
def test_bounds_without_error_are_comparisons(value: float, bound: float) -> None:
    assert at_most("n", value, bound).holds is (value <= bound)
    assert at_least("n", value, bound).holds is (value >= bound)
    assert between("n", value, bound, bound + 1).holds is (bound <= value <= bound + 1)


@given(finite, finite, st.floats(1e-3, 10))
def test_an_estimate_near_its_bound_is_not_known(value: float, bound: float, error: float) -> None:
    near = abs(value - bound) < SIGMAS * error
    assert at_most("n", value, bound, error).holds is (None if near else value <= bound)
    assert at_least("n", value, bound, error).holds is (None if near else value >= bound)


@pytest.mark.parametrize("make", [at_most, at_least])
def test_what_is_not_a_number_meets_nothing(make: Any) -> None:
    assert make("n", math.nan, 1.0).holds is False
    assert close("n", math.nan, 1.0, 1.0).holds is False


def test_truth_values_of_numpy_count_as_truth_values() -> None:
    number = close("n", np.float64(1.0), np.float64(2.0))
    assert number.holds is False
    assert all_hold([number.holds]) is False
    assert Number("n", np.float64(1), "x", np.bool_(False)).holds is False  # type: ignore[arg-type]


def test_agreement_needs_an_estimate_that_says_something() -> None:
    assert agrees("n", 1.02, 0.01, 1.0).holds is True
    assert agrees("n", 1.04, 0.01, 1.0).holds is False
    assert agrees("n", 1.1, 0.5, 1.0).holds is None
    assert agrees("n", 9.0, 0.5, 1.0).holds is False


def test_counts_and_answers() -> None:
    assert same("n", 5, 5).holds is True
    assert same("n", 4, 5).holds is False
    assert same("n", True, True).requirement == "yes"


def test_a_comparison_is_ruled_by_its_verdict() -> None:
    noise = [0.001 * (place % 3) for place in range(8)]
    better = decide(noise, [value + 1 for value in noise], margin=0.1, looks=(8,))
    assert ruled("n", better, "better").holds is True
    assert ruled("n", better, "worse", "equivalent").holds is False
    unsure = decide([0, 1, 0, 1, 0, 1], [1, 0, 1, 0, 1, 0.5], margin=0.01, looks=(6,))
    assert ruled("n", unsure, "better").holds is None


@pytest.mark.parametrize(
    ("right", "written", "verdict"),
    [
        (True, None, "holds"),
        (False, None, "fails"),
        ("unknown", None, "not decided at this scale"),
        (True, False, "holds as corrected"),
        (True, True, "holds"),
        (False, False, "fails"),
        (True, "unknown", "not decided at this scale"),
    ],
)
def test_a_claim_is_decided_both_ways(right: Any, written: Any, verdict: str) -> None:
    def numbers(state: Any) -> list[Number]:
        return [Number("n", 1.0, "1", None if state == "unknown" else state)]

    evidence = Evidence(numbers(right), () if written is None else numbers(written))
    assert rule(evidence, written is not None) == verdict


def test_a_number_survives_its_record() -> None:
    for number in (at_most("n", math.inf, 1.0), close("n", 1 / 3, 1 / 3), agrees("n", 1.0, 0.1, 1.0)):
        assert Number.from_plain(number.to_plain()) == number


@pytest.mark.parametrize(("holds", "told"), [(True, ""), (False, ""), (None, "more seeds")])
def test_what_it_would_take_is_told_of_what_is_not_decided_alone(holds: bool | None, told: str) -> None:
    number = Number("n", 1.0, "at most 2", holds)
    evidence = Evidence([number], would_take="more seeds")
    assert outcome(claims()["E2"], "quick", evidence, 1.0).would_take == told
