"""Curvature of the loss: the ends of the Hessian's spectrum with their signs, its trace, its density."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from apoint.probes.hessian import Flat, Hessian, Krylov, NoSecondDerivativeError, Product, lanczos
from apoint.probes.preserving import preserve_state
from apoint.probes.reading import Reading, undefined
from apoint.probes.subject import Loss, Subject
from apoint.registry import register
from apoint.settings import Count, Positive, Share, WholeNumber

NOTHING_TO_DIFFERENTIATE = "the model has no trainable parameters"
NOT_FINITE = "the loss or its derivatives are not finite"


def _measured(
    name: str,
    model: nn.Module,
    batch: Any,
    loss: Any,
    seed: int,
    measure: Callable[[Subject, Hessian], Reading],
) -> Reading:
    """A reading of the Hessian, with the model's state preserved; undefined where there is none."""
    with preserve_state(model, seed):
        subject = Subject(model, batch, loss)
        if not subject.parameters:
            return undefined(name, NOTHING_TO_DIFFERENTIATE)
        try:
            return measure(subject, Hessian(subject))
        except NoSecondDerivativeError as error:
            return undefined(name, str(error))


# -- the ends --------------------------------------------------------------------------------------------


@register("probe", "sharpness", course="D5 D4", passes=75)
def sharpness(
    model: nn.Module,
    batch: Any,
    loss: Loss | str | None = None,
    optimizer: Optimizer | None = None,
    *,
    tolerance: Positive = 1e-3,
    num_iterations: Count = 100,
    ends: Literal["both", "largest"] = "both",
    layers: Literal["shares", "blocks"] = "shares",
    seed: WholeNumber = 0,
) -> Reading:
    """The largest Hessian eigenvalue, and the smallest, with their signs and error bounds.

    The largest, λ, is the local smoothness constant of a convex loss and sets the highest stable learning
    rate: gradient descent on a quadratic diverges above 2/λ. A smallest one below 0 means that the loss
    curves downwards somewhere, as at a saddle.

        |λ − θ| ≤ ‖H·y − θ·y‖ for some eigenvalue λ of H

    with H the Hessian of the `loss` on the `batch`, θ the reading and y its vector. Lanczos' method continues
    until the bound of the largest is below `tolerance`·|θ| and that of the smallest below `tolerance` times
    the larger |θ| of the two, or until `num_iterations` products are used, which a note then reports. A bound
    tells how close an eigenvalue is, not that there is none beyond it; `largest_at_most` and
    `smallest_at_least` hold with 99 % probability over the random start.

    With an `optimizer`, `ratio` is the sharpness relative to the bound of its learning rate; above 1 is
    unstable: for SGD λ·lr/2, with momentum less; for Adam the same with the Hessian preconditioned by Adam's
    own averages of squares, since that decides, not the plain Hessian. In a healthy run of full-batch descent
    the ratio rises to about 1 and stays there (the edge of stability). Weight decay is ignored.

    Dropout and batch norm act in the model's current mode, with the same draws in every product.

    Args:
        tolerance: The bound, relative to the eigenvalue, at which it is accurate enough.
        num_iterations: The maximum number of Hessian-vector products.
        ends: Whether to continue until both ends are accurate enough or only the largest, which is faster.
        layers: What to report for each layer: its share in y'Hy, adding up to the value, or the largest
            eigenvalue of its own block, which takes as many products again for each layer.
        seed: Seed of the random draws.

    Reference:
        Kuczyński and Woźniakowski, 1992, Estimating the largest eigenvalue by the power and Lanczos
        algorithms with a random start, theorem 4.2; Cohen et al., 2021, Gradient descent on neural networks
        typically occurs at the edge of stability; Cohen et al., 2022, Adaptive gradient methods at the edge
        of stability.
    """

    def measure(subject: Subject, hessian: Hessian) -> Reading:
        generator = torch.Generator().manual_seed(seed)
        start = hessian.flat.random(generator)
        enough = _known_well(tolerance, ends)
        krylov = lanczos(hessian, start, num_iterations, enough)
        if not krylov.finite:
            return Reading(
                "sharpness", math.nan, "Lanczos' method, stopped at once", "computed", notes=(NOT_FINITE,)
            )
        details, notes = _ends(krylov, hessian.flat.size, enough)
        if layers == "blocks":
            per_layer = _blocks(subject, hessian, tolerance, num_iterations, generator)
        else:
            per_layer = _shares(subject, hessian.flat, krylov)
        against, words = _against_rate(optimizer, subject, hessian, krylov, start, tolerance, num_iterations)
        return Reading(
            "sharpness",
            krylov.ends()[1][0],
            "Lanczos' method"
            if details["converged"]
            else f"Lanczos' method, stopped after {num_iterations} products",
            "computed" if details["converged"] else "estimated",
            per_layer=per_layer,
            details={**details, "loss": hessian.loss, **against},
            notes=(*notes, *words) if math.isfinite(hessian.loss) else (*notes, *words, NOT_FINITE),
        )

    return _measured("sharpness", model, batch, loss, seed, measure)


