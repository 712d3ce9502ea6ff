"""D4: smooth functions: descent up to 2/β, an error of 1/T, and a geometric one if strongly convex."""

from __future__ import annotations

import math

import numpy as np
import torch

from apoint.book.claim import Erratum, claim, exercise
from apoint.book.evidence import Evidence, Number, at_least, at_most, close
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.theory import descent, regularity
from apoint.theory.descent import Problem

SMOOTH = ("quadratic", "huber", "softplus", "logcosh", "squared-hinge")


def _change(name: str, x: float, share: float) -> tuple[float, float]:
    """f(x − ηf'(x)) − f(x) for η = share/β by evaluation, and f'(x)²."""
    regular = regularity.named(name)
    place = torch.tensor([x], dtype=torch.float64, requires_grad=True)
    value = regular.function(place)
    (slope,) = torch.autograd.grad(value.sum(), place)
    after = regular.function(place.detach() - share / regular.smoothness * slope)
    return float(after - value.detach()), float(slope**2)


@claim(
    "D4",
    "A step of descent descends, up to 2/β",
    kind="bound",
    statement=r"""
    If $f$ is $\beta$-smooth, a step of gradient descent changes it by at most
    $$f(x-\eta\nabla f(x))-f(x)\leq-\left(\eta-\frac{\beta\eta^2}{2}\right)\|\nabla f(x)\|^2,$$
    so that it descends for every $\eta<2/\beta$ and most surely at $\eta=1/\beta$. Above $2/\beta$ there are
    functions on which every step ascends.
    """,
    refuted_by="a smooth function with a step that changes it by more than the bound",
    seconds={"quick": 1, "standard": 3},
    planted={"factor": 1.05},
    erratum=Erratum(
        quote=r"$f(x_{t+1})\leq f(x_t)-\langle\nabla f(x_t),x_{t+1}-x_t\rangle"
        r"+\frac{\beta}{2}\|x_{t+1}-x_t\|^2$",
        place="notes A.3.2",
        written=r"$f(x_{t+1})\leq f(x_t)-\langle\nabla f(x_t),x_{t+1}-x_t\rangle"
        r"+\frac{\beta}{2}\|x_{t+1}-x_t\|^2"
        r"\leq f(x_t)-\eta\|\nabla f(x_t)\|^2+\frac{\beta\eta^2}{2}\|\nabla f(x_t)\|^2$; and descent is "
        r"claimed for $\eta\leq 1/\beta$.",
        corrected=r"$f(x_{t+1})\leq f(x_t)+\langle\nabla f(x_t),x_{t+1}-x_t\rangle+\ldots$, which equals the "
        r"second expression; and descent holds for all $\eta<2/\beta$.",
        why=r"$x_{t+1}-x_t=-\eta\nabla f(x_t)$, so that with the printed sign the first expression exceeds "
        r"the second by $2\eta\|\nabla f\|^2$ and the second inequality is false.",
    ),
    details=r"""
    Five functions, points from $-4$ to 4, steps from a tenth to 1.95 times $1/\beta$: the change is computed
    by evaluating $f$ twice, the gradient by autograd. The number is the change less the bound, in units of
    $\|\nabla f\|^2/\beta$. On a quadratic the bound is an equality, so that no larger descent can be
    promised.
    """,
    references=("Bubeck (2015), Convex optimization: algorithms and complexity, section 3.2",),
)
def step_descends(run: Running, factor: float = 1.0) -> Evidence:
    """Changes of five functions over steps of many lengths; `factor` multiplies the descent promised."""
    places = np.linspace(-4, 4, run.pick(41, 401)) + 0.013
    shares = (0.1, 0.5, 1.0, 1.5, 1.95)
    worst, highest = -math.inf, -math.inf
    for name in SMOOTH:
        for share in shares:
            for x in places:
                change, squared = _change(name, float(x), share)
                if squared < 1e-12:
                    continue
                unit = squared / regularity.named(name).smoothness
                bound = -factor * (share - share**2 / 2)
                worst, highest = max(worst, change / unit - bound), max(highest, change / unit)
    above = _change("quadratic", 1.0, 2.05)
    changed, squared = _change("quadratic", 1.0, 1.0)
    printed, second = _printed_chain()
    return Evidence(
        [
            at_most("largest change less the bound, in ‖∇f‖²/β", worst, 1e-9, remark="rounding allowed for"),
            close(
                "change of a quadratic with the step 1/β, in ‖∇f‖²/β", changed / squared, -factor / 2, 1e-9
            ),
            at_most("largest change for steps up to 1.95/β, in ‖∇f‖²/β", highest, 0.0),
            at_least("change of a quadratic with the step 2.05/β, in ‖∇f‖²/β", above[0] / above[1], 0.01),
        ],
        [at_most("first printed expression at η = 1/β and ‖∇f‖² = β = 1, less f(x)", printed, second)],
    )


