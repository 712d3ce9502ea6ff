"""K5: a student with shared patches finds its teacher with constant probability, and can be trapped."""

from __future__ import annotations

import itertools

import numpy as np
import torch

from apoint.book.claim import claim
from apoint.book.evidence import Evidence, Number, agrees, at_least, close, same
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.theory import teacher_student

DU = (
    "Du, Lee, Tian, Póczos and Singh (2018), Gradient descent learns one-hidden-layer CNN: don't be afraid "
    "of spurious local minima, ICML",
)
FILTER, PATCHES = 5, 6


@claim(
    "K5",
    "A teacher's loss, and its false minimum",
    kind="identity",
    statement=r"""
    For $f(Z)=\sum_{j=1}^k a_j\,\sigma(w\cdot Z_j)$ with ReLU, $w=v/|v|$ and Gaussian patches that do not
    overlap, the loss $\frac12\mathbb{E}[(f-f^*)^2]$ depends on the filter through its angle $\varphi$ to
    $w^*$ alone. With $g(\varphi)=(\pi-\varphi)\cos\varphi+\sin\varphi$ its gradients are
    $$\partial_a=\frac{(11^T+(\pi-1)I)\,a-|w^*|\,(11^T+(g(\varphi)-1)I)\,a^*}{2\pi},\qquad
    \partial_v=-\frac{a^Ta^*(\pi-\varphi)}{2\pi|v|}\left(I-\frac{vv^T}{|v|^2}\right)w^*.$$
    Besides the teacher there is a second stationary point, $\varphi=\pi$ with
    $a=|w^*|(11^T+(\pi-1)I)^{-1}(11^T-I)\,a^*$. It is a local minimum of positive loss exactly where
    $(1^Ta^*)^2/|a^*|^2<(k+\pi-1)/\pi$.
    """,
    refuted_by="a loss or a gradient of drawn patches that differs from the formula by more than its error, "
    "or a point near the false minimum that has less loss",
    seconds={"quick": 1, "standard": 6},
    planted={"factor": 1.06},
    details=r"""
    Two patches are independent, so that $\mathbb{E}[\sigma\sigma]=1/2\pi$ across patches, and $g/2\pi$ within
    one. At $\varphi=\pi$ the gradient by $v$ vanishes for every $a$ since $w^*$ has no part across $v$; the
    gradient by $a$ vanishes for one $a$. The angle is drawn back to $\pi$ while $a^Ta^*<0$ there, which is
    the condition on $a^*$. The check draws patches and differentiates with autograd, which knows nothing of
    the formulas; the source's loss has no factor $\frac12$, which changes nothing but a factor 2.
    """,
    references=DU,
)
def population_loss(run: Running, factor: float = 1.0) -> Evidence:
    """Patches are drawn and differentiated by autograd; `factor` multiplies the formulas."""
    count, random = run.pick(100_000, 1_000_000), run.random()
    w_star = np.array([0.0, 1.4, 0.0, 0.0, 0.0])
    a_star, a = random.standard_normal((2, PATCHES))
    v = random.standard_normal(FILTER)
    patches = torch.randn(count, PATCHES, FILTER, generator=run.generator(), dtype=torch.float64)
    losses, by_v, by_a = _drawn(v, a, w_star, a_star, patches)
    formula_v, formula_a = (
        factor * part for part in teacher_student.population_gradient(v, a, w_star, a_star)
    )
    expected = factor * float(teacher_student.population_loss(v, a, w_star, a_star))
    numbers: list[Number] = [agrees("loss of drawn patches", *_mean(losses), expected)]
    for name, drawn, formula in (("v", by_v, formula_v), ("a", by_a, formula_a)):
        # One direction for each, the formula's own, so that the test is of its length as well.
        length = float(np.linalg.norm(formula))
        numbers.append(
            agrees(f"gradient by {name} along the formula", *_mean(drawn @ (formula / length)), length)
        )
        across = (drawn - (drawn @ (formula / length))[:, None] * (formula / length)) @ _other(formula)
        numbers.append(agrees(f"gradient by {name} across it", *_mean(across), 0.0))
    return Evidence(numbers + _false_minimum(random, factor))


def _mean(values: np.ndarray) -> tuple[float, float]:
    return float(values.mean()), float(values.std() / len(values) ** 0.5)


