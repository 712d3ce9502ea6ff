"""A2: back-propagation by hand, and the order of indices that makes it right."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from apoint.book.claim import Erratum, claim, exercise
from apoint.book.evidence import Evidence, Number, at_most
from apoint.book.running import Running
from apoint.theory import backpropagation

SHAPES = ([4, 6, 6, 6, 3], [5, 3, 8, 2, 4], [2, 9, 4, 7, 1])
ROUNDING = 1e-9  # relative, of float64 sums of a few dozen terms that may cancel


@claim(
    "A2",
    "Back-propagation by hand",
    kind="identity",
    statement=r"""
    With $z^l=W^la^{l-1}+b^l$, $a^l=f(z^l)$ and $\delta^l_j=\partial C/\partial z^l_j$,
    $$\frac{\partial C}{\partial b^l_j}=\delta^l_j,\qquad
    \frac{\partial C}{\partial w^l_{j,k}}=a^{l-1}_k\delta^l_j,\qquad
    \delta^L_j=f'(z^L_j)\frac{\partial C}{\partial a^L_j},\qquad
    \delta^l_j=f'(z^l_j)\sum_{k=1}^{N_{l+1}}w^{l+1}_{k,j}\,\delta^{l+1}_k .$$
    """,
    refuted_by="a gradient that differs from autograd's, or from a difference quotient of the cost, by more "
    "than rounding",
    seconds={"quick": 0.2, "standard": 1},
    planted={"factor": 1.05},
    erratum=Erratum(
        quote=r"$\delta_j^l=\sum_{k=1}^{n_l}w_{j,k}^{l+1}\delta_k^{l+1}f'(z_j^l)$",
        place="notes ex. 1.1, start ex. 1",
        written=r"$\delta^l_j=\sum_{k=1}^{N_l}w^{l+1}_{j,k}\delta^{l+1}_kf'(z^l_j)$ in the exercise, and "
        r"$w^{l+1}_{k,j}$ with the same range of the sum in its solution",
        corrected=r"$\delta^l_j=\sum_{k=1}^{N_{l+1}}w^{l+1}_{k,j}\delta^{l+1}_kf'(z^l_j)$",
        why=r"The first index of $w^{l+1}$ belongs to the layer $l+1$, so that an error that comes back to "
        r"the unit $j$ passes column $j$ of the matrix, and the units $k$ that send it are those of layer "
        r"$l+1$. With $w_{j,k}$ a layer that is not square has no such entry, and a square one gives another "
        r"number; with $N_l$ terms, some are missing or do not exist.",
    ),
    details=r"""
    The chain rule through every $z^{l+1}_k$, each of which depends on $z^l_j$ through
    $\partial z^{l+1}_k/\partial z^l_j=w^{l+1}_{k,j}f'(z^l_j)$. In matrices
    $\delta^l=f'(z^l)\otimes(W^{l+1})^{\top}\delta^{l+1}$: the transpose is the whole point. The check takes
    networks of unequal and of equal widths, with sigmoid and with tanh, and compares with autograd. Where
    the recursion as printed asks for an entry that is not there, it is counted as 0.
    """,
    references=(
        "Rumelhart, Hinton and Williams (1986), Learning representations by back-propagating errors",
    ),
)
def by_hand_and_by_autograd(run: Running, factor: float = 1.0) -> Evidence:
    """All gradients by hand against autograd; `factor` multiplies the slope in the recursion."""
    numbers, written = [], []
    for number, sizes in enumerate(SHAPES):
        net = _draw(sizes, run.generator(f"net {number}"), run.pick(6, 60))
        right = _autograd(net)
        shape = "-".join(map(str, sizes))
        numbers.append(_worst(f"largest error, layers {shape}", _hand(net, factor=factor), right))
        written.append(_worst(f"with w_jk, layers {shape}", _hand(net, swapped=True), right))
        written.append(_worst(f"with N_l terms, layers {shape}", _hand(net, few_terms=True), right))
    numbers.append(_against_differences(net, _hand(net, factor=factor)))
    remark = "Where no layer is wider than the one before it, the sum has all its terms whatever its range."
    return Evidence(numbers, written, remark=remark)


@dataclass(frozen=True)
class _Net:
    weights: list[Tensor]
    biases: list[Tensor]
    inputs: Tensor
    targets: Tensor


def _draw(sizes: list[int], generator: torch.Generator, batch: int) -> _Net:
    pairs = list(itertools.pairwise(sizes))
    weights = [torch.randn(n, m, generator=generator, dtype=torch.float64) / math.sqrt(m) for m, n in pairs]
    biases = [torch.randn(n, generator=generator, dtype=torch.float64) for _, n in pairs]
    inputs = torch.randn(batch, sizes[0], generator=generator, dtype=torch.float64)
    targets = torch.randn(batch, sizes[-1], generator=generator, dtype=torch.float64)
    return _Net(weights, biases, inputs, targets)


def _cost(net: _Net, weights: list[Tensor], biases: list[Tensor]) -> Tensor:
    a = net.inputs
    for weight, bias in zip(weights, biases, strict=True):
        a = torch.sigmoid(torch.nn.functional.linear(a, weight, bias))
    return (a - net.targets).square().sum() / 2


def _autograd(net: _Net) -> list[Tensor]:
    leaves = [tensor.clone().requires_grad_() for tensor in (*net.weights, *net.biases)]
    cost = _cost(net, leaves[: len(net.weights)], leaves[len(net.weights) :])
    return list(torch.autograd.grad(cost, leaves))


def _hand(net: _Net, swapped: bool = False, few_terms: bool = False, factor: float = 1.0) -> list[Tensor]:
    """The gradients by the recursion, with the indices as printed if `swapped`."""

    def slope(z: Tensor) -> Tensor:
        return factor * torch.sigmoid(z) * (1 - torch.sigmoid(z))

    passed = backpropagation.forward(net.weights, net.biases, torch.sigmoid, net.inputs)
    read = [_misread(weight, swapped, few_terms) for weight in net.weights]
    found = backpropagation.backward(passed, read, slope, passed.after[-1] - net.targets)
    return [*found.weights, *found.biases]


def _misread(weight: Tensor, swapped: bool, few_terms: bool) -> Tensor:
    """The matrix that the recursion sees if it reads w_jk for w_kj, or adds up N_l terms only."""
    if swapped:
        rows, columns = weight.shape
        common = min(rows, columns)
        seen = torch.zeros_like(weight)
        seen[:common, :common] = weight.T[:common, :common]
        return seen
    if few_terms:
        seen = weight.clone()
        seen[weight.shape[1] :] = 0
        return seen
    return weight


def _worst(name: str, found: list[Tensor], right: list[Tensor]) -> Number:
    pairs = zip(found, right, strict=True)
    error = max(float((mine - theirs).abs().max() / theirs.abs().max()) for mine, theirs in pairs)
    return at_most(name, error, ROUNDING)


def _against_differences(net: _Net, found: list[Tensor]) -> Number:
    """The first layer's first weight by a central difference, which knows nothing of any chain rule."""
    step, moved = 1e-5, []
    for sign in (1, -1):
        weights = [weight.clone() for weight in net.weights]
        weights[0][0, 0] += sign * step
        moved.append(float(_cost(net, weights, net.biases)))
    quotient = (moved[0] - moved[1]) / (2 * step)
    error = abs(quotient - float(found[0][0, 0])) / abs(quotient)
    return at_most("error against a difference quotient", error, 1e-6, remark="step 1e-5, rounding 1e-7")


