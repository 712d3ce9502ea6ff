"""When probes are due, and how often they may run within their share of the training time.

A probe is due every given number of steps. It runs at such a step if all probes together stay within the
budget with it, and is skipped otherwise; so an expensive probe runs less often. Its cost is measured each
time; before the first time, it is estimated from the number of passes through the model that it makes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter

BUDGET = 0.05
EARLY_SHARE = 0.5  # share of the whole training's budget that may be spent before it is earned
AIM = 0.6  # share of the budget to use: the steps after a probe are slower too, which no clock shows
UNKNOWN_LENGTH = 1000  # assumed number of training steps if none is given


@dataclass
class Entry:
    """One probe in a timetable.

    Attributes:
        every: The number of steps between two times at which it is due.
        passes: Its approximate cost in training steps, used until it is measured.
        seconds: Its cost when it last ran; None before.
        wanted: How often it was due.
        made: How often it ran.
    """

    every: int
    passes: float = 2.0
    seconds: float | None = None
    wanted: int = 0
    made: int = 0


class Timetable:
    """Decide which probes run after which step.

    Args:
        entries: The probes by name.
        budget: The share of the training time that they may take, all together.
        total_steps: The number of training steps, if known.
        clock: Returns the time in seconds.
    """

    def __init__(
        self,
        entries: Mapping[str, Entry],
        budget: float = BUDGET,
        total_steps: int | None = None,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self.entries, self.budget, self.clock = dict(entries), budget, clock
        self.total_steps = total_steps or UNKNOWN_LENGTH
        self.spent, self.trained, self.steps = 0.0, 0.0, 0
        self._since: float | None = None
        self._first_step = 0

    def trained_until(self, step: int) -> None:
        """Training has reached a step; the time since the last call, less what was charged, was training."""
        now = self.clock()
        if self._since is None:
            self._first_step = step
        else:
            self.trained += now - self._since
            self.steps = step - self._first_step
        self._since = now

    def due(self, step: int) -> list[str]:
        """The probes to run now, those that ran least often first."""
        names = [name for name, entry in self.entries.items() if step % entry.every == 0]
        for name in names:
            self.entries[name].wanted += 1
        chosen, planned = [], self.spent
        for name in sorted(names, key=lambda name: self.entries[name].made):
            cost = self._cost(self.entries[name])
            if planned + cost <= self._allowance():
                chosen.append(name)
                planned += cost
        return chosen

    def allows(self, name: str) -> bool:
        """Whether the budget still allows a probe."""
        return self.spent + self._cost(self.entries[name]) <= self._allowance()

    @contextmanager
    def charged(self, name: str | None = None) -> Iterator[None]:
        """Charge the time spent inside to the budget, not to training."""
        begin = self.clock()
        try:
            yield
        finally:
            end = self.clock()
            self.spent += end - begin
            if self._since is not None:
                self._since += end - begin
            if name is not None:
                self.entries[name].seconds = end - begin
                self.entries[name].made += 1

    @property
    def share(self) -> float:
        """The share of the training time that probes have taken so far."""
        return self.spent / self.trained if self.trained > 0 else 0.0

    @property
    def step_seconds(self) -> float | None:
        """The mean time of a step; None before the first."""
        return self.trained / self.steps if self.steps else None

    def thinned(self) -> dict[str, str]:
        """A sentence for each probe that was skipped at least once, by name."""
        return {
            name: f"probe {name} was made {entry.made} times of {entry.wanted}: "
            f"{self._price(entry)}, and all probes together may take {self.budget:.0%} of the training time"
            for name, entry in self.entries.items()
            if entry.made < entry.wanted
        }

    def _price(self, entry: Entry) -> str:
        if entry.seconds is None:
            return f"it would cost about {entry.passes:g} training steps"
        return f"it takes {entry.seconds:.2g} s" + (
            f", as long as {entry.seconds / self.step_seconds:.2g} training steps"
            if self.step_seconds
            else ""
        )

    def _cost(self, entry: Entry) -> float:
        return entry.seconds if entry.seconds is not None else entry.passes * self._unit

    def _allowance(self) -> float:
        whole = self.total_steps * self._unit
        return AIM * self.budget * max(self.trained, EARLY_SHARE * whole)

    @property
    def _unit(self) -> float:
        """The seconds per step; before the first, estimated from probes that ran; before these, 1."""
        if self.step_seconds is not None:
            return self.step_seconds
        measured = [entry for entry in self.entries.values() if entry.seconds is not None]
        if not measured:
            return 1.0
        return sum(entry.seconds or 0.0 for entry in measured) / sum(entry.passes for entry in measured)
