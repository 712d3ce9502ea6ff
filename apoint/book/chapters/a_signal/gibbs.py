"""Exercise 1.5 of the notes, Gibbs' inequality, which belongs to row B4."""

from __future__ import annotations

import math

import numpy as np

from apoint.book.claim import exercise
from apoint.book.evidence import Number, at_least, at_most, close
from apoint.theory import divergence


@exercise(
    "notes 1.5",
    "B4",
    question=r"""
    Let $P=(p_1,\dots,p_n)$ and $Q=(q_1,\dots,q_n)$ be discrete laws. (1) Show that $\ln x\le x-1$ for $x>0$,
    with equality for $x=1$ alone. (2) With $I=\{i:p_i\ne0\}$, show that
    $-\sum_{i\in I}p_i\ln(q_i/p_i)\ge0$. (3) Deduce that the cross-entropy $-\sum p_i\ln q_i$ is never below
    the entropy $-\sum p_i\ln p_i$. (4) When are they equal? (5) What does this say of the divergence of
    Kullback and Leibler?
    """,
    hints=(
        r"Where is $x-1-\ln x$ smallest?",
        r"Put $x=q_i/p_i$, multiply by $p_i$ and add up over $I$; mind that $\sum_{i\in I}q_i$ may "
        "be less than 1.",
    ),
    solution=r"""
    (1) $g(x)=x-1-\ln x$ has the derivative $1-1/x$, negative below 1 and positive above, so that its only
    minimum is $g(1)=0$. (2) $\sum_Ip_i\ln(q_i/p_i)\le\sum_Ip_i(q_i/p_i-1)=\sum_Iq_i-1\le0$. (3) Terms with
    $p_i=0$ count as 0 on both sides, so that (2) reads $-\sum p_i\ln q_i\ge-\sum p_i\ln p_i$. (4) Equality
    asks for $q_i=p_i$ on $I$ by (1), and then $\sum_Iq_i=1$ leaves nothing for the rest: $P=Q$. (5)
    $D(P\|Q)=\sum p_i\ln(p_i/q_i)\ge0$, and 0 for $P=Q$ alone.
    """,
    planted={"sign": -1.0},
)
def gibbs(sign: float = 1.0) -> list[Number]:
    """The inequalities over drawn laws, with supports that differ; `sign` turns the divergence round."""
    import sympy  # type: ignore[import-untyped]

    x = sympy.Symbol("x", positive=True)
    gap = x - 1 - sympy.log(x)
    (minimum,) = sympy.solve(sympy.diff(gap, x), x)
    random = np.random.default_rng(5)
    smallest, excess = math.inf, 0.0
    for _ in range(300):
        p, q = random.dirichlet(np.full(5, 0.4), 2)
        p = np.where(p < 0.05, 0.0, p)  # so that P lacks outcomes that Q has
        p /= p.sum()
        by_sum = sum(a * math.log(a / b) for a, b in zip(p, q, strict=True) if a > 0)
        smallest = min(smallest, sign * divergence.kullback_leibler(p, q))
        excess = max(excess, abs(divergence.cross_entropy(p, q) - divergence.entropy(p) - by_sum))
    same_law = divergence.kullback_leibler([0.2, 0.8], [0.2, 0.8])
    lacking = divergence.kullback_leibler([0.5, 0.5], [1.0, 0.0])
    return [
        close("where x - 1 - ln x is smallest", float(minimum), 1.0),
        close("its value there", float(gap.subs(x, minimum)), 0.0),
        at_least("smallest divergence of 300 pairs of laws", smallest, 0.0),
        at_most("cross-entropy less entropy, against the divergence", excess, 1e-12),
        close("divergence of a law from itself", same_law, 0.0),
        at_least("divergence from a law that lacks an outcome", lacking, math.inf),
    ]
