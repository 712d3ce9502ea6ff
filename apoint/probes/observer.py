"""Probes during a training run, in the engine's loop or in your own.

In your own loop:

    watch = apoint.probes.watch(model, loss, optimizer, {"signal": "every 100 steps"})
    for x, y in loader:
        ...                        # forward, backward, optimizer.step()
        watch((x, y))
    print(watch.readings["signal"][-1])

Training is bit for bit the same with and without it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from apoint.errors import ApointError, UnknownNameError, UsageError
from apoint.probes.reading import Reading, undefined
from apoint.probes.timetable import BUDGET, Entry, Timetable
from apoint.probes.track import Track
from apoint.registry import registry
from apoint.units import Duration, Horizon

DEFAULT_PROBES: dict[str, str] = {"signal": "100 steps", "gradients": "100 steps"}
"""The default probes: cheap, and enough for most of what goes wrong."""


@dataclass(frozen=True)
class Taken:
    """A reading with the step at which it was taken."""

    step: int
    reading: Reading

    def __str__(self) -> str:
        return f"step {self.step}: {self.reading}"


@dataclass
class _Part:
    """A probe or a track with its settings."""

    settings: dict[str, Any]
    supplied: tuple[str, ...] = ()
    track: Track | None = None
    observe_every: int = 1


class Observer:
    """Measure a model while it trains.

    Args:
        model: The model.
        loss: Its loss; see `Subject`.
        optimizer: Its optimizer, for probes that ask for it.
        probes: What to measure and how often, such as `{"signal": "every 100 steps"}`; or with settings, as
            `{"fisher": {"every": "1 epoch", "num_draws": 2}}`.
        budget: The share of the training time that all probes together may take.
        test: A held-out batch, for probes that ask for it.
        horizon: The length of training, for intervals in epochs or shares.
        seed: Where the random draws of probes begin.
        record: Called with each new reading.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Any = None,
        optimizer: Any = None,
        probes: Mapping[str, Any] | None = None,
        *,
        budget: float = BUDGET,
        test: Any = None,
        horizon: Horizon | None = None,
        seed: int = 0,
        record: Callable[[Taken], None] | None = None,
    ) -> None:
        if not 0 < budget <= 1:
            raise UsageError(f"the budget of probes is a share of the training time above 0, got {budget}")
        self.model, self.loss, self.optimizer, self.test, self.seed = model, loss, optimizer, test, seed
        self.readings: dict[str, list[Taken]] = {}
        self._record = record or (lambda taken: None)
        self._parts: dict[str, _Part] = {}
        entries = {}
        for name, wish in (DEFAULT_PROBES if probes is None else probes).items():
            every, settings = parsed(name, wish)
            self._parts[name] = _part(name, settings)
            entries[name] = Entry(_steps(name, every, horizon), _passes(name))
            self.readings[name] = []
        tracked = [part.observe_every for part in self._parts.values() if part.track is not None]
        self._strides = sorted({*tracked, *(entry.every for entry in entries.values())})
        self.timetable = Timetable(entries, budget, horizon.total_steps if horizon else None)
        self.step = 0
        self._start: dict[str, Tensor] = {}
        self._begun = False

    # -- called by the loop ------------------------------------------------------------------------------

    def begin(self, batch: Any) -> None:
        """Call it before the first step: remember the initial weights and take the readings due there."""
        if self._begun:
            return
        self._begun = True
        with self.timetable.charged():
            if any("start" in part.supplied for part in self._parts.values()):
                self._start = {k: p.detach().clone() for k, p in self.model.named_parameters()}
            for part in self._parts.values():
                if part.track is not None:
                    part.track.begin(self.model)
        self.timetable.trained_until(self.step)
        self._take(batch)

    def __call__(self, batch: Any) -> None:
        """Call it after a step; `batch` is that step's batch, or a function that returns it if needed."""
        if not self._begun:  # the first step is over; what is remembered starts from here
            self.begin(batch)
        self.step += 1
        if all(self.step % stride for stride in self._strides):
            return  # nothing is due, as at most steps, and this should cost nothing
        self.timetable.trained_until(self.step)
        with self.timetable.charged():
            self._observe()
        self._take(batch)

    def _observe(self) -> None:
        for part in self._parts.values():
            if part.track is not None and self.step % part.observe_every == 0:
                part.track.observe(self.model, self.step)

    def _take(self, batch: Any) -> None:
        for name in self.timetable.due(self.step):
            if not self.timetable.allows(name):
                continue  # the probes before it cost more than estimated
            with self.timetable.charged(name):
                batch = batch() if callable(batch) else batch
                taken = Taken(self.step, self._measured(name, batch))
                self.readings[name].append(taken)
                self._record(taken)

    def _measured(self, name: str, batch: Any) -> Reading:
        part = self._parts[name]
        everything = {
            "model": self.model, "batch": batch, "loss": self.loss, "test": self.test, "start": self._start,
            "optimizer": self.optimizer,
        }  # fmt: skip
        try:
            if part.track is not None:
                return part.track.read(self.model, batch, self.loss)
            if "test" in part.supplied and self.test is None:
                return undefined(name, "there is no batch that is not trained on")
            supplied = {key: everything[key] for key in part.supplied}
            entry = registry("probe")[name]
            own = {"seed": self.seed} if "seed" in entry.setting_parameters else {}
            reading: Reading = registry("probe").build({"name": name, **own, **part.settings}, **supplied)
        except ApointError as error:
            return undefined(name, str(error))
        return reading

    # -- what is known -----------------------------------------------------------------------------------

    @property
    def share(self) -> float:
        """The share of the training time that probes have taken."""
        return self.timetable.share

    def sentences(self) -> list[str]:
        """What a user should know about how often the probes ran."""
        return list(self.timetable.thinned().values())

    def state(self) -> dict[str, Tensor]:
        """All that a run needs to resume: the initial weights and the state of the tracks."""
        kept = {f"start/{name}": tensor for name, tensor in self._start.items()}
        for name, part in self._parts.items():
            if part.track is not None:
                kept |= {f"{name}/{key}": tensor for key, tensor in part.track.state().items()}
        return kept

    def load(self, step: int, state: Mapping[str, Tensor]) -> None:
        """Resume at a step with what `state` returned there."""
        self.step, self._begun = step, True
        self.timetable.trained_until(step)
        own = {key.partition("/")[2]: value for key, value in state.items() if key.startswith("start/")}
        self._start = {key: value.clone() for key, value in own.items()}
        for name, part in self._parts.items():
            if part.track is not None:
                prefix = f"{name}/"
                its = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
                part.track.load(its)


