"""A8: He's initialisation for rectifiers, normal and uniform, by fan-in or by fan-out."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from apoint.book.chapters.a_signal.measured import mean_and_error, signals
from apoint.book.claim import claim, exercise
from apoint.book.evidence import Evidence, Number, agrees, close, ruled
from apoint.book.running import Running
from apoint.nn.initialisation import initialise

DRAWERS: dict[str, Callable[..., Tensor]] = {
    "normal": nn.init.kaiming_normal_,
    "uniform": nn.init.kaiming_uniform_,
}
DEPTH, WIDTH = 9, 150


@claim(
    "A8",
    "He's initialisation",
    kind="identity",
    statement=r"""
    For a ReLU $\mathbb{E}[f(z)^2]=\frac12\mathbb{V}[z]$, so that signals are kept by
    $\mathbb{V}[w]=2/n_{\text{in}}$ and errors by $\mathbb{V}[w]=2/n_{\text{out}}$: with $n$ the one or the
    other, $\mathcal{N}(0,2/n)$ or $\mathcal{U}(\pm\sqrt{6/n})$. Glorot's variance, half as large between
    layers of equal width, halves the mean square in every layer instead.
    """,
    refuted_by="mean squares of deep ReLU networks that are not kept under He's law, or not halved per layer "
    "under Glorot's, within three standard errors over networks",
    seconds={"quick": 4, "standard": 22},
    planted={"factor": 1.05},
    details=r"""
    For signals the expectation over weights is kept exactly, at any width: given the layer before, $z$ is
    symmetric around 0 and half of its mean square passes. Errors come back through the weights that decided
    which units are active, so that for them it holds up to a share of the order $L/n$. A single deep and
    narrow network still strays far from the mean, as the logarithm of its mean square has a variance of about
    $5L/n$. Where widths differ one has to
    choose: `fan-in` keeps signals and lets errors change by $n_{\text{out}}/n_{\text{in}}$, `fan-out` the
    other way round; over a whole network that costs the ratio of its first and last widths only.
    """,
    references=("He, Zhang, Ren and Sun (2015), Delving deep into rectifiers",),
)
def kept(run: Running, factor: float = 1.0) -> Evidence:
    """Mean squares of deep ReLU networks; `factor` multiplies the 2 of the formula."""
    numbers, numerator = [], 2 * factor
    for law, drawer in DRAWERS.items():
        for mode, fan in (("fan-in", 300), ("fan-out", 500)):
            spec = {"name": "he", "mode": mode, "distribution": law}
            layer = nn.Linear(300, 500)  # a layer after it, since the gain is for layers before an activation
            model = nn.Sequential(layer, nn.ReLU(), nn.Linear(500, 1))
            initialise(model, spec, generator=run.generator(f"{law} {mode}"))
            theirs = drawer(
                torch.empty(500, 300),
                mode=mode.replace("-", "_"),
                nonlinearity="relu",
                generator=run.generator(f"{law} {mode} PyTorch"),
            )
            for whose, weights in (("ours", layer.weight.detach()), ("PyTorch", theirs)):
                numbers.append(
                    _spread(f"variance of weights, {law}, {mode}, {whose}", weights, numerator / fan)
                )
        numbers += _deep(run, law, numerator)
    return Evidence(numbers)


def _spread(name: str, weights: Tensor, expected: float) -> Number:
    squares = weights.double().square()
    return agrees(name, float(squares.mean()), float(squares.std() / squares.numel() ** 0.5), expected)


def _deep(run: Running, law: str, numerator: float) -> list[Number]:
    """Signals and errors through layers of equal width, and through layers that grow narrower."""
    numbers = []
    for name, init, factor in (("He", "he", numerator / 2), ("Glorot", "glorot", numerator / 4)):
        spec = {"name": init, "distribution": law}
        widths, scale = [WIDTH] * (DEPTH + 1), factor ** (DEPTH - 1)
        found = signals("relu", spec, widths, run.pick(32, 400), run.generator(f"{name} {law}"))
        for what, values in (("signals", found.forward[:, ::-1]), ("errors", found.backward)):
            mean, error = mean_and_error(values[:, 0] / values[:, -1] / scale)
            # Errors meet the weights that chose the active units: a share of the order of depth/width.
            error += DEPTH / WIDTH / 3 if what == "errors" else 0.0
            name_of = f"{what} after {DEPTH - 1} layers over {factor:g}^{DEPTH - 1}, {name}, {law}"
            numbers.append(agrees(name_of, mean, error, 1.0))
    return [*numbers, _uneven(run, law, "fan-in"), _uneven(run, law, "fan-out")]


def _uneven(run: Running, law: str, mode: str) -> Number:
    """From 200 to 50 units in three layers: fan-in keeps signals, fan-out keeps errors."""
    spec = {"name": "he", "mode": mode, "distribution": law}
    found = signals(
        "relu", spec, [200, 200, 100, 50], run.pick(40, 400), run.generator(f"uneven {mode} {law}")
    )
    values = found.forward[:, ::-1] if mode == "fan-in" else found.backward
    what = "signals" if mode == "fan-in" else "errors"
    mean, error = mean_and_error(values[:, 0] / values[:, -1])
    return agrees(f"{what} kept from 200 to 50 units by {mode}, {law}", mean, error, 1.0)


@claim(
    "A8b",
    "He's initialisation trains deep rectifier networks",
    kind="direction",
    statement=r"""
    A ReLU network of thirty hidden layers without normalisation, trained by plain gradient descent, learns
    with He's initialisation and stalls at chance with Glorot's, which differs from it by $\sqrt2$ in the
    deviation of the weights.
    """,
    refuted_by="a verdict other than better for He's initialisation in test accuracy",
    seconds={"quick": 18, "standard": 120},
    planted={"swapped": True},
    details=r"""
    $\sqrt2$ in each of thirty layers is a factor of 33 000 in the size of the signal. Handwritten digits, 64
    units per layer, three epochs with a rate of 0.05; the verdict is that of `apoint compare` over paired
    seeds. Three epochs are not enough for He's network to learn the task, only to leave chance. Adam, which
    divides gradients by their size, rescues Glorot's network, so that plain descent is the fair judge of an
    initialisation here.
    """,
    references=("He, Zhang, Ren and Sun (2015), Delving deep into rectifiers, section 2.2 and figure 3",),
)
def trains(run: Running, swapped: bool = False) -> Evidence:
    """Paired training of both arms; `swapped` exchanges them."""
    before, after = ("he", "glorot") if swapped else ("glorot", "he")
    recipe = {
        "name": "deep-relu",
        "data": "digits",
        "model": {"name": "mlp", "depth": 30, "width": 64},
        "init": before,
        "optimizer": {"name": "sgd", "lr": 0.05},
        "batch_size": 32,
        "epochs": run.pick(3, 12),
    }
    verdict = run.compare(recipe, {"init": after}, margin=0.02, looks=(8, 16))
    return Evidence(
        [ruled("gain in test accuracy by He's initialisation", verdict, "better")],
        would_take="more epochs, or more pairs of seeds",
    )


def _he_forms(share: float = 0.5) -> list[Number]:
    import sympy  # type: ignore[import-untyped]

    fan, a, s = sympy.symbols("n a s", positive=True)
    t = sympy.Symbol("t", real=True)
    density = sympy.exp(-(t**2) / (2 * s**2)) / (s * sympy.sqrt(2 * sympy.pi))
    passed = sympy.integrate(t**2 * density, (t, 0, sympy.oo)) / s**2
    wanted = 1 / (fan * passed)
    bound = sympy.solve(sympy.Eq(a**2 / 3, wanted), a)[0]
    return [
        close("share of the variance that passes", float(sympy.simplify(passed)), share, 1e-12),
        close("variance times n", float(sympy.simplify(wanted * fan)), 1 / share, 1e-12),
        close("square of the uniform bound times n", float(sympy.simplify(bound**2 * fan)), 3 / share, 1e-12),
    ]


for _number in ("notes 1.3", "start 5"):
    exercise(
        _number,
        "A8",
        question=r"""
        A layer with ReLU makes $\mathbb{V}[z^l]=n\,\mathbb{V}[w]\,\mathbb{E}[\max(z^{l-1},0)^2]$. Which
        normal and which uniform law of the weights keep the variance?
        """,
        hints=(r"Half of the mean square of $z^{l-1}$ passes.", r"Then $n\mathbb{V}[w]/2=1$."),
        solution=r"""
        $\mathbb{E}[\max(z,0)^2]=\frac12\mathbb{V}[z]$ for a symmetric $z$, hence $\mathbb{V}[w]=2/n$: the
        normal law of deviation $\sqrt{2/n}$, or the uniform law with $a^2/3=2/n$, that is $a=\sqrt{6/n}$.
        Here $n$ is the fan-in to keep the signals, or the fan-out to keep the errors.
        """,
        planted={"share": 1.0},
    )(_he_forms)
