"""Errata of chapter F that belong to no claim: hypotheses, theorems and proofs of stochastic descent."""

from __future__ import annotations

import itertools
import math

import numpy as np

from apoint.book.claim import erratum
from apoint.book.evidence import Evidence, at_most, close, same
from apoint.book.running import Running


@erratum(
    "F1.1",
    "Uniform is not independent",
    place="llm 1.1, hypothesis 1",
    quote="Si les indices sont tirés uniformément alors les deux premières hypothèses sont vérifiées",
    written="If every index is drawn uniformly, it does not depend on the ones before.",
    corrected="If it is drawn uniformly and independently: with replacement.",
    why=r"""
    In a shuffled epoch, which is how networks are trained, every place of the order holds every index with
    the same probability, and none comes twice: the last index is certain once the others are known.
    """,
)
def uniform_and_independent(run: Running) -> Evidence:
    """All orders of 4 indices, and all pairs drawn with replacement."""
    orders = list(itertools.permutations(range(4)))
    pairs = list(itertools.product(range(4), repeat=2))
    first = [sum(order[1] == k for order in orders) / len(orders) for k in range(4)]
    name = "probability that the second index is the first again"
    shuffled = sum(order[1] == order[0] for order in orders) / len(orders)
    drawn = sum(a == b for a, b in pairs) / len(pairs)
    return Evidence(
        [
            close(f"{name}, with replacement", drawn, 1 / 4),
            close("largest probability of an index in second place, shuffled", max(first), 1 / 4),
        ],
        [close(f"{name}, shuffled", shuffled, 1 / 4, remark="1/4 if they are independent")],
    )


@erratum(
    "F2.1",
    "How many steps the proof takes",
    place="llm annex, proof of theorem 1",
    quote=r"Soit $T\leq1$ et $t\leq T$ une étape",
    written=r"The proof takes $T\le1$ steps.",
    corrected=r"$T\ge1$, as in the theorem.",
    why="The inequality sign is turned round: of all runs that the theorem is about, the shortest is left.",
)
def steps_of_the_proof(run: Running) -> Evidence:
    """Horizons up to 100 that the theorem is about, and those that the proof covers."""
    wanted = range(1, 101)
    name = "numbers of steps from 1 to 100 that the proof covers"
    return Evidence(
        [same(f"{name}, T ≥ 1", sum(steps >= 1 for steps in wanted), len(wanted))],
        [same(f"{name}, T ≤ 1", sum(steps <= 1 for steps in wanted), len(wanted))],
    )


@erratum(
    "F3.1",
    "No point need be reached",
    place="llm 1.1, theorem 2",
    quote="Nous n'avons plus cette fois une convergence dans un intervalle proche du minimum, mais une "
    "convergence vers un point de gradient nul",
    written="With rates whose sum diverges and whose squares sum up, descent converges to a point where the "
    "gradient is 0.",
    corrected=r"The weighted mean of $\mathbb{E}\|\nabla\mathcal{L}(\theta_t)\|^2$ tends to 0, hence "
    r"$\liminf_t\mathbb{E}\|\nabla\mathcal{L}(\theta_t)\|^2=0$. The weights need not converge.",
    why=r"""
    The loss $\sigma(-\theta)-2e^{-(\theta+6)^2}$ is smooth and has its minimum near $-6$. Descent from 0
    goes the other way for ever: the gradient tends to 0 and $\theta_t$ to infinity. Nor does theorem 1 speak
    of an interval near the minimum; it bounds the gradient. And its “pour tout $T\ge1$” cannot stand before
    a limit in $T$.
    """,
)
def no_point(run: Running) -> Evidence:
    """100,000 steps with rates 1/(4 (t + 1)^0.6), of which β = 4 allows all."""
    theta, rates, total, places, means = 0.0, 0.0, 0.0, {}, {}
    for step in range(1, 100_001):
        soft = 1 / (1 + math.exp(theta))
        gradient = -soft * (1 - soft) + 4 * (theta + 6) * math.exp(-((theta + 6) ** 2))
        rate = 0.25 / step**0.6
        rates, total = rates + rate, total + rate * gradient**2
        theta -= rate * gradient
        if step in (1_000, 10_000, 100_000):
            places[step], means[step] = theta, total / rates
    return Evidence(
        [
            at_most("weighted mean of squared gradients, 100,000 steps", means[100_000], 0.01),
            at_most("the same over that after 1,000 steps", means[100_000] / means[1_000], 0.5),
        ],
        [at_most("way of θ between steps 10,000 and 100,000", places[100_000] - places[10_000], 0.01)],
    )