def _printed_chain() -> tuple[float, float]:
    """The two sides of the printed inequality less f(x), for β = η = 1 and a gradient of 1."""
    gradient, eta, beta = 1.0, 1.0, 1.0
    step = -eta * gradient
    return -gradient * step + beta / 2 * step**2, -eta * gradient**2 + beta / 2 * eta**2 * gradient**2


@claim(
    "D4b",
    "The error falls as 1/t",
    kind="bound",
    statement=r"""
    On a convex $\beta$-smooth function gradient descent with $\eta=1/\beta$ has, at every step $t$,
    $$f(x_t)-f(x^*)\leq\frac{\beta\|x_0-x^*\|^2}{4t+2},$$
    and Huber's function, with its knee at $R/(2t+1)$, attains this.
    """,
    refuted_by="a convex smooth function with an error above the bound, or a worst function that stays "
    "clearly below it",
    seconds={"quick": 1, "standard": 3},
    planted={"factor": 0.95},
    erratum=Erratum(
        quote=r"Alors pour toutes itérations $t\leq T$ avec $T\geq1$, on a : "
        r"$f(x_t)-f(x^*)\leq\mathcal{O}\left(\frac{1}{T}\right)$",
        place="notes A.3.2, proposition A.4",
        written=r"For all iterations $t\leq T$: $f(x_t)-f(x^*)\leq\mathcal{O}(1/T)$.",
        corrected=r"$f(x_t)-f(x^*)\leq\mathcal{O}(1/t)$; the bound in $T$ holds for the last of $T$ steps.",
        why=r"At $t=1$ the error of a given function is a fixed number, and no constant over $T$ stays above "
        "it as $T$ grows.",
    ),
    details=r"""
    The constant $1/(4t+2)$ is the smallest possible (Drori and Teboulle); textbooks have $1/(2t)$. The
    picture shows gradient descent on Huber's function made for $t=30$, on Nesterov's chain and on logistic
    regression, whose errors are all under the bound, and the strongly convex case bending down.
    """,
    references=(
        "Drori and Teboulle (2014), Performance of first-order methods for smooth convex minimization",
        "Bubeck (2015), Convex optimization: algorithms and complexity, theorem 3.3",
    ),
)
def one_over_t(run: Running, factor: float = 1.0) -> Evidence:
    """Errors of descent over the bound, times `factor`, on several functions."""
    steps = run.pick(300, 2000)
    problems = {
        "Nesterov's chain": (descent.chain(1.0, 400), 1.0),
        "Huber, knee for t = 30": (descent.plateau_and_bowl(1.0, 2.0, 30), 1.0),
        "logistic regression": _logistic(run.random()),
    }
    worst, lines = 0.0, []
    for name, (problem, beta) in problems.items():
        path = descent.descend(problem.gradient, problem.start, 1 / beta, steps)
        errors = np.array([problem.value(x) for x in path[1:]]) - problem.minimum
        t = np.arange(1, steps + 1)
        bounds = np.array([factor * descent.smooth_bound(beta, problem.distance, int(s)) for s in t])
        worst = max(worst, float((errors / bounds).max()))
        shown = np.unique(np.geomspace(1, steps, 150).astype(int)) - 1
        scaled = errors / (beta * problem.distance**2)
        lines.append(Series(name, t[shown].tolist(), np.maximum(scaled, 1e-8)[shown].tolist()))
    ratios = [_attained(t) / factor for t in (1, 10, 100, 1000)]
    first = _first_step_times(10_000)
    lines.insert(0, Series("bound", t.tolist()[::4], (1 / (4 * t + 2)).tolist()[::4], style="dashed"))
    panel = Panel(
        "Gradient descent with η = 1/β",
        "step t (count)",
        "(f − f*)/(βR²) (no unit)",
        lines,
        x_log=True,
        y_log=True,
    )
    caption = "Huber's function touches the bound at the step that it is made for, and nothing is above."
    return Evidence(
        [
            # 1e-9 allows for rounding where the worst function touches the bound.
            at_most("largest error over its bound, three functions, all steps", worst, 1 + 1e-9),
            *(
                close(f"error over the bound on Huber's function, t = {t}", ratio, 1.0, 1e-9)
                for t, ratio in zip((1, 10, 100, 1000), ratios, strict=True)
            ),
        ],
        [at_most("T·(f(x_1) − f*)/(βR²) at T = 10,000, if O(1/T) held at t = 1", first, 1.0)],
        [Picture(caption, [panel], "notes prop. A.4")],
    )


