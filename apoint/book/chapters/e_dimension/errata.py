"""Errata of chapter E that belong to no claim."""

from __future__ import annotations

import math

import numpy as np

from apoint.book.claim import cited_erratum, erratum
from apoint.book.evidence import Evidence, at_least, at_most, between, close
from apoint.book.running import Running
from apoint.theory import balls


@erratum(
    "E1.1",
    "Not every ball vanishes",
    place="notes C.1",
    quote="le volume d'une hypersphère en grande dimension tend exponentiellement vite vers 0",
    written=r"Whichever the norm, the volume of a ball tends to 0 exponentially fast as the dimension grows.",
    corrected=r"For every finite $p$ it tends to 0, faster than any exponential: about as "
    r"$n^{-n/p}$. For $p=\infty$ the ball is a cube, and its volume is $(2R)^n$.",
    why=r"""
    The section announces a volume for any norm, and its figure C.2 shows the cube among the three examples.
    For finite $p$ the logarithm of the volume falls as $-\frac np\ln n$: there is no constant rate.
    """,
)
def not_every_ball(run: Running) -> Evidence:
    """Volumes of the unit balls for p = 1, 2, 10 and ∞, and the rate at which they fall."""

    def rate(n: int) -> float:
        return -balls.log_volume(n, 2.0) / n

    low, high = 1_000, 100_000
    finite = max(balls.log_volume(1_000_000, p) for p in (1.0, 2.0, 10.0))
    growth = (rate(high) - rate(low)) / (math.log(high / low) / 2)
    return Evidence(
        [
            at_most("largest ln V for n = 1,000,000 and p = 1, 2, 10", finite, -1000),
            close("growth of −ln V/n with ln n/p, p = 2", growth, 1.0, absolute=0.01),
            close("ln V/n for the cube", balls.log_volume(100, math.inf) / 100, math.log(2), relative=1e-12),
        ],
        [
            at_most("ln V of the cube for n = 100", balls.log_volume(100, math.inf), 0.0),
            close("rate −ln V/n at n = 100,000 over that at 1,000, p = 2", rate(high) / rate(low), 1, 0.05),
        ],
    )


@erratum(
    "E1.2",
    "Which set the scaling fills",
    place="notes C.1, proof of proposition C.1",
    quote=r"Par équivalence, on a que $\phi(B_n^p(1))=\phi(B_n^p(R))$",
    written=r"With $\phi(x)=Rx$: $\phi(B(1))=\phi(B(R))$.",
    corrected=r"$\phi(B(1))=B(R)$.",
    why=r"$\phi(B(R))$ is the ball of radius $R^2$. What the proof needs is that $\phi$ maps $B(1)$ onto "
    r"$B(R)$.",
)
def set_of_the_scaling(run: Running) -> Evidence:
    """Points drawn from balls in dimension 3 with R = 2, and where they lie after scaling."""
    factor, count = 2.0, 4000
    unit = balls.sample(count, 3, 2.0, run.random())
    image = np.linalg.norm(factor * unit, axis=1)  # of points of B(1)
    larger = np.linalg.norm(factor * (factor * unit), axis=1)  # of points of B(R)
    return Evidence(
        [
            close("share of φ(B(1)) inside B(R)", float((image <= factor).mean()), 1.0),
            at_least("largest distance reached, over R", image.max() / factor, 0.98),
        ],
        [close("share of φ(B(R)) inside φ(B(1))", float((larger <= factor).mean()), 1.0)],
    )


cited_erratum(
    "E1.3",
    "What Cantor did not believe",
    place="notes annex C",
    quote=r"il y a autant de nombres dans l'intervalle $[0, 1]$ que dans $\mathbb{R}$ tout entier ! Alors "
    r"qu'il "
    "venait de le démontrer, il a envoyé une lettre à son ami mathématicien Dedekind",
    written=r"Cantor's “je le vois, mais je ne le crois pas” is about $[0,1]$ and $\mathbb{R}$.",
    corrected=r"It is about $[0,1]$ and $[0,1]^n$: a segment has as many points as a cube of any dimension.",
    why=r"""
    That $[0,1]$ and $\mathbb{R}$ match is easy: a rescaled tangent does it. The letter of June 1877 is about
    dimension, which would have suited this annex better still.
    """,
    citation="Gouvêa (2011), Was Cantor surprised?, American Mathematical Monthly 118",
)


