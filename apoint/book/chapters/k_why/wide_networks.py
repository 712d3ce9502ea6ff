"""K7: wide networks reach zero training loss at a linear rate, and need far less width than was proved."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from apoint.book.claim import claim
from apoint.book.evidence import Evidence, Number, agrees, at_least, at_most, between, close
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.theory import overparametrisation as wide

INPUTS = 10
PAPER = (
    "Allen-Zhu, Li and Song (2019), A convergence theory for deep learning via over-parameterization",
    "Du, Lee, Li, Wang and Zhai (2019), Gradient descent finds global minima of deep neural networks",
)


def _problem(count: int, generator: torch.Generator, outputs: int = 1) -> tuple[Tensor, Tensor]:
    """Random directions with random targets: nothing to learn but to remember them."""
    inputs = torch.randn(count, INPUTS, generator=generator, dtype=torch.float64)
    targets = torch.randn(count, outputs, generator=generator, dtype=torch.float64)
    return inputs / inputs.norm(dim=1, keepdim=True), targets


# -- activations -----------------------------------------------------------------------------------------


@claim(
    "K7",
    "Activations keep their norm over the layers",
    kind="identity",
    statement=r"""
    In a ReLU network of width $m$ whose weights have variance $2/m$, an input of norm 1 has, over the random
    start and after $k$ layers,
    $$\mathbb{E}\lVert h\rVert^2=1,\qquad \operatorname{Var}\lVert h\rVert^2=\left(1+\frac5m\right)^k-1.$$
    So the norm is of order 1 in all layers while their number is small against the width.
    """,
    refuted_by="a mean or variance over drawn networks more than three standard errors away",
    seconds={"quick": 2, "standard": 40},
    planted={"factor": 1.06},
    details=r"""
    Given the layer before, pre-activations are independent normals, and one layer multiplies
    $\lVert h\rVert^2$ by $\frac2m\sum_j\max(0,z_j)^2$, of mean 1 and second moment $1+5/m$; layers multiply
    independently. The check draws whole networks and measures norms. Where the source says "of constant
    order" this is the constant.
    """,
    references=PAPER[:1],
)
def activation_norms(run: Running, factor: float = 1.0) -> Evidence:
    """Networks are drawn and norms measured; `factor` multiplies the moments of the formula."""
    width, depth, count = 100, 8, run.pick(500, 10_000)
    generator, rows = run.generator(), []
    inputs, _ = _problem(1, generator)
    for _ in range(count):
        network = wide.draw(width, depth, INPUTS, 1, generator)
        rows.append([float(h.square().sum()) for h in network.activations(inputs)])
    squares = np.array(rows)
    means, errors = squares.mean(0), squares.std(0, ddof=1) / math.sqrt(count)
    spreads = (squares - means) ** 2
    numbers = []
    for layer in (0, 4, depth):
        mean, spread = (factor * moment for moment in wide.squared_norm_moments(width, layer + 1))
        numbers.append(
            agrees(f"mean of ‖h‖², layer {layer}", float(means[layer]), float(errors[layer]), mean)
        )
        error = float(spreads[:, layer].std()) / math.sqrt(count)
        measured = float(spreads[:, layer].mean())
        numbers.append(agrees(f"variance of ‖h‖², layer {layer}", measured, error, spread))
    layers = list(range(depth + 1))
    deviation = [math.sqrt(wide.squared_norm_moments(width, layer + 1)[1]) for layer in layers]
    series = [
        Series("mean over networks", layers, means, means - 2 * errors, means + 2 * errors, "points"),
        Series("expected", layers, [1.0] * len(layers)),
        Series("one standard deviation above", layers, [1 + d for d in deviation], style="dashed"),
        Series("one below", layers, [1 - d for d in deviation], style="dashed"),
    ]
    panel = Panel(f"Squared norm of activations, width {width}", "layer l", "‖h‖² for ‖x‖ = 1", series)
    caption = f"Means over {count} drawn networks with two standard errors, and the spread of single ones."
    return Evidence(numbers, pictures=[Picture(caption, [panel])])


# -- gradient --------------------------------------------------------------------------------------------


@claim(
    "K7b",
    "The gradient is bounded by the loss on both sides",
    kind="bound",
    statement=r"""
    At its start, and all along its training, a wide network has no flat place that is not a solution: with
    $n$ examples at distances of at least $\delta$, width $m$, depth $L$ and $d$ outputs,
    $$\Omega\left(\frac{\delta m}{dn^2}\right)\mathcal{L}\le\lVert\nabla\mathcal{L}\rVert^2\le
    O\left(\frac{Lnm}{d}\right)\mathcal{L}.$$
    With 1 for the constant on the left and 4 on the right this holds for whatever targets. With examples that
    are all the same the constant on the right is 2, on average over the random start: it cannot be less.
    """,
    refuted_by="a network of the grid, or a step of training, whose ratio of squared gradient to loss is "
    "outside; or a ratio that does not grow in proportion to the width",
    seconds={"quick": 3, "standard": 30},
    planted={"factor": 1.09},
    details=r"""
    As $\nabla\mathcal{L}=2J^{\top}r$ with the residuals $r$, the best constants for all targets are
    $4\lambda_{\min}$ and $4\lambda_{\max}$ of the tangent kernel $JJ^{\top}$, which the check computes over a
    grid of $n$, $m$, $L$ and $d$. Each gradient of an output has a squared norm near $Lm/2d$, so that
    $4\lambda_{\max}\le 2Lnm/d$ or a little more; 4 leaves room for narrow networks. On the left the
    theorem is far from tight: no check of one-sided bounds could tell $n^2$ from $n^{3/2}$ there. What can be
    checked to a few percent is the right side. For equal examples $\lambda_{\max}$ is $n$ times the squared
    norm of one gradient, whose mean is $Lm/2d$ but for a share of the order $L/m$.
    """,
    references=PAPER[:1],
)
def gradient_bounds(run: Running, factor: float = 1.0) -> Evidence:
    """Kernels over a grid, gradients along training; `factor` multiplies the bounds."""
    sizes = run.pick((32, 96, 256), (32, 96, 256, 512))
    grid = itertools.product((5, 15), sizes, (1, 3), (1, 3))
    lower, upper, growth = [], [], dict[int, float]()
    for count, width, depth, outputs in grid:
        generator = run.generator(f"{count} {depth} {outputs}")
        inputs, _ = _problem(count, generator)
        network = wide.draw(width, depth, INPUTS, outputs, generator)
        low, high = wide.gradient_bounds(wide.tangent_kernel(network, inputs))
        bounds = _bounds(network, inputs, factor)
        lower.append(low / bounds[0])
        upper.append(high / bounds[1])
        growth[width] = max(growth.get(width, 0.0), high)
    slope = math.log(growth[sizes[-1]] / growth[sizes[0]]) / math.log(sizes[-1] / sizes[0])
    ratios, bounds = _training_ratios(run, factor)
    numbers = [
        at_least("smallest constant on the left", min(lower), 1, remark=f"over {len(lower)} networks"),
        at_most("largest constant on the right", max(upper), 4, remark=f"over {len(upper)} networks"),
        at_least("the same on the left, in training", min(ratios) / bounds[0], 1),
        at_most("the same on the right, in training", max(ratios) / bounds[1], 4),
        between("power of the width in the right side", slope, 0.8, 1.2),
        *_equal_examples(run, factor),
    ]
    return Evidence(numbers, pictures=[_ratio_picture(ratios, bounds)])


def _equal_examples(run: Running, factor: float) -> list[Number]:
    """The constant of the right side for examples that are nearly the same, as a mean over networks."""
    numbers, width, count, repeats = [], 128, 3, run.pick(250, 1000)
    for depth, outputs in ((1, 1), (3, 1), (2, 2)):
        generator, found = run.generator(f"equal {depth} {outputs}"), []
        inputs = _problem(1, generator)[0].repeat(count, 1)
        for _ in range(repeats):
            network = wide.draw(width, depth, INPUTS, outputs, generator)
            trace = float(wide.tangent_kernel(network, inputs[:1]).trace()) / outputs
            found.append(4 * count * trace)
        bound = wide.theorem_gradient_bounds(count, width, depth, outputs, 1.0)[1]
        values = np.array(found) / (factor * bound)
        # One gradient's norm is that of a network of this width: off by a share of the order of L/m.
        error = float(values.std(ddof=1)) / math.sqrt(repeats) + depth / width / 3
        numbers.append(
            agrees(f"constant for equal examples, L = {depth}, d = {outputs}", values.mean(), error, 2.0)
        )
    return numbers


def _bounds(network: wide.Network, inputs: Tensor, factor: float) -> tuple[float, float]:
    low, high = wide.theorem_gradient_bounds(
        len(inputs), network.width, network.depth, network.outputs, wide.separation(inputs)
    )
    return low * factor, high * factor


def _training_ratios(run: Running, factor: float) -> tuple[list[float], tuple[float, float]]:
    generator = run.generator("training")
    inputs, targets = _problem(15, generator)
    network = wide.draw(256, 2, INPUTS, 1, generator)
    bounds = _bounds(network, inputs, factor)
    lr = _safe_rate(network, inputs)
    ratios = []
    for _ in range(150):
        value, slope = wide.gradient(network, inputs, targets)
        ratios.append(float(slope.square().sum()) / value)
        network = network.moved(-lr * slope)
    return ratios, bounds


def _safe_rate(network: wide.Network, inputs: Tensor) -> float:
    """Half of 1/λ_max, at which 1 − 2ηλ is not negative for any eigenvalue."""
    return 0.5 / float(torch.linalg.eigvalsh(wide.tangent_kernel(network, inputs))[-1])


def _ratio_picture(ratios: Sequence[float], bounds: tuple[float, float]) -> Picture:
    steps = list(range(len(ratios)))
    ends = [steps[0], steps[-1]]
    series = [
        Series("‖∇𝓛‖²/𝓛", steps, ratios),
        Series("4·Lnm/d", ends, [4 * bounds[1]] * 2, style="dashed"),
        Series("δm/(dn²)", ends, [bounds[0]] * 2, style="dashed"),
    ]
    panel = Panel(
        "Squared gradient by loss", "step of gradient descent", "ratio (1/weight²)", series, y_log=True
    )
    return Picture("One network of width 256 with two trained layers that learns 15 examples.", [panel])


# -- semi-smoothness -------------------------------------------------------------------------------------


@claim(
    "K7c",
    "Near the start the loss is nearly smooth",
    kind="bound",
    statement=r"""
    For weights $\theta$ near the random start and a change $\theta'$, the loss lies above its tangent by no
    more than
    $$\frac{\operatorname{poly}(L)\sqrt{nm\log m}}{\sqrt d}\lVert\theta'\rVert\sqrt{\mathcal{L}(\theta)}
    +O\left(\frac{nL^2m}{d}\right)\lVert\theta'\rVert^2,$$
    although ReLU has a kink. It holds with $L^2$ for the polynomial and 1 for the constant. In the second
    term $L^2$ and $\frac12$ in place of 1 are attained, on average over the random start.
    """,
    refuted_by="a change, of any size and direction tried, after which the loss is further above its "
    "tangent; or an excess that grows with the width by a clearly larger power than the bound",
    seconds={"quick": 6, "standard": 40},
    planted={"factor": 0.92},
    details=r"""
    $\lVert\theta'\rVert$ is the largest spectral norm of the changed matrices. Sizes go from a hundred
    thousandth to a hundredth, which for the widest network is more than training moves it; directions are
    random, along the gradient and against it, and from points that are themselves a little off the start.
    There the bound is far from tight, as its constants are unknown. The second term alone is left where the
    loss is 0: then the largest excess is that of equal examples and of changes along the gradient of the
    output in every layer, and is compared with the bound for one and for three layers.
    """,
    references=PAPER[:1],
)
def semi_smoothness(run: Running, factor: float = 1.0) -> Evidence:
    """The loss is compared with its tangent after many changes; `factor` multiplies the bound."""
    sizes, excesses, shares = np.logspace(-5, -2, 7), dict[int, float](), dict[int, list[float]]()
    for width in run.pick((32, 128, 512), (32, 128, 512, 1024)):
        repeats = [
            _excesses(width, run.generator(f"{width} {repeat}"), sizes, factor)
            for repeat in range(run.pick(2, 6))
        ]
        excess, share = np.max(repeats, axis=0)
        excesses[width], shares[width] = float(excess[-1]), share.tolist()
    numbers = [
        at_most(f"largest share of the bound, width {width}", max(values), 1)
        for width, values in shares.items()
    ]
    first, last = min(excesses), max(excesses)
    slope = math.log(excesses[last] / excesses[first]) / math.log(last / first)
    numbers.append(
        at_most(
            "power of the width in the excess",
            slope,
            1.25,
            remark="from the narrowest to the widest, at the largest change; the bound's is 1 in its "
            "quadratic part, and two networks each leave it uncertain by about 0.2",
        )
    )
    numbers += _attained(run, factor)
    lines = [Series(f"width {width}", sizes.tolist(), values) for width, values in shares.items()]
    lines.append(Series("the bound", [float(sizes[0]), float(sizes[-1])], [1.0, 1.0], style="dashed"))
    panel = Panel(
        "How far above the tangent",
        "size of the change (spectral norm)",
        "share of the bound",
        lines,
        True,
        True,
    )
    caption = (
        "The largest excess over directions and networks, by what the theorem allows with constants of 1."
    )
    return Evidence(numbers, pictures=[Picture(caption, [panel])])


def _attained(run: Running, factor: float) -> list[Number]:
    """The excess over the bound at loss 0, for equal examples and a change that moves all outputs most."""
    numbers, width, count, size, repeats = [], 128, 3, 1e-4, run.pick(300, 1000)
    for depth in (1, 3):
        generator, shares = run.generator(f"attained {depth}"), []
        inputs = _problem(1, generator)[0].repeat(count, 1)
        for _ in range(repeats):
            network = wide.draw(width, depth, INPUTS, 1, generator)
            outputs = network(inputs)
            _, slope = wide.gradient(network, inputs[:1], outputs[:1] - 0.5)
            change = size * slope / torch.linalg.vector_norm(slope, dim=(1, 2), keepdim=True)  # of rank 1
            excess = wide.semi_smooth_excess(network, change, inputs, outputs)
            shares.append(excess / (factor * wide.semi_smooth_bound(0.0, size, count, width, depth, 1)))
        error = float(np.std(shares, ddof=1)) / math.sqrt(repeats) + 0.5 * depth / width / 3
        numbers.append(
            agrees(f"excess over bound at loss 0, L = {depth}", float(np.mean(shares)), error, 0.5)
        )
    return numbers


def _excesses(width: int, generator: torch.Generator, sizes: np.ndarray, factor: float) -> np.ndarray:
    """The largest excess for each size, and the largest share of the bound, as two rows."""
    count, depth = 10, 2
    inputs, targets = _problem(count, generator)
    start = wide.draw(width, depth, INPUTS, 1, generator)

    def direction() -> Tensor:
        return torch.randn(start.hidden.shape, generator=generator, dtype=torch.float64)

    found = np.zeros((2, len(sizes)))
    for network in (start, start.moved(_of_size(direction(), 1e-3))):
        value, slope = wide.gradient(network, inputs, targets)
        for towards in (direction(), slope, -slope):
            unit = _of_size(towards, 1.0)
            for place, size in enumerate(sizes.tolist()):
                excess = wide.semi_smooth_excess(network, size * unit, inputs, targets)
                bound = factor * wide.semi_smooth_bound(value, size, count, width, depth, 1)
                found[:, place] = np.maximum(found[:, place], (excess, excess / bound))
    return found


def _of_size(change: Tensor, size: float) -> Tensor:
    return change * (size / float(torch.linalg.matrix_norm(change, 2).max()))


# -- convergence -----------------------------------------------------------------------------------------


@claim(
    "K7d",
    "Linear convergence to zero training loss",
    kind="bound",
    statement=r"""
    Gradient descent with step $\eta$ takes a wide network to zero training loss at a linear rate, whatever
    the targets, and the smallest eigenvalue of the tangent kernel at the start tells which: at each step $t$
    $$\mathcal{L}(\theta_t)\le(1-\eta\lambda_{\min})^t\,\mathcal{L}(\theta_0),$$
    the logarithm of the loss becomes a straight line in $t$, and its slope comes near
    $2\log(1-2\eta\lambda_{\min})$. This is so because the kernel hardly changes while a wide network
    learns, and the less the wider it is.
    """,
    refuted_by="a wide network that is above the bound at some step, whose logarithm of the loss bends, "
    "whose rate is not that of the smallest eigenvalue, or whose kernel changes as much as a narrow one's",
    seconds={"quick": 2, "standard": 60},
    planted={"factor": 1.08},
    details=r"""
    With $\mathcal{L}=\lVert r\rVert^2$ and a kernel $K$ that stayed as it is, residuals would follow
    $r_{t+1}=(1-2\eta K)r_t$. A wide network nearly does this; half the rate, as in the inequality, is what
    remains certain when the kernel changes a little. The step is $1/(2\lambda_{\max})$. A network of 16
    neurons is trained beside the others, of which the theorem says nothing. For a small step
    the kernel of the moment is right whatever the width; that is asked at the start and at the end.
    """,
    references=PAPER,
)
def linear_convergence(run: Running, factor: float = 1.0) -> Evidence:
    """Networks of several widths learn random targets; `factor` multiplies the kernel."""
    widths, count, num_steps = run.pick((64, 512), (64, 256, 1024)), 12, 150
    lines, changes, numbers = [], [], []
    for width in (16, *widths):
        run.say(f"training width {width}")
        generator = run.generator("all widths learn the same")
        inputs, targets = _problem(count, generator)
        network = wide.draw(width, 2, INPUTS, 1, run.generator(f"{width}"))
        kernel = wide.tangent_kernel(network, inputs)
        values = torch.linalg.eigvalsh(kernel)
        lr, slowest = 0.5 / float(values[-1]), factor * float(values[0])
        learned, losses = wide.descend(network, inputs, targets, lr, num_steps, until=1e-20)
        logs, steps = np.log(losses), np.arange(len(losses))
        lines.append(Series(f"width {width}", steps.tolist(), losses))
        predicted = wide.predicted_losses(kernel, network(inputs) - targets, lr, num_steps)
        if width == widths[-1]:
            lines.append(Series("kernel of the start", range(num_steps + 1), predicted, style="dashed"))
        if width == 16:
            continue
        for name, one in (("start", network), ("end", learned)):
            # Of the fall in so small a step the curvature of the network changes a hundredth or so.
            ratio = _small_step(one, inputs, targets, lr, factor)
            said = f"fall of the loss by the kernel's, at the {name}, width {width}"
            numbers.append(close(said, ratio, 1.0, 0.02))
        over = float((logs - logs[0] - steps * np.log1p(-lr * slowest)).max())
        rate, bend = _tail(logs)
        changes.append(float((wide.tangent_kernel(learned, inputs) - kernel).norm() / kernel.norm()))
        numbers.append(at_most(f"log of loss by bound, worst step, width {width}", over, 1e-9))
        numbers.append(at_least(f"straightness of the log loss (R²), width {width}", 1 - bend, 0.99))
    expected = 2 * math.log(abs(1 - 2 * lr * slowest) + 1e-300)
    numbers.append(between(f"rate by that of λ_min, width {widths[-1]}", rate / expected, 0.75, 1.25))
    numbers.append(
        at_most(
            f"change of the kernel, width {widths[-1]} by {widths[0]}",
            changes[-1] / changes[0],
            0.6,
            remark=f"relative changes {changes[0]:.3f} and {changes[-1]:.3f}; proved to fall as m^(-1/2)",
        )
    )
    panel = Panel("Training loss", "step of gradient descent", "𝓛, sum of squared errors", lines, y_log=True)
    caption = f"{count} random examples with random targets, two trained layers; dashed: a kernel kept fixed."
    return Evidence(numbers, pictures=[Picture(caption, [panel])])


def _small_step(network: wide.Network, inputs: Tensor, targets: Tensor, lr: float, factor: float) -> float:
    """The fall of the loss in a hundredth of a step by what the kernel of the moment says."""
    _, losses = wide.descend(network, inputs, targets, lr / 100, 1)
    kernel = factor * wide.tangent_kernel(network, inputs)
    said = wide.predicted_losses(kernel, network(inputs) - targets, lr / 100, 1)
    return (losses[0] - losses[1]) / (said[0] - said[1])


def _tail(logs: np.ndarray) -> tuple[float, float]:
    """Slope of the last half of the logarithms, and the share of their variance that a line leaves."""
    half = logs[len(logs) // 2 :]
    steps = np.arange(len(half))
    slope, level = np.polyfit(steps, half, 1)
    return float(slope), float(np.var(half - slope * steps - level) / np.var(half))


# -- width -----------------------------------------------------------------------------------------------


@claim(
    "K7e",
    "The width that was proved and the width that is enough",
    kind="size",
    statement=r"""
    The theorem asks for a width of $n^{24}L^{12}/\delta^8$ or more. Gradient descent already finds zero
    training loss with some tens of neurons: for up to 16 examples the demand is more than $10^{15}$ times
    too large, and what is enough grows with a power of $n$ nearer 1 than 24.
    """,
    refuted_by="a demand within fifteen powers of ten of the width found by search, or an enough width that "
    "grows faster than the cube of the number of examples",
    seconds={"quick": 3, "standard": 120},
    planted={"factor": 0.95},
    details=r"""
    For each $n$ the search doubles the width until gradient descent brings random targets below a thousandth
    of their loss from each of three random starts, and then bisects. The exponents 24, 12 and 8 are those of
    the theorem, which has a further factor $d$ for $d$ outputs; here $d=1$. $L=2$, ten inputs, a step of
    $1/(2\lambda_{\max})$ and at most 600 of them; with more patience still smaller widths are enough.
    """,
    references=PAPER[:1],
)
def enough_width(run: Running, factor: float = 1.0) -> Evidence:
    """The smallest width is searched for each number of examples; `factor` multiplies the exponents."""
    counts, depth = run.pick((4, 8, 16), (4, 8, 16, 32, 64)), 2
    found, asked = [], []
    for count in counts:
        run.say(f"searching the width for {count} examples")
        inputs, targets = _problem(count, run.generator(f"{count}"))
        found.append(wide.smallest_width(lambda width: _learns(width, inputs, targets, run), 1))  # noqa: B023
        asked.append(wide.log_required_width(count, depth, wide.separation(inputs)) / math.log(10))
    gaps = [powers - math.log10(width) for powers, width in zip(asked, found, strict=True)]
    slope = math.log(found[-1] / found[0]) / math.log(counts[-1] / counts[0])
    numbers = [
        at_least(f"powers of ten between them, n = {count}", gap, 15, remark=f"width {width} is enough")
        for count, gap, width in zip(counts, gaps, found, strict=True)
    ]
    for count, layers, apart in ((7, 1, 0.5), (10, 3, 0.5), (12, 5, 0.25)):
        written = math.log(count**24 * layers**12) - 8 * math.log(apart)
        name = f"log of the demand, n = {count}, L = {layers}, δ = {apart:g}"
        numbers.append(close(name, wide.log_required_width(count, layers, apart), factor * written, 1e-12))
    numbers.append(at_most("power of n in the width that is enough", slope, 3))
    series = [
        Series("asked for", counts, asked),
        Series("enough, searched", counts, [math.log10(width) for width in found], style="points"),
    ]
    panel = Panel("Width for zero training loss", "examples n", "log₁₀ of the width", series, x_log=True)
    caption = "The demand of the theorem without its constants, and the smallest width that learned thrice."
    return Evidence(numbers, pictures=[Picture(caption, [panel])])


def _learns(width: int, inputs: Tensor, targets: Tensor, run: Running) -> bool:
    for start in range(3):
        network = wide.draw(width, 2, INPUTS, 1, run.generator(f"start {width} {start}"))
        goal = 1e-3 * float(targets.square().sum())
        top = float(torch.linalg.eigvalsh(wide.tangent_kernel(network, inputs))[-1])
        if top <= 0:  # all neurons are off for all examples
            return False
        _, losses = wide.descend(network, inputs, targets, 0.5 / top, 600, until=goal)
        if not losses[-1] <= goal:
            return False
    return True