def _other(vector: np.ndarray) -> np.ndarray:
    """A fixed unit vector that is no multiple of the given one."""
    turned = np.roll(vector, 1)
    return np.asarray(turned / np.linalg.norm(turned))


def _drawn(
    v: np.ndarray, a: np.ndarray, w_star: np.ndarray, a_star: np.ndarray, patches: torch.Tensor
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The loss of each draw of patches and its gradients by v and a, by autograd."""
    count = len(patches)
    students = torch.from_numpy(v).expand(count, -1).clone().requires_grad_()
    outer = torch.from_numpy(a).expand(count, -1).clone().requires_grad_()
    unit = students / students.norm(dim=1, keepdim=True)
    student = (torch.relu(torch.einsum("nkp,np->nk", patches, unit)) * outer).sum(1)
    teacher = torch.relu(patches @ torch.from_numpy(w_star)) @ torch.from_numpy(a_star)
    losses = 0.5 * (student - teacher).square()
    by_v, by_a = torch.autograd.grad(losses.sum(), (students, outer))
    return losses.detach().numpy(), by_v.numpy(), by_a.numpy()


def _false_minimum(random: np.random.Generator, factor: float) -> list[Number]:
    """On both sides of the threshold: is there a point nearby with less loss?"""
    w_star, threshold = np.eye(FILTER)[0], factor * teacher_student.spurious_threshold(PATCHES)
    numbers: list[Number] = []
    for share, is_minimum in ((0.95, True), (1.05, False)):
        a_star = teacher_student.teacher_weights(PATCHES, share * threshold)
        v, a = teacher_student.spurious_minimum(w_star, a_star)
        gradients = teacher_student.population_gradient(v, a, w_star, a_star)
        here = float(teacher_student.population_loss(v, a, w_star, a_star))
        near_v = v + 0.05 * random.standard_normal((20_000, FILTER))
        # The loss rises as |move of a|² and changes as the cube of the angle: a must move least of all.
        near_a = a + 1e-4 * random.standard_normal((20_000, PATCHES))
        lowest = float(teacher_student.population_loss(near_v, near_a, w_star, a_star).min())
        name = f"(1ᵀa*)² = {share:g} of the threshold"
        steepest = float(max(np.abs(part).max() for part in gradients))
        numbers += [
            close(f"gradient at the false minimum, {name}", steepest, 0.0, absolute=1e-12),
            at_least(f"loss there, {name}", here, 0.01),
            same(f"all 20,000 points nearby have more, {name}", lowest > here, is_minimum),
        ]
    return numbers


ROWS = (25, 36, 49, 64, 81, 100)
RATIOS = (0, 1, 4, 9, 16, 25)
PUBLISHED = (  # from memory of the paper's table: drawn and compared, but nothing is required of it
    (0.50, 0.55, 0.73, 1.0, 1.0, 1.0),
    (0.50, 0.53, 0.66, 0.89, 1.0, 1.0),
    (0.50, 0.53, 0.61, 0.78, 1.0, 1.0),
    (0.50, 0.51, 0.59, 0.71, 0.89, 1.0),
    (0.50, 0.53, 0.57, 0.66, 0.81, 0.97),
    (0.50, 0.50, 0.57, 0.63, 0.75, 0.90),
)
SIGNS = tuple(itertools.product((1, -1), repeat=2))


@claim(
    "K5b",
    "The student finds its teacher, often",
    kind="size",
    statement=r"""
    Gradient descent from a filter $v_0$ drawn on the sphere and output weights $a_0$ drawn from the ball of
    radius $|1^Ta^*|/\sqrt k$ recovers the teacher with constant probability: of the four starts
    $(\pm v_0,\pm a_0)$ at least one succeeds. The larger $(1^Ta^*)^2/|a^*|^2$, the more often; from
    $(k+\pi-1)/\pi$ on, always; near 0 half of the time. Those that fail end in the false minimum.
    """,
    refuted_by="a draw of which none of the four starts succeeds, a cell of the table below 1/4, a failure "
    "above the threshold, or none well below it",
    seconds={"quick": 3, "standard": 15},
    planted={"factor": 1.05},
    details=r"""
    Descent is on the population loss. Of all parameters only four numbers matter, the filter along and across
    $w^*$, $1^Ta$ and $a^Ta^*$, and a step of descent maps these to themselves exactly; so all cells of the
    table run at once. A student has recovered its teacher when $\varphi<0.1$ and $a^Ta^*>0$, so that the
    angle falls on; it is trapped when $\varphi>\pi-0.3$ and $a^Ta^*<0$, so that it rises on. Either counts
    only once $a$ has come to rest at that angle, since before $a^Ta^*$ may still change its sign. The dashed
    lines are the table of the paper as remembered, drawn for comparison; nothing is required of them.
    """,
    references=DU,
)
def success_table(run: Running, factor: float = 1.0) -> Evidence:
    """Many descents for each cell of the table; `factor` multiplies the shares that are known."""
    draws = run.pick(100, 1000)
    recovered, undecided = _descend_all(draws, run.random())
    any_start = recovered.any(2)
    shares = recovered.mean((2, 3))  # of all starts: ±v₀ and ±a₀ are as likely as each other
    # Starts of one draw are not independent; draws are.
    errors = recovered.mean(2).std(2) / draws**0.5
    surely = [
        recovered[row, column].mean()
        for row, column in np.ndindex(len(ROWS), len(RATIOS))
        if RATIOS[column] >= teacher_student.spurious_threshold(ROWS[row])
    ]
    far = "share of successes, the lowest of all cells with a ratio above the threshold"
    rises = shares[:, 4] - shares[:, 0]
    published = float(np.abs(shares - np.array(PUBLISHED)).max())
    numbers = [
        same("draws of which no start succeeds", int((~any_start).sum()), 0),
        same("descents that are not decided", undecided, 0),
        at_least("lowest share of successes in the table", float(shares.min()), 0.25),
        close(far, float(np.min(surely)), factor),
        # With 1ᵀa* = 0 the start is a₀ = 0, and success is φ₀ < π/2: exactly half of ±v₀.
        close("share of successes at ratio 0", float(shares[:, 0].mean()), factor * 0.5),
        at_least("failures at k = 100, ratio 4", 1 - float(shares[5, 2]), 0.25, float(errors[5, 2])),
        at_least(
            "smallest rise of the share from ratio 0 to 16",
            float(rises.min()),
            0.1,
            float(errors[:, 4].max()),
        ),
    ]
    remark = f"The largest difference from the published table, over its 36 cells, is {published:.3f}."
    return Evidence(numbers, pictures=[_table(shares, errors, draws)], remark=remark)


def _descend_all(draws: int, random: np.random.Generator) -> tuple[np.ndarray, int]:
    """Successes, [k, ratio, sign, draw], and how many are not decided."""
    cosine, total, product = np.empty((3, len(ROWS), len(RATIOS), len(SIGNS), draws))
    for (row, k), (column, ratio) in itertools.product(enumerate(ROWS), enumerate(RATIOS)):
        a_star = teacher_student.teacher_weights(k, ratio)
        v, a = random.standard_normal((draws, FILTER)), random.standard_normal((draws, k))
        radius = (ratio / k) ** 0.5 * random.uniform(size=draws) ** (1 / k)
        a *= (radius / np.linalg.norm(a, axis=1))[:, None]
        for place, (sign_v, sign_a) in enumerate(SIGNS):
            cosine[row, column, place] = sign_v * v[:, 0] / np.linalg.norm(v, axis=1)
            total[row, column, place] = sign_a * a.sum(1)
            product[row, column, place] = sign_a * (a @ a_star)
    k_of = np.array(ROWS, float)[:, None, None, None]
    ratios = np.array(RATIOS, float)[None, :, None, None]
    end = teacher_student.descend(cosine, total, product, k_of, ratios, rate=2 * np.pi / (k_of + np.pi - 1))
    return end.recovered, int((~end.decided).sum())


def _table(shares: np.ndarray, errors: np.ndarray, draws: int) -> Picture:
    lines = []
    for row in (0, 2, 5):
        low, high = (shares[row] + sign * 2 * errors[row] for sign in (-1, 1))
        name = f"k = {ROWS[row]}"
        lines.append(Series(name, RATIOS, shares[row].tolist(), low.tolist(), high.tolist(), "points"))
        lines.append(Series(f"published, {name}", RATIOS, PUBLISHED[row], style="dashed"))
    panel = Panel("Students that find their teacher", "(1ᵀa*)²/|a*|²", "share of starts that succeed", lines)
    caption = f"Dots: {draws} draws of four starts for each, with two standard errors. Dashed: Du and others."
    return Picture(caption, [panel])