def _attained(steps: int) -> float:
    problem = descent.plateau_and_bowl(1.3, 2.0, steps)
    last = descent.descend(problem.gradient, problem.start, 1 / 1.3, steps)[-1]
    return (problem.value(last) - problem.minimum) / descent.smooth_bound(1.3, 2.0, steps)


def _first_step_times(total: int) -> float:
    problem = descent.chain(1.0, 50)
    first = descent.descend(problem.gradient, problem.start, 1.0, 1)[-1]
    return float(total * (problem.value(first) - problem.minimum) / problem.distance**2)


def _logistic(random: np.random.Generator) -> tuple[Problem, float]:
    """Logistic regression on overlapping classes, with its minimum by Newton's method."""
    inputs = random.standard_normal((60, 4))
    labels = np.where(inputs[:, 0] + random.standard_normal(60) > 0, 1.0, -1.0)
    beta, _ = regularity.logistic_regression(inputs)

    def slopes(w: np.ndarray) -> np.ndarray:
        return np.asarray(-labels / (1 + np.exp(labels * (inputs @ w))))

    def value(w: np.ndarray) -> float:
        return float(np.logaddexp(0, -labels * (inputs @ w)).mean())

    w = np.zeros(4)
    for _ in range(30):
        s = np.abs(slopes(w))
        hessian = inputs.T @ (inputs * (s * (1 - s))[:, None]) / 60
        w = w - np.linalg.solve(hessian, inputs.T @ slopes(w) / 60)
    return Problem(value, lambda x: inputs.T @ slopes(x) / 60, np.zeros(4), w, value(w)), beta


@claim(
    "D4c",
    "Strongly convex: geometric",
    kind="bound",
    statement=r"""
    If $f$ is $\beta$-smooth and $\mu$-strongly convex, a step of gradient descent shrinks the distance to the
    minimum by $\rho=\max(|1-\eta\mu|,|1-\eta\beta|)$ at least, and $f-f^*$ by $\rho^2$. It is less than 1
    exactly for $0<\eta<2/\beta$, and quadratics attain it.
    """,
    refuted_by="a strongly convex function on which distance or height shrink by less, or a quadratic on "
    "which they shrink by clearly more",
    seconds={"quick": 1, "standard": 3},
    planted={"factor": 0.95},
    details=r"""
    Logistic losses with a quadratic term, whose curvature changes from place to place, are descended with
    several rates; then quadratics with the curvatures $\mu$ and $\beta$ alone.
    """,
    references=(
        "Taylor, Hendrickx and Glineur (2018), Exact worst-case convergence rates of the proximal gradient "
        "method",
        "Nesterov (2018), Lectures on convex optimization, theorem 2.1.15",
    ),
)
def geometric(run: Running, factor: float = 1.0) -> Evidence:
    """Shrinking factors step by step over ρ, which `factor` multiplies."""
    random, worst_distance, worst_height, tight, lines = run.random(), 0.0, 0.0, [], []
    for share in (0.5, 1.0, 1.5, 1.9):
        for mu in (0.02, 0.2):
            problem, beta = _ridge_logistic(random, mu)
            rho = factor * descent.strongly_convex_factor(beta, mu, share / beta)
            path = descent.descend(problem.gradient, problem.start, share / beta, run.pick(40, 400))
            lengths = np.linalg.norm(path - problem.minimiser, axis=1)
            heights = np.array([problem.value(x) for x in path]) - problem.minimum
            kept = heights[1:] > 1e-10  # below that rounding speaks
            worst_distance = max(worst_distance, _largest(lengths, kept) / rho)
            worst_height = max(worst_height, _largest(heights, kept) / rho**2)
            if mu == 0.02:
                shown = np.maximum(heights / heights[0], 1e-10)[:150]
                lines.append(Series(f"η = {share:g}/β", list(range(len(shown))), shown.tolist()))
            after = np.ones(2) - share / beta * np.array([mu, beta])
            tight.append(float(np.abs(after).max()) / rho)
    panel = Panel(
        "A logistic loss with a quadratic term, μ = 0.02",
        "step (count)",
        "(f − f*)/(f(x₀) − f*) (no unit)",
        lines,
        y_log=True,
    )
    return Evidence(
        [
            at_most("largest shrinking of the distance over ρ", worst_distance, 1 + 1e-6),
            at_most("largest shrinking of the height over ρ²", worst_height, 1 + 1e-4),
            at_least("shrinking of a quadratic over ρ, at least", min(tight), 1 - 1e-9),
            at_most("the same, at most", max(tight), 1 + 1e-9),
        ],
        pictures=[Picture("Straight lines on a logarithmic scale are geometric decay.", [panel])],
    )


