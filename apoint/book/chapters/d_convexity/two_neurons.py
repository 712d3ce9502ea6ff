"""D6: compositions of convex functions, and a network of two neurons whose loss is not convex."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from apoint.book.chapters.a_signal.sketches import two_neurons as network
from apoint.book.claim import claim, exercise
from apoint.book.evidence import Evidence, Number, at_least, close, same
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.theory import convexity

FIRST = (1.0, -1.0, 1.0, -1.0)
SECOND = (-1.0, 1.0, -1.0, 1.0)
"""Weights of the course's two solutions: the two of the hidden layer, then the two of the output."""

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": torch.relu, "identity": lambda x: x}


def loss(weights: Tensor, activation: str = "relu") -> Tensor:
    """Half the sum of squares on the points (−1, −1) and (1, 1), for each row of four weights."""
    inputs = torch.tensor([-1.0, 1.0], dtype=torch.float64)
    hidden = ACTIVATIONS[activation](weights[:, :2, None] * inputs)
    outputs = (weights[:, 2:, None] * hidden).sum(1)
    return (outputs - inputs).square().sum(1) / 2


@claim(
    "D6",
    "Two neurons are enough to lose convexity",
    kind="identity",
    statement=r"""
    A network with one hidden layer of two ReLU neurons, without biases, and half the sum of squares on the
    points $(-1,-1)$ and $(1,1)$, has the loss 0 at $\theta_1=(1,-1,1,-1)$ and at $\theta_2=-\theta_1$, and
    1 at their middle. So it is not convex in the weights, although the square and the ReLU are convex.
    """,
    refuted_by="another loss than 0, 0 and 1 at the three points, computed by PyTorch's own layers",
    seconds={"quick": 1, "standard": 3},
    planted={"factor": 1.05},
    details=r"""
    Exchanging the two neurons leaves the function as it is, so a solution and its mirror image have the same
    loss, and on the way between them the network is another one; the same holds for every network with
    hidden units. The same points for linear neurons do not have the losses of the statement, and yet the
    search finds that their loss is not convex either: a product of weights is enough.
    """,
    references=("Choromanska et al. (2015), The loss surfaces of multilayer networks",),
)
def two_neurons(run: Running, factor: float = 1.0) -> Evidence:
    """The loss at three points with PyTorch's layers, and a search; `factor` multiplies that halfway."""
    activation = "relu"
    values = [_by_layers(np.array(weights), activation) for weights in (FIRST, SECOND, (0.0,) * 4)]
    points = run.random().uniform(-1.5, 1.5, (run.pick(60, 200), 4))
    found = convexity.chord_violation(lambda x: loss(x, activation), points)
    linear = convexity.chord_violation(lambda x: loss(x, "identity"), points)
    way = np.linspace(0, 1, 101)
    path = torch.from_numpy((1 - way)[:, None] * np.array(FIRST) + way[:, None] * np.array(SECOND))
    panel = Panel(
        "From one solution to the other",
        "share of the way (no unit)",
        "loss (no unit)",
        [
            Series("loss", way.tolist(), loss(path, activation).tolist()),
            Series("chord", [0, 1], [values[0], values[1]], style="dashed"),
        ],
    )
    caption = "Both ends have the loss 0; a convex loss would be 0 in between too."
    return Evidence(
        [
            close("loss at θ₁", values[0], 0.0),
            close("loss at θ₂", values[1], 0.0),
            close("loss halfway", values[2], factor),
            at_least(
                "largest graph above a chord that the search finds", found.excess if found else 0.0, 0.5
            ),
            same("linear neurons: not convex either", linear is not None, True),
        ],
        pictures=[network(), Picture(caption, [panel])],
    )


def _by_layers(weights: np.ndarray, activation: str) -> float:
    hidden = torch.nn.Linear(1, 2, bias=False, dtype=torch.float64)
    output = torch.nn.Linear(2, 1, bias=False, dtype=torch.float64)
    points = torch.tensor([[-1.0], [1.0]], dtype=torch.float64)
    with torch.no_grad():
        hidden.weight.copy_(torch.from_numpy(weights[:2, None]))
        output.weight.copy_(torch.from_numpy(weights[None, 2:]))
        predicted = output(ACTIVATIONS[activation](hidden(points)))
        return float(torch.nn.functional.mse_loss(predicted, points, reduction="sum")) / 2


