"""Repeated learning-rate range tests: how high the rate can go before the loss diverges, with uncertainty."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from apoint.errors import UsageError, first_line
from apoint.probes.batch import Batch
from apoint.probes.preserving import preserve_state
from apoint.probes.reading import Reading, undefined
from apoint.probes.subject import Loss, Subject
from apoint.registry import register
from apoint.settings import Count, NonNegative, Positive, Share, WholeNumber

NAME = "learning-rate-range"


@register("probe", NAME, why="a standard first look at the learning rate", passes=170)
def learning_rate_range(
    model: nn.Module,
    batch: Any,
    loss: Loss | str | None = None,
    optimizer: Optimizer | None = None,
    *,
    lowest: Positive = 1e-6,
    highest: Positive = 100.0,
    num_rates: Count = 48,
    num_repeats: Count = 3,
    share: Share = 0.5,
    margin: Positive = 0.5,
    gain: NonNegative = 0.02,
    agreement: Positive = 10.0,
    seed: WholeNumber = 0,
) -> Reading:
    """The highest learning rate before the loss diverges, from repeated range tests, or no number at all.

    Copies of the weights are trained with the same optimizer, settings and state, while the rate grows by the
    same factor at every step; each repeat draws its own mini-batches from the batch. After each step the loss
    f of the whole batch is measured. A repeat diverges at the first step after which f is not finite or

        f_t > max(f₀, min_{s<t} f_s + `margin`·|f₀|)

    that is, above the initial loss and clearly above the best one. Its highest rate is that of the step
    before. The value is the median over the repeats; `interval` extends from the lowest of them to the
    highest rate at which a repeat diverged; `band` holds the lowest, middle and highest loss at every rate.
    An unstable rate takes a few steps to show, so the value is somewhat above the true limit: train below it.

    `suggested` extends from the rate at which every repeat had made a tenth of its gain to the lowest rate at
    which a repeat had its best loss; it is None, with the reason in the notes, if in some repeat the loss
    never fell by the share `gain` of f₀. The value itself is undefined if repeats do not diverge, diverge at
    the first rate, or disagree by more than the factor `agreement`: a wrong number would be worse.

    Several parameter groups keep the ratios of their rates, and the largest rate is reported. Without an
    optimizer, plain SGD is used. The model stays in its current mode. Model, optimizer and generators are
    left unchanged.

    Args:
        lowest: The first rate.
        highest: The last rate.
        num_rates: The number of rates, evenly spaced on a log scale.
        num_repeats: The number of tests, each with its own mini-batches.
        share: The share of the batch in a mini-batch; at least two examples.
        margin: How far above its best the loss counts as diverged, relative to its initial value.
        gain: The share of its initial value by which the loss must fall for a range to be suggested.
        agreement: The factor by which the repeats may differ.
        seed: Seed of the random draws.

    Reference:
        Smith, 2017, Cyclical learning rates for training neural networks, section 3.3.
    """
    rates = _rates(lowest, highest, num_rates)
    with preserve_state(model, seed):
        subject = Subject(model, batch, loss)
        if not subject.parameters:
            return undefined(NAME, "the model has no trainable parameters")
        sweeps = []
        for repeat in range(num_repeats):
            copied = {name: p.detach().clone().requires_grad_() for name, p in subject.parameters.items()}
            try:
                rule = copied_optimizer(optimizer, subject.parameters, copied)
            except _CannotCopyError as error:
                return undefined(NAME, str(error))
            sweeps.append(_sweep(subject, copied, rule, rates, share, margin, seed + repeat))
        trained = {id(p) for group in rule.param_groups for p in group["params"]}
        coverage = subject.coverage([name for name, value in copied.items() if id(value) in trained])
    return _reading(sweeps, rates, gain, agreement, coverage, _kind(optimizer))


def _rates(lowest: float, highest: float, num_rates: int) -> list[float]:
    if lowest >= highest or num_rates < 2:
        raise UsageError(
            f"{NAME} needs at least 2 rates, from a lower to a higher one, got {num_rates} from {lowest:g} "
            f"to {highest:g}"
        )
    factor = (highest / lowest) ** (1 / (num_rates - 1))
    return [lowest * factor**index for index in range(num_rates)]


# -- the sweep -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sweep:
    """One repeat.

    Attributes:
        losses: The loss before the first step, and after each.
        diverged: The index of the rate at which it diverged; None if it did not.
    """

    losses: list[float]
    diverged: int | None

    @property
    def best(self) -> int:
        """The index of the rate with the lowest loss."""
        return min(range(1, len(self.losses)), key=lambda index: self.losses[index]) - 1


def _sweep(
    subject: Subject,
    weights: dict[str, Tensor],
    optimizer: Optimizer,
    rates: list[float],
    share: float,
    margin: float,
    seed: int,
) -> Sweep:
    """Train copies of the weights, each step with the next rate, until they diverge."""
    generator = torch.Generator().manual_seed(seed)
    ratios = _rate_ratios(optimizer)
    with preserve_state(subject.model, seed):
        losses = [_whole_loss(subject, weights, seed)]
        for index, rate in enumerate(rates):
            _set_rates(optimizer, ratios, rate)
            _step(subject, weights, optimizer, _mini_batch(subject.batch, share, generator))
            losses.append(_whole_loss(subject, weights, seed))
            if has_diverged(losses, margin):
                return Sweep(losses, index)
    return Sweep(losses, None)


def has_diverged(losses: list[float], margin: float) -> bool:
    """Whether the last loss is above the first, and above the best by a margin; or not finite."""
    begun, last = losses[0], losses[-1]
    return not math.isfinite(last) or last > max(begun, min(losses[:-1]) + margin * abs(begun))


def _mini_batch(batch: Batch, share: float, generator: torch.Generator) -> Batch:
    size = min(batch.size, max(2, round(share * batch.size)))
    return batch.select(torch.randperm(batch.size, generator=generator)[:size])


def _whole_loss(subject: Subject, weights: Mapping[str, Tensor], seed: int) -> float:
    """The loss of the whole batch, with the same draws each time, and without touching running statistics."""
    with preserve_state(subject.model, seed), torch.no_grad():
        return float(subject.loss(tensors=weights))


def _step(subject: Subject, weights: dict[str, Tensor], optimizer: Optimizer, batch: Batch) -> None:
    def closure() -> float:
        loss = subject.loss(batch, weights)
        if loss.requires_grad:
            found = torch.autograd.grad(loss, list(weights.values()), allow_unused=True)
            for value, gradient in zip(weights.values(), found, strict=True):
                value.grad = gradient
        return float(loss.detach())

    step: Any = optimizer.step
    needed = inspect.signature(step).parameters.get("closure")
    if needed is not None and needed.default is needed.empty:  # such as L-BFGS, which evaluates several times
        step(closure)
    else:
        closure()
        step()


# -- the optimizer ---------------------------------------------------------------------------------------


class _CannotCopyError(Exception):
    """The optimizer cannot be rebuilt."""


def copied_optimizer(
    optimizer: Optimizer | None, parameters: Mapping[str, Tensor], copied: Mapping[str, Tensor]
) -> Optimizer:
    """The same optimizer, with its settings and state, for copies of the parameters; plain SGD for None."""
    if optimizer is None:
        return torch.optim.SGD(list(copied.values()), lr=1.0)
    copies = {id(parameter): copied[name] for name, parameter in parameters.items()}
    groups = []
    for group in optimizer.param_groups:
        rest = {
            key: copy.deepcopy(value) for key, value in group.items() if key not in ("params", "param_names")
        }
        groups.append({**rest, "params": [copies[id(p)] for p in group["params"] if id(p) in copies]})
    if not all("lr" in group for group in groups):
        raise _CannotCopyError(f"{type(optimizer).__name__} has no learning rate named lr")
    if not any(group["params"] for group in groups):
        raise _CannotCopyError("the optimizer holds none of the model's trainable parameters")
    return _with_memory(_made_anew(optimizer, groups), optimizer, copies)


def _made_anew(optimizer: Optimizer, groups: list[dict[str, Any]]) -> Optimizer:
    """An optimizer of the same class; settings its constructor does not take are set in the groups later."""
    kind = type(optimizer)
    known = {"params", *inspect.signature(kind).parameters}
    settings = {name: copy.deepcopy(value) for name, value in optimizer.defaults.items() if name in known}
    held = [group for group in groups if group["params"]]
    try:
        made = kind([{key: group[key] for key in group if key in known} for group in held], **settings)
    except Exception as error:
        message = f"{kind.__name__} cannot be built again for a test: {first_line(error)}"
        raise _CannotCopyError(message) from error
    for own, group in zip(made.param_groups, held, strict=True):
        own.update(group)
    return made


def _with_memory(made: Optimizer, optimizer: Optimizer, copies: Mapping[int, Tensor]) -> Optimizer:
    for parameter, memory in optimizer.state.items():
        if id(parameter) in copies:
            made.state[copies[id(parameter)]] = copy.deepcopy(memory)
    return made


def _rate_ratios(optimizer: Optimizer) -> list[float]:
    """The rate of each group, relative to the largest."""
    rates = [float(group["lr"]) for group in optimizer.param_groups]
    largest = max(rates)
    return [rate / largest if largest > 0 else 1.0 for rate in rates]


def _set_rates(optimizer: Optimizer, ratios: list[float], rate: float) -> None:
    for group, ratio in zip(optimizer.param_groups, ratios, strict=True):
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate * ratio)
        else:
            group["lr"] = rate * ratio


def _kind(optimizer: Optimizer | None) -> str:
    return "plain SGD" if optimizer is None else type(optimizer).__name__


# -- the reading -----------------------------------------------------------------------------------------


def _reading(
    sweeps: list[Sweep], rates: list[float], gain: float, agreement: float, coverage: float, kind: str
) -> Reading:
    details: dict[str, Any] = {"optimizer": kind, "rates": rates, "band": _band(sweeps, len(rates))}
    doubt = _doubt(sweeps, rates, agreement)
    if doubt:
        return undefined(NAME, doubt, details=details)
    ends = sorted(sweep.diverged or 0 for sweep in sweeps)
    highest = [rates[end - 1] for end in ends]
    logs = torch.tensor(highest, dtype=torch.float64).log()
    suggested, notes = _suggested(sweeps, rates, gain)
    value = math.exp(float(logs.median()))
    details.update(
        interval=[highest[0], rates[ends[-1]]],
        highest_of_repeats=highest,
        suggested=suggested,
        num_repeats=len(sweeps),
    )
    return Reading(
        NAME,
        value,
        f"estimated from {len(sweeps)} sweeps with {kind}",
        "estimated",
        uncertainty=value * _log_error(logs, rates) if len(sweeps) > 1 else None,
        coverage=coverage,
        details=details,
        notes=(*notes, "an unstable rate takes a few steps to show: train below this one"),
    )


def _log_error(logs: Tensor, rates: list[float]) -> float:
    """The standard error of the mean logarithm: the spread of repeats, and a step of the grid."""
    step = math.log(rates[1] / rates[0])
    return math.sqrt(float(logs.var()) / len(logs) + step**2 / 12)


def _doubt(sweeps: list[Sweep], rates: list[float], agreement: float) -> str:
    """Why there is no number; empty if there is one."""
    if not math.isfinite(sweeps[0].losses[0]):
        return "the loss is not finite before the first step"
    calm = sum(sweep.diverged is None for sweep in sweeps)
    if calm:
        return f"{calm} of {len(sweeps)} sweeps did not diverge up to a rate of {rates[-1]:g}"
    ends = [sweep.diverged or 0 for sweep in sweeps]
    if min(ends) == 0:
        return f"the loss diverges at the first rate of {rates[0]:g} already; begin lower"
    apart = rates[max(ends)] / rates[min(ends)]
    if apart > agreement:
        return f"the sweeps disagree by a factor of {apart:.2g}; give a larger batch or more repeats"
    return ""


def _suggested(
    sweeps: list[Sweep], rates: list[float], gain: float
) -> tuple[list[float] | None, tuple[str, ...]]:
    """A range in which every repeat learned, or the reason why there is none."""
    lows, highs = [], []
    for sweep in sweeps:
        begun, lowest = sweep.losses[0], sweep.losses[sweep.best + 1]
        if begun - lowest <= gain * abs(begun):
            return None, ("no range is suggested, since the loss hardly fell in some sweep",)
        tenth = begun - 0.1 * (begun - lowest)
        lows.append(next(index for index, value in enumerate(sweep.losses[1:]) if value <= tenth))
        highs.append(sweep.best)
    if max(lows) >= min(highs):
        return None, ("no range is suggested, since the sweeps have none in common",)
    return [rates[max(lows)], rates[min(highs)]], ()


def _band(sweeps: list[Sweep], num_rates: int) -> dict[str, list[float]]:
    """The lowest, middle and highest loss after each rate; infinite where a sweep had diverged before."""
    rows = [sweep.losses[1:] + [math.inf] * (num_rates + 1 - len(sweep.losses)) for sweep in sweeps]
    columns = [
        sorted(math.inf if math.isnan(value) else value for value in column)
        for column in zip(*rows, strict=True)
    ]
    middle = (len(sweeps) - 1) // 2
    return {
        "low": [column[0] for column in columns],
        "middle": [column[middle] for column in columns],
        "high": [column[-1] for column in columns],
    }
