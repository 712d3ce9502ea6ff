"""An examination: what was looked at so far, what was seen, what could not be looked at.

Each kind of evidence is gathered once, when somebody asks for it, so that cheap looks come before dear ones.
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
QUICK_SECONDS = 1.5  # that a trial of a quick examination may take


class Examination:
    """What is known of a patient.

    Args:
        patient: The patient.
        quick: Whether to leave out what takes long.
        thorough: Whether to gather evidence even where nothing asks for it, as calibration needs it.
        say: Called with what is being looked at.

    Attributes:
        signs: The evidence: a number for each sign by its name.
        places: Where a sign was seen, if it concerns one layer.
        readings: What probes measured.
        unchecked: What was not looked at, each with the reason.
        stages: Which stages were done, in their order; the last one is at work.
        broken: The finding that says that no training step can be made, by its code; empty if one can.
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
        """Note a sign; None is not noted."""
        if value is not None and not math.isnan(value):
            self.signs[name] = float(value)
            if layer:
                self.places[name] = layer
        return value

    def begin(self, stage: str) -> None:
        """Begin a stage; it counts as done unless it is said otherwise."""
        self.stages[stage] = StageState()

    def leave_out(self, what: str, why: str) -> None:
        """Note that something was not looked at, because it does not apply or was not given."""
        self.unchecked.setdefault(what, why)

    def skip(self, why: str) -> None:
        """Note that there is nothing to do in this stage, or no time for it."""
        self._ends("skipped", why)

    def could_not(self, what: str, why: str) -> None:
        """Note that something should have been looked at and could not be: the stage counts as failed."""
        self.leave_out(what, why)
        self._ends("failed", why)

    def without_training(self) -> None:
        """Note that this stage needs a short training, and there was none."""
        self._ends(self._untrained.state, self._untrained.why)

    def _ends(self, state: State, why: str) -> None:
        name, known = next(reversed(self.stages.items()))
        if known.state != "failed":
            self.stages[name] = StageState(state, why)

    def _untrainable(self, state: State, why: str) -> None:
        self.leave_out("training", why)
        self._untrained = StageState(state, why)

    def measured(self, probe: str, model: Any = None, batch: Batch | None = None, **settings: Any) -> Reading:
        """The reading of a probe, on the patient's model and a batch of some size by default."""
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
        """The reading of a probe on the patient as it is, kept for the report."""
        if probe not in self.readings:
            self.readings[probe] = self.measured(probe, **settings)
        return self.readings[probe]

    def curves(self) -> dict[str, Any]:
        """What the trials that were made gave, for drawing."""
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
        """Training examples to measure on: a batch of training, or more where those are few."""
        train = self.patient.train
        return train.some(min(len(train), max(64, train.batch_size), MOST_EXAMPLES), self.patient.seed)

    @functools.cached_property
    def trainable(self) -> bool:
        """Whether there is anything to train and it can be copied."""
        if self.patient.optimizer is None or not any(
            p.requires_grad for p in self.patient.model.parameters()
        ):
            self._untrainable("skipped", "the model has no parameter that could be trained")
            return False
        return True

    @functools.cached_property
    def trial_steps(self) -> int:
        """How long trials are: in a quick examination as long as there is time for."""
        if not self.quick:
            return min(STEPS, self.patient.total_steps)
        steps = min(QUICK_STEPS, int(QUICK_SECONDS / self._step_seconds))
        return min(max(FEWEST_STEPS, steps), self.patient.total_steps)

    @functools.cached_property
    def _step_seconds(self) -> float:
        """What a step of training takes: the least of two, or of several where those two were slow.

        On a busy machine one step may take a hundred times its own time, and a small model would
        then pass for one too slow to be trained.
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
        """A trial as the patient trains; None if there can be none, or it would take too long."""
        if self.quick and self.trainable and self._step_seconds * FEWEST_STEPS > QUICK_SECONDS:
            seconds = f"{self._step_seconds:.2g}"
            why = f"a step takes {seconds} s, too long for a quick examination"
            self._untrainable("skipped", why)
            return None
        self.say("a short training")
        return self._trial(self.trial_steps)

    def at_rate(self, factor: float) -> History | None:
        """The same with the learning rate times a factor."""
        if factor not in self._at_rate:
            self.say(f"the same with {factor:g} times the learning rate")
            self._at_rate[factor] = self._trial(self.trial_steps, rate=factor)
        return self._at_rate[factor]

    @functools.cached_property
    def enlarged(self) -> History | None:
        """The same with batches sixteen times as large."""
        size = min(16 * self.patient.train.batch_size, len(self.patient.train))
        self.say(f"the same with batches of {size}")
        return self._trial(self.trial_steps, batch_size=size)

    @functools.cached_property
    def warmed(self) -> History | None:
        """The same with a warm-up over half of the trial."""
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
        """A trial that nothing watches: what fails in it is not of our making."""
        return self._trial(steps, watched=False)

    @functools.cached_property
    def memorised(self) -> History | None:
        """A trial on one small batch, with an optimizer of our own: can it be memorised?"""
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
