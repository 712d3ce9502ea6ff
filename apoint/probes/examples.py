"""The gradient of each example in a batch, for any module, without holding them all at once.

Only small quantities are needed: squared norms, products with their mean, sums of squares. There are several
ways to compute them, and each parameter takes the first that applies to it:

    layer    one backward pass of the whole batch, and a rule for each known layer (`example_rules.py`); for
             parameters used exactly once, in a call whose first axis runs over the examples
    vmap     `torch.func`: gradients of single examples, computed together; for everything it can follow
    loop     one example after the other
    company  one forward pass of the whole batch, and a backward pass for each example in it

The first three are for examples that are independent of the rest of their batch. A test run of the model, not
the types of its layers, shows whether they are: see `batch_dependence.py`.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.func import grad, vmap

from apoint.probes.batch import Batch
from apoint.probes.batch_dependence import Look
from apoint.probes.example_rules import Explicit, Gradients, Recorder, Use
from apoint.probes.graph import graph_of
from apoint.probes.preserving import preserve_state
from apoint.probes.subject import Subject

Objective = Callable[[Any, Batch], Tensor]
"""Maps what the model returned for a batch, and the batch, to one number per example, or to their sum."""


def loss_objective(subject: Subject) -> Objective:
    """The sum of the losses of the examples, for a loss that is their mean."""
    return lambda raw, batch: subject.loss_of(raw, batch) * batch.size


BYTES_AT_ONCE = 256 * 2**20
"""How many bytes of per-example gradients are held at a time."""


@dataclass(frozen=True)
class Question:
    """What to compute from the per-example gradients.

    Attributes:
        subject: The model, with its parameters.
        objective: The function whose gradients are taken.
        batches: The same inputs, once per objective, with what that needs as targets.
        look: What is already known about the model: whether examples depend on each other, where they are.
        seed: Seed of the random draws. With random layers such as dropout, each way draws its own masks.
        dots: Whether to compute products with the mean gradient.
        mean_squares: Whether to compute the mean of the squares, entry by entry.
    """

    subject: Subject
    objective: Objective
    batches: Sequence[Batch]
    look: Look
    seed: int = 0
    dots: bool = False
    mean_squares: bool = False

    @property
    def size(self) -> int:
        """The number B of examples."""
        return self.batches[0].size


@dataclass
class Answer:
    """Results for the gradients of B examples under D objectives, by parameter.

    Attributes:
        squares: Squared norms, [D, B], in double precision.
        mean: The mean gradient over examples and objectives, if products were asked for.
        dots: Products with the mean gradient, [D, B], if asked for.
        mean_squares: The mean of the squares, entry by entry, if asked for.
        ways: How each was computed: `layer`, `vmap`, `loop` or `company`; `none` if no gradient reaches it.
    """

    squares: dict[str, Tensor] = field(default_factory=dict)
    mean: dict[str, Tensor] = field(default_factory=dict)
    dots: dict[str, Tensor] = field(default_factory=dict)
    mean_squares: dict[str, Tensor] = field(default_factory=dict)
    ways: dict[str, str] = field(default_factory=dict)

    def take(self, question: Question, name: str, drawn: Sequence[Gradients], way: str) -> None:
        """Store the results for one parameter from its complete gradients, one entry per objective."""
        self.ways[name] = way
        self.squares[name] = torch.stack([gradients.squares() for gradients in drawn])
        if question.dots:
            self.dots[name] = torch.stack([gradients.dots(self.mean[name]) for gradients in drawn])
        if question.mean_squares:
            total = torch.stack([gradients.sum_of_squares() for gradients in drawn]).sum(0)
            self.mean_squares[name] = total / (question.size * len(drawn))

    def update(self, other: Answer) -> None:
        """Add the results of another answer."""
        for part in ("squares", "mean", "dots", "mean_squares", "ways"):
            getattr(self, part).update(getattr(other, part))


def example_gradients(question: Question, *, known_layers: bool = True) -> Answer:
    """Compute what is asked of the per-example gradients. Call it inside `preserve_state`.

    Where examples depend on each other, each is evaluated within its batch; the objective must then return
    one number per example.

    Args:
        question: What to compute.
        known_layers: Whether the rules of known layers may be used; they agree with the general method.
    """
    if question.look.depends:
        return _within_batch(question, list(question.subject.parameters))
    found = Answer()
    if known_layers and question.look.aligned:
        with preserve_state(question.subject.model, question.seed):
            _by_layers(question, found)
    rest = [name for name in question.subject.parameters if name not in found.squares]
    if rest:
        found.update(_one_by_one(question, rest))
    return found


# -- known layers ------------------------------------------------------------------------------------------


def _by_layers(question: Question, found: Answer) -> None:
    """Compute everything that one backward pass and the layer rules can give."""
    subject, batches = question.subject, question.batches
    with Recorder(subject.parameters) as recorder:
        raw = subject.raw_outputs(batches[0])
    totals = [question.objective(raw, batch).sum() for batch in batches]
    if not totals[0].requires_grad:
        return
    graph = graph_of(totals[0])
    used_once = {n for n, p in subject.parameters.items() if len(graph.consumers.get(id(p), ())) == 1}
    chosen = [
        (name, role, use)
        for use in recorder.uses
        if use.edge.node in graph.nodes and use.is_intact and len(use.input) == question.size
        for role, name in use.names.items()
        if name in question.look.aligned & used_once
    ]
    if chosen:
        _apply_rules(question, chosen, totals, found)
    if graph.is_open:
        for name, parameter in subject.parameters.items():
            if id(parameter) not in graph.consumers:
                _take_nothing(question, name, parameter.detach(), found)


def _apply_rules(
    question: Question, chosen: list[tuple[str, str, Use]], totals: list[Tensor], found: Answer
) -> None:
    """Compute the output gradients of all chosen layers at once, then apply each layer's rule."""
    edges = {id(use): use.edge for _, _, use in chosen}
    parameters = {name: question.subject.parameters[name] for name, _, _ in chosen} if question.dots else {}
    wanted: list[Any] = [*edges.values(), *parameters.values()]
    drawn: list[dict[int, Tensor | None]] = []
    sums: list[tuple[Tensor | None, ...]] = []
    for number, total in enumerate(totals):
        is_last = number == len(totals) - 1
        got = torch.autograd.grad(total, wanted, retain_graph=not is_last, allow_unused=True)
        drawn.append(dict(zip(edges, got, strict=False)))
        sums.append(got[len(edges) :])
    count = question.size * len(totals)
    for name, summed in zip(parameters, zip(*sums, strict=True), strict=True):
        found.mean[name] = torch.stack([s for s in summed if s is not None]).sum(0) / count
    for name, role, use in chosen:
        gradients = [use.gradients(role, d) for row in drawn if (d := row[id(use)]) is not None]
        known = [one for one in gradients if one is not None]
        if len(known) == len(totals):
            found.take(question, name, known, "layer")


