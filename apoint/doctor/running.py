"""The stage `run`: does a training step run at all? A plain step, without hooks or probes.

Steps are made on a copy, or on the model itself with everything restored afterwards if it cannot be copied.
An error here comes from the user's model, loss, batch or step. An error in a later stage is reported as the
user's only if it is raised again without hooks and probes (`broken_off`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import nn
from torch.utils.data import DataLoader

from apoint.doctor.card import ENDS_TRAINING, Card, card
from apoint.doctor.copies import CannotCopyError, copied
from apoint.doctor.examination import Examination
from apoint.doctor.examples import Examples
from apoint.doctor.failure import (
    Part,
    StepFailedError,
    caller_of,
    defined_at,
    locals_of,
    part,
    place_of,
    said,
    shown,
    work_of,
)
from apoint.doctor.finding import Finding, Treatment
from apoint.doctor.fitting import Case, Fit, what_fits
from apoint.doctor.specimens import Applied, FailingDataset, altered, perceptron
from apoint.doctor.trial import History, any_step, own_randomness, plain_loss, plain_step
from apoint.errors import ApointError
from apoint.probes import Batch, preserve_state

_ENDS = "An error that nothing catches ends training there."

BATCH_FAILS = card(
    "batch-fails",
    stage="run",
    sees="loading a batch, or collating examples into one, raises an error",
    cause=_ENDS,
    level="severe",
    confidence=1.0,
    example=lambda: {"model": perceptron(), "data": DataLoader(FailingDataset(), 20), "test": None},
)

FORWARD_FAILS = card(
    "forward-fails",
    stage="run",
    sees="the model raises an error",
    cause=_ENDS,
    level="severe",
    confidence=1.0,
    explains=ENDS_TRAINING,
    example=lambda: {"model": nn.Sequential(nn.Linear(100, 10))},
)

LOSS_FAILS = card(
    "loss-fails",
    stage="run",
    sees="the loss raises an error, or there is none",
    cause=_ENDS,
    level="severe",
    confidence=1.0,
    explains=ENDS_TRAINING | {"bad-initial-loss"},
    example=lambda: {"model": perceptron(), "data": altered(lambda x, y: (x, y + 1))},
)

BACKWARD_FAILS = card(
    "backward-fails",
    stage="run",
    sees="the backward pass raises an error",
    cause=_ENDS,
    level="severe",
    confidence=1.0,
    explains=ENDS_TRAINING | {"no-gradient"},
    example=lambda: {"model": nn.Sequential(perceptron(), Applied(lambda x: x.detach()))},
)

STEP_FAILS = card(
    "step-fails",
    stage="run",
    sees="the optimizer's step, or your own training step, raises an error",
    cause=_ENDS,
    level="severe",
    confidence=1.0,
    explains=ENDS_TRAINING,
    example=lambda: {"model": perceptron(), "step": lambda model, batch, loss, optimizer: batch["x"]},
)

CARDS: dict[Part, Card] = {
    "batch": BATCH_FAILS,
    "forward": FORWARD_FAILS,
    "loss": LOSS_FAILS,
    "backward": BACKWARD_FAILS,
    "update": STEP_FAILS,
    "step": STEP_FAILS,
}
_SUBJECTS: dict[Part, str] = {
    "batch": "Loading a batch",
    "forward": "The model",
    "loss": "The loss",
    "backward": "The backward pass",
    "update": "The optimizer's step",
    "step": "Your training step",
}
UNKNOWN = "What would fit is not known from types and shapes; run the line below to see the whole traceback."
_TRACEBACK: dict[Part, str] = {
    "batch": "next(iter(loader))  # or dataset[0]",
    "forward": "model(x)",
    "loss": "loss(model(x), y)",
    "backward": "loss(model(x), y).backward()",
    "update": "optimizer.step()",
    "step": "step(model, (x, y), loss, optimizer)",
}


def examine(exam: Examination) -> Iterator[Finding]:
    """Find the first part of a training step that fails, on batches of every kind."""
    patient = exam.patient
    if patient.train.left_out:
        exam.leave_out("batches of other shapes", patient.train.left_out)
    for failure, where in ((patient.train.failure, ""), (patient.test_failure, " of the held-out data")):
        if failure is not None:
            exam.could_not("the rest of the data", str(failure))
            yield unloaded(failure, where)
    with _rehearsal(exam) as rehearsal:
        try:
            rehearsal.train()
            rehearsal.evaluate()
        except StepFailedError as failure:
            exam.could_not("a training step", str(failure))
            case = Case(
                failure, rehearsal.model, rehearsal.batch, patient, work_of(rehearsal.model, failure.error),
                rehearsal.examples,
            )  # fmt: skip
            found = finding(case)
            exam.broken = "" if rehearsal.made else found.code
            yield found


@contextmanager
def _rehearsal(exam: Examination) -> Iterator[_Rehearsal]:
    """Provide what the steps need: copies, or the model itself with everything restored afterwards."""
    patient = exam.patient
    with ExitStack() as stack:
        uncopied = ""
        try:
            model, optimizer = copied(patient.model, patient.optimizer)
        except CannotCopyError as error:
            exam.leave_out("the optimizer's step", str(error))
            stack.enter_context(preserve_state(patient.model, patient.seed, weights=True))
            model, optimizer, uncopied = patient.model, None, str(error)
        stack.enter_context(own_randomness(patient.seed))
        stack.enter_context(torch.enable_grad())
        yield _Rehearsal(exam, model, optimizer, uncopied)


class _Rehearsal:
    """Training steps that run only to see what they raise.

    Weights are restored after each step, so that a learning rate that is too high makes nothing fail here.

    Attributes:
        batch: The last batch used.
        examples: The data that it comes from.
        made: Whether plain steps could be made on the first batches.
    """

    def __init__(
        self, exam: Examination, model: nn.Module, optimizer: torch.optim.Optimizer | None, uncopied: str
    ) -> None:
        self.uncopied = uncopied
        self.exam, self.patient = exam, exam.patient
        self.model, self.optimizer = model, optimizer if exam.trainable else None
        self.weights = [parameter.detach().clone() for parameter in model.parameters()]
        self.batch, self.examples, self.made = self._first()[0], self.patient.train, False

    def train(self) -> None:
        """Run two steps, since state kept from the first may break the second; then other kinds of batch."""
        train = self.patient.train
        if self.uncopied and self.patient.step is not None:
            self.exam.could_not("your training step", f"it needs a copy, and {self.uncopied}")
            return
        for batch in self._first():
            self._step(batch)
        self.made = True
        for batch in train.parts[1:]:
            self._pass(batch, f"on a batch of {_shapes(batch)}, as the loader gives it")
        for batch in [] if train.parts else train.extremes():
            self._pass(batch, "on a batch with the largest and smallest values")

    def evaluate(self) -> None:
        """Compute the loss in eval mode, on the same batch and on held-out data."""
        first, own = self._first()[0], self.patient.step is not None
        if own and not self._works_outside(first):
            return
        self.model.eval()
        self._loss(first, "in eval mode")
        if self.patient.test is None:
            return
        self.examples = self.patient.test
        for batch in _samples(self.patient.test):
            try:
                self._loss(batch, "on held-out data, in eval mode")
            except StepFailedError as failure:
                if not own:
                    raise
                self.exam.could_not("held-out data", f"outside of your training step {failure}")

    def _first(self) -> list[Batch]:
        train = self.patient.train
        if train.parts:
            return [train.parts[0]] * 2
        batches = train.batches(self.patient.seed)
        return [next(batches), next(batches)]

    def _step(self, batch: Batch, when: str = "") -> None:
        self.batch = batch
        step, loss = self.patient.step, self.patient.loss
        if step is None or self.optimizer is None:
            self.model.train()
        try:
            if self.optimizer is not None:
                any_step(step, self.model, batch, loss, self.optimizer)
            else:
                value = plain_loss(self.model, batch, loss)
                if self.exam.trainable:
                    with part("backward", value=value):
                        value.backward()  # type: ignore[no-untyped-call]
        except StepFailedError as failure:
            failure.when = when
            raise self._told_apart(failure, batch) from failure
        finally:
            self._bring_back()

    def _pass(self, batch: Batch, when: str) -> None:
        """Process a batch as training does; without gradients if the step is a plain one."""
        if self.patient.step is not None:
            self._step(batch, when)
        else:
            self.model.train()
            self._loss(batch, when)

    def _loss(self, batch: Batch, when: str) -> None:
        self.batch = batch
        try:
            with torch.no_grad():
                plain_loss(self.model, batch, self.patient.loss)
        except StepFailedError as failure:
            failure.when = when
            raise

    def _works_outside(self, batch: Batch) -> bool:
        """Whether the loss can be computed without the user's own step, which may prepare batches itself."""
        self.model.train()
        try:
            self._loss(batch, "")
        except StepFailedError as failure:
            self.exam.could_not("the model outside of your training step", str(failure))
            return False
        return True

    def _told_apart(self, failure: StepFailedError, batch: Batch) -> StepFailedError:
        """Find which part of the user's own step failed: the one with that error in a plain step, if any."""
        if failure.part != "step" or self.optimizer is None:
            return failure
        self._bring_back()
        self.model.train()
        try:
            plain_step(self.model, batch, self.patient.loss, self.optimizer)
        except StepFailedError as plain:
            if said(plain.error) == said(failure.error):
                failure.part, failure.raw, failure.value = plain.part, plain.raw, plain.value
        return failure

    @torch.no_grad()
    def _bring_back(self) -> None:
        for parameter, before in zip(self.model.parameters(), self.weights, strict=True):
            parameter.copy_(before)