def watch(
    model: nn.Module,
    loss: Any = None,
    optimizer: torch.optim.Optimizer | None = None,
    probes: Mapping[str, Any] | None = None,
    *,
    budget: float = BUDGET,
    test: Any = None,
    total_steps: int | None = None,
    steps_per_epoch: float | None = None,
    seed: int = 0,
) -> Observer:
    """Measure a model while it trains in your own loop; call the returned observer after each step.

    Args:
        model: The model.
        loss: `loss(outputs, targets)`; None for the model's own loss, or a default that suits the targets.
        optimizer: The optimizer, for probes that ask for it.
        probes: What to measure and how often; `signal` and `gradients` every 100 steps by default.
        budget: The share of the training time that probes may take; they run less often to stay within it.
        test: A held-out batch, for probes that ask for it.
        total_steps: The number of training steps, if known.
        steps_per_epoch: The number of steps per epoch, for intervals such as `1 epoch`.
        seed: Where the random draws of probes begin.
    """
    horizon = None
    if total_steps is not None or steps_per_epoch is not None:
        horizon = Horizon(total_steps or 1000, steps_per_epoch or total_steps or 1000)
    return Observer(model, loss, optimizer, probes, budget=budget, test=test, horizon=horizon, seed=seed)


def parsed(name: str, wish: Any) -> tuple[Duration, dict[str, Any]]:
    """The interval and settings of `every 100 steps`, `1 epoch` or `{every: 1 epoch, setting: value}`."""
    settings: dict[str, Any] = {}
    if isinstance(wish, Mapping):
        settings = {key: value for key, value in wish.items() if key != "every"}
        if "every" not in wish:
            raise UsageError(f"probe {name!r} needs 'every', such as 'every: 100 steps', got {dict(wish)!r}")
        wish = wish["every"]
    if isinstance(wish, int) and not isinstance(wish, bool):
        return Duration(float(wish), "steps"), settings
    if isinstance(wish, str):
        wish = re.sub(r"^\s*every\s+", "", wish)
        wish = f"1 {wish}" if wish.strip() in ("step", "epoch") else wish
    every = Duration.parse(wish)
    if every.value <= 0:
        raise UsageError(f"probe {name!r} is wanted every {every}, which must be more than 0")
    return every, settings


def _steps(name: str, every: Duration, horizon: Horizon | None) -> int:
    if every.unit != "steps" and horizon is None:
        raise UsageError(
            f"probe {name!r} is wanted every {every}; say how long that is with steps_per_epoch and "
            "total_steps, or write it in steps"
        )
    return max(1, round(every.as_steps(horizon) if horizon else every.value))


def _entry(name: str) -> Any:
    for kind in ("probe", "track"):
        if name in registry(kind):
            return registry(kind)[name]
    raise UnknownNameError("probe", name, [*registry("probe"), *registry("track")])


def _part(name: str, settings: dict[str, Any]) -> _Part:
    from apoint.checking import checked_settings

    entry = _entry(name)
    checked = checked_settings(entry, settings)
    if entry.kind == "track":
        return _Part(settings, track=entry.build(**checked))
    return _Part(settings, supplied=entry.supplied)


def _passes(name: str) -> float:
    return float(_entry(name).traits.get("passes", 2.0))
