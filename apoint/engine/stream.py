"""The training stream: which examples make up each update, and what is done to them.

Everything is a function of the seed, the epoch and the example's index, so any step's batch can be
computed without the steps before it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from apoint.data import Data, streams
from apoint.data.stored import as_stored, prefetch
from apoint.errors import UsageError
from apoint.registry import registry
from apoint.schedules import Schedule
from apoint.units import Duration, Horizon

SAMPLED_STEPS = 20_000
BATCHES_AHEAD = 2
"""How many batches of stored images are decoded while an update is computed."""


class Preparation:
    """Converts raw inputs to the form a model is trained on: bytes to numbers, mean 0, standard deviation 1.

    Equal to `data.normalise(data.to_unit(x))` up to rounding; for bytes, as one multiplication and one
    addition; for numbers, with the mean subtracted first, since it may be much larger than the standard
    deviation.
    """

    def __init__(self, data: Data, device: torch.device) -> None:
        self.tokens = data.facts.kind == "tokens"
        if not self.tokens:
            shape = (-1, *[1] * (len(data.facts.input_shape) - 1))
            self.mean, std = data.mean.to(device).view(shape), data.std.to(device).view(shape)
            self.scale = 1 / std
            self.byte_scale, self.byte_shift = self.scale / 255, -self.mean / std

    def __call__(self, x: Tensor) -> Tensor:
        if self.tokens:
            return x
        if x.dtype == torch.uint8:
            return x.to(self.byte_scale.dtype).mul_(self.byte_scale).add_(self.byte_shift)
        return (x - self.mean).mul_(self.scale)


@dataclass(frozen=True)
class Deficit:
    """A deficit of the stream, with its window in shares of training and its strength during it."""

    apply: Callable[..., tuple[Tensor, Tensor]]
    begin: float
    end: float
    strength: Callable[[float], float]

    def strength_at(self, progress: float) -> float:
        return self.strength(progress) if self.begin <= progress < self.end else 0.0


class TrainingStream:
    """Batches of the training split, by update number.

    Args:
        data: The dataset.
        batch_size: Examples per update.
        order_seed: The seed for the order of examples.
        augmentation_seed: The seed for augmentations and deficits.
        device: Where batches go.
        one_output: Whether one output represents two classes; mixed targets are then the second's share.
    """

    def __init__(
        self,
        data: Data,
        batch_size: int,
        order_seed: int,
        augmentation_seed: int,
        device: torch.device,
        one_output: bool = False,
    ) -> None:
        self.size = len(data.train)
        if batch_size > self.size:
            raise UsageError(
                f"batch_size {batch_size} is larger than the training data, which has {self.size} examples; "
                f"use at most {self.size}"
            )
        self.data, self.batch_size, self.device = data, batch_size, device
        self.prepare = Preparation(data, device)
        self.order_seed, self.augmentation_seed, self.one_output = order_seed, augmentation_seed, one_output
        self.steps_per_epoch = self.size // batch_size
        self.deficits: list[Deficit] = []
        self.augmentations: list[Callable[..., tuple[Tensor, Tensor]]] = []
        self._epoch, self._order = -1, torch.empty(0, dtype=torch.int64)
        self._last_step: int | None = None

    def disturb(
        self, deficits: list[dict[str, Any]], augment: list[dict[str, Any]], horizon: Horizon
    ) -> None:
        """Add the recipe's deficits and augmentations; refuse those that do not fit the data."""
        for spec in deficits:
            on_labels = registry("deficit")[spec["name"]].traits.get("labels", False)
            if on_labels and self.data.facts.task != "classification":
                raise UsageError(
                    f"deficit {spec['name']!r} changes the labels of classes, and the data asks for "
                    f"{self.data.facts.task}; choose another deficit"
                )
        self.deficits = [_deficit(spec, horizon) for spec in deficits]
        self.augmentations = [registry("augmentation").build(spec) for spec in augment]
        self._last_step = horizon.total_steps - 1

    def rehearse(self, index_B: Tensor) -> tuple[Tensor, Tensor]:
        """A batch with every deficit at full strength and every augmentation, to check that they all fit."""
        train = self.data.train
        x, y = train.inputs.index_select(0, index_B), train.targets.index_select(0, index_B)
        x, y = x.to(self.device), y.to(self.device)
        if self.deficits or self.augmentations:
            x, y = self._disturbed(x, y, index_B, 0, [1.0] * len(self.deficits))
        return self.prepare(x), y

    def indices(self, step: int) -> Tensor:
        """The examples of an update; an incomplete last batch of an epoch is dropped."""
        epoch, position = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            shuffle = streams.generator(self.order_seed, "order", epoch)
            self._epoch, self._order = epoch, torch.randperm(self.size, generator=shuffle)
        return self._order[position * self.batch_size : (position + 1) * self.batch_size]

    def batch(self, index_B: Tensor, step: int, progress: float) -> tuple[Tensor, Tensor]:
        """Inputs and targets of some examples, disturbed, augmented, normalised, on the device."""
        train = self.data.train
        x, y = train.inputs.index_select(0, index_B), train.targets.index_select(0, index_B)
        if as_stored(train.inputs) is not None:
            self._ask_ahead(step)
        x, y = x.to(self.device), y.to(self.device)
        strengths = [deficit.strength_at(progress) for deficit in self.deficits]
        if self.augmentations or any(strengths):
            x, y = self._disturbed(x, y, index_B, step // self.steps_per_epoch, strengths)
        return self.prepare(x), y

    def _ask_ahead(self, step: int) -> None:
        """Start decoding the images of the next updates in advance."""
        for later in range(step + 1, step + 1 + BATCHES_AHEAD):
            if self._last_step is None or later <= self._last_step:
                prefetch(self.data.train.inputs, self.indices(later))

    def _disturbed(
        self, x: Tensor, y: Tensor, index_B: Tensor, epoch: int, strengths: list[float]
    ) -> tuple[Tensor, Tensor]:
        x = self.data.to_unit(x)
        num_classes = self.data.facts.num_outputs
        draw = streams.Draw(streams.key(self.augmentation_seed, "augmentation", epoch), index_B)
        for position, (deficit, strength) in enumerate(zip(self.deficits, strengths, strict=True)):
            if strength > 0:
                x, y = deficit.apply(x, y, draw.child(f"deficit-{position}"), strength, num_classes)
        for position, augment in enumerate(self.augmentations):
            x, y = augment(x, y, draw.child(f"augment-{position}"), num_classes)
        if self.one_output and y.is_floating_point() and y.dim() == 2:
            y = y[:, 1]
        return x, y


def _deficit(spec: dict[str, Any], horizon: Horizon) -> Deficit:
    settings = {name: value for name, value in spec.items() if name not in ("begin", "end", "strength")}
    begin = Duration.parse(spec["begin"]).as_share(horizon, f"begin of deficit {spec['name']!r}")
    end = Duration.parse(spec["end"]).as_share(horizon, f"end of deficit {spec['name']!r}")
    if begin >= end:
        raise UsageError(
            f"deficit {spec['name']!r} ends at {spec['end']}, before it begins at {spec['begin']}"
        )
    strength = scalar_schedule(spec["strength"], horizon)
    for step, value in extremes(strength, horizon):
        if not 0 <= value <= 1:
            raise UsageError(
                f"deficit {spec['name']!r}: the schedule of strength reaches {value:g} at step {step}; it "
                "must stay between 0 and 1"
            )
    return Deficit(registry("deficit").build(settings), begin, end, strength)


def scalar_schedule(value: float | dict[str, Any], horizon: Horizon) -> Callable[[float], float]:
    """A number or a schedule's settings as a function of progress."""
    if isinstance(value, dict):
        schedule: Schedule = registry("schedule").build(value, horizon)
        return schedule
    return lambda progress: value


def extremes(schedule: Callable[[float], float], horizon: Horizon) -> list[tuple[int, float]]:
    """The steps at which a schedule is lowest and highest, with its values; long runs are sampled."""
    stride = max(1, horizon.total_steps // SAMPLED_STEPS)
    steps = [*range(0, horizon.total_steps, stride), horizon.total_steps - 1]
    values = [(step, schedule(step / horizon.total_steps)) for step in steps]
    return [min(values, key=lambda pair: pair[1]), max(values, key=lambda pair: pair[1])]
