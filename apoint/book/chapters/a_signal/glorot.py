"""A7: Glorot's initialisation, normal and uniform."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from apoint.book.chapters.a_signal.measured import mean_and_error, signals
from apoint.book.claim import claim, exercise
from apoint.book.evidence import Evidence, Number, agrees, between, close, ruled
from apoint.book.running import Running
from apoint.nn.initialisation import initialise

DRAWERS: dict[str, Callable[..., Tensor]] = {
    "normal": nn.init.xavier_normal_,
    "uniform": nn.init.xavier_uniform_,
}
WIDTHS = [200, 80, 200, 80, 200]


@claim(
    "A7",
    "Glorot's initialisation",
    kind="identity",
    statement=r"""
    Keeping the variance of signals asks for $n_{\text{in}}\mathbb{V}[w]=1$, that of errors for
    $n_{\text{out}}\mathbb{V}[w]=1$. Glorot and Bengio average the two conditions:
    $$\mathbb{V}[w]=\frac{2}{n_{\text{in}}+n_{\text{out}}},\qquad
    \mathcal{N}\left(0,\tfrac{2}{n_{\text{in}}+n_{\text{out}}}\right)\quad\text{or}\quad
    \mathcal{U}\left(\pm\sqrt{\tfrac{6}{n_{\text{in}}+n_{\text{out}}}}\right).$$
    Both laws then keep both variances between layers of equal width as long as the activation is nearly
    linear, whereas weights of the law $\mathcal{U}(\pm1/\sqrt{n})$ shrink both to a third in each layer.
    """,
    refuted_by="drawn weights of another variance; mean squares in a linear network that differ from "
    r"$\prod 2n_{l-1}/(n_{l-1}+n_l)$, or in a tanh network with small inputs that are not kept",
    seconds={"quick": 1.5, "standard": 8},
    planted={"factor": 1.05},
    details=r"""
    What is averaged are the numbers of neurons and not the variances: the mean of $1/n_{\text{in}}$ and
    $1/n_{\text{out}}$ would be larger. Between layers of unequal width neither condition is met: through
    layers of 200 and 80 units in turn a linear network keeps
    $\frac{2\cdot200}{280}\cdot\frac{2\cdot80}{280}=0.816$ of the variance in every second layer, forwards and
    backwards. The check draws networks from the product's own initialisation, and a layer from PyTorch's.
    """,
    references=(
        "Glorot and Bengio (2010), Understanding the difficulty of training deep feedforward networks",
    ),
)
def both_laws(run: Running, factor: float = 1.0) -> Evidence:
    """Variances of weights, signals and errors; `factor` multiplies the formula's variance."""
    numbers = []
    for law, drawer in DRAWERS.items():
        spec = {"name": "glorot", "distribution": law}
        layer = nn.Linear(300, 500)
        initialise(layer, spec, activation="identity", generator=run.generator(law))
        theirs = drawer(torch.empty(500, 300), generator=run.generator(f"{law} PyTorch"))
        expected = factor * _variance(300, 500)
        for name, weights in ((f"{law}, ours", layer.weight.detach()), (f"{law}, PyTorch", theirs)):
            numbers.append(_spread(f"variance of weights, {name}", weights, expected))
        if law == "uniform":
            limit = math.sqrt(3 * expected)
            numbers.append(
                between(
                    "largest weight, uniform", float(layer.weight.detach().abs().max()), 0.999 * limit, limit
                )
            )
        numbers += _through(run, law, spec, factor)
    numbers += _tanh(run, factor)
    return Evidence(numbers)


def _variance(inputs: int, outputs: int) -> float:
    return 2 / (inputs + outputs)


def _spread(name: str, weights: Tensor, expected: float) -> Number:
    """The mean square of weights, whose standard error comes from the spread of the squares."""
    squares = weights.double().square()
    return agrees(name, float(squares.mean()), float(squares.std() / squares.numel() ** 0.5), expected)


def _through(run: Running, law: str, spec: dict[str, str], factor: float) -> list[Number]:
    """What a linear network of unequal widths keeps, forwards and backwards; the formula is exact for it."""
    found = signals("identity", spec, WIDTHS, run.pick(60, 600), run.generator(f"linear {law}"))
    pairs = list(itertools.pairwise(WIDTHS))
    forward = math.prod(factor * n * _variance(n, m) for n, m in pairs)
    backward = math.prod(factor * m * _variance(n, m) for n, m in pairs[1:])
    mean, error = mean_and_error(found.forward[:, -1])
    back, back_error = mean_and_error(found.backward[:, 0] / found.backward[:, -1])
    return [
        agrees(f"signals kept through widths 200 and 80, {law}", mean, error, forward),
        agrees(f"errors kept through widths 200 and 80, {law}", back, back_error, backward),
    ]


