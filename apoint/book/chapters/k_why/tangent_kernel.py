"""K6: the tangent kernel, which training follows, and which stands still in networks that are wide."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from apoint.book.claim import claim
from apoint.book.evidence import Evidence, Number, agrees, at_least, at_most, between, close, same
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.theory import ntk

POINTS, FEATURES = 32, 10
ACTIVATIONS: tuple[Literal["relu", "gelu"], ...] = ("relu", "gelu")
READOUTS: tuple[Literal["flatten", "pool"], ...] = ("flatten", "pool")


def on_sphere(count: int, features: int, draw: torch.Generator) -> Tensor:
    """Points drawn uniformly from the sphere of radius √features, where inputs have mean square 1."""
    points = torch.randn(count, features, generator=draw, dtype=torch.float64)
    scaled: Tensor = points * (math.sqrt(features) / points.norm(dim=1, keepdim=True))
    return scaled


def slope(widths: list[int], values: np.ndarray) -> tuple[float, float]:
    """The slope of log value against log width over seeds [widths, seeds], and its standard error."""
    each = [np.polyfit(np.log(widths), np.log(column), 1)[0] for column in values.T]
    return float(np.mean(each)), float(np.std(each, ddof=1) / math.sqrt(len(each)))


def changes(
    width: int, x: Tensor, y: Tensor, draw: torch.Generator, activation: Literal["relu", "gelu"]
) -> tuple[float, float, float]:
    """The relative change of kernel and first weights in training to a loss near 0, and that loss."""
    network = ntk.DenseNetwork(FEATURES, width, depth=1, activation=activation, generator=draw)
    with torch.no_grad():
        before, weights = ntk.empirical(network, x, form="trace"), next(network.parameters()).clone()
    rate = 1.0 / float(torch.linalg.eigvalsh(before)[-1])
    loss = torch.tensor(0.0)
    for _ in range(250):
        loss = _step(network, x, y, rate)
    with torch.no_grad():
        after, moved = ntk.empirical(network, x, form="trace"), next(network.parameters()) - weights
    kernel = float((after - before).norm() / before.norm())
    return kernel, float(moved.norm() / weights.norm()), float(loss / (0.5 * y.square().sum()))


def _step(network: nn.Module, x: Tensor, y: Tensor, rate: float) -> Tensor:
    """One step of gradient descent on half the sum of squares; the loss before it."""
    parameters = list(network.parameters())
    loss = 0.5 * (network(x)[:, 0] - y).square().sum()
    gradients = torch.autograd.grad(loss, parameters)
    with torch.no_grad():
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.sub_(gradient, alpha=rate)
    result: Tensor = loss.detach()
    return result


@claim(
    "K6",
    "The kernel freezes as networks get wider",
    kind="size",
    statement=r"""
    A network $f_\theta$ has the tangent kernel
    $$K_\theta(x,x')=\sum_p \partial_{\theta_p}f_\theta(x)\otimes\partial_{\theta_p}f_\theta(x').$$
    It changes while the network trains, but the less the wider the network is, and in the limit not at all:
    trained until the loss is gone, a network of width $n$ with one hidden layer moves its weights by
    $n^{-1/2}$ of their size, and its kernel by less still: by $n^{-1}$ for a smooth activation, and by about
    $n^{-3/4}$ for ReLU.
    """,
    refuted_by="slopes against the width, on logarithmic axes, that differ by more than three standard "
    "errors "
    "from -1/2 for the weights and from -1 for GELU's kernel, or that is not below -1/2 for ReLU's",
    seconds={"quick": 8, "standard": 40},
    planted={"factor": 1.1},
    details=r"""
    32 points on the sphere in dimension 10, targets drawn at random, ReLU and GELU, squared loss, full
    batches until nearly nothing of the loss is left. Weights are drawn independently and multiplied by
    $\sqrt{2/n}$ in the network (NTK parametrisation). The general bound for the kernel is $n^{-1/2}$. Each
    neuron moves by $n^{-1/2}$ with the sign of its outgoing weight, so that in the mean over $n$ neurons of a
    smooth activation $n^{-1}$ is left. Of ReLU neurons those switch that are within $n^{-1/2}$ of their kink,
    about $\sqrt n$ of them; each changes the kernel by $1/n$ with a random sign, $n^{-3/4}$ in all, beside
    the $n^{-1}$.
    """,
    references=(
        "Jacot, Gabriel and Hongler (2018), Neural tangent kernel: convergence and generalization",
        "Lee, Xiao et al. (2019), Wide neural networks of any depth evolve as linear models",
    ),
)
def freezing(run: Running, factor: float = 1.0) -> Evidence:
    """Networks of growing width are trained; `factor` multiplies the powers of the width."""
    widths, seeds = run.pick([64, 256, 1024], [64, 256, 1024, 4096]), run.pick(8, 16)
    draw, results = run.generator(), dict[str, np.ndarray]()
    for activation in ACTIVATIONS:
        results[activation] = np.empty((len(widths), seeds, 3))
        for seed in range(seeds):
            x, y = on_sphere(POINTS, FEATURES, draw).float(), torch.randn(POINTS, generator=draw)
            for place, width in enumerate(widths):
                results[activation][place, seed] = changes(width, x, y, draw, activation)
            run.say(f"{activation}, network {seed + 1} of {seeds}")
    both = np.concatenate(list(results.values()), 1)
    smooth, kinked = (slope(widths, results[name][..., 0]) for name in ("gelu", "relu"))
    numbers = [
        agrees("slope of the weights' change", *slope(widths, both[..., 1]), -0.5 * factor),
        agrees("slope of the kernel's change, GELU", *smooth, -1.0 * factor),
        at_most("slope of the kernel's change, ReLU", kinked[0], -0.5, kinked[1]),
        at_most("most of the loss that is left", float(both[..., 2].max()), 0.01),
    ]
    lines = []
    shown = (
        ("kernel, ReLU", "relu", 0, -0.75),
        ("kernel, GELU", "gelu", 0, -1),
        ("weights", "relu", 1, -0.5),
    )
    for name, kind, index, power in shown:
        values = results[kind][..., index]
        mean, error = values.mean(1), 2 * values.std(1, ddof=1) / math.sqrt(seeds)
        lines.append(Series(name, widths, mean, mean - error, mean + error, "points"))
        guide = [mean[0] * (width / widths[0]) ** power for width in widths]
        lines.append(Series(f"width^{power}", widths, guide, style="dashed"))
    panel = Panel(
        "How far training moves a network",
        "width (neurons)",
        "relative change (share)",
        lines,
        x_log=True,
        y_log=True,
    )
    caption = f"Frobenius norms, means of {seeds} networks with two standard errors."
    return Evidence(numbers, pictures=[Picture(caption, [panel])])


@claim(
    "K6b",
    "Residuals follow the kernel",
    kind="identity",
    statement=r"""
    Under gradient flow on $\sum_i \ell(f_\theta(x_i),y_i)$ the output at any input moves as
    $$\partial_t f_\theta(x)=-\sum_i K_\theta(x,x_i)\,\partial_y\ell(f_\theta(x_i),y_i),$$
    so that with the squared loss $\frac12\|f-y\|^2$ the residual $r=f-y$ obeys $\partial_t r=-K_\theta r$.
    With the kernel fixed, as in a wide network, outputs are known at every time: with $f_0$ at the start,
    $$f_t(x)=f_0(x)+K(x,X)K^{-1}\left(1-e^{-Kt}\right)(y-f_0(X)).$$
    """,
    refuted_by="a step of gradient descent, far too small to bend the network, that changes outputs "
    "otherwise than the kernel says; or a wide network whose outputs at new points stray from the closed "
    "form, more so than those of a narrow one",
    seconds={"quick": 4, "standard": 15},
    planted={"factor": 1.05},
    details=r"""
    The first numbers hold for any network, at any time: one step of size $10^{-6}$, taken by autograd,
    against the kernel times the gradient of the loss. The others ask how good the closed form with the kernel
    of the start is at new points, over the whole course of training, relative to how far outputs move. At the
    training points the end would say little: there both reach the targets.
    """,
    references=("Lee, Xiao et al. (2019), Wide neural networks of any depth evolve as linear models",),
)
def residuals(run: Running, factor: float = 1.0) -> Evidence:
    """Steps of gradient descent against the kernel; `factor` multiplies the kernel."""
    draw, numbers = run.generator(), []
    x, new = on_sphere(12, FEATURES, draw), on_sphere(20, FEATURES, draw)
    for name in ("squared loss", "cross-entropy"):
        network = ntk.DenseNetwork(
            FEATURES, 30, depth=2, outputs=3, activation="gelu", generator=draw
        ).double()
        apart = _one_step(network, x, new, name == "squared loss", factor)
        # the second order of a step of 1e-6 is of that relative size, times curvature
        numbers.append(at_most(f"relative error of one step, {name}", apart, 1e-3))
    y = torch.randn(12, generator=draw, dtype=torch.float64)
    widths = run.pick([32, 128, 512], [32, 128, 512, 2048])
    times, paths = np.linspace(0, 1, 41).tolist(), {}
    errors = []
    for width in widths:
        found = [
            _course(ntk.DenseNetwork(FEATURES, width, 1, generator=draw).double(), x, y, new, factor)
            for _ in range(run.pick(3, 8))
        ]
        errors.append([float((got - said).norm() / (said - said[0]).norm()) for got, said in found])
        paths[width] = found[0]
    fall = slope(widths, np.array(errors))
    numbers.append(
        at_most(f"relative error at new points, width {widths[-1]}", float(np.mean(errors[-1])), 0.1)
    )
    numbers.append(at_most("slope of that error against the width", fall[0], -0.25, fall[1]))
    lines = []
    for width in (widths[0], widths[-1]):
        got, said = paths[width]
        lines.append(Series(f"width {width}", times, got[:, 0].tolist()))
        lines.append(Series("", times, said[:, 0].tolist(), style="dashed"))
    panels = [
        Panel("Output at a new point while training", "time (of the whole training)", "output", lines),
        Panel(
            "Distance from the closed form", "width (neurons)", "relative error at new points",
            [
                Series(f"network {k + 1}", widths, [row[k] for row in errors], style="points")
                for k in range(len(errors[0]))
            ],
            x_log=True, y_log=True,
        ),
    ]  # fmt: skip
    caption = "Solid: gradient descent. Dashed: the closed form with the kernel of the start."
    return Evidence(numbers, pictures=[Picture(caption, panels)])


def _one_step(network: nn.Module, x: Tensor, new: Tensor, squared: bool, factor: float) -> float:
    """How far a small step moves outputs at new points from where the kernel says, relative to the move."""
    labels = torch.arange(len(x)) % 3
    outputs = network(x)
    if squared:
        loss = 0.5 * (outputs - nn.functional.one_hot(labels, 3)).square().sum()
    else:
        loss = nn.functional.cross_entropy(outputs, labels, reduction="sum")
    gradients = torch.autograd.grad(loss, [outputs, *network.parameters()])
    kernel = factor * ntk.empirical(network, new, x)
    predicted = -1e-6 * torch.einsum("nmab,mb->na", kernel, gradients[0])
    with torch.no_grad():
        before = network(new)
        for parameter, gradient in zip(network.parameters(), gradients[1:], strict=True):
            parameter.sub_(gradient, alpha=1e-6)
        moved = network(new) - before
    return float((moved - predicted).norm() / moved.norm())


def _course(network: nn.Module, x: Tensor, y: Tensor, new: Tensor, factor: float) -> tuple[Tensor, Tensor]:
    """Outputs at new points at 41 times of training, by gradient descent and by the closed form."""
    with torch.no_grad():
        kernel, cross = (ntk.empirical(network, one, x, "trace") * factor for one in (x, new))
        start, first = network(x)[:, 0], network(new)[:, 0]
    largest = float(torch.linalg.eigvalsh(kernel)[-1]) / factor
    fitted, rate = ntk.fit(kernel, y), 0.1 / largest
    got, said = [], []
    for step in range(401):
        if step % 10 == 0:
            with torch.no_grad():
                got.append(network(new)[:, 0])
            said.append(fitted.at(cross, step * rate, start, first))
        _step(network, x, y, rate)
    return torch.stack(got), torch.stack(said)


@claim(
    "K6c",
    "The kernel is positive unless the activation is a polynomial",
    kind="identity",
    statement=r"""
    On any distinct points of the sphere the kernel of an infinitely wide network is positive definite if its
    activation is not a polynomial, and there are biases. Training with the squared loss then takes all
    residuals to 0, whatever the targets. With a polynomial activation it is not, as soon as there are more
    points than there are polynomials of that degree: on the sphere in dimension $d$ the square leaves rank
    $\frac{(d+1)(d+2)}{2}-1$ to a network with one hidden layer.
    """,
    refuted_by="an eigenvalue of 0, up to rounding, for ReLU, erf, GELU or tanh; or a rank that grows with "
    "the number of points for the square; or residuals that stay where the kernel is positive definite",
    seconds={"quick": 1, "standard": 1},
    planted={"factor": 1.05},
    details=r"""
    Rank is the number of eigenvalues above rounding: $10^{-13}n$ of the largest, and $n\sqrt\varepsilon$ for
    ReLU, whose kernel needs angles. The points are hard ones: pairs at opposite ends of the sphere.
    They show that biases are needed, which the course does not say: without them one hidden layer of ReLU
    represents, of the odd functions, the linear ones alone, and the kernel of $m$ such pairs has rank $m+d$
    where $m>d$. The course says that training becomes a convex problem: with the kernel fixed and squared
    loss it is convex whatever the kernel is. What positive definiteness adds is $\partial_tr=-Kr\to0$: with
    the square the part of the residual in the null space of $K$ stays.
    """,
    references=(
        "Jacot, Gabriel and Hongler (2018), Neural tangent kernel, proposition 2",
        "Bietti and Mairal (2019), On the inductive bias of neural tangent kernels",
    ),
)
def positive(run: Running, factor: float = 1.0) -> Evidence:
    """Eigenvalues on pairs of opposite points, and residuals; `factor` multiplies the known ranks."""
    dimension, pairs = 5, run.pick(40, 150)
    half = on_sphere(pairs, dimension, run.generator())
    x = torch.cat([half, -half])
    count, numbers, lines = len(x), [], []

    targets = torch.randn(count, generator=run.generator("targets"), dtype=torch.float64)

    def kernel_of(name: str, bias: float) -> Tensor:
        return ntk.infinite_width(1, torch.square if name == "square" else name, bias_variance=bias)(x).ntk

    def spectrum(name: str, bias: float) -> Tensor:
        values: Tensor = torch.linalg.eigvalsh(kernel_of(name, bias))
        return values.flip(0)

    def left(name: str, time: float) -> float:
        fitted = ntk.fit(kernel_of(name, 0.1), targets)
        return float((fitted.at(time=time) - targets).norm() / targets.norm())

    for name in ("relu", "erf", "gelu", "tanh"):
        values = spectrum(name, 0.1)
        rest = left(name, 20 / float(values[-1]))
        numbers.append(at_most(f"residual left after a time of 20/λ_min, {name}", rest, 1e-6))
        numbers.append(same(f"rank of {count} points, {name}", _rank(values, name), count))
        ratio = float(values[-1] / values[0])
        numbers.append(
            at_least(f"smallest eigenvalue over the largest, {name}", ratio, _rounding(count, name))
        )
        lines.append(Series(name, range(1, count + 1), values.clamp(min=1e-18).tolist()))
    square = spectrum("square", 0.1)
    known = (dimension + 1) * (dimension + 2) // 2 - 1
    numbers.append(close("rank, square", _rank(square, "square"), factor * known))
    without = _rank(spectrum("relu", 0.0), "relu")
    numbers.append(close("rank, ReLU without biases", without, factor * (pairs + dimension)))
    numbers.append(
        at_least("residual left for good, square", left("square", 1e6 / float(square[known - 1])), 0.5)
    )
    lines.append(Series("square", range(1, count + 1), square.clamp(min=1e-18).tolist(), style="dashed"))
    panel = Panel("Eigenvalues of the kernel", "number", "eigenvalue", lines, y_log=True)
    caption = f"{pairs} pairs of opposite points on the sphere in dimension {dimension}; one hidden layer."
    return Evidence(numbers, pictures=[Picture(caption, [panel])])


def _rank(values: Tensor, name: str) -> int:
    return int((values > _rounding(len(values), name) * values[0]).sum())


def _rounding(count: int, name: str) -> float:
    """What rounding can make of an eigenvalue of 0, relative to the largest."""
    # ReLU's kernel needs the angle, of which rounding leaves √ε where points are opposite
    return count * (math.sqrt(torch.finfo(torch.float64).eps) if name == "relu" else 1e-13)


@claim(
    "K6d",
    "The limit is known in closed form",
    kind="identity",
    statement=r"""
    As the widths of its hidden layers grow, the kernel of a network with standard normal weights, scaled by
    $\sqrt{v/n}$, tends to one that a recursion gives: with $\Sigma^0=\Theta^0=v\,x\cdot x'/d+b$,
    $$\Sigma^l=v\,\mathbb{E}[\sigma(u)\sigma(u')]+b,\qquad
    \Theta^l=\Sigma^l+v\,\mathbb{E}[\sigma'(u)\sigma'(u')]\,\Theta^{l-1},$$
    $(u,u')$ normal with covariance $\Sigma^{l-1}$. The error falls as $n^{-1/2}$. The same holds of
    convolutional networks as their channels grow.
    """,
    refuted_by="the mean kernel of random networks that differs from the recursion by more than three "
    "standard errors and what 1/width explains, or an error whose slope against the width is not near -1/2",
    seconds={"quick": 2, "standard": 10},
    planted={"factor": 1.06},
    references=(
        "Jacot, Gabriel and Hongler (2018), Neural tangent kernel",
        "Arora, Du, Hu, Li et al. (2019), On exact computation with an infinitely wide neural net",
    ),
)
def recursion(run: Running, factor: float = 1.0) -> Evidence:
    """Kernels of random networks against the recursion, which `factor` multiplies."""
    draw, widths, seeds = run.generator(), run.pick([32, 128, 512], [32, 128, 512, 2048]), run.pick(30, 60)
    x = on_sphere(6, FEATURES, draw)
    limit = factor * ntk.infinite_width(2, bias_variance=0.1)(x).ntk
    errors, found = np.empty((len(widths), seeds)), []
    for place, width in enumerate(widths):
        found = [
            ntk.empirical(
                ntk.DenseNetwork(FEATURES, width, 2, bias_variance=0.1, generator=draw).double(),
                x,
                form="trace",
            )
            for _ in range(seeds)
        ]
        errors[place] = [float((one - limit).norm() / limit.norm()) for one in found]
    typical = np.sqrt((errors**2).mean(1))
    fall = float(np.polyfit(np.log(widths), np.log(typical), 1)[0])
    # a root mean square over s networks has a relative error of about 1/√(2s) at each end of the line
    spread = math.sqrt(2 / (2 * seeds)) / math.log(widths[-1] / widths[0])
    numbers = [
        between("slope of the error against the width", fall, -0.5 - 3 * spread, -0.5 + 3 * spread),
        _of_limit(f"kernels over their limit, width {widths[-1]}", found, limit, 2 / widths[-1]),
    ]
    numbers += _convolutional(run, draw, factor)
    share = 1 / math.sqrt(2 * seeds)
    lines = [
        Series("random networks", widths, typical, typical * (1 - share), typical * (1 + share), "points"),
        Series("width^-0.5", widths, [typical[0] * (w / widths[0]) ** -0.5 for w in widths], style="dashed"),
    ]  # fmt: skip
    panel = Panel(
        "Distance of kernels from their limit",
        "width (neurons)",
        "relative error",
        lines,
        x_log=True,
        y_log=True,
    )
    caption = f"Root mean squares over {seeds} networks with two hidden layers, with a standard error."
    return Evidence(numbers, pictures=[Picture(caption, [panel])])


def _of_limit(name: str, found: list[Tensor], limit: Tensor, finite: float) -> Number:
    """The mean over networks of the multiple of the limit that is nearest to each one's kernel."""
    shares = torch.stack([(one * limit).sum() for one in found]) / limit.square().sum()
    error = float(shares.std()) / math.sqrt(len(found))
    # A width that is not infinite costs a share of the order of depth/width.
    return agrees(name, float(shares.mean()), error + finite / 3, 1.0)


def _convolutional(run: Running, draw: torch.Generator, factor: float) -> list[Number]:
    images, seeds = torch.randn(2, 2, 4, 4, generator=draw, dtype=torch.float64), run.pick(40, 120)
    numbers = []
    for readout in READOUTS:
        limit = factor * ntk.infinite_convolution(2, readout=readout, bias_variance=0.1)(images).ntk
        found = [
            ntk.ConvolutionalNetwork(
                2, 16, 96, 2, readout=readout, bias_variance=0.1, generator=draw
            ).double()
            for _ in range(seeds)
        ]
        kernels = [ntk.empirical(one, images, form="trace") for one in found]
        numbers.append(_of_limit(f"kernels of images over their limit, {readout}", kernels, limit, 2 / 96))
    return numbers


@claim(
    "K6e",
    "Regression with the kernel classifies",
    kind="size",
    statement=r"""
    Regression with the kernel of an infinitely wide network, onto targets $1-\frac1C$ for the class and
    $-\frac1C$ for the others, classifies images well: on the handwritten digits of 8 by 8 pixels its errors
    are a fraction of those of a linear regression, and the network never has to be trained. The kernel is
    that of real networks: those of width 512 have it on average.
    """,
    refuted_by="an error on new digits of more than 4 %, or more than half of that of linear regression; or "
    "a kernel on digits that is not the mean of those of drawn networks",
    seconds={"quick": 2, "standard": 3},
    planted={"factor": 1.08},
    references=("Arora, Du, Hu, Li et al. (2019), On exact computation with an infinitely wide neural net",),
)
def classification(run: Running, factor: float = 1.0) -> Evidence:
    """Digits are classified; `factor` multiplies the kernel."""
    from sklearn.datasets import load_digits

    depth = 3
    digits = load_digits()
    order = run.random().permutation(len(digits.target))
    x = torch.from_numpy(digits.data[order]).double() / 16
    labels, count = torch.from_numpy(digits.target[order]).long(), run.pick(900, 1200)
    errors, smallest = {}, {}
    for name, layers in (("kernel", depth), ("linear", 0)):
        kernel = ntk.infinite_width(layers, bias_variance=0.1)
        predicted = ntk.classify(
            kernel(x[:count]).ntk, labels[:count], kernel(x[count:], x[:count]).ntk, ridge=1e-3
        )
        errors[name] = float((predicted.classes != labels[count:]).double().mean())
        smallest[name] = predicted.fit.smallest_eigenvalue
    draw, limit = run.generator("networks"), factor * ntk.infinite_width(depth, bias_variance=0.1)(x[:8]).ntk
    found = [
        ntk.empirical(
            ntk.DenseNetwork(64, 512, depth, bias_variance=0.1, generator=draw).double(), x[:8], form="trace"
        )
        for _ in range(run.pick(25, 100))
    ]
    tested = len(labels) - count
    spread = math.sqrt(errors["kernel"] * (1 - errors["kernel"]) / tested)
    numbers = [
        at_most("error of the kernel", errors["kernel"], 0.04, spread),
        at_most(
            "error of the kernel over that of the linear model", errors["kernel"] / errors["linear"], 0.5
        ),
        _of_limit("kernels of networks on digits over the limit", found, limit, depth / 512),
    ]
    remark = (
        f"{count} digits to train, {tested} to test; the smallest eigenvalue is {smallest['kernel']:.2g}."
    )
    return Evidence(numbers, remark=remark)
