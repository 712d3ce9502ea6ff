"""Baseline replicas that earlier comparisons left behind: found by key before the first look, and declared.

Nothing is trained for this. Only seeds below those of tuning and of a search's checks count: a setting that
won on its tuning seeds did so partly by luck, and as a baseline those replicas would make it look too good.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterable

from apoint.engine.fleet import Fleet, Task
from apoint.engine.fleet.recall import Recall
from apoint.errors import DamagedError
from apoint.trials.arms import Arm
from apoint.trials.outcome import outcome_of

ORDINARY_SEEDS = 1_000_000  # from the first seed on; tuning and the checks of a search use seeds beyond


def cached_seeds(arm: Arm, fleet: Fleet, among: range, say: Callable[[str], None]) -> tuple[int, ...]:
    """The seeds whose replica has ended under the same key; a damaged one is left out and reported."""
    stem = f"{arm.recipe.name}-{arm.recipe.fingerprint}-s"
    names = (path.name.removeprefix(stem) for path in fleet.options.root.glob(f"{glob.escape(stem)}*"))
    seeds = sorted(int(name) for name in names if name.isdecimal() and int(name) in among)
    found, recall = [], Recall(fleet.options)
    with fleet.use_dataset_cache():
        for seed in seeds:
            standing = recall.standing(_task(arm, seed))
            if standing.state == "ended":
                found.append(seed)
            elif standing.state == "damaged":
                say(f"the cached baseline replica of seed {seed} is left out: {standing.differences[0]}")
    return tuple(found)


def cached_values(
    arm: Arm,
    fleet: Fleet,
    seeds: Iterable[int],
    metric: str,
    last: int,
    leave_out: Callable[[str], None] | None,
) -> dict[int, float]:
    """The number of each declared replica, read through its seal; NaN if it diverged.

    Args:
        arm: The baseline.
        fleet: What would train it: its options are part of the key.
        seeds: The declared seeds.
        metric: The number compared.
        last: The number is the mean of this many of the last evaluations.
        leave_out: Called about a replica that is not as declared, which is then left out; None to raise.
    """
    found, recall = dict[int, float](), Recall(fleet.options)
    with fleet.use_dataset_cache():
        for seed in seeds:
            standing = recall.standing(_task(arm, seed))
            if standing.ended is not None:
                found[seed] = outcome_of(standing.ended, metric, last).value
                continue
            wrong = standing.differences[0] if standing.differences else f"it is {standing.state}"
            what = f"the cached baseline replica of seed {seed} is not as it was declared ({wrong})"
            if leave_out is None:
                raise DamagedError(
                    f"{what}, and looks were made with it; restore its run folder, or move the comparison's "
                    "folder away and ask again"
                )
            leave_out(f"{what}; it is left out")
    return found


def _task(arm: Arm, seed: int) -> Task:
    return Task(arm.recipe, arm.document, seed)