def _known_well(tolerance: float, ends: str = "largest") -> Callable[[Krylov], bool]:
    def enough(krylov: Krylov) -> bool:
        (smallest, smallest_bound), (largest, largest_bound) = krylov.ends()
        scale, least = max(abs(smallest), abs(largest)), 2 * krylov.rounding
        if largest_bound > max(tolerance * abs(largest), least):
            return False
        return ends == "largest" or smallest_bound <= max(tolerance * scale, least)

    return enough


def _ends(
    krylov: Krylov, size: int, enough: Callable[[Krylov], bool]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Both ends with what is known about their errors."""
    (smallest, smallest_bound), (largest, largest_bound) = krylov.ends()
    num_products = len(krylov.diagonal)
    slack = 0.0 if krylov.residual == 0 else _beyond(size, num_products) * (largest - smallest)
    converged = krylov.residual == 0 or enough(krylov)
    details = {
        "largest_bound": largest_bound,
        "largest_at_most": largest + largest_bound if slack == 0 else largest + slack,
        "smallest": smallest,
        "smallest_bound": smallest_bound,
        "smallest_at_least": smallest - smallest_bound if slack == 0 else smallest - slack,
        "num_products": num_products,
        "converged": converged,
    }
    if converged:
        return details, ()
    return details, (
        f"after {num_products} products the largest is within {largest_bound:.2g} of an eigenvalue and the "
        f"smallest within {smallest_bound:.2g}, which misses the tolerance; allow more iterations",
    )


def _beyond(size: int, num_products: int, doubt: float = 0.01) -> float:
    """How far an end may be beyond its Ritz value, as a share of their spread, except with this probability.

    With a start that has no preferred direction, the chance that an end is off by more than ε·(λ₁ − λₙ) is at
    most 1.648·√n·exp(−√ε·(2k − 1)) after k products (Kuczyński and Woźniakowski, theorem 4.2). Both ends
    share the doubt, and the true spread is at most that of the Ritz values divided by 1 − 2ε.
    """
    root = math.log(1.648 * math.sqrt(size) / (doubt / 2)) / (2 * num_products - 1)
    share = root**2
    return share / (1 - 2 * share) if share < 0.5 else math.inf


def _shares(subject: Subject, flat: Flat, krylov: Krylov) -> dict[str, float]:
    """The top Ritz value, shared among layers by the squares of its vector."""
    top = krylov.vector(-1)
    shares = flat.sums(top.square(), subject.layers)
    total = sum(shares.values())
    return {layer: krylov.ends()[1][0] * share / total for layer, share in shares.items()}


def _blocks(
    subject: Subject, hessian: Hessian, tolerance: float, num_iterations: int, generator: torch.Generator
) -> dict[str, float]:
    """The largest eigenvalue of each layer's diagonal block."""
    found = {}
    for layer, names in subject.layers.items():
        flat, product = hessian.block(names)
        krylov = lanczos(product, flat.random(generator), num_iterations, _known_well(tolerance))
        found[layer] = krylov.ends()[1][0] if krylov.finite else math.nan
    return found


def _against_rate(
    optimizer: Optimizer | None,
    subject: Subject,
    hessian: Hessian,
    krylov: Krylov,
    start: Tensor,
    tolerance: float,
    num_iterations: int,
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The sharpness relative to the highest stable learning rate of an optimizer."""
    if optimizer is None:
        return {}, ()
    factors, words = step_factors(optimizer, subject.parameters)
    if factors is None:
        return {"ratio": None}, words
    flat = hessian.flat
    scale = flat.join([factors[name] for name in flat.shapes])
    largest = krylov.ends()[1][0]
    if bool((scale == scale[0]).all()):
        return {"ratio": largest * float(scale[0]), "preconditioned": False}, words
    product = _preconditioned(hessian, scale.sqrt())
    again = lanczos(product, start, num_iterations, _known_well(tolerance))
    ratio = again.ends()[1][0] if again.finite else math.nan
    return {"ratio": ratio, "preconditioned": True}, words


def _preconditioned(product: Product, root: Tensor) -> Product:
    return lambda vector: root * product(root * vector)


# -- the optimizer's part --------------------------------------------------------------------------------

_DESCENT = ("SGD", "GradientDescent", "Momentum", "Nesterov")
_ADAM = ("Adam", "AdamW")


def step_factors(
    optimizer: Optimizer, parameters: Mapping[str, nn.Parameter]
) -> tuple[dict[str, Tensor] | None, tuple[str, ...]]:
    """D for each parameter, such that steps are stable on a quadratic while λmax(D^½·H·D^½) < 1; and notes.

    A step subtracts γ·(step before) + d·g. It is stable while d·λ < 2·(1 + γ), or with Nesterov's momentum
    2·(1 + γ)/(1 + 2·γ); D is d over that. For Adam d is lr·(1 − β1)/((1 − β1^t)·(√v̂ + ε)), and γ is β1.

    None where no bound is known. A parameter that is not in the optimizer has 0.
    """
    kind = type(optimizer).__name__
    if kind not in _DESCENT + _ADAM:
        return None, (f"no stability bound is known here for {kind}; 2/lr is that of plain SGD",)
    groups = {id(p): group for group in optimizer.param_groups for p in group["params"]}
    factors = {}
    for name, parameter in parameters.items():
        group = groups.get(id(parameter))
        found = 0.0 if group is None else _factor(kind, group, optimizer.state.get(parameter, {}))
        if found is None:
            return None, (
                f"for {kind} the preconditioned Hessian decides, and its averages of squares are there only "
                "after the first step",
            )
        factors[name] = torch.as_tensor(found, device=parameter.device).expand_as(parameter)
    missing = sum(id(parameter) not in groups for parameter in parameters.values())
    if missing == len(parameters):
        return None, ("the optimizer holds none of the model's trainable parameters",)
    notes = (f"{missing} parameters are not in the optimizer, so their curvature does not count",)
    return factors, notes if missing else ()


def _factor(kind: str, group: Mapping[str, Any], state: Mapping[str, Any]) -> Tensor | float | None:
    """D of one parameter; None if the optimizer's state is needed and not there yet."""
    rate = float(group["lr"])
    if kind in _DESCENT:
        momentum = float(group.get("momentum", 0.0))
        push = 1 - float(group.get("dampening", 0.0)) if momentum else 1.0
        if group.get("form") == "average":
            push = 1 - momentum
        ahead = kind == "Nesterov" or group.get("nesterov", False)
        return rate * push * (1 + 2 * momentum * ahead) / (2 * (1 + momentum))
    square = state.get("max_exp_avg_sq", state.get("exp_avg_sq", state.get("square")))
    if square is None:
        return None
    beta1, beta2 = map(float, group.get("betas") or (group["beta1"], group["beta2"]))
    step = float(state["step"])
    root = (square.detach() / (1 - beta2**step)).sqrt() + float(group["eps"])
    factor: Tensor = rate * (1 - beta1) / (1 - beta1**step) / root / (2 * (1 + beta1))
    return factor


# -- the trace -------------------------------------------------------------------------------------------


@register("probe", "hessian-trace", course="D5", passes=70)
def hessian_trace(
    model: nn.Module,
    batch: Any,
    loss: Loss | str | None = None,
    *,
    num_draws: Count = 16,
    seed: WholeNumber = 0,
) -> Reading:
    """The trace of the Hessian: the sum of all curvatures, in total and by layer.

    The mean over random sign vectors, which is unbiased for the total and for each layer; the standard error
    comes from the spread of the draws. With at least as many draws as parameters, the diagonal is computed
    exactly instead.

        tr H = E[z'Hz],  tr H_l = E[z_l'(Hz)_l],  z = ±1

    with H the Hessian of the `loss` on the `batch` and l a layer. A large trace means a sharp region; divided
    by the number of parameters it is the mean eigenvalue (`mean_eigenvalue`).

    Args:
        num_draws: The number of random vectors.
        seed: Seed of the random draws.

    Reference:
        Hutchinson, 1990, A stochastic estimator of the trace of the influence matrix.
    """

    def measure(subject: Subject, hessian: Hessian) -> Reading:
        flat = hessian.flat
        exact = num_draws >= flat.size
        if exact:
            draws = [
                _by_layer(subject, hessian, torch.ones(flat.size, dtype=flat.dtype, device=flat.device), True)
            ]
        else:
            generator = torch.Generator().manual_seed(seed)
            draws = [
                _by_layer(subject, hessian, flat.random(generator, signs=True), False)
                for _ in range(num_draws)
            ]
        values = {
            layer: torch.tensor([draw[layer] for draw in draws], dtype=torch.float64) for layer in draws[0]
        }
        whole = torch.stack(list(values.values())).sum(0)
        finite = bool(whole.isfinite().all())
        return Reading(
            "hessian-trace",
            float(whole.mean()),
            "exact" if exact else f"estimated from {num_draws} random vectors",
            "computed" if exact else "estimated",
            uncertainty=None if exact else standard_error(whole),
            per_layer={layer: float(of_layer.mean()) for layer, of_layer in values.items()},
            per_layer_uncertainty={}
            if exact
            else {layer: standard_error(of_layer) for layer, of_layer in values.items()},
            details={"mean_eigenvalue": float(whole.mean()) / flat.size, "loss": hessian.loss},
            notes=() if finite else (NOT_FINITE,),
        )

    return _measured("hessian-trace", model, batch, loss, seed, measure)


def _by_layer(subject: Subject, hessian: Hessian, vector: Tensor, one_by_one: bool) -> dict[str, float]:
    """z_l'(Hz)_l of each layer, or the sums of the diagonal if it is computed one by one."""
    if not one_by_one:
        return hessian.flat.sums(vector * hessian(vector), subject.layers)
    diagonal = torch.zeros_like(vector)
    for index in range(len(vector)):
        unit = torch.zeros_like(vector)
        unit[index] = 1
        diagonal[index] = hessian(unit)[index]
    return hessian.flat.sums(diagonal, subject.layers)


def standard_error(draws: Tensor) -> float:
    """The standard error of a mean; infinite for a single draw, which has no spread."""
    return float(draws.std() / math.sqrt(len(draws))) if len(draws) > 1 else math.inf


# -- the density -----------------------------------------------------------------------------------------


@register("probe", "spectrum", course="D5", passes=700)
def spectrum(
    model: nn.Module,
    batch: Any,
    loss: Loss | str | None = None,
    *,
    num_draws: Count = 4,
    num_iterations: Count = 40,
    num_points: Count = 201,
    width: Positive = 0.01,
    flat_share: Share = 0.01,
    seed: WholeNumber = 0,
) -> Reading:
    """How the Hessian's eigenvalues are distributed; the value is the share of clearly negative ones.

    Stochastic Lanczos quadrature: the eigenvalues of T from a random start, weighted by the squares of the
    first entries of its eigenvectors, match the moments of H with respect to that start.

        density(x) = mean over draws of Σ_k s_{k1}²·N(x; θ_k, σ²)

    with θ_k and s_k the eigenpairs of T, and σ `width` times the spread of all θ. `details` holds the grid
    and the density, and the shares of eigenvalues that are negative, flat and positive: flat means below
    `flat_share` times the largest magnitude. Healthy networks have most eigenvalues at 0, a few large
    positive ones and a small negative tail; a large negative share means far from a minimum.

    Args:
        num_draws: The number of random starts.
        num_iterations: The number of products per start.
        num_points: The number of grid points.
        width: The standard deviation σ of the bump around each eigenvalue, relative to the spread.
        flat_share: Below this share of the largest magnitude, an eigenvalue counts as flat.
        seed: Seed of the random draws.

    Reference:
        Ubaru, Chen and Saad, 2017, Fast estimation of tr f(A) via stochastic Lanczos quadrature; Ghorbani,
        Krishnan and Xiao, 2019, An investigation into neural net optimization via Hessian eigenvalue density.
    """

    def measure(subject: Subject, hessian: Hessian) -> Reading:
        generator = torch.Generator().manual_seed(seed)
        spaces = [lanczos(hessian, hessian.flat.random(generator), num_iterations) for _ in range(num_draws)]
        if not all(krylov.finite for krylov in spaces):
            return Reading("spectrum", math.nan, "not finite", "computed", notes=(NOT_FINITE,))
        rules = [_quadrature(krylov) for krylov in spaces]
        grid, density = smoothed(rules, num_points, width)
        edge = flat_share * max(float(nodes.abs().max()) for nodes, _ in rules)
        negative = torch.stack([weights[nodes < -edge].sum() for nodes, weights in rules])
        positive = torch.stack([weights[nodes > edge].sum() for nodes, weights in rules])
        return Reading(
            "spectrum",
            float(negative.mean()),
            f"estimated from {num_draws} random starts of {num_iterations} products each",
            "estimated",
            uncertainty=standard_error(negative),
            details={
                "grid": grid.tolist(),
                "density": density.tolist(),
                "negative": float(negative.mean()),
                "flat": float(1 - negative.mean() - positive.mean()),
                "positive": float(positive.mean()),
                "smallest": min(float(nodes[0]) for nodes, _ in rules),
                "largest": max(float(nodes[-1]) for nodes, _ in rules),
                "loss": hessian.loss,
            },
        )

    return _measured("spectrum", model, batch, loss, seed, measure)


def _quadrature(krylov: Krylov) -> tuple[Tensor, Tensor]:
    """The nodes and weights of a start: eigenvalues of T, and squares of first entries."""
    values, vectors = krylov.ritz()
    return values, vectors[0].square()


def smoothed(rules: list[tuple[Tensor, Tensor]], num_points: int, width: float) -> tuple[Tensor, Tensor]:
    """A grid, and the mean over rules of the sum of normal bumps at the nodes."""
    low = min(float(nodes.min()) for nodes, _ in rules)
    high = max(float(nodes.max()) for nodes, _ in rules)
    deviation = width * ((high - low) or abs(high) or 1.0)
    grid = torch.linspace(low - 4 * deviation, high + 4 * deviation, num_points, dtype=torch.float64)
    densities = [
        (torch.exp(-0.5 * ((grid[:, None] - nodes) / deviation) ** 2) * weights).sum(1)
        for nodes, weights in rules
    ]
    return grid, torch.stack(densities).mean(0) / (deviation * math.sqrt(2 * math.pi))