def _largest(values: np.ndarray, kept: np.ndarray) -> float:
    return float((values[1:] / values[:-1])[kept].max())


def _ridge_logistic(random: np.random.Generator, mu: float) -> tuple[Problem, float]:
    inputs = random.standard_normal((40, 3))
    beta, _ = regularity.logistic_regression(inputs, mu)

    def gradient(w: np.ndarray) -> np.ndarray:
        return np.asarray(inputs.T @ (1 / (1 + np.exp(-(inputs @ w))) - 0.5) / 40 + mu * w)

    def value(w: np.ndarray) -> float:
        z = inputs @ w
        return float((np.logaddexp(0, z) - z / 2).mean() + mu * w @ w / 2)

    return Problem(value, gradient, 3 * random.standard_normal(3), np.zeros(3), math.log(2)), beta


@exercise(
    "notes A.6",
    "D4",
    question=r"Show that a convex differentiable $f$ is $\beta$-smooth, "
    r"$f(y)\leq f(x)+\langle\nabla f(x),y-x\rangle+\frac{\beta}{2}\|y-x\|^2$, if and only if its gradient is "
    r"$\beta$-Lipschitz. Does it need convexity?",
    hints=(
        r"For one direction write $f(y)-f(x)$ as the integral of $\langle\nabla f(x+s(y-x)),y-x\rangle$.",
        r"For the other, apply the upper bound to $\phi_x(z)=f(z)-\langle\nabla f(x),z\rangle$, which $x$ "
        r"minimises, at $z=y-\nabla\phi_x(y)/\beta$, and add the result with $x$ and $y$ exchanged.",
    ),
    solution=r"""
    If the gradient is $\beta$-Lipschitz,
    $f(y)-f(x)-\langle\nabla f(x),y-x\rangle=\int_0^1\langle\nabla f(x+s(y-x))-\nabla f(x),y-x\rangle ds
    \leq\int_0^1\beta s\|y-x\|^2ds=\frac{\beta}{2}\|y-x\|^2$. Conversely $\phi_x$ is convex with its minimum
    at $x$, so $\phi_x(x)\leq\phi_x(y)-\frac{1}{2\beta}\|\nabla\phi_x(y)\|^2$. Adding this to the same with
    $x$ and $y$ exchanged gives
    $\frac{1}{\beta}\|\nabla f(y)-\nabla f(x)\|^2\leq\langle\nabla f(y)-\nabla f(x),y-x\rangle$, and by Cauchy
    and Schwarz $\|\nabla f(y)-\nabla f(x)\|\leq\beta\|y-x\|$. The second direction needs convexity: the
    concave $-x^4$ meets the upper bound for every $\beta>0$, and its slope is not Lipschitz.
    """,
    planted={"factor": 1.0},
)
def two_constants(factor: float = 2.0) -> list[Number]:
    """The constant of the upper bound and that of the gradient, both over all pairs of a grid, and −x⁴."""
    grid = torch.linspace(-4, 4, 321, dtype=torch.float64)
    numbers = []
    for name in ("huber", "softplus", "logcosh", "quadratic"):
        above, slope = _pair_constants(regularity.named(name).function, grid, factor)
        # Curvature peaks between grid points; the spacing of 0.025 costs less than its square.
        numbers.append(close(f"upper bound's β over the gradient's, {name}", above / slope, 1.0, 1e-3))
    above, slope = _pair_constants(lambda x: -(x**4), grid, factor)
    numbers.append(at_most("−x⁴: β of the upper bound", above, 0.01))
    numbers.append(at_least("−x⁴: β of the gradient on the same interval", slope, 100))
    return numbers


def _pair_constants(function: object, grid: torch.Tensor, factor: float) -> tuple[float, float]:
    assert callable(function)
    x = grid.clone().requires_grad_()
    values = function(x)
    (slopes,) = torch.autograd.grad(values.sum(), x)
    heights, gap = values.detach(), grid[None] - grid[:, None]
    apart = gap != 0
    above = factor * (heights[None] - heights[:, None] - slopes[:, None] * gap)[apart] / gap[apart] ** 2
    steep = (slopes[None] - slopes[:, None])[apart].abs() / gap[apart].abs()
    return float(above.max()), float(steep.max())
