"""From gradients in any form to the entries of a tangent kernel, in the cheapest way that shapes allow."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor

from apoint.theory.ntk.recording import Factors, Record

Form = Literal["full", "trace", "diagonal"]
_CHUNK_BYTES = 32 * 2**20
_WORTH_HALVING = 128  # from this many rows on, half of a symmetric product is faster than all of it


def kernel_of(one: Record, other: Record, form: Form) -> Tensor:
    """The kernel between two sets of examples: [N, O, M, O], [N, M] or [O, N, M] by form."""
    total: Tensor | None = None
    if one.jacobian is not None and other.jacobian is not None:
        total = contract(one.jacobian, other.jacobian, form)
    for key in one.factors:
        for part in _parts(one.factors[key], other.factors[key], form):
            total = part if total is None else total.add_(part)
    assert total is not None, "a module has parameters"
    return total


def contract(one: Tensor, other: Tensor, form: Form) -> Tensor:
    """Products of gradients [N, O, E] and [M, O, E]."""
    if form == "diagonal":
        return one.transpose(0, 1) @ other.permute(1, 2, 0)
    if form == "trace":
        return _product(one.flatten(1), None if one is other else other.flatten(1))
    product = _product(one.flatten(0, 1), None if one is other else other.flatten(0, 1))
    return product.reshape(len(one), one.shape[1], len(other), other.shape[1])


def _product(one: Tensor, other: Tensor | None) -> Tensor:
    """A·Bᵀ, or A·Aᵀ from the blocks on and above its diagonal alone."""
    if other is not None or len(one) < _WORTH_HALVING:
        return one @ (one if other is None else other).T
    result, step = one.new_empty(len(one), len(one)), -(-len(one) // 4)
    for begin in range(0, len(one), step):
        rows = slice(begin, begin + step)
        result[rows, begin:] = one[rows] @ one[begin:].T
        result[begin + step :, rows] = result[rows, begin + step :].T
    return result


def gram_is_cheaper(inputs: int, outputs: int, positions: int, examples: int, heads: int, form: Form) -> bool:
    """Whether to multiply positions with positions instead of making the gradient of each example.

    Multiplications for N examples a side: N²P²·(I + h(J + 1)) for products of positions, and 2N·O·P·I·J to
    make the gradients plus N²·h·I·J to multiply them; h is O² for the full kernel and O for the others.
    """
    pairs = heads**2 if form == "full" else heads
    gram = examples**2 * positions**2 * (inputs + pairs * (outputs + 1))
    explicit = 2 * examples * heads * positions * inputs * outputs + examples**2 * pairs * inputs * outputs
    return gram <= explicit


def _parts(one: Factors, other: Factors, form: Form) -> Iterator[Tensor]:
    """What one linear map contributes: its groups are independent of each other."""
    if one.made is not None and other.made is not None:
        yield contract(one.made, other.made, form)
    both = _alone(one, other)
    if one.bias is not None and other.bias is not None and not both:
        yield contract(one.bias, other.bias, form)
    if one.inputs is None or other.inputs is None or one.gradients is None or other.gradients is None:
        return
    for group in range(one.inputs.shape[1]):
        x, d = one.inputs[:, group], one.gradients[:, :, group]
        y, e = (x, d) if one is other else (other.inputs[:, group], other.gradients[:, :, group])
        examples = max(1, round(math.sqrt(len(x) * len(y))))
        positions = max(1, round(math.sqrt(x.shape[2] * y.shape[2])))
        if both:
            yield _contract_places(d, e, form).mul_(_spread(_likeness(x, y).add_(1), form))
        elif gram_is_cheaper(x.shape[1], d.shape[2], positions, examples, d.shape[1], form):
            yield from _by_positions(x, y, d, e, form)
        else:
            yield from _by_gradients(x, y, d, e, form)


def _alone(one: Factors, other: Factors) -> bool:
    """Whether weight and bias go together: one position and one group, where the bias is an input of 1."""
    inputs = [side.inputs for side in (one, other) if side.inputs is not None and side.bias is not None]
    return len(inputs) == 2 and all(x.shape[1] == x.shape[3] == 1 for x in inputs)


def _contract_places(d: Tensor, e: Tensor, form: Form) -> Tensor:
    """`contract` of gradients with one position."""
    one = d[..., 0]
    return contract(one, one if d is e else e[..., 0], form)


def _likeness(x: Tensor, y: Tensor) -> Tensor:
    return _product(x[..., 0], None if x is y else y[..., 0])


def _by_positions(x: Tensor, y: Tensor, d: Tensor, e: Tensor, form: Form) -> Iterator[Tensor]:
    """Σ_pq (x_p·y_q)(δ_p·ε_q), some examples of the first set at a time."""
    if x.shape[2] == y.shape[2] == 1:
        yield _contract_places(d, e, form).mul_(_spread(_likeness(x, y), form))
        return
    heads = d.shape[1] ** 2 if form == "full" else d.shape[1] if form == "diagonal" else 1
    each = x.shape[2] * y.shape[0] * y.shape[2] * (heads + 1) * x.element_size()
    step = max(1, _CHUNK_BYTES // each)
    y_flat, e_flat = y.mT.flatten(0, 1), _by_place(e)
    rows = []
    for begin in range(0, len(x), step):
        some = slice(begin, begin + step)
        likeness = x[some].mT.flatten(0, 1) @ y_flat.T
        product = contract(_by_place(d[some]), e_flat, form).mul_(_spread(likeness, form))
        rows.append(_summed(product, x.shape[2], y.shape[2], form))
    yield torch.cat(rows, 1 if form == "diagonal" else 0)


def _by_place(d: Tensor) -> Tensor:
    """[N, O, J, P] as if every position were a separate example, [N·P, O, J]."""
    return d.permute(0, 3, 1, 2).flatten(0, 1)


def _spread(likeness: Tensor, form: Form) -> Tensor:
    """A matrix over examples, reshaped to multiply a kernel of the given form."""
    return likeness[:, None, :, None] if form == "full" else likeness


def _summed(product: Tensor, one: int, other: int, form: Form) -> Tensor:
    """The sum over positions, which lie inside the axes of examples."""
    if form == "full":
        rows, heads, columns, _ = product.shape
        return product.reshape(rows // one, one, heads, columns // other, other, heads).sum((1, 4))
    rows, columns = product.shape[-2:]
    return product.reshape(*product.shape[:-2], rows // one, one, columns // other, other).sum((-3, -1))


def _by_gradients(x: Tensor, y: Tensor, d: Tensor, e: Tensor, form: Form) -> Iterator[Tensor]:
    """The gradients themselves, for some rows of the weight at a time."""
    each = d.shape[1] * (len(x) + len(y)) * x.shape[1] * x.element_size()
    step = max(1, _CHUNK_BYTES // each)
    for begin in range(0, d.shape[2], step):
        some = slice(begin, begin + step)
        first = _gradients(x, d[:, :, some])
        yield contract(first, first if x is y else _gradients(y, e[:, :, some]), form)


def _gradients(x: Tensor, d: Tensor) -> Tensor:
    """Σ_p δ_p x_pᵀ of each example and output, [N, O, J·I]."""
    outer = d.flatten(1, 2) @ x.mT
    return outer.reshape(len(x), d.shape[1], -1)