def _tanh(run: Running, factor: float) -> list[Number]:
    """A tanh network with small inputs: kept by Glorot, a third per layer by the older law."""
    width, depth, numbers = 200, 10, []
    for name, init, kept in (("Glorot", "glorot", 1.0), ("±1/√n", "as-built", 1 / 3)):
        found = signals(
            "tanh", init, [width] * (depth + 1), run.pick(16, 100), run.generator(name), input_std=0.02
        )
        for what, values in (("signals", found.forward[:, ::-1]), ("errors", found.backward)):
            ratio = (values[:, 0] / values[:, -1]) ** (1 / (depth - 1))
            mean, error = mean_and_error(ratio)
            # A root of a mean over few networks lies below it by a share of the order of 1/width per layer.
            numbers.append(
                agrees(f"factor of {what} per tanh layer, {name}", mean, error + 1 / width, kept * factor)
            )
    return numbers


DEEP_TANH = {
    "name": "deep-tanh",
    "data": "digits",
    "model": {"name": "mlp", "depth": 5, "width": 64, "activation": "tanh"},
    "init": {"name": "standard", "std": 0.01},
    "optimizer": {"name": "sgd", "lr": 0.05},
    "batch_size": 32,
    "epochs": 2,
}


@claim(
    "A7b",
    "Glorot's initialisation trains where small weights do not",
    kind="direction",
    statement=r"""
    Five hidden layers of tanh, weights of the deviation 0.01 whatever the widths: plain gradient descent does
    not get off the ground. Glorot's deviation, about 0.125 here, lets the same network learn at once.
    """,
    refuted_by="a verdict other than better for Glorot's initialisation in test accuracy",
    seconds={"quick": 8, "standard": 60},
    planted={"swapped": True},
    details=r"""
    Handwritten digits, 64 units per layer, stochastic gradient descent with a rate of 0.05. Both arms share
    seeds, and so the order of the examples; the verdict is that of `apoint compare`. With weights of 0.01
    each layer multiplies signals and errors by about $\sqrt{64}\cdot0.01=0.08$.
    """,
    references=(
        "Glorot and Bengio (2010), Understanding the difficulty of training deep feedforward networks",
    ),
)
def trains(run: Running, swapped: bool = False) -> Evidence:
    """Paired training of both arms; `swapped` exchanges them."""
    recipe = {**DEEP_TANH, "epochs": run.pick(2, 10)}
    good, bad = "glorot", DEEP_TANH["init"]
    if swapped:
        recipe["init"], good = good, bad  # type: ignore[assignment]
    verdict = run.compare(recipe, {"init": good}, margin=0.02, looks=(8, 16))
    return Evidence([ruled("gain in test accuracy by Glorot's initialisation", verdict, "better")])


def _glorot_forms(factor: int = 6) -> list[Number]:
    import sympy  # type: ignore[import-untyped]

    inputs, outputs, a = sympy.symbols("n m a", positive=True)
    t = sympy.Symbol("t")
    wanted = 2 / (inputs + outputs)
    variance = sympy.integrate(t**2 / (2 * a), (t, -a, a))
    bound = sympy.solve(sympy.Eq(variance, wanted), a)[0]
    ratio = sympy.simplify(bound / sympy.sqrt(factor / (inputs + outputs)))
    mean_condition = sympy.simplify((inputs * wanted + outputs * wanted) / 2)
    return [
        close("bound of the uniform law over its formula", float(ratio), 1.0, 1e-12),
        close("mean of n·V[w] and m·V[w]", float(mean_condition), 1.0, 1e-12),
    ]


for _number in ("notes 1.2", "start 3"):
    exercise(
        _number,
        "A7",
        question=r"""
        The conditions of the forward and of the backward pass, $n_{\text{in}}\mathbb{V}[w]=1$ and
        $n_{\text{out}}\mathbb{V}[w]=1$, are to hold on average. Which normal and which uniform law of the
        weights do it?
        """,
        hints=(
            r"Add the two conditions and solve for $\mathbb{V}[w]$.",
            r"The uniform law on $[-a,a]$ has the variance $a^2/3$.",
        ),
        solution=r"""
        $\frac12(n_{\text{in}}+n_{\text{out}})\mathbb{V}[w]=1$ gives
        $\mathbb{V}[w]=2/(n_{\text{in}}+n_{\text{out}})$: the normal law of deviation
        $\sqrt{2/(n_{\text{in}}+n_{\text{out}})}$, and from $a^2/3=\mathbb{V}[w]$ the uniform law with
        $a=\sqrt{6/(n_{\text{in}}+n_{\text{out}})}$.
        """,
        planted={"factor": 3},
    )(_glorot_forms)
