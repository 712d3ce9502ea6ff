"""Errata of chapter K that belong to no claim: conditions left out, and what a positive kernel does."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from apoint.book.claim import erratum
from apoint.book.evidence import Evidence, at_least, at_most, between, close, same
from apoint.book.running import Running
from apoint.theory import ntk, overparametrisation
from apoint.theory.expressivity import shallow_network


@erratum(
    "K2.1",
    "What depth counts",
    place="theory 3, theorem 2",
    quote=r"On note $m_k(p)$ le nombre minimal de neurones nécessaires à un réseau de profondeur $k$ […] "
    r"$m_1(p)=\prod_{i=1}^n(r_i+1)$",
    written="A network of depth 1 approximates a monomial.",
    corrected="A network with one hidden layer does: depth 2, as section 2 and theorem 1 count.",
    why=r"""
    In section 2 depth is the number $L$ of matrices, and theorem 1 writes “profondeur $L=2$ (une couche
    cachée)”. Theorem 2 counts hidden layers. A network of depth 1 in the first sense is an affine function,
    which no number of neurons brings nearer to $x^2$ than $\frac12$ on $[-1,1]$.
    """,
)
def what_depth_counts(run: Running) -> Evidence:
    """The best affine function for x² on [−1, 1], and three neurons in one hidden layer."""
    x = np.linspace(-1, 1, 401)
    # the best affine function is the constant midway: x² − ½ reaches ½ in turn at −1, 0 and 1 (Chebyshev)
    affine = float(np.abs(x**2 - 0.5).max())
    network = shallow_network((2,), torch.exp)
    hidden = float(np.abs(network(x[:, None]).reshape(-1) - x**2).max())
    name = "largest error for x² on [−1, 1]"
    return Evidence(
        [at_most(f"{name}, one hidden layer of {network.neurons}", hidden, 0.01)],
        [at_most(f"{name}, depth 1", affine, 0.01)],
    )


@erratum(
    "K2.2",
    "For every error, not for a given one",
    place="theory 3, theorem 2",
    quote=r"pour approcher $p$ à $\epsilon$-près pour la norme uniforme sur un compact",
    written=r"$m_1(p)=\prod_i(r_i+1)$ neurons are needed for an error of $\epsilon$.",
    corrected=r"They are needed if the same number is to do for every $\epsilon>0$.",
    why=r"""
    For a given $\epsilon$ the number depends on it: a constant is within $\frac12$ of $x^2$ on $[-1,1]$ and
    needs no hidden neuron, where the formula says 3.
    """,
)
def for_every_error(run: Running) -> Evidence:
    """Hidden neurons that do for x² on [−1, 1] at errors of 0.6 and 0.001."""
    x = np.linspace(-1, 1, 401)
    constant = float(np.abs(x**2 - 0.5).max())
    network = shallow_network((2,), torch.exp, size=0.001)
    fine = float(np.abs(network(x[:, None]).reshape(-1) - x**2).max())
    return Evidence(
        [
            at_most("error of 3 neurons", fine, 1e-3),
            same("neurons of that network", network.neurons, 3),
        ],
        [same("neurons needed for an error of 0.6", 0 if constant <= 0.6 else 3, 3)],
    )


@erratum(
    "K2.3",
    "Exponents of 0",
    place="theory 3, theorem 2",
    quote=r"un monôme s'écrivant $p(x)=x_1^{r_1}\dots x_n^{r_n}$",
    written=r"$\sum_i(7\lceil\log_2r_i\rceil+4)$ neurons do for all exponents.",
    corrected=r"For $r_i\ge1$; variables with $r_i=0$ are left out of the sum.",
    why=r"$\log_20=-\infty$: for $x_1\cdot x_2^0$ the printed sum is $-\infty$ neurons.",
)
def exponents_of_zero(run: Running) -> Evidence:
    """The printed sum for the exponents (1, 0) and (1,)."""

    def total(*exponents: int) -> float:
        with np.errstate(divide="ignore"):
            return float(sum(7 * np.ceil(np.log2(float(r))) + 4 for r in exponents))

    return Evidence(
        [at_least("neurons for exponents (1)", total(1), 1)],
        [at_least("neurons for exponents (1, 0)", total(1, 0), 1)],
    )


@erratum(
    "K3.1",
    "Connected, if the units are ReLUs",
    place="theory 4, theorem 3",
    quote=r"Soit $f_\theta$ un réseau à une couche cachée de largeur $m$",
    written="Sub-level sets of a wide network with one hidden layer are connected, whichever its activation.",
    corrected="This is proved for ReLU.",
    why=r"""
    A ReLU can be shrunk while another grows, at the same output and the same regulariser. A unit with
    $\sigma(z)=1$ at $z=\pm1$ and 0 a tenth away cannot: on the single example $x=1$, $y=1$ with
    $\kappa=0.1$ there is a minimum at $w=1$ and one at $w=-1$, of the height $\lambda=0.191$. On any path
    between them both kinds of unit give the same output $s$ at some time. Then there is one of each, or the
    output is not positive: the loss is at least
    $\min_s(1-2s)^2+2\kappa(0.9^2+s^2)=0.210$, whatever the width.
    """,
    citation="Freeman and Bruna (2017), Topology and geometry of half-rectified network optimization, ICLR",
)
def connected_for_relu(run: Running) -> Evidence:
    """The lowest barrier between two minima for a unit with two bumps, and a path of ReLUs."""
    kappa, near = 0.1, 0.9  # units do something for 0.9 ≤ |w| ≤ 1.1
    outer, s = np.linspace(0, 1.5, 15_001), np.linspace(0, 1, 10_001)
    level = float(((1 - outer) ** 2 + kappa * (1 + outer**2)).min())
    barrier = float(min(1.0, ((1 - 2 * s) ** 2 + 2 * kappa * (near**2 + s**2)).min()))

    def relu_loss(size: np.ndarray) -> np.ndarray:  # one unit a·relu(w) with a = w = √size
        return np.asarray((1 - size) ** 2 + 2 * kappa * size)

    best = float(outer[relu_loss(outer).argmin()])
    share = np.linspace(0, 1, 101)[:, None]  # of the second unit; the first has the rest
    units = np.sqrt(best * np.concatenate([1 - share, share], axis=1))  # a = w in each
    path = (1 - (units * np.maximum(units, 0)).sum(1)) ** 2 + kappa * 2 * (units**2).sum(1)
    name = "lowest barrier over the height of the minima"
    return Evidence(
        [close(f"{name}, ReLU", float(path.max()) / float(relu_loss(outer).min()), 1.0, relative=1e-9)],
        [at_most(f"{name}, two bumps", barrier / level, 1.0)],
    )


@erratum(
    "K6.1",
    "What a positive kernel does",
    place="theory 6",
    quote="ce noyau sera défini positif rendant le problème d'optimisation convexe",
    written="A positive definite tangent kernel makes the problem convex.",
    corrected="It makes the residual go to 0. Convexity is another matter: least squares are convex with a "
    "singular kernel too, and a network's loss is not with a positive definite one.",
    why=r"""
    In the linear example the Hessian is $X^TX\succeq0$ for every $X$, and $K=XX^T$ decides whether
    $\partial_tr=-Kr$ reaches 0. For a network of finite width the Hessian has a second term, the residuals
    times the curvature of the network, which has negative eigenvalues; it shrinks with the width and the
    kernel has no part in it.
    """,
)
def positive_kernel(run: Running) -> Evidence:
    """Kernel and Hessian of a small tanh network, and of least squares with a repeated example."""
    draw, width = run.generator(), 16
    x = torch.randn(4, 2, generator=draw, dtype=torch.float64)
    y = torch.randn(4, generator=draw, dtype=torch.float64)
    theta = torch.randn(4 * width, generator=draw, dtype=torch.float64)

    def outputs(flat: Tensor) -> Tensor:
        first, bias, last = (
            flat[: 2 * width].reshape(width, 2),
            flat[2 * width : 3 * width],
            flat[3 * width :],
        )
        return torch.tanh(x @ first.T + bias) @ last / math.sqrt(width)

    theta.requires_grad_()
    found = outputs(theta)
    jacobian = _rows(found, theta)
    kernel = float(torch.linalg.eigvalsh(jacobian @ jacobian.T)[0])
    (gradient,) = torch.autograd.grad(((found - y) ** 2).sum() / 2, theta, create_graph=True)
    bend = float(torch.linalg.eigvalsh(_rows(gradient, theta))[0])
    twice = torch.cat([x, x[:1]])
    linear = torch.linalg.eigvalsh(twice.T @ twice)
    singular = torch.linalg.eigvalsh(twice @ twice.T)
    return Evidence(
        [
            at_least("least eigenvalue of the network's kernel", kernel, 1e-3),
            at_most("least eigenvalue of the kernel of least squares", abs(float(singular[0])), 1e-12),
            at_least("least eigenvalue of its Hessian", float(linear[0]), 0.0),
        ],
        [at_least("least eigenvalue of the Hessian of the network's loss", bend, 0.0)],
    )


def _rows(values: Tensor, theta: Tensor) -> Tensor:
    """The derivative of each value, one row for each."""
    return torch.stack([torch.autograd.grad(one, theta, retain_graph=True)[0] for one in values])


@erratum(
    "K6.2",
    "Biases are needed",
    place="theory 6",
    quote="Sous certaines hypothèses additionnelles sur les fonctions d'activations utilisées (non "
    "polynomiales) et "
    "sur les données (distinctes sur la sphère unité)",
    written="An activation that is no polynomial and distinct points on the sphere are enough for a positive "
    "definite kernel.",
    corrected="They are, if the layers have biases.",
    why=r"""
    Section 2 allows linear layers as well as affine ones. Without biases one hidden layer of ReLU represents,
    of the odd functions, the linear ones alone: the kernel of $m$ pairs of opposite points in dimension $d$
    has rank $m+d$ where $m>d$. Claim K6c has more on it.
    """,
)
def biases_are_needed(run: Running) -> Evidence:
    """The rank of the kernel of 10 pairs of opposite points in dimension 3, with and without biases."""
    half = torch.randn(10, 3, generator=run.generator(), dtype=torch.float64)
    half = half / half.norm(dim=1, keepdim=True)
    points = torch.cat([half, -half])

    def rank(bias: float) -> int:
        values = torch.linalg.eigvalsh(ntk.infinite_width(1, "relu", bias_variance=bias)(points).ntk)
        return int((values > 1e-6 * values[-1]).sum())

    name = "rank of the kernel of 20 points"
    return Evidence([same(f"{name}, biases", rank(0.1), 20)], [same(f"{name}, no biases", rank(0.0), 20)])


@erratum(
    "K7.1",
    "The shapes of two matrices",
    place="theory 7",
    quote=r"des matrices $A\in\mathbb{R}^{d_x\times m}$, $B\in\mathbb{R}^{m\times d}$",
    written=r"$A\in\mathbb{R}^{d_x\times m}$ and $B\in\mathbb{R}^{m\times d}$, with $g_0=Ax$ and $y=Bh_L$.",
    corrected=r"$A\in\mathbb{R}^{m\times d_x}$ and $B\in\mathbb{R}^{d\times m}$.",
    why=r"$x$ has $d_x$ coordinates and $h_L$ has $m$; with the printed shapes neither product is defined.",
)
def shapes_of_matrices(run: Running) -> Evidence:
    """Whether A x and B h can be computed for d_x = 3, m = 5 and d = 2."""

    def defined(a: tuple[int, int], b: tuple[int, int]) -> bool:
        try:
            hidden = np.ones(a) @ np.ones(3)
            return len(np.ones(b) @ hidden) == 2
        except ValueError:  # shapes that do not fit
            return False

    return Evidence(
        [same("both products are defined", defined((5, 3), (2, 5)), True)],
        [same("both products are defined", defined((3, 5), (5, 2)), True)],
    )


@erratum(
    "K7.2",
    "The variances of the weights",
    place="theory 7",
    quote="Toutes les matrices précédentes sont initialisées avec des entrées gaussiennes iid",
    written=r"With independent Gaussian weights $\|h_l\|=\Theta(1)$ in every layer.",
    corrected=r"With variance $2/m$ for $A$ and $W_l$, $1/d$ for $B$, and $\|x\|=1$.",
    why=r"""
    The norm is multiplied by about $\sqrt{m\mathbb{V}[w]/2}$ in each layer. With variance 1 it grows as
    $(m/2)^{l/2}$.
    """,
    citation="Allen-Zhu, Li and Song (2019), A convergence theory for deep learning via "
    "over-parameterization, "
    "ICML",
)
def variances_of_weights(run: Running) -> Evidence:
    """The norm of h_4 over that of x, for weights of variance 2/m and 1, m = 200."""
    width = 200
    x = torch.randn(20, 5, generator=run.generator("inputs"), dtype=torch.float64)
    x = x / x.norm(dim=1, keepdim=True)
    norms = {}
    for scale in (2.0, float(width)):
        network = overparametrisation.draw(width, 4, 5, 1, run.generator(), scale)
        norms[scale] = float(network.activations(x)[-1].norm(dim=1).mean())
    name = "norm of the activations after 4 hidden layers"
    return Evidence(
        [between(f"{name}, variance 2/m", norms[2.0], 0.5, 2)],
        [between(f"{name}, variance 1", norms[float(width)], 0.5, 2)],
    )


@erratum(
    "K11.1",
    "The sign of the generalisation error",
    place="theory 2.2",
    quote=r"l'erreur de généralisation $\mathcal{L}(\theta)/n-\tilde{\mathcal{L}}(\theta)$",
    written="The generalisation error is the training loss less the expected loss.",
    corrected="The expected loss less the training loss.",
    why="""
    As printed the error is negative exactly where a model fails to generalise: one that has learnt its
    examples by heart has the least of all.
    """,
)
def sign_of_the_error(run: Running) -> Evidence:
    """Least squares that memorise 20 examples of pure noise with 20 inputs."""
    random, n = run.random(), 20
    x, y = random.standard_normal((n, n)), random.standard_normal(n)
    weights = np.linalg.solve(x, y)
    training = float(((x @ weights - y) ** 2).mean())
    expected = float((weights**2).sum() + 1)  # of new examples of the same law
    name = "generalisation error of a model that memorises noise"
    return Evidence([at_least(name, expected - training, 1.0)], [at_least(name, training - expected, 0.0)])
