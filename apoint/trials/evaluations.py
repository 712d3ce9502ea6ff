"""Whether a replica is evaluated often enough for its number to be the mean of its last evaluations.

This is checked before anything is trained, on the replica that would be trained, so that no comparison stops
at its first replica, and none takes the mean of fewer evaluations than were declared.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from apoint.engine import Options
from apoint.engine.replica import Replica, assemble, borrowed_randomness
from apoint.errors import UsageError
from apoint.trials.arms import Arm


def check_last(last: int) -> None:
    """Reject anything that is not a number of evaluations."""
    if isinstance(last, bool) or not isinstance(last, int) or last < 1:
        raise UsageError(f"last must be a whole number of evaluations, at least 1, got {last!r}")


def check_arms(arms: Iterable[Arm], last: int, seed: int, options: Options) -> None:
    """Reject an arm that may have fewer evaluations than requested.

    Args:
        arms: What would be trained.
        last: How many evaluations are requested.
        seed: The seed of the replica to look at.
        options: Where the data is.
    """
    if last == 1:
        return  # there is always one, at the end
    for arm in arms:
        with borrowed_randomness(0):
            check_evaluations(assembled(arm, seed, options), last, arm.name)


def assembled(arm: Arm, seed: int, options: Options) -> Replica:
    """A replica of an arm."""
    return assemble(arm.recipe, seed, data_root=options.data_root, folder=arm.document.folder)


def check_evaluations(replica: Replica, last: int, name: str) -> None:
    """Reject a replica that may have fewer evaluations than requested."""
    recipe, total = replica.recipe, replica.horizon.total_steps
    every = max(1, round(recipe.evaluate_every.as_steps(replica.horizon)))
    planned = math.ceil(total / every)  # the last step is always evaluated
    wanted = f"and --last {last} needs {last}"
    if planned < last:
        remedy = f"set evaluate_every to {total // last} steps or fewer" if total >= last else "train longer"
        raise UsageError(
            f"{name} is evaluated {_times(planned)} in its {total} steps, {wanted}; {remedy}, or ask for "
            "fewer"
        )
    if recipe.early_stop is not None and recipe.early_stop.patience + 1 < last:
        patience = recipe.early_stop.patience
        raise UsageError(
            f"{name} may stop early with {patience + 1} evaluations, {wanted}; set "
            f"early_stop.patience to {last - 1} or more, or ask for fewer"
        )


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"
