"""`python -m studies.search`: how often `improve` finds a change that helps, and how often it is wrong.

Searches over eight changes on numbers that were drawn, not trained. The screen is the product's own; the
comparisons on fresh seeds are decided by the vectorised copy of the rule, which a test holds equal to
`decide`. Effects are in standard deviations of the paired differences, and add up. A search is *wrong* if it
keeps any change that does not help.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from apoint.trials.outcome import Outcome
from apoint.trials.screening import Screen
from apoint.trials.search import BASELINE
from apoint.trials.search_plan import Plan, choose_plan
from studies.verdict.rule import BETTER, simulate

CHANGES, REPLICAS = 8, 150
SEARCHES = 4_000
NO_MARGIN = 1e-6
Noise = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


def gaussian(draw: np.random.Generator, size: tuple[int, ...]) -> np.ndarray:
    return draw.standard_normal(size)


def lognormal(draw: np.random.Generator, size: tuple[int, ...]) -> np.ndarray:
    """A tail on one side, variance 1."""
    values = np.exp(0.5 * draw.standard_normal(size))
    return (values - np.exp(0.125)) / np.sqrt((np.exp(0.25) - 1) * np.exp(0.25))


def heavy(draw: np.random.Generator, size: tuple[int, ...]) -> np.ndarray:
    return draw.standard_t(4, size) / np.sqrt(2.0)


@dataclass(frozen=True)
class World:
    """Recipes whose scores are drawn: each seed's luck is shared in part by all of them."""

    effects: tuple[float, ...]
    correlation: float = 0.0
    noise: Noise = gaussian

    def scores(self, draw: np.random.Generator, pairs: int) -> np.ndarray:
        """A row for each change, and the base last."""
        luck = np.sqrt(self.correlation) * draw.standard_normal(pairs)
        own = np.sqrt(1 - self.correlation) * self.noise(draw, (len(self.effects) + 1, pairs))
        return luck + own + np.array([*self.effects, 0.0])[:, None] * self.deviation

    def pairs(self, draw: np.random.Generator, num: int, pairs: int) -> tuple[np.ndarray, np.ndarray]:
        """Paired differences of two recipes that are equally good, and the scores of one of them."""
        own = np.sqrt(1 - self.correlation)
        first, second = (own * self.noise(draw, (num, pairs)) for _ in range(2))
        return first - second, second + np.sqrt(self.correlation) * draw.standard_normal((num, pairs))

    @property
    def deviation(self) -> float:
        return float(np.sqrt(2 * (1 - self.correlation)))


@dataclass
class Rates:
    """Of many searches: the shares, and the replicas on average."""

    found: float  # the first change that was kept helps
    wrong: float  # some change was kept that does not
    kept: float  # changes that help and were kept, on average
    replicas: float  # of screen and confirmation


def measure(world: World, plan: Plan, searches: int = SEARCHES, seed: int = 0) -> Rates:
    draw = np.random.default_rng([20240609, seed])
    orders, used = _screens(world, plan, searches, draw)
    effects, active = np.array(world.effects), np.ones(searches, dtype=bool)
    found, wrong, kept = (np.zeros(searches, dtype=int) for _ in range(3))
    for place in range(max(map(len, orders))):
        chosen = np.array([order[place] if place < len(order) else -1 for order in orders])
        active &= chosen >= 0
        effect = np.where(chosen >= 0, effects[chosen], 0.0)
        differences, baseline = world.pairs(draw, searches, plan.looks[-1])
        shifted = differences + (effect * world.deviation)[:, None]
        result = simulate(shifted, NO_MARGIN, plan.looks, baseline=baseline)
        if not place:
            used = used + np.where(active, 2 * result.pairs, 0)
        active &= result.outcome == BETTER
        kept += active & (effect > 0)
        wrong |= active & (effect <= 0)
        found |= (active & (effect > 0)) if not place else 0
    return Rates(float(found.mean()), float(wrong.mean()), float(kept.mean()), float(used.mean()))


def _screens(
    world: World, plan: Plan, searches: int, draw: np.random.Generator
) -> tuple[list[list[int]], np.ndarray]:
    """Of each search: the changes that looked better than the base, the best first; and the replicas."""
    names = [str(number) for number in range(len(world.effects))]
    orders = []
    for _ in range(searches):
        scores = world.scores(draw, plan.rungs[-1].pairs)
        rows = {**{name: scores[int(name)] for name in names}, BASELINE: scores[-1]}

        def train(wanted: list[tuple[str, int]], rows: dict[str, np.ndarray] = rows) -> list[Outcome]:
            return [Outcome(float(rows[name][seed])) for name, seed in wanted]

        screen = Screen(names, plan.rungs, train)
        screen.run()
        # As in a search, the first that looked worse than the base ends it.
        worth = [screen.effect(name) > 0 for name in screen.ranking()]
        end = worth.index(False) if False in worth else len(worth)
        orders.append([int(name) for name in screen.ranking()[:end]])
    return orders, np.full(searches, float(plan.screen_replicas))


def one(effect: float) -> tuple[float, ...]:
    return (effect, *[0.0] * (CHANGES - 1))


WORLDS = {
    "none helps": World(one(0.0)),
    "none helps, half of the noise shared": World(one(0.0), 0.5),
    "none helps, lognormal noise": World(one(0.0), 0.0, lognormal),
    "none helps, t noise with 4 degrees of freedom": World(one(0.0), 0.0, heavy),
    "one helps by 0.3": World(one(0.3)),
    "one helps by 0.5": World(one(0.5)),
    "one helps by 0.5, lognormal noise": World(one(0.5), 0.0, lognormal),
    "one helps by 0.8": World(one(0.8)),
    "one helps by 1": World(one(1.0)),
    "three help by 0.6": World((0.6, 0.6, 0.6, *[0.0] * (CHANGES - 3))),
    "one helps by 1, seven harm by 0.5": World((1.0, *[-0.5] * (CHANGES - 1))),
}


def table(searches: int = SEARCHES) -> str:
    plan = choose_plan(CHANGES, REPLICAS)
    steps = ", ".join(f"{rung.kept} go on after {rung.pairs} pairs" for rung in plan.rungs)
    lines = [
        f"{CHANGES} changes, at most {plan.replicas} replicas for screen and confirmation: {steps}; looks up "
        f"to {plan.looks[-1]} pairs. {searches:,} searches a row.",
        "",
        "| noise and effects | finds a change that helps | keeps one that does not | "
        "changes that help and are kept | replicas |",
        "|---|---:|---:|---:|---:|",
    ]
    for number, (name, world) in enumerate(WORLDS.items()):
        rates = measure(world, plan, searches, number)
        found = f"{100 * rates.found:.1f} %" if max(world.effects) > 0 else "–"
        kept = f"{rates.kept:.2f}" if max(world.effects) > 0 else "–"
        lines.append(f"| {name} | {found} | {100 * rates.wrong:.1f} % | {kept} | {rates.replicas:.0f} |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
