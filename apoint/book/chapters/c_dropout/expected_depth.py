"""Exercise 6 of the first lecture, the expected depth under stochastic depth, which belongs to row C6."""

from __future__ import annotations

import numpy as np

from apoint.book.claim import exercise
from apoint.book.evidence import Number, agrees, close
from apoint.theory import stochastic_depth


@exercise(
    "start 6",
    "C6",
    question=r"""
    Block $l$ of a residual network with $L$ blocks is present with probability
    $p_l=1-\frac lL(1-p_L)$, independently of the others; $p_0=1$ belongs to the input, which is no block.
    What is the expected number of blocks present in a step of training?
    """,
    hints=(
        r"The expectation of a sum of indicators is the sum of their probabilities, independent or not.",
        r"$\sum_{l=1}^Ll=\frac{L(L+1)}{2}$.",
    ),
    solution=r"""
    $\sum_{l=1}^Lp_l=L-\frac{1-p_L}{L}\cdot\frac{L(L+1)}{2}=L-\frac{(L+1)(1-p_L)}{2}$. For $p_L=\frac12$ this
    is $\frac{3L-1}{4}$, about three quarters of the blocks: 40.25 of the 54 blocks of a network of 110
    layers.
    """,
    planted={"first": 0},
)
def expected_depth(first: int = 1) -> list[Number]:
    """The sum in symbols and drawn passes; with `first` 0 the input is counted as a block."""
    import sympy  # type: ignore[import-untyped]

    blocks, last, number = sympy.symbols("L p l", positive=True)
    total = sympy.summation(1 - number / blocks * (1 - last), (number, first, blocks))
    half = sympy.simplify(total.subs(last, sympy.Rational(1, 2)) - (3 * blocks - 1) / 4)
    random = np.random.default_rng(6)
    drawn = (random.random((20_000, 54)) < 1 - np.arange(1, 55) / 54 * 0.5).sum(1)
    return [
        close("sum less (3L - 1)/4 for p_L = 1/2, at L = 54", float(half.subs(blocks, 54)), 0.0),
        close("sum for L = 10, p_L = 0.2", float(total.subs({blocks: 10, last: 0.2})), 5.6, 1e-9),
        close("the same by the product", stochastic_depth.expected_depth(10, 0.2), 5.6, 1e-12),
        agrees(
            "mean of 20 000 drawn depths, L = 54",
            float(drawn.mean()),
            float(drawn.std() / 20_000**0.5),
            40.25,
        ),
    ]
