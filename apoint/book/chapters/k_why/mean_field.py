"""K9: with the factor 1/N a wide layer is a cloud of particles on a deterministic path."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from apoint.book.claim import claim
from apoint.book.evidence import Evidence, Number, agrees, at_least, at_most, between, close
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.theory import mean_field

COUNTS = (8, 32, 128, 512)
REFERENCES = (
    "Sirignano and Spiliopoulos (2020), Mean field analysis of neural networks: a law of large numbers, SIAM "
    "J. Appl. Math. 80",
    "Chizat and Bach (2018), On the global convergence of gradient descent for over-parameterized models "
    "using optimal transport, NeurIPS",
)


def _problem(points: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    x = torch.randn(points, 5, generator=generator, dtype=torch.float64)
    return x, torch.sin(2 * x[:, 0]) + 0.5 * x[:, 1]


@claim(
    "K9",
    "A deterministic limit",
    kind="shape",
    statement=r"""
    For $f(x)=\frac1N\sum_{i=1}^N a_i\,\sigma(w_i\cdot x)$, trained by the gradient flow of the squared error
    from independent $(a_i,w_i)$, the distribution of the particles follows a deterministic path as $N$ grows.
    What depends on the draw, the spread over seeds of $f(x)$ and of any mean over the particles, falls as
    $N^{-1/2}$ at any time.
    """,
    refuted_by=r"a power of $N$ in the spread after training that is not near $-\frac12$, or a mean over "
    "seeds that is not where the equation of the limit says",
    seconds={"quick": 5, "standard": 60},
    planted={"power": 0.5},
    details=r"""
    Many clouds of each size are trained for the same time on the same 60 points, and their spread measured at
    points that they were not trained on. With $\frac{1}{\sqrt N}$ in place of $\frac1N$, the scale of the
    tangent kernel, the spread does not fall at all: this is what the check is tested with. For a linear
    activation and one input the limit is an equation for $c=\mathbb{E}[aw]$ alone,
    $$\frac{dc}{dt}=(u-c)\sqrt{S_0^2+4c^2},\qquad S_0=\mathbb{E}[a_0^2+w_0^2],$$
    for data $y=ux$, and the particles must be where it says.
    """,
    references=REFERENCES,
)
def deterministic_limit(run: Running, power: float = 1.0) -> Evidence:
    """Clouds of growing size are trained from many seeds; `power` is that of 1/N before the sum."""
    generator, replicas = run.generator(), run.pick(100, 400)
    x, y = _problem(60, generator)
    fresh, _ = _problem(40, generator)
    numbers: list[Number] = []
    lines: list[Series] = []
    for time in (0.0, 10.0):
        outputs, sizes = [], []
        for count in COUNTS:
            cloud = mean_field.draw(replicas, count, 5, generator)
            if time:
                cloud = mean_field.evolve(cloud, x, y, time, 0.2, torch.tanh, power=power)
            outputs.append(mean_field.values(cloud, fresh, torch.tanh, power).numpy())
            sizes.append((cloud.outer.square() + cloud.weights.square().sum(2)).mean(1, keepdim=True).numpy())
        spreads, errors, slope, error = _spread(outputs, run.random(f"{time}"))
        name = "before training" if time == 0 else f"after a time of {time:g}"
        numbers.append(between(f"power of N in the spread, {name}", slope, -0.6, -0.4, error))
        low, high = (spreads + sign * 2 * errors for sign in (-1, 1))
        lines.append(Series(name, COUNTS, spreads.tolist(), low.tolist(), high.tolist(), "points"))
    # The clouds of the last time: their mean of a² + |w|² is one number for each seed.
    _, _, slope, error = _spread(sizes, run.random("sizes"))
    numbers.append(agrees("power of N in the spread of a² + |w|² after training", slope, error, -0.5))
    guide = [lines[0].y[0] * (count / COUNTS[0]) ** -0.5 for count in COUNTS]
    lines.append(Series("N to the power −1/2", COUNTS, guide, style="dashed"))
    panel = Panel(
        "Spread of f(x) over seeds",
        "particles N",
        "standard deviation of f(x)",
        lines,
        x_log=True,
        y_log=True,
    )
    caption = f"Root mean square over 40 new points, {replicas} seeds each; bars are two bootstrap errors."
    return Evidence(numbers + _linear(run), pictures=[Picture(caption, [panel])])


def _spread(
    outputs: list[np.ndarray], random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, float, float]:
    """The spread over seeds for each size, its error, the slope of its logarithm and the error of that."""

    def measure(samples: list[np.ndarray]) -> tuple[np.ndarray, float]:
        spreads = np.array([np.sqrt(sample.var(0, ddof=1).mean()) for sample in samples])
        return spreads, float(np.polyfit(np.log(COUNTS), np.log(spreads), 1)[0])

    spreads, slope = measure(outputs)
    drawn = [measure([o[random.integers(len(o), size=len(o))] for o in outputs]) for _ in range(100)]
    errors = np.std([one[0] for one in drawn], axis=0)
    return spreads, errors, slope, float(np.std([one[1] for one in drawn]))


def _linear(run: Running) -> list[Number]:
    """The linear network, where the limit is known."""
    x = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    cloud = mean_field.draw(run.pick(30, 200), 4000, 1, run.generator("linear"))
    numbers, step, before = [], 0.002, 0.0
    for time in (0.1, 0.3, 1.0):
        cloud = mean_field.evolve(cloud, x, 1.5 * x[:, 0], time - before, step, lambda z: z)
        before, limit = time, mean_field.linear_limit(1.5, time)
        slopes = mean_field.values(cloud, x[:1], lambda z: z)[:, 0].numpy()
        # Three standard errors, and as far as the limit goes in one step, for steps are not a flow.
        ahead = abs(mean_field.linear_limit(1.5, time + step) - limit)
        allowed = 3 * float(slopes.std() / len(slopes) ** 0.5) + ahead
        name = f"linear network at time {time:g}, mean of f(1)"
        numbers.append(close(name, float(slopes.mean()), limit, absolute=allowed))
    return numbers


TEACHER = 4
SIZES = (4, 8, 16, 32, 64)


@claim(
    "K9b",
    "Many particles find the teacher",
    kind="direction",
    statement=r"""
    A cloud of enough particles finds a teacher of $m_0$ neurons from any draw, though each particle alone
    sees a non-convex loss; as many particles as the teacher has are sometimes trapped. It is the motion of
    the $w_i$ that does it: with the $w_i$ held fixed, many more particles do not come near, even with the
    best $a_i$ that there are.
    """,
    refuted_by="a cloud of twice the teacher's size or more that keeps more than a hundredth of the "
    "variance, no cloud of the teacher's size that does, or fixed weights that get below it",
    seconds={"quick": 4, "standard": 120},
    planted={"frozen": True},
    details=r"""
    Teacher and student are ReLU networks with 10 inputs on a sphere; the loss is the squared error on new
    points as a share of the variance of the teacher. Infinitely many particles reach a global minimum
    wherever their path converges, if they cover all directions at the start (Chizat and Bach); how many are
    enough is a matter of experiment. A student with exactly the teacher's size has the solution too, but two
    of its neurons may settle on one of the teacher's.
    """,
    references=REFERENCES[1:],
)
def many_find_the_teacher(run: Running, frozen: bool = False) -> Evidence:
    """Clouds learn a teacher of four neurons; `frozen` keeps the weights of all of them where they were."""
    replicas = run.pick(12, 40)
    generator = run.generator()
    teacher = torch.randn(TEACHER, 10, generator=generator)
    teacher /= teacher.norm(dim=1, keepdim=True)
    x = torch.randn(1400, 10, generator=generator)
    x *= 10**0.5 / x.norm(dim=1, keepdim=True)
    y = torch.relu(x @ teacher.T) @ torch.tensor([1.0, -1.0, 1.0, -1.0])
    moving = [_left(run, x, y, count, replicas, frozen) for count in SIZES]
    fixed = [_best_fixed(run, x, y, count, replicas) for count in SIZES]
    enough = max(float(left.max()) for left in moving[1:])
    numbers = [
        at_most("error left, the worst seed of all with 8 or more particles", enough, 0.01),
        at_least("error left by 4 particles, the worst seed", float(moving[0].max()), 0.01),
        at_least(f"error left by {SIZES[-1]} fixed weights, the best seed", float(fixed[-1].min()), 0.01),
    ]
    lines = [
        Series(name, SIZES, *_quantiles(left), "points")
        for name, left in (("particles that move", moving), ("fixed w, best a", fixed))
    ]
    panel = Panel(
        "A teacher of four neurons", "particles N", "squared error / variance", lines, x_log=True, y_log=True
    )
    caption = f"The median of {replicas} seeds, with the smallest and the largest, on 1,000 new points."
    return Evidence(numbers, pictures=[Picture(caption, [panel])])


def _left(run: Running, x: Tensor, y: Tensor, count: int, replicas: int, frozen: bool) -> np.ndarray:
    """The error on new points after training, as a share of the variance, for each seed."""
    cloud = mean_field.draw(replicas, count, 10, run.generator(f"{count}"), torch.float32)
    end = mean_field.evolve(cloud, x[:400], y[:400], run.pick(300.0, 1500.0), 0.5, frozen=frozen)
    errors = (mean_field.values(end, x[400:]) - y[400:]).square().mean(1) / y[400:].var()
    return np.asarray(errors.numpy())


def _best_fixed(run: Running, x: Tensor, y: Tensor, count: int, replicas: int) -> np.ndarray:
    """The same for the weights as they were drawn, with the best a by least squares."""
    cloud = mean_field.draw(replicas, count, 10, run.generator(f"{count}"), torch.float32)
    features = torch.relu(cloud.weights @ x.T).mT.double()
    outer = torch.linalg.lstsq(features[:, :400], y[:400].double().expand(replicas, -1)[..., None]).solution
    missing = (features[:, 400:] @ outer)[..., 0] - y[400:]
    return np.asarray((missing.square().mean(1) / y[400:].var()).numpy())


def _quantiles(left: list[np.ndarray]) -> tuple[list[float], list[float], list[float]]:
    pick = (np.median, np.min, np.max)
    middle, low, high = ([float(function(one)) for one in left] for function in pick)
    return middle, low, high
