"""B4: what Kullback and Leibler's divergence is, and what adding a small number to every probability does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import integrate, stats

from apoint.book.claim import Erratum, claim
from apoint.book.evidence import Evidence, Number, at_least, at_most, close
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.theory import divergence

Law = np.ndarray[Any, np.dtype[np.float64]]

FULL = (np.array([0.5, 0.3, 0.15, 0.05]), np.array([0.2, 0.25, 0.25, 0.3]))
MISSED_BY_P = (np.array([0.6, 0.4, 0.0, 0.0]), np.array([0.3, 0.3, 0.2, 0.2]))
MISSED_BY_Q = (np.array([0.5, 0.2, 0.2, 0.1]), np.array([0.6, 0.4, 0.0, 0.0]))
EPSILONS = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7)


@claim(
    "B4",
    "Kullback and Leibler's divergence",
    kind="identity",
    statement=r"""
    $D(P\|Q)=\int p\ln(p/q)$, or a sum for discrete laws with $0\ln0=0$, is never negative and is 0 only for
    $P=Q$ (Gibbs), since $D(P\|Q)\ge\frac12\lVert p-q\rVert_1^2$ (Pinsker). It is not symmetric. Outcomes
    that $P$ never gives do no harm; if $Q$ never gives an outcome that $P$ gives, it is infinite.
    """,
    refuted_by="a divergence that differs from its closed form or from the integral, one below Pinsker's "
    "bound, or a symmetric pair where the closed forms differ",
    seconds={"quick": 0.3, "standard": 3},
    planted={"factor": 1.05},
    erratum=Erratum(
        written="It is a divergence, and therefore not symmetric.",
        corrected="It is a divergence, and it is not symmetric: the one does not follow from the other.",
        why=r"A divergence is only asked to be non-negative, and 0 for equal laws alone. The divergence of "
        r"Jensen and Shannon, $\frac12D(P\|M)+\frac12D(Q\|M)$ with $M=\frac12(P+Q)$, is one and is "
        "symmetric.",
        quote="la divergence de Kullback-Leibler est une divergence : donc elle n'est pas symétrique",
        place="notes 1.2.1",
    ),
    details=r"""
    The closed forms do not come from the code that is checked: two binomial laws of $n$ trials have $n$ times
    the divergence of one trial; a law $Q$ restricted to a set $A$ has $D(Q|A\,\|\,Q)=-\ln Q(A)$, where all
    outcomes outside $A$ have $p_i=0$; two Gaussians are integrated numerically.
    """,
    references=("Cover and Thomas (2006), Elements of information theory, chapters 2 and 11",),
)
def kullback_leibler(run: Running, factor: float = 1.0) -> Evidence:
    """Divergences against closed forms, an integral and Pinsker's bound; `factor` makes them too large."""

    def found(p: Law, q: Law) -> float:
        return factor * divergence.kullback_leibler(p, q)

    numbers = [
        *_closed_forms(found, factor),
        close("of a law from itself", found(FULL[0], FULL[0]), 0.0),
        at_least("from a law that misses an outcome of P", found(*MISSED_BY_Q), math.inf),
        *_drawn_laws(run, found),
    ]
    written = at_least(
        "least asymmetry of a divergence, Jensen and Shannon's",
        _jensen_shannon(found, *FULL) - _jensen_shannon(found, *FULL[::-1]),
        1e-9,
        remark=f"it is {_jensen_shannon(found, *FULL):.4f} nats both ways: a divergence, and symmetric",
    )
    return Evidence(numbers, [written])


def _jensen_shannon(found: Any, p: Law, q: Law) -> float:
    middle = (p + q) / 2
    return float(found(p, middle) + found(q, middle)) / 2


