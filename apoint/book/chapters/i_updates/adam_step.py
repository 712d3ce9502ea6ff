"""I6: how far one step of Adam can go."""

from __future__ import annotations

import numpy as np
import torch

from apoint.book.claim import Erratum, claim
from apoint.book.evidence import Evidence, Number, at_most, close
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.optim.adam import adam as adam_rule
from apoint.theory import adam

BETA1, BETA2 = 0.9, 0.999


def step_sizes(gradients: np.ndarray) -> np.ndarray:
    """|Δ|/η of Adam's rule at each step for given gradients, [steps, coordinates], with ε = 0."""
    place = torch.zeros(gradients.shape[1], dtype=torch.float64)
    state, settings = adam_rule.init(place), {**adam_rule.defaults, "lr": 1.0, "eps": 0.0}
    sizes = []
    for step, gradient in enumerate(torch.from_numpy(gradients), start=1):
        delta, state = adam_rule.step(gradient, state, place, step, settings)
        sizes.append(delta.abs().nan_to_num(0.0).numpy())  # 0/0 before the first gradient
    return np.array(sizes)


@claim(
    "I6",
    "How far Adam steps",
    kind="bound",
    statement=r"""
    With gradients that keep their distribution a step of Adam is about $\eta$ at most. But not always: a
    coordinate whose gradient was 0 for long steps by $\eta(1-\beta_1)/\sqrt{1-\beta_2}=3.16\,\eta$ when one
    comes, and the largest step over all sequences of gradients is
    $$\eta\,\frac{1-\beta_1}{\sqrt{(1-\beta_2)(1-\beta_1^2/\beta_2)}}=7.27\,\eta,$$
    reached by gradients that grow by the factor $\beta_2/\beta_1$, 11 %, at each step.
    """,
    refuted_by="any sequence of gradients with a longer step, or a sparse or growing one that stays below",
    seconds={"quick": 2, "standard": 20},
    planted={"factor": 0.95},
    erratum=Erratum(
        quote=r"ainsi $|\Delta_t|\lesssim\eta$",
        place="weights 1.4",
        written=r"$|\Delta_t|\lesssim\eta$, from Jensen's inequality for the moments that $\hat m_t$ and "
        r"$\hat v_t$ "
        r"estimate.",
        corrected=r"$|\Delta_t|\le 7.27\,\eta$ for $\beta=(0.9,0.999)$, and about $\eta$ only while "
        r"gradients keep their "
        r"distribution over $1/(1-\beta_2)$ steps.",
        why=r"The two averages remember 10 and 1000 steps: they are moments of different stretches of time, "
        r"and Jensen's inequality needs one. Kingma and Ba's own bound, $(1-\beta_1)/\sqrt{1-\beta_2}$, is "
        r"that "
        r"of a single gradient among zeros, not of all sequences.",
    ),
    details=r"""
    By Cauchy and Schwarz,
    $|m_t|\le(1-\beta_1)\sqrt{\sum_j(\beta_1^2/\beta_2)^j}\,\sqrt{\sum_i\beta_2^{t-i}g_i^2}$ with equality
    for $g_i\propto(\beta_1/\beta_2)^{t-i}$. Gradients that grow steadily are no curiosity: a run that
    begins to diverge has them, so that Adam is then at its fastest. For $\beta_1=\beta_2$ the bound is
    $\eta$ exactly, and for $\beta_1^2\ge\beta_2$ there is none.
    """,
    references=("Kingma and Ba (2015), section 2.1",),
)
def largest_steps(run: Running, factor: float = 1.0) -> Evidence:
    """Steps under steady, sparse, growing and random gradients; `factor` multiplies the bounds."""
    random, steps = run.random(), run.pick(3000, 12_000)
    limit = factor * adam.largest_step(1.0, BETA1, BETA2)
    late = factor * adam.sparse_step(1.0, BETA1, BETA2, steps)
    attained = factor * adam.largest_step(1.0, BETA1, BETA2, steps)
    kinds = _gradients(random, steps)
    sizes = {name: step_sizes(gradients) for name, gradients in kinds.items()}
    typical = float(np.quantile(sizes["steady"][100:], 0.99))
    numbers: list[Number] = [
        at_most("99 % of steps with a steady gradient, over η", typical, 1.0),
        close("step on the first gradient, over η", float(sizes["sparse"][-1, 0]), late, 1e-9),
        close("step on growing gradients, over η", float(sizes["growing"][-1, 0]), attained, 1e-9),
    ]
    numbers += [
        at_most(f"longest step with {name} gradients, over η", float(found.max()), limit * (1 + 1e-12))
        for name, found in sizes.items()
    ]
    written = [
        at_most("step on the first gradient, over η", float(sizes["sparse"][-1, 0]), 1.0),
        at_most("step on growing gradients, over η", float(sizes["growing"][-1, 0]), 1.0),
    ]
    return Evidence(numbers, written, [_picture(sizes, steps)])


def _gradients(random: np.random.Generator, steps: int) -> dict[str, np.ndarray]:
    """Kinds of sequences of gradients, [steps, coordinates]."""
    noise = random.standard_normal((steps, 40))
    sparse = np.zeros((steps, 1))
    sparse[-1] = 1.0
    growing = np.maximum(adam.worst_gradients(BETA1, BETA2, steps), 1e-150)[:, None]
    rare = noise * (random.random((steps, 40)) < 0.003)
    bursts = noise * np.exp(5 * np.sin(np.arange(steps) / 30))[:, None]
    return {
        "steady": noise,
        "sparse": sparse,
        "growing": growing,
        "rare": rare,
        "swelling": np.abs(bursts),
        "heavy-tailed": random.standard_cauchy((steps, 40)),
    }


def _picture(sizes: dict[str, np.ndarray], steps: int) -> Picture:
    shown = np.arange(steps - 60, steps)
    lines = [
        Series(name, (shown - steps + 1).tolist(), sizes[name][shown, 0].tolist())
        for name in ("steady", "sparse", "growing")
    ]
    levels = {
        "η": 1.0,
        "bound of a single gradient": adam.sparse_step(1.0, BETA1, BETA2),
        "bound of any gradients": adam.largest_step(1.0, BETA1, BETA2),
    }
    lines += [Series(label, [-59, 0], [value, value], style="dashed") for label, value in levels.items()]
    panel = Panel("The last 60 steps", "step before the last", "length of the step (rates)", lines)
    seconds = 1 - np.geomspace(0.1, 1e-4, 60)
    worst = [adam.largest_step(1.0, BETA1, float(beta)) for beta in seconds]
    single = [adam.sparse_step(1.0, BETA1, float(beta)) for beta in seconds]
    memory = (1 / (1 - seconds)).tolist()
    bounds = [Series("any gradients", memory, worst), Series("a single gradient", memory, single)]
    right = Panel(
        "For β1 = 0.9", "memory 1/(1−β2) (steps)", "longest step (rates)", bounds, x_log=True, y_log=True
    )
    caption = "Steps of Adam in units of the learning rate, for three kinds of gradients; and the bounds."
    return Picture(caption, [panel, right], "weights 1.4")