def _take_nothing(question: Question, name: str, parameter: Tensor, found: Answer) -> None:
    """Record a gradient of 0 for a parameter that no gradient reaches."""
    if question.dots:
        found.mean[name] = torch.zeros_like(parameter)
    nothing = Explicit(torch.zeros_like(parameter).expand(question.size, *parameter.shape))
    found.take(question, name, [nothing] * len(question.batches), "none")


# -- any module --------------------------------------------------------------------------------------------

Chunks = Iterator[dict[str, Tensor]]
Way = Callable[[Question, Batch, list[str]], Chunks]


def _one_by_one(question: Question, names: list[str]) -> Answer:
    """Gradients of single examples: by vmap, else by a loop, else each within its batch."""
    try:
        return _walk(question, names, _vmapped, "vmap")
    except Exception:
        # What vmap does not support: data-dependent control flow, in-place writes, kernels without a rule. If
        # the model itself fails, the loop fails too and reports why.
        pass
    try:
        return _walk(question, names, _looped, "loop")
    except Exception as error:
        try:  # a model that works on batches need not work on one example
            return _within_batch(question, names)
        except Exception:
            raise error from None


def _within_batch(question: Question, names: list[str]) -> Answer:
    return _walk(question, names, _accompanied, "company")


def _walk(question: Question, names: list[str], way: Way, word: str) -> Answer:
    """Visit all gradients: once for squares and mean, and if asked once more for products with the mean."""
    found = Answer(ways=dict.fromkeys(names, word))
    sums: dict[str, Tensor] = {}
    squares: dict[str, Tensor] = {}

    def look(name: str, gradients: Tensor) -> Tensor:
        _add(sums, name, gradients.sum(0))
        if question.mean_squares:
            _add(squares, name, gradients.square().sum(0))
        return Explicit(gradients).squares()

    found.squares = _visited(question, names, way, look)
    count = question.size * len(question.batches)
    found.mean_squares = {name: value / count for name, value in squares.items()}
    if question.dots:
        found.mean = {name: value / count for name, value in sums.items()}
        found.dots = _visited(question, names, way, lambda name, g: Explicit(g).dots(found.mean[name]))
    return found