def _closed_forms(found: Any, factor: float) -> list[Number]:
    trials, a, b = 30, 0.5, 0.2
    counts = np.arange(trials + 1)
    p, q = stats.binom.pmf(counts, trials, a), stats.binom.pmf(counts, trials, b)

    def one_trial(a: float, b: float) -> float:
        return a * math.log(a / b) + (1 - a) * math.log((1 - a) / (1 - b))

    whole = np.array([0.4, 0.1, 0.3, 0.2])
    part = np.where([True, True, False, False], whole, 0.0) / 0.5
    first, second = stats.norm(0.3, 1.0), stats.norm(-0.5, 2.0)

    def integrand(x: float) -> float:
        return float(first.pdf(x) * (first.logpdf(x) - second.logpdf(x)))

    integral, _ = integrate.quad(integrand, -12, 12, epsabs=1e-12)
    gaussian = divergence.gaussian_kullback_leibler([0.3], [[1.0]], [-0.5], [[4.0]])
    return [
        close("two binomial laws, by 30 trials of one", found(p, q) / trials, one_trial(a, b), 1e-9),
        close("the other way round", found(q, p) / trials, one_trial(b, a), 1e-9),
        close("a law restricted to half of itself", found(part, whole), math.log(2), 1e-12),
        close("two Gaussians, against the integral", factor * gaussian, integral, 1e-9),
    ]


def _drawn_laws(run: Running, found: Any) -> list[Number]:
    """Pairs near to each other and far apart; for near ones with two outcomes Pinsker's bound is sharp."""
    random, ratios, gaps = run.random(), [], []
    for _ in range(run.pick(500, 20_000)):
        p, q = random.dirichlet(np.full(random.integers(2, 8), 0.5), 2)
        q = q + 10 ** random.uniform(-3, 0) * (p - q) if random.random() < 0.5 else q
        ratios.append(found(p, q) / (0.5 * np.abs(p - q).sum() ** 2))
        gaps.append(abs(found(p, q) - found(q, p)))
    even, near = np.array([0.5, 0.5]), np.array([0.501, 0.499])
    return [
        at_least("smallest divergence over Pinsker's bound, drawn laws", min(ratios), 1.0),
        close("the same for two coins that are nearly fair", found(even, near) / 2e-6, 1.0, 1e-4),
        at_least("largest asymmetry among drawn laws", max(gaps), 0.1),
    ]


@claim(
    "B4b",
    "The price of adding ε to each probability",
    kind="identity",
    statement=r"""
    Put $p_i+\varepsilon$ in the place of $p_i$, and the same for $q_i$, both divided by $1+n\varepsilon$:
    the divergence becomes finite. Where it was finite, the bias goes to 0, as $c\,\varepsilon$ with
    $$c=\sum_i\left(1-\frac{p_i}{q_i}+\ln\frac{p_i}{q_i}\right)-n\,D(P\|Q)$$
    if both laws give all outcomes, and as $-n_0\,\varepsilon\ln(1/\varepsilon)$ if $P$ misses $n_0$ outcomes
    of $Q$. Where it was infinite, the number tends to no limit: it grows as $m\ln(1/\varepsilon)$, with $m$
    the probability under $P$ of what $Q$ misses, so that it tells $\varepsilon$ as much as it tells $P$ and
    $Q$.
    """,
    refuted_by=r"a bias that leaves its closed form as $\varepsilon$ goes to 0, or a smoothed divergence "
    r"that stays bounded where $Q$ misses outcomes of $P$",
    seconds={"quick": 0.1, "standard": 0.1},
    planted={"factor": 1.06},
    erratum=Erratum(
        written=r"Adding tiny quantities $\varepsilon$ to every event lets us compute the divergence, "
        "at the price of a small error, also where one of the laws has impossible events.",
        corrected=r"The error is small where $Q$ gives all that $P$ gives. Where the divergence is infinite, "
        r"which is the case that the remedy is for, the result is $m\ln(1/\varepsilon)$ and a constant.",
        why=r"A tenth of $\varepsilon$ adds $m\ln10$: 0.69 nats for the laws here, more than the divergence "
        "of many laws.",
        quote="nous sommes capables de calculer la divergence au prix d'un léger écart",
        place="notes 1.2.1",
    ),
    details=r"""
    The divisor $1+n\varepsilon$ cancels inside the logarithm, and expanding
    $\frac1{1+n\varepsilon}\sum(p_i+\varepsilon)\ln\frac{p_i+\varepsilon}{q_i+\varepsilon}$ gives all three
    cases. The bias is taken at $\varepsilon=10^{-6}$; in the middle case, whose next term is of the order
    $\varepsilon$, the check compares two values of $\varepsilon$ with it.
    """,
)
def smoothing(run: Running, factor: float = 1.0) -> Evidence:
    """Biases of smoothed divergences against closed forms; `factor` multiplies the closed forms."""
    p, q = FULL
    slope = factor * float((1 - p / q + np.log(p / q)).sum() - len(p) * divergence.kullback_leibler(p, q))
    missed = factor * float(MISSED_BY_Q[0][MISSED_BY_Q[1] == 0].sum())
    n_0 = factor * int(((MISSED_BY_P[0] == 0) & (MISSED_BY_P[1] > 0)).sum())
    small, tiny = 1e-6, 1e-7
    logarithms = _bias(*MISSED_BY_P, small) / small - _bias(*MISSED_BY_P, tiny) / tiny
    growth = _smoothed(*MISSED_BY_Q, tiny) - _smoothed(*MISSED_BY_Q, small)
    numbers = [
        close("bias over ε, both laws give all", _bias(p, q, small) / small, slope, 1e-3),
        close("bias over ε, P misses outcomes: change by a tenth of ε", logarithms, n_0 * math.log(10), 1e-3),
        at_most("the bias itself at ε = 1e-7, P misses outcomes", abs(_bias(*MISSED_BY_P, tiny)), 1e-5),
        close("Q misses outcomes: change by a tenth of ε", growth, missed * math.log(10), 1e-3),
        close(
            "Q misses outcomes: constant beside m ln(1/ε)",
            factor * (_smoothed(*MISSED_BY_Q, tiny) - 0.3 * math.log(1 / tiny)),
            _constant(*MISSED_BY_Q),
            1e-3,
        ),
    ]
    written = at_most(
        "change of the smoothed value by a tenth of ε, nats",
        growth,
        0.01,
        remark="Q misses outcomes of P; a small error would not depend on the choice of ε",
    )
    return Evidence(numbers, [written], [_picture()])