def _samples(examples: Examples) -> list[Batch]:
    return list(examples.parts) or [next(examples.batches()), *examples.extremes()]


def _shapes(batch: Batch) -> str:
    return " and ".join(str(list(tensor.shape)) for tensor in batch.tensors)


def broken_off(exam: Examination, history: History) -> Iterator[Finding]:
    """Findings on a short training run that an error ended, although the first steps passed.

    The run is repeated without hooks: only if that fails as well is the error the user's.
    """
    # The trial regroups the examples of a loader into new batches, which may itself fail.
    known = exam.stages["run"].state == "ran" and not exam.patient.train.parts
    again = exam.plain_trial(history.steps + 1) if known else None
    if again is None or again.failure is None:
        exam.could_not("training", f"{history.ended}; your own batches were not seen to fail")
        return
    failure, batch = again.failure
    failure.when = f"at step {again.steps + 1} of a short training"
    exam.could_not("training", str(failure))
    work = work_of(again.model, failure.error)
    yield finding(Case(failure, again.model, batch, exam.patient, work, exam.patient.train))


# -- what is reported ----------------------------------------------------------------------------------------


def unloaded(failure: StepFailedError, where: str = "") -> Finding:
    """The finding for a batch that cannot be loaded."""
    failure.when = f"{failure.when}{where}"
    place = place_of(failure.error) or caller_of(failure.error)
    return _finding(failure, place, "", {}, what_fits(failure))


