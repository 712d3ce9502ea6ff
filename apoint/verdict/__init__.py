"""Paired statistics: intervals that stay valid although one looks several times, and their companions.

Pure functions of numbers, no training inside. The decision built on them is still to come.
"""

from apoint.verdict.companions import (
    interquartile_mean,
    mcnemar_p,
    pair_correlation,
    probability_of_improvement,
    sign_flip_p,
    smallest_p,
    standardised_effect,
)
from apoint.verdict.intervals import anytime_multiplier, evidence, nominal_alpha, planned_multiplier

__all__ = [
    "anytime_multiplier",
    "evidence",
    "interquartile_mean",
    "mcnemar_p",
    "nominal_alpha",
    "pair_correlation",
    "planned_multiplier",
    "probability_of_improvement",
    "sign_flip_p",
    "smallest_p",
    "standardised_effect",
]
