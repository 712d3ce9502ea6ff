"""The trace of the Fisher information matrix: how strongly the predictions depend on the weights.

    F = E_x E_{y ~ p(y|x)} [ ∇ log p(y|x) ∇ log p(y|x)ᵀ ],     tr F = E_x E_y |∇ log p(y|x)|²

with the labels y drawn from the model itself. With the labels of the data instead, it is another quantity,
the *empirical* Fisher, which vanishes as the data are fitted; here it has its own name.

An example is one entry of the batch. If it has several outputs (the positions of a text, the components of a
vector), its label has as many parts, log p is the sum over them, and the trace grows with their number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from apoint.probes.batch_dependence import Look, is_mean_of_examples, look
from apoint.probes.examples import (
    Answer,
    Objective,
    Question,
    backward_from,
    example_gradients,
    loss_objective,
    shares,
)
from apoint.probes.labels import Law, are_labels, law_of
from apoint.probes.preserving import preserve_state
from apoint.probes.reading import Reading, Status, undefined
from apoint.probes.subject import Loss, Subject
from apoint.registry import register
from apoint.settings import Count, WholeNumber

MOST_OUTPUTS = 4096
"""The maximum number of outputs per example when all labels are enumerated: each costs a backward pass."""
FEWEST_DRAWS_TOGETHER = 8
"""The minimum number of draws of labels where the batch counts as one example, so that there is a spread."""


@register("probe", "fisher", course="B6", passes=8)
def fisher_trace(
    model: nn.Module,
    batch: Any,
    loss: Loss | str | None = None,
    *,
    num_draws: Count = 1,
    exact: bool = False,
    diagonal: bool = False,
    seed: WholeNumber = 0,
) -> Reading:
    """Trace of the Fisher information, with labels drawn from the model's own predictions.

    tr F = (1/B) Σ_i E_{y ~ p(y|x_i)} |∇ log p(y|x_i)|² over the B examples of `batch`, for the whole model
    and for each layer. p is categorical, bernoulli, or gaussian with variance 1, depending on `loss`; only
    inputs are needed. It measures how far the predictions move with the weights: KL ≈ ½ δᵀFδ for a small
    change δ. During training it typically rises steeply and then falls, as in the critical periods of
    learning.

    Modes stay unchanged, and random layers stay active. Where the examples of a batch depend on each other,
    as with batch norm in train mode, p is the joint distribution of all labels given all inputs, and the
    value is the trace for this p, divided by B. The standard error is over examples, each with the mean of
    its draws.

    Args:
        num_draws: How many labels are drawn for each example.
        exact: Whether to enumerate all labels instead, by as many backward passes as an example has outputs.
        diagonal: Whether the details also hold the diagonal of F, for each parameter.
        seed: Seed of the draws.

    Reference: Achille, Rovere & Soatto (2019), Critical learning periods in deep networks, section 3; for the
    difference from the empirical Fisher, Kunstner, Hennig & Balles (2019), arXiv 1905.12558.
    """
    subject = Subject(model, batch, loss)
    if not subject.parameters:
        return undefined("fisher", "the model has no trainable parameters")
    with preserve_state(model, seed):
        seen = look(subject, seed)
        law = law_of(subject, seen)
        if isinstance(law, str):
            return undefined("fisher", law)
        if exact:
            return _through_all_labels(subject, law, seen, seed, diagonal)
        if seen.depends:
            return _with_drawn_labels_together(subject, law, seen, num_draws, seed, diagonal)
        return _with_drawn_labels(subject, law, seen, num_draws, seed, diagonal)


@register("probe", "empirical-fisher", course="B6", passes=40)
def empirical_fisher_trace(
    model: nn.Module,
    batch: Any,
    loss: Loss | str | None = None,
    *,
    diagonal: bool = False,
    seed: WholeNumber = 0,
) -> Reading:
    """Trace of the empirical Fisher: the mean squared gradient norm of the examples with their true labels.

    (1/B) Σ_i |∇ log p(y_i|x_i)|² over the examples of `batch`. It is not the Fisher information: it depends
    on the labels, and goes to 0 as they are fitted. It is on the same scale as `fisher`: log p is summed over
    the positions of an example. Where the targets are not labels of p, or only the model has them, the
    gradient is that of each example's own `loss` instead, and a note says so.

    Where the examples of a batch depend on each other, each is evaluated within the batch, which costs one
    backward pass per example. The standard error is over examples.

    Args:
        diagonal: Whether the details also hold the diagonal, for each parameter.
        seed: Seed of the random layers.

    Reference: Kunstner, Hennig & Balles (2019), Limitations of the empirical Fisher approximation for natural
    gradient descent, arXiv 1905.12558.
    """
    subject = Subject(model, batch, loss)
    if not subject.parameters:
        return undefined("empirical-fisher", "the model has no trainable parameters")
    with preserve_state(model, seed):
        seen = look(subject, seed)
        law = law_of(subject, seen)
        is_likelihood = isinstance(law, Law) and are_labels(subject, law, seen)
        if seen.depends and not is_likelihood:
            why = f"{seen.reason}, and only the loss of all together is known"
            return undefined("empirical-fisher", why)
        objective = law.observed if isinstance(law, Law) and is_likelihood else loss_objective(subject)
        question = _question(subject, objective, [subject.batch.targets], seen, seed, diagonal)
        as_batch = is_likelihood or is_mean_of_examples(subject, seed)
        answer = example_gradients(question, known_layers=as_batch)
    units = {name: rows[0] for name, rows in answer.squares.items()}
    how = f"gradients of {subject.batch.size} examples with their true labels{_place(seen)}"
    note = "the gradient is that of each example's own loss, whose scale is not that of a likelihood"
    details = {"ways": shares(answer.ways, subject), **_diagonal(answer.mean_squares, diagonal)}
    notes = () if is_likelihood else (note,)
    return _reading("empirical-fisher", subject, units, how, "computed", details, notes)


# -- the three ways to the labels ----------------------------------------------------------------------------


def _with_drawn_labels(
    subject: Subject, law: Law, seen: Look, num_draws: int, seed: int, diagonal: bool
) -> Reading:
    noise = law.noise(_few(seen), subject.batch.size, num_draws, seed)
    answer = example_gradients(_question(subject, law.sampled, noise, seen, seed, diagonal))
    units = {name: rows.mean(0) for name, rows in answer.squares.items()}
    drawn = "a label" if num_draws == 1 else f"{num_draws} labels"
    how = (
        f"gradients of {subject.batch.size} examples, with {drawn} drawn for each from its {law.kind} outputs"
    )
    details = {**_about(law, answer, subject), **_diagonal(answer.mean_squares, diagonal)}
    return _reading("fisher", subject, units, how, "estimated", details)


def _through_all_labels(subject: Subject, law: Law, seen: Look, seed: int, diagonal: bool) -> Reading:
    if law.num_outputs > MOST_OUTPUTS:
        limit = f"all labels can be gone through up to {MOST_OUTPUTS}; draw labels instead"
        return undefined("fisher", f"an example has {law.num_outputs} outputs, and {limit}")
    parts = law.all_parts(_few(seen), subject.batch.size)
    answer = example_gradients(_question(subject, law.part, parts, seen, seed, diagonal))
    units = {name: rows.sum(0) for name, rows in answer.squares.items()}
    whole = {name: values * law.num_outputs for name, values in answer.mean_squares.items()}
    how = f"gradients of {subject.batch.size} examples for all labels of {law.kind} outputs{_place(seen)}"
    details = {**_about(law, answer, subject), **_diagonal(whole, diagonal)}
    return _reading("fisher", subject, units, how, "computed", details)


def _with_drawn_labels_together(
    subject: Subject, law: Law, seen: Look, num_draws: int, seed: int, diagonal: bool
) -> Reading:
    """The labels of a whole batch given all its inputs.

    Given the inputs they are independent, and the score of each has mean 0, so that the expected square of
    the sum of the scores is the sum of their expected squares.
    """
    size, parameters = subject.batch.size, subject.parameters
    draws = max(num_draws, FEWEST_DRAWS_TOGETHER)
    f = law.arranged(subject.raw_outputs(), 1)
    rows: dict[str, list[Tensor]] = {name: [] for name in parameters}
    squares = {name: torch.zeros_like(p) for name, p in parameters.items()} if diagonal else {}
    for noise in law.noise(_few(seen), size, draws, seed):
        score = (f * law.drawn_slope(f.detach(), noise.reshape(1, -1))).sum()
        for name, found in backward_from(subject, score, retain_graph=True).items():
            gradient = torch.zeros_like(parameters[name]) if found is None else found
            rows[name].append(gradient.square().sum(dtype=torch.float64) / size)
            if diagonal:
                squares[name] += gradient.square() / (size * draws)
    units = {name: torch.stack(values) for name, values in rows.items()}
    how = (
        f"{draws} draws of all labels from {law.kind} outputs and the gradient of the {size} examples "
        f"together, since {seen.reason}"
    )
    note = "p is the law of all labels given all inputs, as batch norm in train mode makes it"
    notes = (note,) if seen.splits else ()
    details = {"likelihood": law.kind, "outputs_per_example": law.num_outputs, **_diagonal(squares, diagonal)}
    return _reading("fisher", subject, units, how, "estimated", details, notes)


# -- helpers -------------------------------------------------------------------------------------------------


def _place(seen: Look) -> str:
    return f", each in the company of its batch, since {seen.reason}" if seen.depends else ""


def _few(seen: Look) -> Tensor:
    assert seen.few is not None, "there is a law, so there are predictions"
    return seen.few


def _question(
    subject: Subject, objective: Objective, targets: Sequence[Any], seen: Look, seed: int, diagonal: bool
) -> Question:
    batches = [subject.batch.with_targets(target) for target in targets]
    return Question(subject, objective, batches, seen, seed=seed, mean_squares=diagonal)


def _about(law: Law, answer: Answer, subject: Subject) -> dict[str, Any]:
    ways = shares(answer.ways, subject)
    return {"likelihood": law.kind, "outputs_per_example": law.num_outputs, "ways": ways}


def _diagonal(squares: Mapping[str, Tensor], is_wanted: bool) -> dict[str, Any]:
    return {"diagonal": {name: value.tolist() for name, value in squares.items()}} if is_wanted else {}


def _reading(
    probe: str,
    subject: Subject,
    units: Mapping[str, Tensor],
    how: str,
    status: Status,
    details: Mapping[str, Any],
    notes: tuple[str, ...] = (),
) -> Reading:
    """A mean over units, which are examples, or draws for all examples together, for each parameter."""
    layers = {layer: torch.stack([units[n] for n in names]).sum(0) for layer, names in subject.layers.items()}
    total = torch.stack(list(layers.values())).sum(0)
    value, uncertainty = _mean_and_error(total)
    numbers = {layer: _mean_and_error(values) for layer, values in layers.items()}
    if not math.isfinite(value):
        notes = (*notes, "the gradients are not finite")
    if uncertainty is None:
        notes = (*notes, "one example and one draw: there is no spread to see")
    return Reading(
        probe,
        value,
        how,
        status,
        uncertainty=uncertainty,
        per_layer={layer: number for layer, (number, _) in numbers.items()},
        per_layer_uncertainty={layer: error for layer, (_, error) in numbers.items() if error is not None},
        coverage=subject.coverage(dict(units)),
        details=details,
        notes=notes,
    )


def _mean_and_error(values: Tensor) -> tuple[float, float | None]:
    """The mean and its standard error, which a single value does not have."""
    mean = float(values.mean())
    return mean, float(values.std() / math.sqrt(len(values))) if len(values) > 1 else None
