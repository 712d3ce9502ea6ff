"""What would fix a model, loss, batch or step that fails.

Each rule looks at dtypes, shapes and ranges and returns a `Fit` or None. A change to inputs, targets or
outputs is advised only if the failed part works with it; a change to a layer, if the size that arrives is not
the size it was built for.
"""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from apoint.doctor.examples import Examples
from apoint.doctor.failure import StepFailedError, Work, shown
from apoint.doctor.patient import Patient, as_written
from apoint.probes import Batch, Subject
from apoint.probes.subject import predictions_of


class Fit(NamedTuple):
    """What does not fit, what would, and the fix as a line of code."""

    fact: str
    words: str
    code: str


@dataclass
class Case:
    """A part of a step that failed, and everything the rules can ask about it.

    Attributes:
        failure: What failed.
        model: The model it failed with, a copy that may be called.
        batch: The batch it failed on.
        patient: The patient it belongs to.
        work: The module that was running, if there was one.
        examples: The data that the batch comes from.
    """

    failure: StepFailedError
    model: nn.Module
    batch: Batch
    patient: Patient
    work: Work | None
    examples: Examples

    @property
    def loss_name(self) -> str:
        """The name of the loss; empty if none was given."""
        loss = self.patient.loss
        if loss is None:
            return ""
        return loss if isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)

    @functools.cached_property
    def raw(self) -> Any:
        """What the model returns."""
        if self.failure.raw is not None:
            return self.failure.raw
        return Subject(self.model, self.batch, None).raw_outputs()

    @property
    def outputs(self) -> Tensor | None:
        """The predictions in `raw`."""
        return predictions_of(self.raw)

    @property
    def targets(self) -> Tensor | None:
        """The targets of the batch, if they are a tensor."""
        return self.batch.targets if isinstance(self.batch.targets, Tensor) else None

    def changed(self, change: Callable[[Tensor], Tensor]) -> Batch:
        """The batch with changed inputs."""
        return self.batch.with_targets(None).map(change).with_targets(self.batch.targets)

    def forward_works(self, change: Callable[[Tensor], Tensor]) -> bool:
        """Whether the model works with changed inputs."""
        return works(lambda: Subject(self.model, self.changed(change), None).raw_outputs())

    def loss_works(self, outputs: Tensor, targets: Any) -> bool:
        """Whether the loss and the backward pass work with these."""

        def run() -> None:
            leaf = outputs.detach().clone().requires_grad_(outputs.is_floating_point())
            subject = Subject(self.model, self.batch, self.patient.loss)
            subject.loss_of(leaf, self.batch.with_targets(targets)).backward()  # type: ignore[no-untyped-call]

        return works(run)


def works(run: Callable[[], Any]) -> bool:
    """Whether a call runs without errors or warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            run()
        except Exception:
            return False
    return True


def what_fits(failure: StepFailedError, case: Case | None = None) -> Fit | None:
    """The fix of the first rule that has one; None if no rule does."""
    from apoint.doctor import fit_loss, fit_model

    if case is None:
        return _batch(failure)
    rules = {
        "forward": fit_model.RULES,
        "loss": fit_loss.RULES,
        "backward": (*fit_loss.BACKWARD_RULES, *fit_loss.RULES),
        "update": (_sparse,),
        "step": (_own_step,),
    }[failure.part]
    with torch.enable_grad():
        return next((fit for rule in rules if (fit := _asked(rule, case)) is not None), None)


def _asked(rule: Callable[[Case], Fit | None], case: Case) -> Fit | None:
    """The result of a rule; None if the rule itself raises."""
    try:
        return rule(case)
    except Exception:
        return None


def _batch(failure: StepFailedError) -> Fit | None:
    """Examples that cannot be collated, from PyTorch's error message."""
    text = str(failure.error)
    sizes = re.search(r"equal size, but got (\[.*?\]) at entry \d+ and (\[.*?\]) at entry", text)
    if sizes is not None:
        return Fit(
            f"The examples differ in shape: {sizes[1]} and {sizes[2]}.",
            "Pad them to one length in a collate_fn, and give the DataLoader that has it.",
            "def collate(batch):\n"
            "    xs, ys = zip(*batch)\n"
            "    return torch.nn.utils.rnn.pad_sequence(xs, batch_first=True), torch.stack(ys)\n"
            "loader = DataLoader(dataset, batch_size, collate_fn=collate)",
        )
    other = re.search(r"batch must contain tensors.*found <class '(.*?)'>", text)
    if other is not None:
        return Fit(
            f"The examples hold a {other[1]}, which is no tensor, array or number.",
            "Return tensors from the dataset.",
            "return torch.as_tensor(x), torch.as_tensor(y)",
        )
    return None


def _sparse(case: Case) -> Fit | None:
    names = [n for n, p in case.model.named_parameters() if p.grad is not None and p.grad.is_sparse]
    if not names:
        return None
    kind = type(case.patient.optimizer).__name__
    return Fit(
        f"The gradient of {', '.join(names)} is sparse, and {kind} does not take it.",
        "Build the embedding with sparse=False, or give its weights to torch.optim.SparseAdam.",
        "torch.nn.Embedding(num_embeddings, embedding_dim, sparse=False)",
    )


def _own_step(case: Case) -> Fit | None:
    batch = shown(as_written(case.batch))
    return Fit(
        f"The step is called as step(model, batch, loss, optimizer) with the batch {batch}.",
        "Take the batch in that form. Model, loss and optimizer work in a plain step with it.",
        "def step(model, batch, loss, optimizer):\n    x, y = batch",
    )
