"""How smooth the user's own loss is: the constants β and L of the course, measured along training."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from apoint.probes.hessian import Flat, gradient_at
from apoint.probes.preserving import preserve_state
from apoint.probes.reading import Reading, undefined
from apoint.probes.subject import Loss, Subject
from apoint.registry import register
from apoint.settings import Count, Positive, WholeNumber

_NOT_FINITE = "the loss or its gradient is not finite somewhere on the way"
_LOWER = "constants of what was visited: those of the whole loss are at least as large"


@register("probe", "smoothness", course="D5 D3 D4", passes=12)
def smoothness(
    model: nn.Module,
    batch: Any,
    loss: Loss | str | None = None,
    *,
    reach: Positive = 0.1,
    num_steps: Count = 5,
    seed: WholeNumber = 0,
) -> Reading:
    """The local smoothness β of the loss along its gradient, and its Lipschitz constant L there.

    Gradient descent with a rate up to 1/β lowers a β-smooth loss at every step; up to 2/β the loss does not
    rise; with a Lipschitz constant L and an allowed error ε the course uses ε/L².

        β = max_k ‖∇f(x_k) − ∇f(x)‖/‖x_k − x‖,  L = max_k ‖∇f(x_k)‖,  x_k = x − t_k·∇f(x)/‖∇f(x)‖

    with f the `loss` on the `batch`, x the weights and t_k = `reach`·‖x‖/2^k for k = 0 … `num_steps` − 1.
    `details` holds β and the loss at each t_k, L, and the rates 1/β and 2/β. If β rises with the length, the
    curvature changes within a step of that length, and no quadratic describes it. The model stays in its
    current mode, with the same dropout draws at every point.

    Args:
        reach: The longest step, relative to the norm of all weights.
        num_steps: The number of step lengths, each half the previous one.
        seed: Seed of the random draws.

    Reference:
        Santurkar et al., 2018, How does batch normalization help optimization?, section 3.
    """
    with preserve_state(model, seed):
        subject = Subject(model, batch, loss)
        if not subject.parameters:
            return undefined("smoothness", "the model has no trainable parameters")
        flat = Flat(subject.parameters)
        here = flat.join(list(subject.parameters.values()))
        value, gradient = gradient_at(subject, flat, seed=seed)
        norm = float(gradient.norm())
        if norm == 0:
            return undefined("smoothness", "the gradient is 0, so there is no direction to go")
        longest = reach * (float(here.norm()) or 1.0)
        lengths = [longest / 2**k for k in range(num_steps)]
        points = [gradient_at(subject, flat, here - gradient * (t / norm), seed) for t in lengths]
        changes = [
            float((there - gradient).norm()) / t for t, (_, there) in zip(lengths, points, strict=True)
        ]
        norms = [norm, *(float(there.norm()) for _, there in points)]
        beta, lipschitz = _largest(changes), _largest(norms)
        finite = math.isfinite(beta) and math.isfinite(lipschitz)
        return Reading(
            "smoothness",
            beta,
            f"the largest over {num_steps} lengths along the gradient",
            "computed",
            details={
                "lipschitz": lipschitz,
                "lengths": lengths,
                "beta": changes,
                "losses": [value, *(there for there, _ in points)],
                "gradient_norms": norms,
                **_rates(beta),
            },
            notes=(_LOWER,) if finite else (_LOWER, _NOT_FINITE),
        )


def _largest(values: list[float]) -> float:
    """The largest value; nan if one of them is nan."""
    return math.nan if any(map(math.isnan, values)) else max(values)


def _rates(beta: float) -> dict[str, float]:
    """The rates up to which the loss falls, and does not rise, if it were β-smooth everywhere."""
    return {"rate_descending": 1 / beta if beta else math.inf, "rate_at_most": 2 / beta if beta else math.inf}


@register("track", "smoothness-along-path", course="D5 D3 D4")
class SmoothnessAlongPath:
    """Smoothness β and Lipschitz constant L of the loss along the path of training.

    Every read evaluates both ends of the stretch since the last read, on the batch of this read:

        β = max over reads of ‖∇f(x_now) − ∇f(x_before)‖/‖x_now − x_before‖,  L = max of ‖∇f(x)‖

    A read costs two gradients, the other steps nothing. Both ends use the current running statistics and the
    same dropout draws. What a stretch passes between two reads is not seen, so both are lower bounds.

    Reference:
        Santurkar et al., 2018, How does batch normalization help optimization?, section 3.
    """

    def __init__(self) -> None:
        self._before: dict[str, Tensor] = {}
        self._rows: list[tuple[float, float, float]] = []  # step, β, L
        self._step = 0

    def begin(self, model: nn.Module) -> None:
        """Remember the weights that training starts from."""
        self._before, self._rows, self._step = _trainable(model), [], 0

    def observe(self, model: nn.Module, step: int) -> None:
        """Remember only the number of the step."""
        self._step = step

    def read(self, model: nn.Module, batch: Any, loss: Any) -> Reading:
        """The largest constants so far, including those of the stretch since the last read."""
        name = "smoothness-along-path"
        if not self._before:
            return undefined(name, "no weights are known from before; begin comes first")
        with preserve_state(model):
            subject = Subject(model, batch, loss)
            shared = {key: p for key, p in subject.parameters.items() if key in self._before}
            if len(shared) < len(subject.parameters):
                return undefined(name, "other parameters are trained than at the start")
            row = _stretch(subject, self._before)
        if row is not None:
            self._rows.append((self._step, *row))
            self._before = _trainable(model)
        if not self._rows:
            return undefined(name, "the weights have not moved yet")
        steps, betas, norms = map(list, zip(*self._rows, strict=True))
        beta, lipschitz = _largest(betas), _largest(norms)
        return Reading(
            name,
            beta,
            f"the largest over {len(betas)} stretches of the path",
            "computed",
            details={
                "lipschitz": lipschitz,
                "steps": steps,
                "beta": betas,
                "gradient_norms": norms,
                **_rates(beta),
            },
            notes=(_LOWER,) if math.isfinite(beta) else (_LOWER, _NOT_FINITE),
        )

    def state(self) -> dict[str, Tensor]:
        """The weights of the last read, and what was found so far."""
        rows = torch.tensor(self._rows, dtype=torch.float64).reshape(-1, 3)
        kept = {f"before.{name}": value.clone() for name, value in self._before.items()}
        return {**kept, "rows": rows, "step": torch.tensor(self._step)}

    def load(self, state: dict[str, Tensor]) -> None:
        """Restore what `state` returned."""
        prefix = "before."
        self._before = {k.removeprefix(prefix): v.clone() for k, v in state.items() if k.startswith(prefix)}
        self._rows = [(row[0], row[1], row[2]) for row in state["rows"].tolist()]
        self._step = int(state["step"])


def _stretch(subject: Subject, before: dict[str, Tensor]) -> tuple[float, float] | None:
    """β between two points and the larger of their gradient norms; None if the points are the same."""
    flat = Flat(subject.parameters)
    if not flat.size:
        return None
    here = flat.join(list(subject.parameters.values()))
    there = flat.join([before[name] for name in subject.parameters])
    distance = float((here - there).norm())
    if distance == 0:
        return None
    _, now = gradient_at(subject, flat)
    _, then = gradient_at(subject, flat, there)
    return float((now - then).norm()) / distance, _largest([float(now.norm()), float(then.norm())])


def _trainable(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad}
