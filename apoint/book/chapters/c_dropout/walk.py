"""Training with the engine's own steps, stopping on the way to look at the model: for C2b, C4 and C5."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from apoint.engine.arithmetic import exact_arithmetic
from apoint.engine.measure import evaluate
from apoint.engine.replica import Replica, assemble, borrowed_randomness
from apoint.engine.step import training_step
from apoint.recipe import load_recipe

T = TypeVar("T")


def walk(
    recipe: Mapping[str, Any], seed: int, shares: Sequence[float], look: Callable[[Replica, int], T]
) -> dict[float, T]:
    """Train a replica and look at it on the way; returns what was seen, by share of training.

    Rates on a schedule are those of the next update while `look` runs.

    Args:
        recipe: What to train.
        seed: Which replica.
        shares: After which shares of training to look, in order: 0 is the start, 1 the end.
        look: Called with the replica and the number of updates made; it must leave the weights alone.
    """
    found: dict[float, T] = {}
    with exact_arithmetic(1, torch.device("cpu")), borrowed_randomness(0):
        replica, step = assemble(load_recipe(recipe)[0], seed), 0
        replica.model.train()
        for share in shares:
            stop = round(share * replica.horizon.total_steps)
            for now in range(step, stop):
                training_step(replica, now)
            step = stop
            replica.timeline.apply_schedules(step / replica.horizon.total_steps)
            found[share] = look(replica, step)
            replica.model.train()
    return found


def training_set(replica: Replica, most: int | None = None) -> tuple[Tensor, Tensor]:
    """The training examples without augmentation, or the first `most` of them."""
    part = replica.data.splits["train"].take(slice(0, most))
    return replica.stream.prepare(part.inputs), part.targets


def metrics(replica: Replica, split: str) -> dict[str, float]:
    """Loss and accuracy on a split, with dropout at rest."""
    task = replica.data.facts.task
    return evaluate(
        replica.model,
        replica.data.splits[split],
        task,
        replica.loss,
        replica.stream.prepare,
        replica.device,
    )


def rates(recipe: Mapping[str, Any], knob: str = "dropout") -> list[float]:
    """The rate that the modules of a knob have at each update; nothing is trained."""
    with borrowed_randomness(0):
        replica = assemble(load_recipe(recipe)[0], 0)
    module = next(one for one in replica.model.modules() if getattr(one, "knob", None) == knob)
    found = []
    for step in range(replica.horizon.total_steps):
        replica.timeline.apply_schedules(step / replica.horizon.total_steps)
        found.append(float(module.rate))  # type: ignore[arg-type]
    return found