QUESTION = r"""
A network has layers $z^l=W^la^{l-1}+b^l$, $a^l=f(z^l)$, and a cost $C$ of $a^L$. Write
$\delta^l_j=\partial C/\partial z^l_j$. (1) Express $\partial C/\partial b^l_j$ and
$\partial C/\partial w^l_{j,k}$ by $\delta^l_j$. (2) Find $\delta^L_j$. (3) Find $\delta^l_j$ for $l<L$ from
the errors of the layer after it, minding which index of the weight is which.
"""
HINTS = (
    r"$C$ depends on $b^l_j$ and on $w^l_{j,k}$ through $z^l_j$ alone.",
    r"$C$ depends on $z^l_j$ through every $z^{l+1}_k$, $k=1,\dots,N_{l+1}$: add up their shares.",
)
SOLUTION = r"""
(1) $\partial z^l_j/\partial b^l_j=1$ and $\partial z^l_j/\partial w^l_{j,k}=a^{l-1}_k$, so that the two
derivatives are $\delta^l_j$ and $a^{l-1}_k\delta^l_j$. (2) $a^L_j=f(z^L_j)$, so that
$\delta^L_j=f'(z^L_j)\,\partial C/\partial a^L_j$. (3) $z^{l+1}_k=\sum_iw^{l+1}_{k,i}f(z^l_i)+b^{l+1}_k$ has
the derivative $w^{l+1}_{k,j}f'(z^l_j)$ with respect to $z^l_j$, hence
$\delta^l_j=f'(z^l_j)\sum_{k=1}^{N_{l+1}}w^{l+1}_{k,j}\delta^{l+1}_k$. The index that is summed over is the
first one of the weight, and runs over the layer $l+1$.
"""


def symbolic(swapped: bool = False) -> list[Number]:
    """A network 2-2-2 in symbols: sympy's derivatives against the recursion, at a point drawn by hand."""
    import sympy  # type: ignore[import-untyped]

    first, second = sympy.Matrix(2, 2, sympy.symbols("u:4")), sympy.Matrix(2, 2, sympy.symbols("v:4"))
    bias, inputs = sympy.Matrix(sympy.symbols("b:2")), sympy.Matrix(sympy.symbols("x:2"))
    z1 = first * inputs + bias
    z2 = second * z1.applyfunc(sympy.tanh)
    outputs = z2.applyfunc(sympy.tanh)
    cost = (outputs[0] ** 2 + 3 * outputs[1]) / 2
    pull = (outputs[0], sympy.Rational(3, 2))  # the derivatives of the cost with respect to the outputs
    last = sympy.Matrix([(1 - sympy.tanh(z2[j]) ** 2) * pull[j] for j in (0, 1)])
    back = (second if swapped else second.T) * last
    delta = [(1 - sympy.tanh(z1[j]) ** 2) * back[j] for j in (0, 1)]
    values = (0.3, -0.7, 1.1, 0.2, 0.9, -0.4, 0.5, 0.8, 0.1, -0.2, 0.6, -1.3)
    place = dict(zip((*first, *second, *bias, *inputs), values, strict=True))
    misses = {
        "output error": sympy.diff(cost, second[1, 0]) - sympy.tanh(z1[0]) * last[1],
        "hidden bias": sympy.diff(cost, bias[1]) - delta[1],
        "hidden weight": sympy.diff(cost, first[0, 1]) - inputs[1] * delta[0],
    }
    return [at_most(f"{name}: difference", abs(float(m.subs(place))), 1e-12) for name, m in misses.items()]


for _number in ("notes 1.1", "start 1"):
    exercise(_number, "A2", question=QUESTION, hints=HINTS, solution=SOLUTION, planted={"swapped": True})(
        symbolic
    )
