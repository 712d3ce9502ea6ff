"""An examination: what was checked so far, what was found, and what could not be checked.

Each kind of evidence is gathered once, on demand, so that cheap checks come before expensive ones.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from apoint.doctor.copies import CannotCopyError
from apoint.doctor.finding import StageState, State
from apoint.doctor.patient import Patient
from apoint.doctor.trial import UPDATES_EVERY, History, trial
from apoint.errors import UsageError
from apoint.probes import Batch, Reading
from apoint.registry import registry

T = TypeVar("T")
MOST_EXAMPLES = 256
STEPS, QUICK_STEPS, FEWEST_STEPS = 120, 40, 10
QUICK_SECONDS = 1.5  # limit for one trial of a quick examination


class Examination:
    """What is known about a patient.

    Args:
        patient: The patient.
        quick: Whether to skip what takes a long time.
        thorough: Whether to gather evidence even if nothing asks for it, as calibration needs it.
        say: Called with what is being checked.

    Attributes:
        signs: The evidence: a number for each sign, by name.
        places: Where a sign was seen, if it concerns one layer.
        readings: What the probes measured.
        unchecked: What was not checked, each with the reason.
        stages: The stages so far, in order; the last one is running.
        broken: The code of the finding that no training step can be made; empty if one can.
    """

    def __init__(
        self,
        patient: Patient,
        quick: bool = False,
        thorough: bool = False,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self.patient, self.quick, self.thorough = patient, quick, thorough
        self.say = say or (lambda sentence: None)
        self.signs: dict[str, float] = {}
        self.places: dict[str, str] = {}
        self.readings: dict[str, Reading] = {}
        self.unchecked: dict[str, str] = {}
        self.stages: dict[str, StageState] = {}
        self.broken = ""
        self._untrained = StageState("skipped", "there is nothing to train")
        self._at_rate: dict[float, History | None] = {}

    def sign(self, name: str, value: float | None, layer: str = "") -> float | None:
        """Record a sign; None is not recorded."""
        if value is not None and not math.isnan(value):
            self.signs[name] = float(value)
            if layer:
                self.places[name] = layer
        return value

    def begin(self, stage: str) -> None:
        """Begin a stage; it counts as done unless reported otherwise."""
        self.stages[stage] = StageState()

    def leave_out(self, what: str, why: str) -> None:
        """Record that something was not checked, because it does not apply or was not given."""
        self.unchecked.setdefault(what, why)

    def skip(self, why: str) -> None:
        """Record that there is nothing to do in this stage, or no time for it."""
        self._ends("skipped", why)

    def could_not(self, what: str, why: str) -> None:
        """Record that something should have been checked and could not be: the stage counts as failed."""
        self.leave_out(what, why)
        self._ends("failed", why)

    def without_training(self) -> None:
        """Record that this stage needs a short training run and there was none."""
        self._ends(self._untrained.state, self._untrained.why)

    def _ends(self, state: State, why: str) -> None:
        name, known = next(reversed(self.stages.items()))
        if known.state != "failed":
            self.stages[name] = StageState(state, why)

    def _untrainable(self, state: State, why: str) -> None:
        self.leave_out("training", why)
        self._untrained = StageState(state, why)

    def measured(self, probe: str, model: Any = None, batch: Batch | None = None, **settings: Any) -> Reading:
        """The reading of a probe, by default on the patient's model and `self.batch`."""
        patient = self.patient
        everything = {
            "model": model or patient.model,
            "batch": batch or self.batch,
            "loss": patient.loss,
            "test": None if patient.test is None else patient.test.some(MOST_EXAMPLES, patient.seed),
            "optimizer": patient.optimizer,
        }
        supplied = {name: everything[name] for name in registry("probe")[probe].supplied}
        reading: Reading = registry("probe").build({"name": probe, **settings}, **supplied)
        return reading

    def reading(self, probe: str, **settings: Any) -> Reading:
        """The reading of a probe on the unchanged patient, kept for the report."""
        if probe not in self.readings:
            self.readings[probe] = self.measured(probe, **settings)
        return self.readings[probe]

    def curves(self) -> dict[str, Any]:
        """The curves of the trials made so far, for plotting."""
        made = {"as it is": self.__dict__.get("history"), "with a warm-up": self.__dict__.get("warmed")}
        made["with larger batches"] = self.__dict__.get("enlarged")
        made |= {f"learning rate × {factor:g}": trial for factor, trial in sorted(self._at_rate.items())}
        made["one batch, again and again"] = self.__dict__.get("memorised")
        losses = {title: list(trial.losses) for title, trial in made.items() if trial is not None}
        history = self.__dict__.get("history")
        if history is None:
            return {"losses": losses}
        steps = list(range(0, history.steps, UPDATES_EVERY))
        by_layer = {"gradients": dict(history.gradients), "updates": dict(history.updates)}
        return {"losses": losses, "steps": steps, "rates": list(history.rates), **by_layer}

    # -- evidence ----------------------------------------------------------------------------------------

    @functools.cached_property
    def batch(self) -> Batch:
        """Training examples to measure on: a training batch, or more examples if the batch is small."""
        train = self.patient.train
        return train.some(min(len(train), max(64, train.batch_size), MOST_EXAMPLES), self.patient.seed)

    @functools.cached_property
    def trainable(self) -> bool:
        """Whether there is anything to train."""
        if self.patient.optimizer is None or not any(
            p.requires_grad for p in self.patient.model.parameters()
        ):
            self._untrainable("skipped", "the model has no parameter that could be trained")
            return False
        return True

    @functools.cached_property
    def trial_steps(self) -> int:
        """The number of steps of a trial; in a quick examination, as many as there is time for."""
        if not self.quick:
            return min(STEPS, self.patient.total_steps)
        steps = min(QUICK_STEPS, int(QUICK_SECONDS / self._step_seconds))
        return min(max(FEWEST_STEPS, steps), self.patient.total_steps)

    @functools.cached_property
    def _step_seconds(self) -> float:
        """Seconds per training step: the minimum of two, or of several if those two were slow.

        On a busy machine one step may take a hundred times as long as usual, and a small model would
        then be taken for one too slow to train.
        """
        begin, least = time.perf_counter(), math.inf
        for tried in range(8):
            start = time.perf_counter()
            self._trial(1)
            least = min(least, time.perf_counter() - start)
            spent = time.perf_counter() - begin
            if tried and (least * QUICK_STEPS <= QUICK_SECONDS or spent > QUICK_SECONDS):
                break
        return max(least, 1e-6)

    @functools.cached_property
    def history(self) -> History | None:
        """A trial that trains as the patient does; None if it is impossible or would take too long."""
        if self.quick and self.trainable and self._step_seconds * FEWEST_STEPS > QUICK_SECONDS:
            seconds = f"{self._step_seconds:.2g}"
            why = f"a step takes {seconds} s, too long for a quick examination"
            self._untrainable("skipped", why)
            return None
        self.say("a short training")
        return self._trial(self.trial_steps)

    def at_rate(self, factor: float) -> History | None:
        """The same trial with the learning rate multiplied by a factor."""
        if factor not in self._at_rate:
            self.say(f"the same with {factor:g} times the learning rate")
            self._at_rate[factor] = self._trial(self.trial_steps, rate=factor)
        return self._at_rate[factor]

    @functools.cached_property
    def enlarged(self) -> History | None:
        """The same trial with batches sixteen times as large."""
        size = min(16 * self.patient.train.batch_size, len(self.patient.train))
        self.say(f"the same with batches of {size}")
        return self._trial(self.trial_steps, batch_size=size)

    @functools.cached_property
    def warmed(self) -> History | None:
        """The same trial with a warm-up over half of it."""
        self.say("the same with a warm-up")
        return self._trial(self.trial_steps, warmup=max(2, self.trial_steps // 2))

    def _trial(self, steps: int, **settings: Any) -> History | None:
        if not self.trainable:
            return None
        try:
            return trial(self.patient, steps, **settings)
        except CannotCopyError as error:
            self._untrainable("failed", str(error))
            return None

    def plain_trial(self, steps: int) -> History | None:
        """A trial without hooks: what fails in it is not our fault."""
        return self._trial(steps, watched=False)

    @functools.cached_property
    def memorised(self) -> History | None:
        """A trial on one small batch, with our own optimizer: can the batch be memorised?"""
        if self.history is None:
            return None
        self.say("overfitting one batch")
        train = self.patient.train
        batch = train.some(min(16, train.batch_size), self.patient.seed)
        steps = 150
        if self.quick:
            share = batch.size / max(1, train.batch_size)
            steps = min(60, max(2 * FEWEST_STEPS, int(QUICK_SECONDS / (share * self._step_seconds))))
        best: History | None = None
        for rate in (3e-3, 3e-4):
            weights = [p for p in self.patient.model.parameters() if p.requires_grad]
            optimizer = torch.optim.Adam(weights, lr=rate)
            try:
                made = self._trial(steps, batch=batch, optimizer=optimizer, own_step=False)
            except UsageError as error:
                self.could_not("overfitting one batch", str(error))
                return None
            if made is None or (best is not None and made.best >= best.best):
                continue
            best = made
        return best
