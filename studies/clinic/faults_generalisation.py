"""Faults that show only in what was learned: too much by heart, or too little."""

from __future__ import annotations

from studies.clinic.faults import fault
from studies.clinic.patients import Draft
from studies.clinic.planting import resize


@fault("overfitting", on="mlp/images regression-mlp/diabetes residual-mlp/images lstm-lm/text vit/colours")
def overfitting(draft: Draft) -> None:
    """A few dozen examples, a wide network, many steps."""
    few = 40 if draft.task == "language" else 60
    draft.train = (draft.train[0][:few], draft.train[1][:few])
    draft.batch_size = min(draft.batch_size, 16)
    draft.total_steps = 500


def _narrow(draft: Draft) -> None:
    """Prepare a twin of usual width."""
    resize(draft, dropout=0.0)


@fault(
    "underfitting",
    on="mlp/digits mlp/spirals functional-mlp/waves cnn-group-norm/images lstm-lm/text",
    accepted=("underfitting", "cannot-overfit-batch"),
    prepare=_narrow,
)
def underfitting(draft: Draft) -> None:
    """A network with one unit in its narrowest place."""
    resize(draft, width=4 if draft.family.architecture == "cnn-group-norm" else 1)