@erratum(
    "F4.1",
    "A batch of n draws is not the data",
    place="llm annex",
    quote=r"si $n_B=n$ on retrouve la descente de gradient classique",
    written="A mini-batch of $n_B=n$ examples gives gradient descent.",
    corrected=r"Without replacement it does. With replacement, as in the proposition and the theorem that "
    r"follow, "
    r"the variance $\sigma^2/n$ is left.",
    why=r"""
    Of $n$ draws with replacement about $n/e$ examples are missing. The bound of theorem 3 says so too: its
    noise term $\eta\beta\sigma^2/n_B$ is not 0 at $n_B=n$.
    """,
)
def batch_of_all(run: Running) -> Evidence:
    """The variance of the mean of n = 20 gradients, drawn with and without replacement, in σ²/n."""
    random, n = run.random(), 20
    gradients = random.standard_normal(n)
    unit = gradients.var() / n
    drawn = gradients[random.integers(0, n, (4000, n))].mean(1)
    whole = np.array([random.permutation(gradients).mean() for _ in range(200)])
    name = "variance of the batch gradient at n_B = n, in σ²/n"
    return Evidence(
        [
            at_most(f"{name}, without replacement", whole.var() / unit, 1e-12),
            close(f"{name}, with replacement", drawn.var() / unit, 1.0, absolute=0.1),
        ],
        [at_most(f"{name}, with replacement", drawn.var() / unit, 1e-12)],
    )


@erratum(
    "F4.2",
    "The loss where its gradient is meant",
    place="llm annex, proof of proposition 1",
    quote=r"On a donc finalement que : $\mathbb{E}\left[\left\|\frac{1}{n_B}\sum_{i\in\mathcal{B}}"
    r"\nabla\ell_i(\theta_t)\right\|^2\right]\leq\frac{\sigma^2}{n_B}+\|\mathcal{L}(\theta_t)\|^2$",
    written=r"The mean squared batch gradient is at most $\sigma^2/n_B+\|\mathcal{L}(\theta)\|^2$.",
    corrected=r"At most $\sigma^2/n_B+\|\nabla\mathcal{L}(\theta)\|^2$, as the proposition itself has it.",
    why=r"""
    The same slip as in hypothesis 1, with its own consequence: where the loss is 0 and its gradient is not,
    as after subtracting a constant from the loss, the printed bound goes to 0 as the batch grows, and the
    batch gradient does not.
    """,
)
def loss_for_gradient(run: Running) -> Evidence:
    """Batches of 100 from 20 gradients, at a place where the loss is 0."""
    random, batch = run.random(), 100
    gradients = random.standard_normal((20, 3)) + np.array([1.0, 0.0, 0.0])
    whole, squares = float((gradients.mean(0) ** 2).sum()), float((gradients**2).sum(1).mean())
    drawn = gradients[random.integers(0, 20, (2000, batch))].mean(1)
    measured = float((drawn**2).sum(1).mean())
    printed = squares / batch  # σ² is then all of 𝔼‖∇ℓ‖², since 𝓛 = 0
    right = (squares - whole) / batch + whole
    return Evidence(
        [close("mean squared batch gradient over the bound", measured / right, 1.0, absolute=0.02)],
        [at_most("mean squared batch gradient over the bound", measured / printed, 1.0)],
    )