@erratum(
    "E2.1",
    "A shell thicker than the ball",
    place="notes ex. C.1",
    quote=r"Soit $\varepsilon>0$. On considère une hypersphère de rayon R",
    written=r"$V_n(R-\varepsilon)/V_n(R)=(1-\varepsilon/R)^n$ for every $\varepsilon>0$.",
    corrected=r"For $0<\varepsilon\le R$.",
    why="Beyond $R$ there is no inner ball, and for even $n$ the formula gives a share above 1.",
)
def thick_shell(run: Running) -> Evidence:
    """The printed share for ε = R/2 and ε = 3R in dimension 4."""

    def share(thickness: float) -> float:
        return (1 - thickness) ** 4

    name = "share of the inner ball, R = 1, n = 4"
    return Evidence(
        [
            between(f"{name}, ε = 0.5", share(0.5), 0, 1),
            close(
                "the same from the volumes", balls.volume(4, 2.0, 0.5) / balls.volume(4), share(0.5), 1e-12
            ),
        ],
        [between(f"{name}, ε = 3", share(3.0), 0, 1)],
    )


@erratum(
    "E4.1",
    "The cosine is no metric",
    place="notes C.2",
    quote="Nous pouvons donc naturellement définir la métrique cosinus",
    written="The cosine of two vectors is a metric, or distance, bounded by $[-1,1]$.",
    corrected=r"It is a similarity. The angle $\arccos\frac{\langle x,y\rangle}{\|x\|\,\|y\|}$ is a metric "
    r"on "
    "the sphere.",
    why=r"""
    A distance is never negative and is 0 from a point to itself; the cosine goes down to $-1$ and is 1 there.
    Nor is $1-\text{cosine}$ one: at angles of 45° and 45° it adds up to 0.59, and at 90° it is 1.
    """,
)
def no_metric(run: Running) -> Evidence:
    """The axioms on drawn triples of unit vectors, for the cosine, 1 − cosine and the angle."""
    x, y, z = (v / np.linalg.norm(v, axis=-1, keepdims=True) for v in run.random().normal(size=(3, 2000, 3)))

    def cosine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.asarray(np.clip((a * b).sum(-1), -1, 1))

    def excess(turn: np.ufunc | None) -> float:
        """How far the direct way is longer than the detour, at most."""
        d = [1 - cosine(a, b) if turn is None else turn(cosine(a, b)) for a, b in ((x, z), (x, y), (y, z))]
        return float((d[0] - d[1] - d[2]).max())

    return Evidence(
        [
            at_most("angle: direct way less detour, at most", excess(np.arccos), 1e-9),
            at_most("angle from a vector to itself", float(np.arccos(cosine(x, x)).max()), 1e-6),
        ],
        [
            close("cosine from a vector to itself", float(cosine(x, x).mean()), 0.0),
            at_least("least cosine", float(cosine(x, y).min()), 0.0),
            at_most("1 − cosine: direct way less detour, at most", excess(None), 1e-9),
        ],
    )


@erratum(
    "E4.2",
    "Orthogonal does not mean unusable",
    place="notes C.2",
    quote="Cela rend inutilisable la métrique cosinus en très grande dimension",
    written="Since random directions are nearly orthogonal, the cosine cannot be used in high dimension.",
    corrected="It cannot tell unrelated vectors from one another. Related ones it finds the better, the "
    "higher "
    "the dimension.",
    why=r"""
    Between unrelated vectors the cosine is of size $1/\sqrt n$, so that any true relation stands out. Here
    each vector comes back with twice its own length of noise, at a cosine of 0.45, and is found among a
    hundred. Search by embeddings rests on this.
    """,
)
def still_usable(run: Running) -> Evidence:
    """A hundred vectors, each to be found again from a noisy copy, by the largest cosine."""
    random, count, found = run.random(), 100, {}
    for dimension in (10, 2_000):
        vectors = random.standard_normal((count, dimension))
        noisy = vectors + 2 * random.standard_normal((count, dimension))
        noisy /= np.linalg.norm(noisy, axis=1, keepdims=True)
        nearest = (noisy @ (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).T).argmax(1)
        found[dimension] = float((nearest == np.arange(count)).mean())
    name = "share found by the largest cosine, n = 2,000"
    return Evidence(
        [
            at_least(name, found[2_000], 0.99),
            at_most("the same, n = 10", found[10], 0.5),
        ],
        [at_most(name, found[2_000], 0.05, remark="chance is 0.01")],
    )
