"""A9: the gain of an activation, for leaky ReLUs in closed form and for any other by quadrature."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from apoint.book.chapters.a_signal.measured import mean_and_error, signals
from apoint.book.claim import Erratum, claim, exercise
from apoint.book.evidence import Evidence, Number, agrees, close
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.settings import Spec
from apoint.theory import gaussian, propagation

SLOPES = (0.0, 0.01, 0.1, 0.3, 1.0)
DEPTH = 8
OTHERS: dict[str, tuple[Spec, gaussian.Function]] = {
    "leaky ReLU, slope 0.3": ({"name": "leaky-relu", "slope": 0.3}, lambda x: F.leaky_relu(x, 0.3)),
    "tanh": ("tanh", torch.tanh),
    "GELU": ("gelu", F.gelu),
    "SiLU": ("silu", F.silu),
    "SELU": ("selu", F.selu),
}


@claim(
    "A9",
    "The gain of any activation",
    kind="identity",
    statement=r"""
    The gain of an activation $f$ is $g=1/\sqrt{\mathbb{E}[f(Z)^2]}$ for a standard normal $Z$: 1 for the
    identity, $\sqrt2$ for ReLU, $\sqrt{2/(1+\alpha^2)}$ for a leaky ReLU of slope $\alpha$. Weights of the
    standard deviation $g/\sqrt n$, and so of the variance $g^2/n$, keep a variance of 1 through all layers.
    """,
    refuted_by="a gain by quadrature that differs from the closed form or from PyTorch's, or a mean square "
    "of deep networks with $g/\\sqrt n$ that leaves 1",
    seconds={"quick": 2.5, "standard": 18},
    planted={"factor": 1.05},
    erratum=Erratum(
        quote="Pour chaque fonction d'activation est associé une valeur que l'on multiplie à l'expression de "
        "la variance",
        place="notes 1.1.2",
        written="the gain of an activation is a number by which the variance of the weights is multiplied",
        corrected=r"the gain multiplies the standard deviation; the variance is multiplied by its square",
        why=r"`torch.nn.init.kaiming_normal_` takes the deviation $g/\sqrt n$ with $g=\sqrt2$ for ReLU, "
        r"which is He's variance $2/n$. A variance of $\sqrt2/n$ would lose the factor $\sqrt2$ in each "
        r"layer. The two agree for $g=1$ alone.",
    ),
    details=r"""
    For a leaky ReLU the integral splits at 0, and
    $\mathbb{E}[f(z)^2]=\frac{1+\alpha^2}{2}\mathbb{V}[z]$.
    For other activations the gain keeps the variance 1 and no other, since $\mathbb{E}[f(\sqrt VZ)^2]$ is not
    proportional to $V$. The slope of the map $V\mapsto g^2\mathbb{E}[f(\sqrt VZ)^2]$ at 1 says whether it
    also holds it there: 0.46 for tanh and 0.78 for SELU, which come back to 1, but 1.14 for GELU and 1.17 for
    SiLU, so that a deviation grows with depth. PyTorch's table has 5/3 for tanh, which is larger than 1.5925
    and leads to a variance of 1.18, and nothing for GELU and SiLU.
    """,
    references=(
        "`torch.nn.init.calculate_gain`",
        "He, Zhang, Ren and Sun (2015), Delving deep into rectifiers",
    ),
)
def gain_keeps_variance(run: Running, factor: float = 1.0) -> Evidence:
    """Gains against closed forms and PyTorch, and networks; `factor` multiplies the gain."""
    numbers: list[Number] = []
    for slope in SLOPES:
        found = factor * gaussian.gain(lambda x, slope=slope: F.leaky_relu(x, slope))  # type: ignore[misc]
        numbers.append(
            close(f"gain of a leaky ReLU, slope {slope:g}", found, math.sqrt(2 / (1 + slope**2)), 1e-9)
        )
        theirs = nn.init.calculate_gain("leaky_relu", slope)
        numbers.append(close(f"PyTorch's gain, slope {slope:g}", theirs, found, 1e-9))
    by_quadrature = factor * gaussian.gain(torch.tanh)
    numbers.append(close("gain of tanh", by_quadrature, 1 / math.sqrt(_tanh_moment()), 1e-8))
    pictured: list[Series] = []
    numbers += [_kept(run, name, 2, factor, pictured) for name in OTHERS]
    written = [_kept(run, name, 1, factor, []) for name in ("leaky ReLU, slope 0.3", "GELU")]
    panel = Panel("Networks with deviation g/√n", "layer", "mean square of z", pictured)
    caption = "Mean over networks with two standard errors; at 1 the variance is kept."
    return Evidence(numbers, written, [Picture(caption, [panel], "notes ex. 1.4")])


def _tanh_moment() -> float:
    """E[tanh(Z)²] by scipy's adaptive rule, which shares nothing with the quadrature under test."""
    from scipy import integrate, stats

    value, _ = integrate.quad(lambda z: math.tanh(z) ** 2 * stats.norm.pdf(z), -12, 12, epsabs=1e-12)
    return float(value)