def _smoothed(p: Law, q: Law, epsilon: float) -> float:
    laws = divergence.smoothed(p, epsilon), divergence.smoothed(q, epsilon)
    return divergence.kullback_leibler(*laws)


def _bias(p: Law, q: Law, epsilon: float) -> float:
    return _smoothed(p, q, epsilon) - divergence.kullback_leibler(p, q)


def _constant(p: Law, q: Law) -> float:
    """Σ p ln p over what Q misses, and Σ p ln(p/q) over the rest."""
    return math.fsum(a * math.log(a / b if b else a) for a, b in zip(p, q, strict=True) if a)


def _picture() -> Picture:
    fine = np.logspace(-7, -2, 41)

    def line(label: str, laws: tuple[Law, Law], places: Sequence[float] | Law) -> Series:
        return Series(label, list(places), [_smoothed(*laws, float(one)) for one in places])

    def level(laws: tuple[Law, Law]) -> Series:
        true = divergence.kullback_leibler(*laws)
        return Series("", [fine[0], fine[-1]], [true, true], style="dashed")

    values = [
        line("both give all", FULL, fine),
        level(FULL),
        line("P misses some", MISSED_BY_P, fine),
        level(MISSED_BY_P),
        line("Q misses some", MISSED_BY_Q, fine),
    ]
    biases = [
        Series(name, EPSILONS, [abs(_bias(*laws, one)) for one in EPSILONS], style="points")
        for name, laws in (("both give all", FULL), ("P misses some", MISSED_BY_P))
    ]
    p, q = FULL
    slope = abs(float((1 - p / q + np.log(p / q)).sum() - len(p) * divergence.kullback_leibler(p, q)))
    biases.append(Series("|c| ε", fine.tolist(), (slope * fine).tolist(), style="dashed"))
    biases.append(
        Series("n₀ ε ln(1/ε)", fine.tolist(), (2 * fine * np.log(1 / fine)).tolist(), style="dashed")
    )
    panels = [
        Panel("Smoothed divergence", "ε (no unit)", "divergence (nats)", values, x_log=True),
        Panel("Its bias, where it has one", "ε (no unit)", "size of the bias (nats)", biases, True, True),
    ]
    caption = (
        "Left: dashed lines are the true values; where Q misses outcomes there is none, and the number grows "
        "without end. Right: the bias and its leading term."
    )
    return Picture(caption, panels)
