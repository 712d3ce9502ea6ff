"""A6: how the variance of signals and errors goes from layer to layer."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from apoint.book.chapters.a_signal.measured import Array, Signals, mean_and_error, signals
from apoint.book.claim import Erratum, claim, exercise
from apoint.book.evidence import Evidence, Number, agrees, at_most, close
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.settings import Spec
from apoint.theory import propagation
from apoint.theory.gaussian import Function

DEPTH = 12
CASES: dict[str, tuple[str, Function, Spec, float]] = {
    "tanh, n·V[w] = 1": ("tanh", torch.tanh, "lecun", 1.0),
    "ReLU, n·V[w] = 2": ("relu", torch.relu, "he", 2.0),
    "ReLU, n·V[w] = 1": ("relu", torch.relu, "lecun", 1.0),
    "sigmoid, n·V[w] = 1": ("sigmoid", torch.sigmoid, "lecun", 1.0),
    "GELU, n·V[w] = 1": ("gelu", F.gelu, "lecun", 1.0),
}


@claim(
    "A6",
    "Variance from layer to layer",
    kind="identity",
    statement=r"""
    With independent centred weights and no bias, a layer makes
    $$\mathbb{V}[z^l]=n_{\text{in}}\,\mathbb{V}[w]\;\mathbb{E}\left[f(z^{l-1})^2\right],\qquad
    \mathbb{V}[\delta^l]=n_{\text{out}}\,\mathbb{V}[w]\;\mathbb{E}\left[f'(z^l)^2\right]\mathbb{V}[\delta^{l+1}],$$
    and in a wide network $z$ is normal, so that the variance of every layer follows from that of the first by
    a map $V\mapsto n_{\text{in}}\mathbb{V}[w]\,\mathbb{E}[f(\sqrt VZ)^2]$. Only for a linear $f$ is
    $\mathbb{E}[f(z)^2]=\mathbb{V}[z]$; an odd $f$ of slope 1 at 0, such as tanh, has it in the limit of small
    $z$ alone.
    """,
    refuted_by="mean squares in real networks that differ from the recursion by more than their errors and "
    "the share depth/width that a finite width costs; or a deep tanh network with $n\\mathbb{V}[w]=1$ that "
    "keeps its variance",
    seconds={"quick": 3, "standard": 20},
    planted={"factor": 1.05},
    erratum=Erratum(
        quote=r"Si f est impaire, alors $\mathbb{E}[x^l]=\mathbb{E}[f(z^{l-1})]=0$ donc "
        r"$\mathbb{E}[(x_j^l)^2]=\mathbb{V}[z_k^{l-1}]$",
        place="notes 1.1.2",
        written=r"for odd $f$, $\mathbb{E}[f(z)]=0$ and therefore $\mathbb{E}[f(z)^2]=\mathbb{V}[z]$, so "
        r"that $\mathbb{V}[w]=1/n_{\text{in}}$ keeps the variance of every layer",
        corrected=r"$\mathbb{E}[f(z)]=0$ gives $\mathbb{E}[f(z)^2]=\mathbb{V}[f(z)]$. It equals "
        r"$\mathbb{V}[z]$ only where $f$ is linear; for tanh it is "
        r"$\mathbb{V}[z]-2\mathbb{V}[z]^2+\dots$",
        why=r"For a standard normal $z$, $\mathbb{E}[\tanh(z)^2]=0.394$ and not 1. With $n\mathbb{V}[w]=1$ "
        r"the variance of a tanh network falls as $1/(2l)$, slowly, but to 0: the rule works because "
        r"networks are not that deep, and because the linear regime is where the fall ends.",
    ),
    details=r"""
    The expectations are integrals of one variable, computed by quadrature. The networks are the product's own
    perceptrons under its own initialisations; dots show mean squares of $z^l$ and $\delta^l$ over networks
    and inputs, with two standard errors, and lines show the recursion. Forwards and backwards agree only if
    $\mathbb{E}[f(z)^2]=\mathbb{V}[z]\,\mathbb{E}[f'(z)^2]$, which holds for ReLU and not for tanh.
    """,
    references=(
        "Glorot and Bengio (2010), Understanding the difficulty of training deep feedforward networks",
        "Poole, Lahiri, Raghu, Sohl-Dickstein and Ganguli (2016), Exponential expressivity in deep neural "
        "networks through transient chaos",
    ),
)
def recursion_and_networks(run: Running, factor: float = 1.0) -> Evidence:
    """Mean squares in drawn networks against the recursion; `factor` multiplies it in each layer."""
    width, networks = run.pick(256, 512), run.pick(16, 64)
    numbers: list[Number] = []
    panels: tuple[list[Series], list[Series]] = ([], [])
    for name, (activation, function, init, scale) in CASES.items():
        found = signals(activation, init, [width] * (DEPTH + 1), networks, run.generator(name))
        forward = propagation.forward_variances(function, DEPTH, scale, factor * scale)
        last = float(found.backward[:, -1].mean())
        backward = propagation.backward_variances(function, forward, last, factor * scale)
        numbers += _numbers(name, found, forward, backward, DEPTH / width)
        panels[0].extend(_lines(name, found.forward, forward))
        panels[1].extend(_lines(name, found.backward, backward))
    written = [
        close("E[tanh(z)²] for V[z] = 1", propagation.second_moment_of(torch.tanh, 1.0), 1.0, 1e-6),
        at_most("share of variance lost in 50 tanh layers", 1 - _kept(50), 0.01),
    ]
    numbers.append(close("E[tanh(z)²]/V[z] for V[z] = 1e-6", _ratio(1e-6), 1.0, absolute=3e-6))
    numbers.append(close("V[z] after 400 tanh layers, times 800", 800 * _kept(400), 1.0, absolute=0.05))
    return Evidence(numbers, written, [_picture(panels, width, networks)])


def _numbers(
    name: str, found: Signals, forward: list[float], backward: list[float], share: float
) -> list[Number]:
    """The last layer forwards and the first one backwards, each over what the recursion gives."""
    numbers = []
    ends = (
        ("z of the last layer", found.forward[:, -1], forward[-1]),
        ("δ of the first layer", found.backward[:, 0], backward[0]),
    )
    for what, values, expected in ends:
        mean, error = mean_and_error(values / expected)
        # A width that is not infinite costs a share of the order of depth/width, three times the third of it.
        numbers.append(agrees(f"{what} over the recursion's, {name}", mean, error + share / 3, 1.0))
    return numbers


def _lines(name: str, values: Array, expected: list[float]) -> list[Series]:
    layers, mean = range(1, DEPTH + 1), values.mean(0)
    spread = 2 * values.std(0, ddof=1) / len(values) ** 0.5
    measured = Series(f"{name}, measured", layers, mean, mean - spread, mean + spread, "points")
    return [Series(name, layers, expected), measured]


def _picture(panels: tuple[list[Series], list[Series]], width: int, networks: int) -> Picture:
    forward = ("Signals on their way forward", "mean square of z")
    titles = (forward, ("Errors on their way back", "mean square of δ"))
    drawn = [
        Panel(title, "layer", axis, lines, y_log=True)
        for (title, axis), lines in zip(titles, panels, strict=True)
    ]
    caption = (
        f"Lines: the recursion by quadrature. Dots: {networks} networks of width {width}, with two standard "
        "errors."
    )
    return Picture(caption, drawn, "notes 1.1.2")


def _ratio(variance: float) -> float:
    return propagation.second_moment_of(torch.tanh, variance) / variance


def _kept(depth: int) -> float:
    return propagation.forward_variances(torch.tanh, depth)[-1]


@exercise(
    "start 2",
    "A6",
    question=r"""
    Let $f$ be odd and $z$ symmetric around 0. (1) What is $\mathbb{E}[f(z)^2]$ in terms of variances, and
    when is it $\mathbb{V}[z]$? (2) Under which condition on the weights is the variance the same in all
    layers?
    """,
    hints=(
        r"$f(z)$ is symmetric around 0 as well, so that its mean is 0.",
        r"$\mathbb{E}[f(z)^2]$ is then the variance of $f(z)$. Compare it with that of $z$ for $f=\tanh$.",
    ),
    solution=r"""
    (1) $\mathbb{E}[f(z)]=0$, so that $\mathbb{E}[f(z)^2]=\mathbb{V}[f(z)]$. That is $\mathbb{V}[z]$ for
    $f(z)=\pm z$, and to first order for small $z$ if $f'(0)=\pm1$; with
    $\tanh(z)^2=z^2-\frac23z^4+\dots$ and $\mathbb{E}[z^4]=3\mathbb{V}[z]^2$ for a normal $z$ it is
    $\mathbb{V}[z]-2\mathbb{V}[z]^2+\dots$ The equality asked for in the course holds in this linear regime
    only. (2) There $\mathbb{V}[z^l]=n_{\text{in}}\mathbb{V}[w]\mathbb{V}[z^{l-1}]$, so that
    $\mathbb{V}[w]=1/n_{\text{in}}$ suffices.
    """,
    planted={"coefficient": -1},
)
def odd_activation(coefficient: int = -2) -> list[Number]:
    """The second-order coefficient of E[tanh(z)²] in V[z], in symbols and by quadrature."""
    import sympy  # type: ignore[import-untyped]

    z, v = sympy.symbols("z v", positive=True)
    series = sympy.series(sympy.tanh(z) ** 2, z, 0, 6).removeO()
    moments = {2: v, 4: 3 * v**2}
    mean = sum(series.coeff(z, power) * moment for power, moment in moments.items())
    variance = 1e-3
    numerical = (propagation.second_moment_of(torch.tanh, variance) - variance) / variance**2
    return [
        close("coefficient of V[z]² in symbols", float(mean.coeff(v, 2)), coefficient),
        # The next term of the expansion is 17/3·V[z]³, which the quotient leaves with 17/3·V[z].
        close("the same by quadrature", numerical, coefficient, absolute=6e-3),
        close("coefficient of V[z]", float(mean.coeff(v, 1)), 1.0),
    ]


@exercise(
    "start 4",
    "A6",
    question=r"""
    Let $f(z)=\max(z,0)$ and $z$ symmetric around 0. (1) Show that
    $\mathbb{E}[f(z)^2]=\frac12\mathbb{V}[z]$. (2) Under which condition on the weights is the variance the
    same in all layers?
    """,
    hints=(r"Cut the integral at 0.", r"The density is even, and so is $t^2$."),
    solution=r"""
    (1) $\mathbb{E}[f(z)^2]=\int_0^{\infty}t^2p(t)\,dt$, half of $\int t^2p(t)\,dt=\mathbb{V}[z]$, as the
    integrand is even; no law but symmetry is needed. (2)
    $\mathbb{V}[z^l]=\frac12n_{\text{in}}\mathbb{V}[w]\mathbb{V}[z^{l-1}]$ is constant for
    $\mathbb{V}[w]=2/n_{\text{in}}$.
    """,
    planted={"share": 1.0},
)
def rectified(share: float = 0.5) -> list[Number]:
    """E[max(z, 0)²] for three symmetric laws, in symbols, over their variance."""
    import sympy

    t = sympy.Symbol("t", real=True)
    densities = {
        "normal": (sympy.exp(-(t**2) / 2) / sympy.sqrt(2 * sympy.pi), sympy.oo),
        "uniform": (sympy.Rational(1, 4), 2),
        "Laplace": (sympy.exp(-sympy.Abs(t)) / 2, sympy.oo),
    }
    numbers = []
    for name, (density, end) in densities.items():
        kept = sympy.integrate(t**2 * density, (t, 0, end))
        variance = sympy.integrate(t**2 * density, (t, -end, end))
        numbers.append(close(f"share kept, {name} law", float(kept / variance), share, absolute=1e-12))
    return numbers
