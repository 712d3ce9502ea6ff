"""How a search spends its time: how many changes it screens, on how many seeds, and how long a check may be.

The screen is successive halving: all changes on a few seeds, the better half on twice as many, and so on
until one is left. The rest is kept for one comparison of that change with the base on fresh seeds, which has
the whole error rate to itself. Of all plans that fit, the search takes the cheapest of those that are about
as likely as the best to find a change that helps. When there is little time, that means fewer changes and
more seeds for each.

The chances are simulated for Gaussian noise and one change that helps. The changes share the base's seeds, so
half of the variance of a paired difference is common to all of them and plays no part in the choice.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from apoint.errors import UsageError
from apoint.verdict import DEFAULT_LOOKS
from apoint.verdict.estimate import chance_of_better

FIRST_PAIRS = (3, 4, 5, 6, 8, 10, 12)
MOST_PAIRS = 24  # per change in the screen
LAST_LOOKS = (6, 8, 12, 16, 24, 32)
EFFECTS = (0.5, 1.0, 2.0)  # for judging a plan, in standard deviations of the paired differences
GOOD_ENOUGH = 0.98  # of the best chance: a cheaper plan that reaches this share is preferred
SEARCHES = 2_000


class Rung(NamedTuple):
    """A step of the screen: how many pairs each change has, and how many changes continue."""

    pairs: int
    kept: int


def rungs(num_candidates: int, first_pairs: int) -> tuple[Rung, ...]:
    """The steps of a screen; a single change needs none."""
    found: list[Rung] = []
    left, pairs = num_candidates, first_pairs
    while left > 1:
        left = 1 if pairs == MOST_PAIRS else math.ceil(left / 2)
        found.append(Rung(pairs, left))
        pairs = min(2 * pairs, MOST_PAIRS)
    return tuple(found)


@dataclass(frozen=True)
class Plan:
    """What there is time for, fixed before anything is trained.

    Attributes:
        num_candidates: How many changes are screened.
        first_pairs: The pairs of each change in the first step of the screen.
        looks: The numbers of pairs at which to look in a comparison on fresh seeds.
    """

    num_candidates: int
    first_pairs: int
    looks: tuple[int, ...]

    @property
    def rungs(self) -> tuple[Rung, ...]:
        """The steps of the screen."""
        return rungs(self.num_candidates, self.first_pairs)

    @property
    def screen_replicas(self) -> int:
        """The replicas of the whole screen, including the base's."""
        total, before, left = 0, 0, self.num_candidates
        for pairs, kept in self.rungs:
            total += (left + 1) * (pairs - before)
            before, left = pairs, kept
        return total

    @property
    def check_replicas(self) -> int:
        """The replicas of a comparison on fresh seeds, if no look decides before the last."""
        return 2 * self.looks[-1]

    @property
    def replicas(self) -> int:
        """All replicas of screening and of confirming the best."""
        return self.screen_replicas + self.check_replicas

    def chance(self, effect: float, alpha: float = 0.05) -> float:
        """The chance of finding and confirming the one change that helps.

        Args:
            effect: How much it helps, in standard deviations of the paired differences.
            alpha: The error rate of the confirmation.
        """
        return chosen_share(self.num_candidates, self.first_pairs, effect) * chance_of_better(
            effect, self.looks, alpha
        )


@functools.cache
def chosen_share(num_candidates: int, first_pairs: int, effect: float) -> float:
    """How often a screen ends with the one change that helps."""
    draw = np.random.default_rng(20240608)
    sums = np.zeros((SEARCHES, num_candidates))
    shared = np.zeros(SEARCHES)
    open_ = np.ones(sums.shape, dtype=bool)
    before = 0
    for pairs, kept in rungs(num_candidates, first_pairs):
        spread = math.sqrt((pairs - before) / 2)  # half of a difference's variance is the base's
        sums += spread * draw.standard_normal(sums.shape)
        shared += spread * draw.standard_normal(SEARCHES)
        sums[:, 0] += effect * (pairs - before)
        ranked = np.where(open_, sums, -np.inf)
        last = np.sort(ranked, axis=1)[:, -kept][:, None]
        open_, before = ranked >= last, pairs
    if not before:  # a single change is confirmed without a screen
        return 1.0
    return float((open_[:, 0] & (sums[:, 0] > shared)).mean())


def choose_plan(num_candidates: int, num_replicas: float) -> Plan:
    """The plan with the best chance for this many replicas, or a cheaper one that is nearly as good.

    A plan that leaves changes out cannot find those.

    Args:
        num_candidates: How many changes there are.
        num_replicas: How many replicas there is time for.
    """
    looks = [tuple(n for n in DEFAULT_LOOKS if n <= last) for last in LAST_LOOKS]
    every = itertools.product(range(1, num_candidates + 1), FIRST_PAIRS, looks)
    fitting = [plan for plan in itertools.starmap(Plan, every) if plan.replicas <= num_replicas]
    if not fitting:
        raise UsageError(
            f"there is time for {math.floor(num_replicas)} replicas, and one change needs at least "
            f"{2 * LAST_LOOKS[0]}; give more time, or shorten training"
        )
    worth = {plan: _worth(plan, num_candidates) for plan in fitting}
    enough = GOOD_ENOUGH * max(worth.values())
    return min((plan for plan in fitting if worth[plan] >= enough), key=lambda plan: plan.replicas)


def _worth(plan: Plan, num_candidates: int) -> float:
    chances = [plan.chance(effect) for effect in EFFECTS]
    return sum(chances) / len(chances) * plan.num_candidates / num_candidates
