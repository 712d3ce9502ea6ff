"""A stack: R replicas of the same structure in one computation, each with its own data, draws and numbers.

Axis letters: R replicas, P parameters of a part, B examples of an update, b examples of a part of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from apoint.engine.replica import Replica
from apoint.engine.stacked.batches import StackedStream
from apoint.engine.stacked.draws import Draws
from apoint.engine.stacked.lifting import check_available
from apoint.engine.stacked.model import StackedModel, knobs_of
from apoint.engine.stacked.optimizer import StackedOptimizer
from apoint.engine.stacked.parameters import Parts, StackedParameters, chosen
from apoint.engine.stacked.passes import Passes
from apoint.engine.stacked.rehearsal import rehearse
from apoint.engine.stacked.stackability import check_alike
from apoint.errors import StorageError


class Stack:
    """R replicas, trained together.

    The replicas themselves are not modified; `give_back` copies the current state of a row into its replica.

    Args:
        replicas: Replicas as returned by `assemble`, which differ in no more than `check_alike` allows.

    Attributes:
        replicas: The replicas that are still in the stack, row by row.
        members: Their indices in the list that the stack was built from.

    Raises:
        CannotStackError: The replicas cannot share a stack, or the model's code cannot run for all at once.
    """

    def __init__(self, replicas: Sequence[Replica]) -> None:
        check_available()
        check_alike(replicas)
        self.replicas, self.members = list(replicas), list(range(len(replicas)))
        self._build()
        self.model.faithful = rehearse(self.replicas, self.parameters, self.stream)
        self.passes = self._passes()

    def _build(self) -> None:
        replicas, first = self.replicas, self.replicas[0]
        seeds = [replica.stream_seed("dropout") for replica in replicas]
        self.draws = Draws(seeds, first.device)
        self.model = StackedModel([replica.model for replica in replicas], self.draws)
        self.model.template.train()
        self.parameters = StackedParameters([replica.parameters for replica in replicas])
        self.optimizer = StackedOptimizer(first.optimizer.rule, self.parameters)
        self.optimizer.restore(_memory(replicas, self.parameters))
        self.stream = StackedStream([replica.stream for replica in replicas])
        self.knobs = knobs_of(first, self.model.template)
        self.average: Parts | None = None
        self.average_buffers: dict[str, Tensor] = {}
        averages = [replica.average_P for replica in replicas if replica.average_P is not None]
        if averages:
            self.average = self.parameters.split(torch.stack(averages))
            self.average_buffers = {
                name: torch.stack([replica.average_buffers[name] for replica in replicas])
                for name in first.average_buffers
            }
        self.one_timeline = all(_schedules(replica) == _schedules(first) for replica in replicas)

    def _passes(self) -> Passes:
        recipe, loss = self.replicas[0].recipe, self.replicas[0].loss
        targets = self.parameters.gradient_views if recipe.accumulate == 1 else None  # else they are added up
        return Passes(self.model, self.parameters.leaves, loss, recipe.batch_size, not self.knobs, targets)

    @property
    def num_replicas(self) -> int:
        return len(self.replicas)

    def apply_schedules(self, progress: float) -> None:
        """Set the scheduled rates of the template's modules."""
        for module, rate in self.knobs:
            module.rate = rate(progress)

    def hypers(self, progress: float) -> list[dict[str, float]]:
        """The optimizer's hyper-parameters for each replica, or one mapping for all if nothing differs."""
        replicas = self.replicas[:1] if self.one_timeline else self.replicas
        return [replica.timeline.hyper(progress) for replica in replicas]

    def limits(self, progress: float) -> float | Tensor:
        """The clipping limit, one for all or one per replica [R, 1]."""
        if self.one_timeline:
            return self.replicas[0].timeline.clip_limit(progress)
        values = [replica.timeline.clip_limit(progress) for replica in self.replicas]
        like = self.parameters.weights[0]
        return torch.tensor(values, dtype=like.dtype, device=like.device)[:, None]

    def keep(self, rows: Sequence[int]) -> None:
        """Keep only some of the replicas; the others leave no trace."""
        if not rows:
            self.replicas, self.members = [], []
            return
        memory = {slot: chosen(parts, rows) for slot, parts in self.optimizer.state().items()}
        self.replicas = [self.replicas[row] for row in rows]
        self.members = [self.members[row] for row in rows]
        self.draws.keep(rows)
        self.model.keep(rows)
        self.parameters.keep(rows)
        self.optimizer.restore(memory)
        self.stream = StackedStream([replica.stream for replica in self.replicas])
        if self.average is not None:
            self.average = chosen(self.average, rows)
        index = list(rows)
        self.average_buffers = {name: values[index] for name, values in self.average_buffers.items()}
        self.passes = self._passes()

    # -- state of the rows ------------------------------------------------------------------------------

    @torch.no_grad()
    def give_back(self, row: int) -> Replica:
        """Copy a row's weights, running statistics, optimizer state and average into its replica."""
        replica, one = self.replicas[row], self.parameters.row
        replica.parameters.weights_P.copy_(one(self.parameters.weights, row))
        stacked = self.model.buffers()
        for name, buffer in replica.model.named_buffers():
            buffer.copy_(stacked[name][row])
        replica.optimizer.restore(self.optimizer.of_row(row))
        if self.average is not None and replica.average_P is not None:
            replica.average_P.copy_(one(self.average, row))
            for name, values in self.average_buffers.items():
                replica.average_buffers[name].copy_(values[row])
        return replica

    def state(self) -> dict[str, dict[str, Tensor]]:
        """All tensors that `restore` needs, by group and name."""
        groups = {
            "weights": _labelled(self.parameters.weights),
            "optimizer": {
                f"{slot}/{label}": part
                for slot, parts in self.optimizer.state().items()
                for label, part in _labelled(parts).items()
            },
            "buffers": self.model.buffers(),
        }
        if self.average is not None:
            groups["average"] = {**_labelled(self.average), **_prefixed(self.average_buffers)}
        return {name: tensors for name, tensors in groups.items() if tensors}

    @torch.no_grad()
    def restore(self, groups: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Load tensors returned by `state`, for the same number of replicas."""
        try:
            for name, tensors in self.state().items():
                for label, tensor in tensors.items():
                    _copy(groups[name][label], tensor)
            memory = self.optimizer.state()
            for slot, parts in memory.items():
                for label, part in _labelled(parts).items():
                    _copy(groups["optimizer"][f"{slot}/{label}"], part)
        except (KeyError, RuntimeError) as error:
            raise StorageError(f"the checkpoint belongs to other replicas: {error}") from None
        self.optimizer.restore(memory)


def _copy(source: Tensor, target: Tensor) -> None:
    if source.shape != target.shape:
        raise RuntimeError(f"shape {tuple(source.shape)} in place of {tuple(target.shape)}")
    target.copy_(source)


def _labelled(parts: Parts) -> dict[str, Tensor]:
    return {"decayed": parts[0], "exempt": parts[1]}


def _prefixed(buffers: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"buffers/{name}": values for name, values in buffers.items()}


def _memory(replicas: Sequence[Replica], parameters: StackedParameters) -> dict[str, Parts]:
    states = [replica.optimizer.state() for replica in replicas]
    return {slot: parameters.split(torch.stack([state[slot] for state in states])) for slot in states[0]}


def _schedules(replica: Replica) -> dict[str, Any]:
    """What determines the hyper-parameters and the clipping limit at every step."""
    values = replica.recipe.canonical()
    return {name: values[name] for name in ("optimizer", "schedule", "clip")}
