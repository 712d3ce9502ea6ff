"""K2: a monomial takes exponentially fewer neurons in a deep network than in one hidden layer."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import torch
from scipy.optimize import minimize

from apoint.book.claim import Erratum, claim
from apoint.book.evidence import Evidence, Number, at_least, at_most, between, close, same
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.theory import expressivity

SIZES = (0.1, 0.05, 0.02, 0.01, 0.005)
SHOWN: tuple[tuple[int, ...], ...] = ((1, 1), (2,), (1, 1, 1, 1), (16,), (5, 3, 2))
REFERENCE = (
    "Rolnick and Tegmark (2018), The power of deeper networks for expressing natural functions, ICLR",
    "Lin, Tegmark and Rolnick (2017), Why does deep and cheap learning work so well?, J. Stat. Phys. 168",
)


def _name(powers: Sequence[int]) -> str:
    digits = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
    places = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
    parts = [
        f"x{str(i + 1).translate(places) if len(powers) > 1 else ''}"
        + (str(power).translate(digits) if power > 1 else "")
        for i, power in enumerate(powers)
    ]
    return "".join(parts)


def _errors(powers: Sequence[int], points: np.ndarray) -> list[float]:
    """The largest error of the deep network of exponentials for each size of its gates."""
    exact = np.prod(points[:, : len(powers)] ** np.array(powers), axis=1)
    networks = [expressivity.deep_network(powers, torch.exp, size) for size in SIZES]
    return [float(np.abs(net(points[:, : len(powers)]) - exact).max()) for net in networks]


@claim(
    "K2",
    "Depth makes monomials cheap",
    kind="bound",
    statement=r"""
    To compute $x_1^{r_1}\cdots x_n^{r_n}$ as exactly as one likes, one hidden layer needs
    $\prod_i(r_i+1)$ neurons; with enough layers at most $\sum_i(7\lceil\log_2 r_i\rceil+4)$ do. For
    $x_1\cdots x_n$ that is $2^n$ against $4n$. The deep network is made of gates of four neurons,
    $$uv\approx\frac{\sigma(\lambda(u+v))+\sigma(-\lambda(u+v))-\sigma(\lambda(u-v))-\sigma(\lambda(v-u))}
    {4\lambda^2\sigma''(0)},$$
    whose error falls as $\lambda^2$.
    """,
    refuted_by="a monomial whose network takes more neurons than the sum, or whose error does not vanish "
    r"with $\lambda$; the equality of the source would need that no monomial takes fewer",
    seconds={"quick": 1, "standard": 6},
    planted={"factor": 0.95},
    erratum=Erratum(
        quote=r"$m(p)=\sum_{i=1}^n(7\lceil\log_2(r_i)\rceil+4)$",
        place="theory 3, theorem 2",
        written=r"$m(p)=\sum_i(7\lceil\log_2 r_i\rceil+4)$ neurons are the fewest that compute a monomial.",
        corrected=r"$m(p)\le\sum_i(7\lceil\log_2 r_i\rceil+4)-2$: the sum suffices and is never needed.",
        why=r"$x^2$ has one layer of $r+1=3$ neurons, by the first half of the same theorem, and the sum "
        r"gives 11; $x^{16}$ is four squares of three neurons each, 12 against 32.",
    ),
    details=r"""
    Squaring takes three neurons, a product of two values four, a product of three values eight, and to carry
    a value to the next layer two. Write the exponents in binary: there are
    $\sum_i\lfloor\log_2 r_i\rfloor$ squares to take and, with $b_i$ ones in $r_i$, $\sum_i b_i-1$ products.
    Values are multiplied in pairs, with one group of three if their number is odd; a lone value is carried
    only once at the start or where a binary digit is 0, and there a product is saved. That gives the bound
    and two neurons less. The 7 cannot be less in this construction: $x^{2^k-1}$ takes $7k-5$ neurons, a
    square and a product for each binary digit. The networks are built layer by layer, without connections
    that skip, their neurons counted, and their values compared with the monomial at random points of
    $[-1,1]^n$.
    """,
    references=REFERENCE,
)
def deep_is_cheap(run: Running, factor: float = 1.0) -> Evidence:
    """Networks are built, counted and evaluated; `factor` multiplies the 7 of the bound."""

    def bound(powers: Sequence[int]) -> float:
        digits = sum(math.ceil(math.log2(power)) for power in powers)
        return expressivity.deep_bound(powers) - (1 - factor) * 7 * digits

    points = run.random().uniform(-1, 1, (400, 4))
    errors = {powers: _errors(powers, points) for powers in SHOWN}
    numbers: list[Number] = []
    for powers, error in errors.items():
        # Of the smaller gates, where terms of higher order than λ² no longer show.
        slope = float(np.polyfit(np.log(SIZES[1:]), np.log(error[1:]), 1)[0])
        numbers.append(between(f"{_name(powers)}: power of λ in the error", slope, 1.9, 2.1))
    # A gate of exponentials is sinh(λu) sinh(λv)/λ², furthest from uv at the corner of the points.
    corner = expressivity.shallow_network((1, 1), torch.exp, 0.01)(np.ones((1, 2)))
    numbers.append(
        close("product gate at (1, 1), λ = 0.01", float(corner[0]), (math.sinh(0.01) / 0.01) ** 2, 1e-9)
    )
    ranks = itertools.chain.from_iterable(
        itertools.combinations_with_replacement(range(1, run.pick(8, 12) + 1), n) for n in (1, 2, 3, 4)
    )
    spare = [bound(powers) - expressivity.deep_network(powers, torch.exp).neurons for powers in ranks]
    numbers.append(at_least(f"neurons to spare, the least of {len(spare)} monomials", min(spare), 2))
    longest = (2**30 - 1,)  # thirty ones: every binary digit takes a square and a product
    hardest = expressivity.deep_network(longest, torch.exp).neurons
    numbers.append(at_least("neurons to spare, x to the power 2³⁰ − 1", bound(longest) - hardest, 2))
    numbers.append(close("neurons of a binary digit, x to the power 2³⁰ − 1", (hardest + 5) / 30, 7 * factor))
    counts = {powers: expressivity.deep_network(powers, torch.exp).neurons for powers in SHOWN}
    written = [same(f"neurons that compute {_name(p)}", counts[p], expressivity.deep_bound(p)) for p in SHOWN]
    return Evidence(numbers, written, [_picture(errors)])


def _picture(errors: dict[tuple[int, ...], list[float]]) -> Picture:
    inputs = list(range(1, 21))
    built = [expressivity.deep_network((1,) * n, torch.exp).neurons for n in inputs]
    counts = [
        Series(
            "one hidden layer, needed: 2ⁿ", inputs, [expressivity.shallow_count((1,) * n) for n in inputs]
        ),
        Series(
            "deep, suffices: 4n", inputs, [expressivity.deep_bound((1,) * n) for n in inputs], style="dashed"
        ),
        Series("deep, built and counted", inputs, built, style="points"),
    ]
    lines = [Series(_name(powers), SIZES, error, style="points") for powers, error in errors.items()]
    return Picture(
        "Left: neurons for a product of n variables. Right: the largest error of networks with exponential "
        "activation at 400 points; it falls as λ². Neither has an uncertainty beyond rounding.",
        [
            Panel("Product of n variables", "variables n", "neurons", counts, y_log=True),
            Panel(
                "Error of deep networks",
                "size of the gates λ",
                "largest error",
                lines,
                x_log=True,
                y_log=True,
            ),
        ],
    )


TESTED: tuple[tuple[int, ...], ...] = ((2,), (3,), (1, 1), (2, 1), (1, 1, 1))


@claim(
    "K2b",
    "One hidden layer cannot do with less",
    kind="bound",
    statement=r"""
    One hidden layer with fewer than $N=\prod_i(r_i+1)$ neurons cannot come close to
    $x_1^{r_1}\cdots x_n^{r_n}$ in its Taylor coefficients: whatever its weights, one of the moments
    $\sum_j c_j w_j^M$ with $M\le 2r$ that its coefficients are made of is at least $1/N$ away from where it
    must be. With $N$ neurons all of them come as near as one likes.
    """,
    refuted_by=r"weights of fewer neurons that leave less than $1/N$, or $N$ neurons that leave something",
    seconds={"quick": 3, "standard": 45},
    planted={"neurons_less": 1},
    details=r"""
    The coefficient of $x^M$ in $\sum_j c_j\sigma(w_j\cdot x)$ is the moment times a constant that is not
    zero if the Taylor coefficients of $\sigma$ are not. There are $N$ products $w^S$ with $S\le r$. With
    fewer neurons their values at the $w_j$ are dependent, $\sum_S\alpha_S w_j^S=0$ for all $j$. Let
    $\alpha_T$ be the largest coefficient, multiply by $c_jw_j^{r-T}$ and add up: the moments of $S+r-T$,
    weighted by $\alpha_S$, add up to 0, though that of $S=T$ should be 1 and the others 0. So one of them is
    off by $1/N$ or more. The check lets an optimiser look for weights that do better, from several starts,
    with the best $c$ for each. It is a statement about Taylor coefficients: that a *uniform* approximation
    on a compact set needs as many does not follow from it.
    """,
    references=REFERENCE[:1],
)
def shallow_needs_all(run: Running, neurons_less: int = 0) -> Evidence:
    """An optimiser looks for weights that leave little; `neurons_less` makes the claimed count too small."""
    numbers: list[Number] = []
    starts, random = run.pick(3, 20), run.random()
    for powers in TESTED:
        needed = expressivity.shallow_count(powers)
        enough = _least(powers, needed - neurons_less, starts, random)
        # The gates' own weights leave λ² of the terms of next order: 0.03² times a small whole number.
        numbers.append(at_most(f"{_name(powers)}: left by {needed - neurons_less} neurons", enough, 0.02))
        fewer = _least(powers, needed - 1, starts, random)
        numbers.append(at_least(f"{_name(powers)}: left by {needed - 1} neurons", fewer, 1 / needed))
    return Evidence(numbers)


def _least(powers: Sequence[int], neurons: int, starts: int, random: np.random.Generator) -> float:
    """The least residual found: from the gate's own weights as far as they go, and from random ones."""
    gate = expressivity.monomial_gate(powers, torch.exp, 0.03).weights
    found = expressivity.moment_residual(gate[:neurons], powers)
    for _ in range(starts):
        start = random.uniform(-1, 1, neurons * len(powers))
        result = minimize(
            lambda w: expressivity.moment_residual(w.reshape(neurons, -1), powers),
            start,
            options={"maxiter": 30},
        )
        found = min(found, float(result.fun))
    return found