def finding(case: Case) -> Finding:
    """The finding for a part of a step that fails, with the shapes involved and the fix."""
    failure, batch, work = case.failure, case.batch, case.work
    inputs = dict(batch.kwargs) if batch.kwargs else batch.args[0] if len(batch.args) == 1 else batch.args
    details = {"inputs": shown(inputs)}
    if batch.targets is not None:
        details["targets"] = shown(batch.targets)
    if failure.raw is not None:
        details["outputs"] = shown(failure.raw)
    if work is not None and work.inputs:
        details[f"into {work}"] = ", ".join(shown(tensor) for tensor in work.inputs)
    held = locals_of(failure.error)
    if held:
        details["where it was raised"] = ", ".join(f"{name} {shown(value)}" for name, value in held.items())
    place = place_of(failure.error, work) or _caller(case)
    return _finding(failure, place, "" if work is None else work.name, details, what_fits(failure, case))


def _caller(case: Case) -> str:
    """What was called, if neither a line of the user's code nor a module was running."""
    model = defined_at(case.model.forward) or f"{type(case.model).__name__}.forward"
    loss = defined_at(case.patient.loss) or f"the loss {case.loss_name}".strip()
    callers: dict[Part, str] = {
        "forward": model,
        "loss": loss,
        "backward": f"backward pass of {loss}",
        "update": f"{type(case.patient.optimizer).__name__}.step",
    }
    return callers.get(case.failure.part, "")


def _finding(
    failure: StepFailedError, place: str, layer: str, details: dict[str, str], fit: Fit | None
) -> Finding:
    fact, words, code = fit or Fit(_ENDS, UNKNOWN, _TRACEBACK[failure.part])
    verb = "fails" if isinstance(failure.error, ApointError) else "raises"
    raised = str(failure.error) if verb == "fails" else said(failure.error).rstrip(".")
    when = f", {failure.when}" if failure.when else ""
    return CARDS[failure.part].finding(
        f"{_SUBJECTS[failure.part]} {verb}{':' if verb == 'fails' else ''} {raised}{when}.",
        1.0,
        cause=fact,
        treatment=Treatment(words, code=code),
        layer=layer,
        place=place,
        details={"exception": said(failure.error), **details},
    )
