"""Probes in the engine's loop: measure what a recipe asks for during training, on the batch just used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from apoint.engine.replica import Replica

TEST_EXAMPLES = 256


class Observation:
    """The probes of one replica.

    Args:
        replica: What is trained.
        record: Called with the step, the probe and the fields of each reading.
    """

    def __init__(self, replica: Replica, record: Callable[[int, str, dict[str, Any]], None]) -> None:
        from apoint.probes.observer import Observer
        from apoint.probes.timetable import BUDGET

        wishes = dict(replica.recipe.probes)
        budget = wishes.pop("budget", BUDGET)
        self.replica = replica
        self.observer = Observer(
            replica.model,
            replica.loss,
            None,
            wishes,
            budget=budget,
            test=_test_batch(replica),
            horizon=replica.horizon,
            seed=replica.seed,
            record=lambda taken: record(taken.step, taken.reading.probe, taken.reading.to_dict()),
        )

    def begin(self, step: int) -> None:
        """Begin before the first step of a run; a resumed run has begun already."""
        if step == 0:
            self.observer.begin(self._batch(0))

    def after(self, step: int) -> None:
        """Observe after a step; `step` counts from 1."""
        self.observer(lambda: self._batch(step - 1))

    def _batch(self, step: int) -> tuple[Tensor, Tensor]:
        """The first part of a step's batch, as it was trained on: a function of the step alone."""
        replica = self.replica
        index_b = replica.stream.indices(step).tensor_split(replica.recipe.accumulate)[0]
        return replica.stream.batch(index_b, step, step / replica.horizon.total_steps)

    def tell(self, say: Callable[[str], None]) -> None:
        """Report which probes were skipped at times, and why."""
        for sentence in self.observer.sentences():
            say(sentence)

    def state(self) -> dict[str, Tensor]:
        """The state that a checkpoint must hold."""
        return self.observer.state()

    def load(self, step: int, state: Mapping[str, Tensor]) -> None:
        """Resume from a checkpoint."""
        self.observer.load(step, state)


def observe(replica: Replica, record: Callable[[int, str, dict[str, Any]], None]) -> Observation | None:
    """The probes that a replica's recipe asks for; None if it asks for none."""
    wanted = [name for name in replica.recipe.probes if name != "budget"]
    return Observation(replica, record) if wanted else None


def _test_batch(replica: Replica) -> tuple[Tensor, Tensor] | None:
    split = replica.data.splits.get("test")
    if split is None:
        return None
    part = split.take(slice(0, TEST_EXAMPLES))
    inputs = replica.stream.prepare(part.inputs.to(replica.device))
    return inputs, part.targets.to(replica.device)