def _visited(
    question: Question, names: list[str], way: Way, look: Callable[[str, Tensor], Tensor]
) -> dict[str, Tensor]:
    """One number per gradient, [D, B]; the random draws are the same each time."""
    rows: dict[str, list[Tensor]] = {name: [] for name in names}
    with preserve_state(question.subject.model, question.seed):
        for batch in question.batches:
            for chunk in way(question, batch, names):
                for name, gradients in chunk.items():
                    rows[name].append(look(name, gradients))
    return {name: torch.cat(parts).reshape(len(question.batches), -1) for name, parts in rows.items()}


def _add(sums: dict[str, Tensor], name: str, value: Tensor) -> None:
    sums[name] = sums[name] + value if name in sums else value


def _vmapped(question: Question, batch: Batch, names: list[str]) -> Chunks:
    """Gradients of single examples, computed together, as many at a time as fit."""
    subject = question.subject
    wanted = {name: subject.parameters[name].detach() for name in names}
    held = {name: parameter.detach() for name, parameter in subject.model.named_parameters()}
    tensors, along = _opened(batch)

    def one(values: dict[str, Tensor], *slices: Tensor) -> Tensor:
        whole = [part[None] if is_along else part for part, is_along in zip(slices, along, strict=True)]
        example = _closed(batch, whole)
        return question.objective(subject.raw_outputs(example, {**held, **values}), example).sum()

    axes = (None, *(0 if is_along else None for is_along in along))
    every = vmap(grad(one), in_dims=axes, randomness="different")
    bytes_each = sum(value.numel() * value.element_size() for value in wanted.values())
    step = max(1, BYTES_AT_ONCE // max(1, 2 * bytes_each))
    for begin in range(0, batch.size, step):
        some = [
            t[begin : begin + step] if is_along else t for t, is_along in zip(tensors, along, strict=True)
        ]
        with warnings.catch_warnings():
            # vmap warns where it falls back to a loop over the examples; the result is still correct
            warnings.filterwarnings("ignore", message="There is a performance drop")
            chunk = every(wanted, *some)
        yield chunk


def _looped(question: Question, batch: Batch, names: list[str]) -> Chunks:
    """Gradients of single examples, one after the other."""
    parameters = question.subject.parameters
    for number in range(batch.size):
        gradients = gradients_of(question.subject, question.objective, batch.select([number]))
        yield {name: _or_zeros(gradients[name], parameters[name])[None] for name in names}


def _accompanied(question: Question, batch: Batch, names: list[str]) -> Chunks:
    """Gradients of each example's own part of a batch that is computed as a whole."""
    parameters = {name: question.subject.parameters[name] for name in names}
    values = question.objective(question.subject.raw_outputs(batch), batch)
    assert values.shape == (batch.size,), "an objective that gives a number for each example"
    for value in values:
        gradients = backward_from(question.subject, value, retain_graph=True)
        yield {name: _or_zeros(gradients[name], parameter)[None] for name, parameter in parameters.items()}


def _or_zeros(gradient: Tensor | None, parameter: Tensor) -> Tensor:
    return torch.zeros_like(parameter) if gradient is None else gradient


def gradients_of(
    subject: Subject, objective: Objective, batch: Batch | None = None
) -> dict[str, Tensor | None]:
    """The gradient of an objective for every trainable parameter; None where none arrives.

    Call it inside `preserve_state`.
    """
    batch = batch or subject.batch
    return backward_from(subject, objective(subject.raw_outputs(batch), batch).sum())


def backward_from(subject: Subject, value: Tensor, *, retain_graph: bool = False) -> dict[str, Tensor | None]:
    """The gradient of a number for every trainable parameter; None where none arrives.

    Call it inside `preserve_state`: it uses `.grad`, as training does, which every kind of checkpointing
    supports.
    """
    if value.requires_grad:
        value.backward(retain_graph=retain_graph)  # type: ignore[no-untyped-call]
    found = {name: parameter.grad for name, parameter in subject.parameters.items()}
    for parameter in subject.model.parameters():
        parameter.grad = None
    return {name: g.to_dense() if g is not None and g.is_sparse else g for name, g in found.items()}


def _opened(batch: Batch) -> tuple[list[Tensor], list[bool]]:
    """The tensors of a batch, and which of them run over the examples."""
    tensors: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        tensors.append(tensor)
        return tensor

    batch.map(keep)
    return tensors, [tensor.dim() > 0 and len(tensor) == batch.size for tensor in tensors]


def _closed(batch: Batch, tensors: list[Tensor]) -> Batch:
    """The batch with other tensors in place of its own, in the same order."""
    following = iter(tensors)
    return batch.map(lambda _: next(following))


def shares(ways: Mapping[str, str], subject: Subject) -> dict[str, float]:
    """The share of the parameters that was computed in each way."""
    order = sorted(ways, key=lambda name: ways[name])
    grouped = itertools.groupby(order, key=lambda name: ways[name])
    return {way: subject.coverage(list(names)) for way, names in grouped}
