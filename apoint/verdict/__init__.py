"""Paired statistics and the verdict on two arms: better, worse, equivalent or undecided.

Pure functions of numbers, no training inside. `decide` is the whole; the intervals that stay valid although
one looks several times, and what is reported beside them, can be had alone.
"""

from apoint.verdict.arms import decide_arms
from apoint.verdict.companions import (
    interquartile_mean,
    mcnemar_p,
    pair_correlation,
    probability_of_improvement,
    standardised_effect,
)
from apoint.verdict.decision import DEFAULT_LOOKS, decide
from apoint.verdict.intervals import (
    anytime_multiplier,
    check_plan,
    evidence,
    nominal_alpha,
    planned_multiplier,
)
from apoint.verdict.record import Failures, Look, Verdict
from apoint.verdict.sign_flips import sign_flip_interval, sign_flip_p, smallest_p
from apoint.verdict.skew import sign_interval, skew_corrected_interval, skewness

__all__ = [
    "DEFAULT_LOOKS",
    "Failures",
    "Look",
    "Verdict",
    "anytime_multiplier",
    "check_plan",
    "decide",
    "decide_arms",
    "evidence",
    "interquartile_mean",
    "mcnemar_p",
    "nominal_alpha",
    "pair_correlation",
    "planned_multiplier",
    "probability_of_improvement",
    "sign_flip_interval",
    "sign_flip_p",
    "sign_interval",
    "skew_corrected_interval",
    "skewness",
    "smallest_p",
    "standardised_effect",
]
