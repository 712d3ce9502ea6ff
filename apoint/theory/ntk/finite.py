"""The tangent kernel of any module, by the cheapest rule for each of its layers, within a byte budget."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import get_args

import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap

from apoint.errors import UsageError
from apoint.theory.ntk.contraction import Form, gram_is_cheaper, kernel_of
from apoint.theory.ntk.kernels import BUDGET_BYTES
from apoint.theory.ntk.recording import Factors, Record, Recorder, Use, explained, keyed

_TRIED = 2  # examples for the first look at a module
_GATHERED_BYTES = (
    32 * 2**20
)  # of gradients of a layer's results, before they are turned into those of its weight
_TRUSTED = 1e-3  # how much the rules may differ there from plain gradients: float32 rounding


def empirical(
    model: nn.Module,
    x1: Tensor,
    x2: Tensor | None = None,
    form: Form = "full",
    budget_bytes: int = BUDGET_BYTES,
) -> Tensor:
    """The tangent kernel of a module at its current parameters: K(x, x') = Σ_p ∂f(x)/∂θ_p ⊗ ∂f(x')/∂θ_p.

    Parameters of dense layers and convolutions (wherever `F.linear`, `F.conv1d` or `F.conv2d` are called, and
    however often) contribute through products of their inputs and of output gradients, or through gradients
    of each example for a few rows at a time, whichever costs less; all other trainable parameters through a
    Jacobian of each example. On the first few examples the rules are compared with plain gradients; where
    they do not agree, the Jacobian is used for everything.

    Outputs of several axes are flattened to O numbers. `full` gives [n1, n2, O, O], `trace` its sum over
    equal outputs [n1, n2], `diagonal` its entries for equal outputs [n1, n2, O].

    Args:
        model: Computes the outputs of each example from that example alone; in evaluation mode if it has
            batch norm or dropout.
        x1: Examples, [n1, …].
        x2: Other examples; x1 by default, and then only one half is computed.
        form: `full`, `trace` or `diagonal`.
        budget_bytes: Memory limit, apart from the result, for what is kept of examples. Beyond it they are
            taken in blocks, and run through the module again for each block they are compared with.

    References: Jacot, Gabriel and Hongler (2018), Neural tangent kernel; Novak, Sohl-Dickstein and Schoenholz
    (2022), Fast finite width neural tangent kernel.
    """
    observer = _observer(model, x1, x2, form, budget_bytes)
    other = x1 if x2 is None else x2
    step = observer.block(budget_bytes, max(len(x1), len(other)), x2 is None)
    result: Tensor | None = None
    for rows in _slices(len(x1), 0, step):
        first = observer.record(x1[rows])
        for columns in _slices(len(other), rows.start if x2 is None else 0, step):
            same = x2 is None and columns == rows
            second = first if same else observer.record(other[columns])
            part = _arranged(kernel_of(first, second, form), form)
            if result is None:
                result = part.new_empty(len(x1), len(other), *part.shape[2:])
            if same:
                part = (part + _swapped(part, form)) / 2
            result[rows, columns] = part
            if x2 is None and not same:
                result[columns, rows] = _swapped(part, form)
    assert result is not None, "there are examples"
    return result


def _slices(count: int, begin: int, step: int) -> list[slice]:
    return [slice(at, min(at + step, count)) for at in range(begin, count, step)]


def _arranged(part: Tensor, form: Form) -> Tensor:
    if form == "full":
        return part.transpose(1, 2)
    return part.permute(1, 2, 0) if form == "diagonal" else part


def _swapped(part: Tensor, form: Form) -> Tensor:
    return part.transpose(0, 1).transpose(2, 3) if form == "full" else part.transpose(0, 1)


@dataclass
class _Observer:
    """Records of a module's examples.

    Attributes:
        model: The module.
        parameters: The trainable parameters, by name.
        keys: The linear maps whose parameters need no Jacobian.
        others: The names of the parameters that do.
        form: Form of the kernel.
        examples: Number of examples, for the choice of rules.
        outputs: Number of outputs of the module.
        bytes_each: Bytes kept per example.
    """

    model: nn.Module
    parameters: dict[str, Tensor]
    keys: set[str]
    others: list[str]
    form: Form
    examples: int
    outputs: int = 1
    bytes_each: int = 1

    def block(self, budget: int, examples: int, one_set: bool) -> int:
        """How many examples to take at a time: all, or as many as let two blocks fit the budget."""
        room = budget // max(1, self.bytes_each)
        return max(1, examples if room >= examples * (1 if one_set else 2) else room // 2)

    def record(self, x: Tensor) -> Record:
        """What the kernel needs of some examples."""
        with torch.enable_grad():
            with Recorder(self.parameters) as recorder:
                flat = _flat(self.model(x), x)
            columns = flat.unbind(1)
        return self._recorded(x, list(columns), recorder.uses)

    def _recorded(self, x: Tensor, columns: list[Tensor], seen: list[Use]) -> Record:
        groups = {key: uses for key, uses in keyed(seen).items() if key in self.keys}
        collected = {key: _Collected(uses, self._is_made(uses)) for key, uses in groups.items()}
        edges = [use.edge for uses in groups.values() for use in uses]
        for column in columns if edges else []:
            found = iter(_gradients(column, edges))
            for one in collected.values():
                one.add([use.gradients(next(found)) for use in one.uses])
        factors = {key: one.factors() for key, one in collected.items()}
        return Record(factors, self._jacobian(x) if self.others else None, len(x), len(columns))

    def _is_made(self, uses: list[Use]) -> bool:
        """Whether to keep gradients of a weight: they will be needed, and take less than their factors."""
        if "weight" not in uses[0].names:
            return False
        weight = uses[0].arguments["weight"]
        positions = sum(use.positions for use in uses)
        inputs, outputs = weight[0].numel(), len(weight) // uses[0].groups
        gram = gram_is_cheaper(inputs, outputs, positions, self.examples, self.outputs, self.form)
        return not gram and inputs <= positions

    def _jacobian(self, x: Tensor) -> Tensor:
        """The gradients for the other parameters, [N, O, entries]."""
        chosen = {name: self.parameters[name].detach() for name in self.others}
        fixed = {name: p.detach() for name, p in self.model.named_parameters() if name not in chosen}

        def outputs(some: dict[str, Tensor], one: Tensor) -> Tensor:
            result: Tensor = functional_call(self.model, {**fixed, **some}, (one[None],))
            return result.reshape(-1)

        try:
            with warnings.catch_warnings():  # the warning about slow vmap is of no use here
                warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
                found = vmap(jacrev(outputs), in_dims=(None, 0))(chosen, x)
            parts = [found[name].flatten(2) for name in self.others]
            return torch.cat(parts, 2)
        except RuntimeError:  # vmap does not support in-place writes or branches that depend on values
            return torch.stack([self._jacobian_of(one[None]) for one in x])

    def _jacobian_of(self, one: Tensor) -> Tensor:
        parameters = [self.parameters[name] for name in self.others]
        with torch.enable_grad():
            flat = self.model(one).reshape(-1)
            rows = [
                torch.autograd.grad(value, parameters, retain_graph=True, materialize_grads=True)
                for value in flat
            ]
        return torch.stack([torch.cat([part.flatten() for part in row]) for row in rows])


class _Collected:
    """The gradients of one map's results, gathered output by output.

    Args:
        uses: The map's calls; several uses of a weight are like several positions of one use.
        is_made: Whether the gradients of the weight are computed, and those of the results discarded.
    """

    def __init__(self, uses: list[Use], is_made: bool) -> None:
        self.uses, self.is_made = uses, is_made
        self._has_weight = "weight" in uses[0].names
        self._kept: list[Tensor] = []
        self._made: list[Tensor] = []
        self._bias: list[Tensor] = []

    def add(self, gradients: list[Tensor]) -> None:
        d_NGJP = _joined(gradients)
        if "bias" in self.uses[0].names:
            self._bias.append((d_NGJP[..., 0] if d_NGJP.shape[-1] == 1 else d_NGJP.sum(-1)).flatten(1))
        if self._has_weight:
            self._kept.append(d_NGJP)
        if self.is_made and len(self._kept) * d_NGJP.nbytes > _GATHERED_BYTES:
            self._make()

    def _make(self) -> None:
        """Turn what was gathered into gradients of the weight, one example at a time to fit in a cache."""
        found = []
        for at in range(len(self._kept[0])):
            rows = torch.cat([d[at] for d in self._kept], 1)
            inputs = _joined([use.inputs(slice(at, at + 1))[0] for use in self.uses])
            product = (rows @ inputs.mT).reshape(len(rows), len(self._kept), -1)
            found.append(product.transpose(0, 1).flatten(1))
        self._made.append(torch.stack(found))
        self._kept = []

    def factors(self) -> Factors:
        bias = torch.stack(self._bias, 1) if self._bias else None
        if not self._has_weight:
            return Factors(None, None, None, bias)
        if not self.is_made:
            inputs = _joined([use.inputs() for use in self.uses])
            return Factors(inputs, torch.stack(self._kept, 1), None, bias)
        if self._kept:
            self._make()
        return Factors(None, None, _joined_outputs(self._made), bias)


def _joined_outputs(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


def _gradients(column: Tensor, edges: list[torch.autograd.graph.GradientEdge]) -> list[Tensor]:
    ones = torch.ones_like(column)
    return list(torch.autograd.grad(column, edges, ones, retain_graph=True, materialize_grads=True))


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, -1)


def _observer(model: nn.Module, x1: Tensor, x2: Tensor | None, form: Form, budget: int) -> _Observer:
    """Inspect a module with a few examples: which rules apply, and how much memory an example takes."""
    parameters: dict[str, Tensor] = {n: p for n, p in model.named_parameters() if p.requires_grad}
    _check(model, parameters, x1, x2, form, budget)
    tried = x1[:_TRIED]
    with torch.enable_grad():
        with Recorder(parameters) as recorder:
            flat = _flat(model(tried), tried)
        first = flat[:, 0]
    size = len(x1) if x2 is None else round((len(x1) * len(x2)) ** 0.5)
    keys = explained(recorder.uses, flat, parameters)
    observer = _Observer(model, parameters, keys, [], form, size, flat.shape[1])
    groups = [uses[0].names.values() for key, uses in keyed(recorder.uses).items() if key in observer.keys]
    names = {name for group in groups for name in group}
    kept = 0
    if names:
        record = observer._recorded(tried, [first], recorder.uses)
        if _agree(record, first, [parameters[name] for name in names]):
            kept = 2 * observer.outputs * sum(one.nbytes for one in record.factors.values())
        else:
            observer.keys, names = set(), set()
    observer.others = [name for name in parameters if name not in names]
    entries = sum(parameters[name].numel() for name in observer.others)
    observer.bytes_each = kept // len(tried) + 2 * entries * observer.outputs * flat.element_size()
    return observer


def _agree(record: Record, outputs: Tensor, parameters: list[Tensor]) -> bool:
    """Whether the rules give the same squared gradient of the first example as autograd."""
    with torch.enable_grad():
        true = torch.autograd.grad(outputs[0], parameters, materialize_grads=True)
    expected = sum(float(torch.linalg.vector_norm(one)) ** 2 for one in true)
    found = float(kernel_of(record, record, "diagonal")[0, 0, 0])
    return abs(found - expected) <= _TRUSTED * expected


def _flat(output: object, x: Tensor) -> Tensor:
    if not isinstance(output, Tensor) or output.dim() == 0 or len(output) != len(x):
        shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise UsageError(
            f"empirical: the module must give a tensor with a row for each of {len(x)} examples, got {shape}"
        )
    if not output.requires_grad:
        raise UsageError("empirical: the outputs do not depend on any trainable parameter")
    return output.reshape(len(output), -1)


def _check(
    model: nn.Module, parameters: dict[str, Tensor], x1: Tensor, x2: Tensor | None, form: str, budget: int
) -> None:
    if not parameters:
        raise UsageError(
            f"empirical: a tangent kernel needs trainable parameters, and {type(model).__name__} has none"
        )
    if form not in get_args(Form):
        raise UsageError(f"empirical: form must be 'full', 'trace' or 'diagonal', got {form!r}")
    if budget < 1:
        raise UsageError(f"empirical: budget_bytes must be positive, got {budget}")
    for x in (x1,) if x2 is None else (x1, x2):
        if x.dim() == 0 or not len(x):
            raise UsageError(f"empirical: needs examples [n, …] with n at least 1, got {tuple(x.shape)}")
    mixing: Callable[[nn.Module], bool] = lambda m: (  # noqa: E731
        isinstance(m, nn.modules.batchnorm._BatchNorm | nn.modules.dropout._DropoutNd) and m.training
    )
    found = next((name for name, module in model.named_modules() if mixing(module)), None)
    if found is not None:
        kind = type(model.get_submodule(found)).__name__
        raise UsageError(
            f"empirical: {found or 'the module'} ({kind}) is in training mode, where an example's output is "
            "not a function of that example alone; call eval() first"
        )