@claim(
    "D6b",
    "Convex after convex",
    kind="shape",
    statement=r"""
    If $f$ and $g$ are convex and $g$ does not decrease, $g\circ f$ is convex. If $g$ decreases it need not
    be: $e^{-x^2}$ is not.
    """,
    refuted_by="a convex, non-decreasing g after a convex f whose composition violates a chord, or no "
    "violation for exp(−x²)",
    seconds={"quick": 1, "standard": 2},
    planted={"outer": "falling"},
    details=r"""
    Sixteen compositions of four convex functions with four that are convex and do not decrease, on all pairs
    of a grid. Of a decreasing $g$ nothing follows in general: $g\circ f$ is convex again if $f$ is affine.
    """,
    references=("Boyd and Vandenberghe (2004), Convex optimization, section 3.2.4",),
)
def compositions(run: Running, outer: str = "rising") -> Evidence:
    """Chords of compositions; the planted version takes decreasing functions outside."""
    inside: list[convexity.Function] = [
        lambda x: x[:, 0] ** 2,
        lambda x: x[:, 0].abs(),
        lambda x: torch.logaddexp(x[:, 0], -x[:, 0]),
        lambda x: torch.relu(x[:, 0] - 0.3),
    ]
    sign = 1.0 if outer == "rising" else -1.0
    outside: list[Callable[[Tensor], Tensor]] = [
        lambda z: torch.exp(sign * z),
        lambda z: torch.relu(sign * z),
        lambda z: torch.logaddexp(sign * z, torch.zeros_like(z)),
        lambda z: torch.relu(1 + sign * z) ** 3,
    ]
    points = np.linspace(-2, 2, run.pick(81, 301))
    bad = sum(
        convexity.chord_violation(lambda x, f=f, g=g: g(f(x)), points) is not None  # type: ignore[misc]
        for f in inside
        for g in outside
    )
    bump = convexity.chord_violation(lambda x: torch.exp(-(x[:, 0] ** 2)), points)
    return Evidence(
        [
            same("compositions of sixteen that violate a chord", bad, 0),
            at_least("exp(−x²) above a chord", bump.excess if bump else 0.0, 0.3),
        ]
    )


@exercise(
    "notes A.7",
    "D6",
    question=r"Let $f$ and $g$ be convex functions of one variable. Show that $g\circ f$ is convex if $g$ is "
    r"increasing, and give an example in which $g$ is strictly decreasing and $g\circ f$ is not convex.",
    hints=(
        "Apply the inequality of f first, then the monotony of g, then the inequality of g.",
        "For the example take a square inside and a decaying exponential outside.",
    ),
    solution=r"""
    $f(ta+(1-t)b)\leq tf(a)+(1-t)f(b)$; $g$ keeps the order, so
    $g(f(ta+(1-t)b))\leq g(tf(a)+(1-t)f(b))\leq tg(f(a))+(1-t)g(f(b))$. With $f(x)=x^2$ and $g(z)=e^{-z}$ the
    composition $e^{-x^2}$ has the second derivative $(4x^2-2)e^{-x^2}$, which is $-2$ at 0.
    """,
    planted={"outer_sign": 1},
)
def bump(outer_sign: int = -1) -> list[Number]:
    """The second derivative of the composition by sympy, and the chain rule for a rising g."""
    import sympy  # type: ignore[import-untyped]

    x = sympy.Symbol("x", real=True)
    composed = sympy.exp(outer_sign * x**2)
    inner, outer = sympy.log(1 + sympy.exp(x)), sympy.Symbol("z", real=True)
    rising = sympy.exp(outer)
    second = rising.diff(outer, 2).subs(outer, inner) * inner.diff(x) ** 2 + rising.diff(outer).subs(
        outer, inner
    ) * inner.diff(x, 2)
    direct = rising.subs(outer, inner).diff(x, 2)
    return [
        close("second derivative of exp(−x²) at 0", float(composed.diff(x, 2).subs(x, 0)), -2.0),
        same("g''(f)·f'² + g'(f)·f'' is (g∘f)''", sympy.simplify(second - direct) == 0, True),
    ]


@exercise(
    "notes A.8",
    "D6",
    question=r"A network with two hidden ReLU neurons and no biases is trained on $(-1,-1)$ and $(1,1)$ with "
    r"half the sum of squares. Find its loss at $w^1=(1,-1),w^2=(1,-1)$, at $w^1=(-1,1),w^2=(-1,1)$ and "
    "halfway. Is the loss convex?",
    hints=(
        r"At the first point the output is $\max(0,x)-\max(0,-x)$.",
        "Halfway all weights are zero.",
    ),
    solution=r"""
    $\max(0,x)-\max(0,-x)=x$, so the first loss is 0, and the second point is the first with the neurons
    exchanged. Halfway the output is 0 and the loss is $\frac{1}{2}(1+1)=1$. A convex loss would be at most 0
    there: it is not convex.
    """,
    planted={"middle": (0.5, 0.0, 0.5, 0.0)},
)
def three_losses(middle: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0)) -> list[Number]:
    """The loss at the three points."""
    values = loss(torch.tensor([FIRST, SECOND, middle], dtype=torch.float64)).tolist()
    return [
        close("loss at the first point", values[0], 0.0),
        close("loss at the second", values[1], 0.0),
        close("loss halfway", values[2], 1.0),
    ]