def _kept(run: Running, name: str, power: int, factor: float, pictured: list[Series]) -> Number:
    """The mean square after eight layers whose weights have the variance g^power/n, which ought to be 1."""
    spec, function = OTHERS[name]
    gain, width = factor * gaussian.gain(function), run.pick(256, 512)
    init = {"name": "he", "gain": gain ** (power / 2)}
    # Inputs of a size that makes the first layer's z, which no activation precedes, have the variance 1.
    found = signals(
        spec,
        init,
        [width] * (DEPTH + 1),
        run.pick(16, 64),
        run.generator(name),
        input_std=gain ** (-power / 2),
    )
    mean, error = mean_and_error(found.forward[:, -1])
    spread = 2 * found.forward.std(0, ddof=1) / len(found.forward) ** 0.5
    means = found.forward.mean(0)
    pictured.append(Series(name, range(1, DEPTH + 1), means.tolist(), means - spread, means + spread))
    # A width that is not infinite costs a share of the order of 1/width in each layer, which the layers after
    # it multiply by the slope of the map; a third of the sum counts as one standard error.
    step = propagation.variance_map(function, gain**2)
    slope = (step(1.001) - step(0.999)) / 0.002
    share = sum(slope**layer for layer in range(DEPTH)) / width
    return agrees(f"mean square after {DEPTH} layers, {name}", mean, error + share / 3, 1.0)


@exercise(
    "notes 1.4",
    "A9",
    question=r"""
    Find the normal and the uniform law of the weights that keep the variance through layers with a leaky ReLU
    of slope $\alpha\in[0,1]$, and the gain of this activation.
    """,
    hints=(
        r"$\max(\alpha t,t)$ is $\alpha t$ for $t<0$ and $t$ for $t>0$.",
        r"Each half of the line has half of the mean square.",
    ),
    solution=r"""
    $\mathbb{E}[f(z)^2]=\alpha^2\int_{-\infty}^0t^2p(t)\,dt+\int_0^{\infty}t^2p(t)\,dt
    =\frac{1+\alpha^2}{2}\mathbb{V}[z]$, so that $\mathbb{V}[w]=\frac{2}{(1+\alpha^2)n}$: the normal law of
    deviation $\sqrt{\frac{2}{(1+\alpha^2)n}}$, or the uniform law with $a=\sqrt{\frac{6}{(1+\alpha^2)n}}$.
    The gain is the factor $\sqrt{2/(1+\alpha^2)}$, which multiplies the deviation $1/\sqrt n$; its square
    multiplies the variance.
    """,
    planted={"power": 1},
)
def leaky_forms(power: int = 2) -> list[Number]:
    """The second moment in symbols, and the variance of the weights as a power of the gain."""
    import sympy  # type: ignore[import-untyped]

    t, alpha = sympy.Symbol("t", real=True), sympy.Symbol("alpha", positive=True)
    density = sympy.exp(-(t**2) / 2) / sympy.sqrt(2 * sympy.pi)
    below = sympy.integrate((alpha * t) ** 2 * density, (t, -sympy.oo, 0))
    moment = below + sympy.integrate(t**2 * density, (t, 0, sympy.oo))
    numbers = []
    for slope in (0.0, 0.2, 0.7):
        value = float(moment.subs(alpha, slope))
        gain = nn.init.calculate_gain("leaky_relu", slope)
        numbers.append(close(f"moment for slope {slope:g}", value, (1 + slope**2) / 2, 1e-12))
        numbers.append(close(f"n·V[w] for slope {slope:g}", gain**power, 1 / value, 1e-12))
    return numbers
