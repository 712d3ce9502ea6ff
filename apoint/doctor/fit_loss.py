"""Which targets and outputs would fit a loss that fails, and why a backward pass fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from apoint.doctor.failure import shown, type_of
from apoint.doctor.fit_model import cast
from apoint.doctor.fitting import Case, Fit, works
from apoint.doctor.trial import plain_loss
from apoint.errors import ApointError
from apoint.probes.subject import class_axis


def _said(case: Case) -> Fit | None:
    """Our own errors say what would be right."""
    if not isinstance(case.failure.error, ApointError):
        return None
    fact, _, words = str(case.failure.error).rpartition("; ")
    return Fit(f"{fact[:1].upper()}{fact[1:]}.", f"{words[:1].upper()}{words[1:]}.", "")


def _num_examples(case: Case) -> Fit | None:
    """Inputs and targets of different lengths."""
    targets, size = case.examples.targets, len(case.examples)
    if targets is not None and targets.dim() and len(targets) != size:
        return Fit(
            f"There are {size} examples in the inputs and {len(targets)} in the targets.",
            "Give one target for each example, in the same order.",
            "assert len(x) == len(y)",
        )
    outputs = case.outputs
    if outputs is not None and case.targets is not None and isinstance(case.raw, Tensor):
        rows = outputs.shape[0]
        if rows != case.batch.size == len(case.targets):
            return Fit(
                f"The model returns {rows} rows for {case.batch.size} examples.",
                "Look for a view, reshape or mean in forward() that changes the first axis.",
                "x = x.flatten(1)  # keeps the axis of examples",
            )
    return None


def _returned(case: Case) -> Fit | None:
    """A loss that returns something other than a floating-point tensor."""
    loss, outputs = case.patient.loss, case.outputs
    if not callable(loss) or outputs is None:
        return None
    value = loss(outputs, case.batch.targets)
    if isinstance(value, float | int):
        return Fit(
            f"The loss returns a {type(value).__name__}, from which no gradient can flow back.",
            "Return the tensor itself, without .item() or float().",
            "return value  # not value.item()",
        )
    if isinstance(value, tuple | list | Mapping):
        entries = value.items() if isinstance(value, Mapping) else enumerate(value)
        good = [key for key, entry in entries if isinstance(entry, Tensor) and entry.is_floating_point()]
        return Fit(
            f"The loss returns a {type(value).__name__} of {len(value)}, not one number.",
            f"Return one number to lower; entry {good[0]!r} is a number."
            if good
            else "Return one number to lower.",
            f"return values[{good[0]!r}]" if good else "",
        )
    if isinstance(value, Tensor) and not value.is_floating_point():
        return Fit(
            f"The loss returns {shown(value)}, which has no gradient.",
            "Compute the loss from the outputs themselves; a count of errors cannot be lowered by gradients.",
            "",
        )
    return None


def _which_output(case: Case) -> Fit | None:
    """Several outputs, of which one other than the first fits."""
    if isinstance(case.raw, Tensor):
        return None
    entries = case.raw.items() if isinstance(case.raw, Mapping) else enumerate(case.raw)
    kind = "dictionary" if isinstance(case.raw, Mapping) else type(case.raw).__name__
    for key, entry in entries:
        if isinstance(entry, Tensor) and case.loss_works(entry, case.batch.targets):
            return Fit(
                f"The model returns a {kind} of {len(case.raw)}, and of {shown(case.raw)} only entry {key}, "
                f"{shown(entry)}, fits the loss.",
                "Return that alone from the model, or under the name `logits` in a dictionary.",
                f"return {{'logits': outputs[{key!r}]}}",
            )
    return None


def _classes(case: Case) -> Fit | None:
    """Class indices outside the range of the outputs."""
    outputs, targets = case.outputs, case.targets
    if outputs is None or targets is None or targets.is_floating_point() or outputs.dim() < 2:
        return None
    number = outputs.shape[class_axis(outputs, targets)]
    ignored = getattr(case.patient.loss, "ignore_index", -100)
    everything = case.examples.targets if case.examples.targets is not None else targets
    known = torch.cat([everything.flatten(), targets.flatten()])
    known = known[known != ignored]
    low, high = int(known.min()), int(known.max())
    inside = torch.where(targets == ignored, targets, targets.clamp(0, number - 1))
    if (low >= 0 and high < number) or not case.loss_works(outputs, inside):
        return None
    fact = f"The targets go from {low} to {high}, and the loss takes 0 to {number - 1}."
    if high - low < number:
        sign = f"- {low}" if low > 0 else f"+ {-low}"
        return Fit(fact, f"Count classes from 0{_marks(low)}.", f"y = y {sign}")
    if low < 0:
        words = (
            f"If {low} marks examples without a label, let the loss ignore it; if not, count classes from 0."
        )
        return Fit(fact, words, f"loss = torch.nn.CrossEntropyLoss(ignore_index={low})")
    different = len(known.unique())  # type: ignore[no-untyped-call]
    if different <= number:
        words = f"They have {different} different values: number these from 0 to {different - 1}."
        return Fit(fact, words, "y = y.unique(return_inverse=True)[1]")
    words = f"Give the model {high + 1} outputs, or leave out the examples with targets over {number - 1}."
    return Fit(fact, words, _head(case, number, high + 1))


def _marks(low: int) -> str:
    return (
        f"; if {low} marks examples without a label, give the loss ignore_index={low} instead"
        if low < 0
        else ""
    )


def _head(case: Case, number: int, wanted: int) -> str:
    """The last layer with a different number of outputs."""
    heads = [m for m in case.model.modules() if isinstance(m, nn.Linear) and m.out_features == number]
    width = heads[-1].in_features if heads else "…"
    return f"torch.nn.Linear({width}, out_features={wanted})"


def _targets(case: Case) -> Fit | None:
    """Try targets of another dtype or shape."""
    outputs, targets = case.outputs, case.targets
    if outputs is None or targets is None:
        return None
    for code, changed in _other_targets(outputs, targets):
        if case.loss_works(outputs, changed):
            type_fits, shape_fits = changed.dtype == targets.dtype, changed.shape == targets.shape
            fact = (
                ""
                if type_fits
                else f"The targets are {type_of(targets)}, and the loss takes {type_of(changed)}. "
            )
            if not shape_fits:
                fact += (
                    f"The loss gets outputs of shape {list(outputs.shape)} and targets of shape "
                    f"{list(targets.shape)}; it takes targets of shape {list(changed.shape)}."
                )
            what = "type" if shape_fits else "shape" if type_fits else "type and shape"
            return Fit(fact.strip(), f"Give the targets the {what} that the loss takes.", f"y = {code}")
    return None


def _other_targets(outputs: Tensor, targets: Tensor) -> Iterator[tuple[str, Tensor]]:
    """The same targets in other forms, the smallest change first."""
    whole = not targets.is_floating_point() or bool((targets == targets.round()).all())
    real = f".{cast(outputs.dtype)}"
    forms = [("y", targets)]
    if targets.dim() > 1 and targets.shape[-1] == 1:
        forms.append(("y.squeeze(-1)", targets.squeeze(-1)))
    forms.append(("y.unsqueeze(-1)", targets.unsqueeze(-1)))
    for code, form in forms:
        yield code, form
        if whole and targets.dtype != torch.int64:
            yield f"{code}.long()", form.long()
        if targets.dtype != outputs.dtype:
            yield f"{code}{real}", form.to(outputs.dtype)
    if targets.dim() > 1 and whole and bool((targets.sum(-1) == 1).all()) and int(targets.min()) >= 0:
        yield "y.argmax(-1)", targets.argmax(-1)


def _one_hot(case: Case) -> Fit | None:
    """Class indices where a loss takes a value for each class."""
    outputs, targets = case.outputs, case.targets
    if outputs is None or targets is None or targets.is_floating_point():
        return None
    number = outputs.shape[-1]
    if not 0 <= int(targets.min()) <= int(targets.max()) < number > 1:
        return None
    if not case.loss_works(outputs, F.one_hot(targets.long(), number).to(outputs.dtype)):
        return None
    return Fit(
        f"The loss takes targets of shape {list(outputs.shape)}, and they are numbers of classes of shape "
        f"{list(targets.shape)}.",
        "Give it a 1 for the class and a 0 for the others, or a loss for classes such as cross-entropy.",
        f"y = torch.nn.functional.one_hot(y, {number}).{cast(outputs.dtype)}",
    )


def _outputs(case: Case) -> Fit | None:
    """Try outputs with other axes."""
    outputs = case.outputs
    if outputs is None:
        return None
    shape = list(outputs.shape)
    changes: list[tuple[bool, Callable[[Tensor], Tensor], str, str]] = [
        (outputs.dim() == 3, lambda o: o.transpose(1, 2), "outputs.transpose(1, 2)",
         f"The loss takes classes on axis 1, and outputs of shape {shape} have them on the last."),
        (outputs.dim() > 2, lambda o: o.flatten(1), "outputs.flatten(1)",
         f"The loss does not take the further axes of outputs of shape {shape}."),
        (outputs.dim() > 1 and shape[-1] == 1, lambda o: o.squeeze(-1), "outputs.squeeze(-1)",
         f"The loss does not take the last axis of outputs of shape {shape}."),
    ]  # fmt: skip
    for applies, change, code, fact in changes:
        if applies and case.loss_works(change(outputs), case.batch.targets):
            return Fit(
                fact, "Bring the outputs into the shape that the loss takes.", f"loss({code}, targets)"
            )
    return None


def _probabilities(case: Case) -> Fit | None:
    """Logits where a loss takes probabilities."""
    outputs = case.outputs
    if outputs is None or not isinstance(case.patient.loss, nn.BCELoss):
        return None
    low, high = float(outputs.detach().min()), float(outputs.detach().max())
    if (low >= 0 and high <= 1) or not case.loss_works(torch.sigmoid(outputs), case.batch.targets):
        return None
    return Fit(
        f"The outputs go from {low:.3g} to {high:.3g}, and the loss takes probabilities from 0 to 1.",
        "Use the loss that takes logits; it applies the sigmoid itself and is more exact.",
        "loss = torch.nn.BCEWithLogitsLoss()",
    )


def _class_weights(case: Case) -> Fit | None:
    weight, outputs = getattr(case.patient.loss, "weight", None), case.outputs
    if not isinstance(weight, Tensor) or outputs is None or outputs.dim() < 2:
        return None
    number = outputs.shape[class_axis(outputs, case.targets)]
    if len(weight) == number:
        return None
    return Fit(
        f"The loss has {len(weight)} class weights, and the outputs have {number} classes.",
        "Give a weight for each class that the model has an output for.",
        f"weight = torch.ones({number})",
    )


RULES = (
    _said, _num_examples, _returned, _class_weights, _which_output, _classes, _targets, _probabilities,
    _outputs, _one_hot,
)  # fmt: skip


# -- backward ------------------------------------------------------------------------------------------------


def _no_graph(case: Case) -> Fit | None:
    value = case.failure.value
    if value is None or value.requires_grad:
        return None
    outputs = case.outputs
    if outputs is not None and outputs.requires_grad:
        return Fit(
            f"The outputs have a graph and the loss has none: the loss cuts the graph ({case.loss_name}).",
            "Compute the loss from the outputs with operations that have a gradient: no argmax, comparison, "
            ".detach(), .item() or NumPy.",
            "return torch.nn.functional.cross_entropy(outputs, targets)",
        )
    return Fit(
        "The outputs of the model have no graph, so that no gradient reaches its weights.",
        "Look in forward() for .detach(), .data, .item(), argmax, a no_grad block or NumPy, and remove it.",
        "return x  # not x.detach()",
    )


def _kept(case: Case) -> Fit | None:
    """State that a module keeps from an earlier step, with its graph."""
    if "second time" not in str(case.failure.error):
        return None
    kept = [
        f"`{attribute}` of {name or 'the model'}"
        for name, module in case.model.named_modules()
        for attribute, value in vars(module).items()
        if any(t.grad_fn is not None for t in _tensors(value))
    ]
    if not kept:
        return None
    attribute = kept[0].split("`")[1]
    return Fit(
        f"{', '.join(kept)} is kept from one batch to the next with its graph, which the first backward pass "
        "has freed.",
        "Cut the graph when it is kept.",
        f"self.{attribute} = {attribute}.detach()",
    )


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [t for each in value for t in _tensors(each)] if isinstance(value, tuple | list) else []


def _in_place(case: Case) -> Fit | None:
    """Modules that overwrite in place what the backward pass needs; try without."""
    found = [(n, m) for n, m in case.model.named_modules() if getattr(m, "inplace", False) is True]

    def run() -> None:
        plain_loss(case.model, case.batch, case.patient.loss).backward()  # type: ignore[no-untyped-call]

    for name, module in found:
        module.inplace = False
        if works(run):
            return Fit(
                f"Layer {name} ({type(module).__name__}) overwrites what the backward pass still needs.",
                "Build it with inplace=False.",
                f"torch.nn.{type(module).__name__}(inplace=False)",
            )
    return None


BACKWARD_RULES = (_no_graph, _kept, _in_place)
