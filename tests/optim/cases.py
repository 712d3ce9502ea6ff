"""The table that feeds the shared tests: settings away from the defaults, and PyTorch's counterpart."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from apoint.optim import Configured
from apoint.registry import registry

STEPS = 50
Factory = Callable[[list[Tensor]], torch.optim.Optimizer]


@dataclass(frozen=True)
class Problem:
    """A noisy quadratic: gradients of both signs and very uneven sizes that depend on the parameter."""

    start: Tensor
    target: Tensor
    curvature: Tensor
    noise: Tensor

    def gradient(self, param: Tensor, step: int) -> Tensor:
        return self.curvature * (param - self.target) + self.noise[step - 1]


def problem(*shape: int, seed: int = 0, steps: int = STEPS) -> Problem:
    generator = torch.Generator().manual_seed(seed)

    def draw(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator, dtype=torch.float64)

    scale = 10 ** (torch.rand(*shape, generator=generator, dtype=torch.float64) * 4 - 3)
    return Problem(draw(*shape), draw(*shape), scale * draw(*shape).abs(), scale * draw(steps, *shape))


def configured(name: str, **settings: Any) -> Configured:
    return registry("optimizer").build({"name": name, **settings})


def rule_path(chosen: Configured, of: Problem, steps: int = STEPS) -> Iterator[Tensor]:
    """The parameter after each step of a pure rule."""
    param, state = of.start, chosen.rule.init(of.start)
    for step in range(1, steps + 1):
        delta, state = chosen.rule.step(of.gradient(param, step), state, param, step, chosen.hyper)
        param = param + delta
        yield param


def optimizer_path(factory: Factory, of: Problem, steps: int = STEPS) -> Iterator[Tensor]:
    """The parameter after each step of a `torch.optim.Optimizer`."""
    param = of.start.clone().requires_grad_()
    optimizer = factory([param])
    for step in range(1, steps + 1):
        param.grad = of.gradient(param.detach(), step)
        optimizer.step()
        yield param.detach().clone()


@dataclass(frozen=True)
class Case:
    """A rule with settings, and what PyTorch calls the same."""

    name: str
    settings: dict[str, Any]
    counterpart: Factory

    def __str__(self) -> str:
        shown = "-".join(f"{key}={value}" for key, value in self.settings.items())
        return f"{self.name}-{shown}"


def _adam_family(make: Any, s: dict[str, Any], **extra: Any) -> Factory:
    betas = (s["beta1"], s["beta2"])
    return lambda p: make(p, lr=s["lr"], betas=betas, eps=s["eps"], foreach=False, **extra)


def _cases() -> Iterator[Case]:
    o = torch.optim
    for name in ("gradient-descent", "sgd"):
        yield Case(name, {"lr": 0.03}, lambda p: o.SGD(p, lr=0.03))
        yield Case(name, {"lr": 0.03, "l2": 0.2}, lambda p: o.SGD(p, lr=0.03, weight_decay=0.2))
    yield from _momentum_cases()
    yield from _adaptive_cases()
    away = {"lr": 0.02, "beta1": 0.7, "beta2": 0.95, "eps": 1e-3}
    yield Case("adam", {}, lambda p: o.Adam(p))
    yield Case("adam", away, _adam_family(o.Adam, away))
    yield Case("adam", {**away, "l2": 0.3}, _adam_family(o.Adam, away, weight_decay=0.3))
    yield Case("adam", {**away, "weight_decay": 0.3}, _adam_family(o.AdamW, away, weight_decay=0.3))
    yield Case("adamw", {}, lambda p: o.AdamW(p))
    yield Case("adamw", {**away, "weight_decay": 0.4}, _adam_family(o.AdamW, away, weight_decay=0.4))
    yield Case("amsgrad", {}, lambda p: o.Adam(p, amsgrad=True))
    yield Case("amsgrad", away, _adam_family(o.Adam, away, amsgrad=True))
    yield Case("amsgrad", {**away, "l2": 0.3}, _adam_family(o.Adam, away, amsgrad=True, weight_decay=0.3))
    decoupled = _adam_family(o.AdamW, away, amsgrad=True, weight_decay=0.3)
    yield Case("amsgrad", {**away, "weight_decay": 0.3}, decoupled)
    yield Case("adamax", {}, lambda p: o.Adamax(p))
    yield Case("adamax", {**away, "l2": 0.3}, _adam_family(o.Adamax, away, weight_decay=0.3))
    for name, make in (("nadam", o.NAdam), ("radam", o.RAdam)):
        # 0.6 makes RAdam's longest average 4 samples, where its correction would divide by 0
        for beta2 in (0.95, 0.999, 0.6):
            s = {**away, "beta2": beta2}
            extra = {"momentum_decay": 0.05} if name == "nadam" else {}
            yield Case(name, {**s, **extra}, _adam_family(make, s, **extra))
            yield Case(name, {**s, **extra, "l2": 0.3}, _adam_family(make, s, weight_decay=0.3, **extra))
            decoupled = _adam_family(make, s, weight_decay=0.3, decoupled_weight_decay=True, **extra)
            yield Case(name, {**s, **extra, "weight_decay": 0.3}, decoupled)
        yield Case(name, {}, lambda p, make=make: make(p))


def _momentum_cases() -> Iterator[Case]:
    sgd = torch.optim.SGD
    for dampening in (0.0, 0.3):
        s = {"lr": 0.02, "momentum": 0.8, "form": "sum", "dampening": dampening}
        yield Case("momentum", s, lambda p, d=dampening: sgd(p, lr=0.02, momentum=0.8, dampening=d))
        with_l2 = lambda p, d=dampening: sgd(p, lr=0.02, momentum=0.8, dampening=d, weight_decay=0.2)  # noqa: E731
        yield Case("momentum", {**s, "l2": 0.2}, with_l2)
    # an average is a sum whose rate is 1 - momentum times as large
    s = {"lr": 0.05, "momentum": 0.8, "form": "average", "l2": 0.2}
    yield Case("momentum", s, lambda p: sgd(p, lr=0.05 * 0.2, momentum=0.8, weight_decay=0.2))
    yield Case("momentum", {}, lambda p: sgd(p, lr=0.01 * 0.1, momentum=0.9))
    nesterov = {"momentum": 0.8, "weight_decay": 0.2, "nesterov": True}
    s = {"lr": 0.02, "momentum": 0.8, "form": "sum", "l2": 0.2}
    yield Case("nesterov", s, lambda p: sgd(p, lr=0.02, **nesterov))
    yield Case("nesterov", {**s, "form": "average"}, lambda p: sgd(p, lr=0.02 * 0.2, **nesterov))
    yield Case("nesterov", {}, lambda p: sgd(p, lr=0.01 * 0.1, momentum=0.9, nesterov=True))


def _adaptive_cases() -> Iterator[Case]:
    o = torch.optim
    yield Case("adagrad", {}, lambda p: o.Adagrad(p))
    yield Case(
        "adagrad",
        {"lr": 0.1, "eps": 1e-3, "lr_decay": 0.1, "initial_accumulator": 0.3, "l2": 0.2},
        lambda p: o.Adagrad(
            p, lr=0.1, eps=1e-3, lr_decay=0.1, initial_accumulator_value=0.3, weight_decay=0.2
        ),
    )
    yield Case("rmsprop", {}, lambda p: o.RMSprop(p))
    for centered in (False, True):
        for momentum in (0.0, 0.6):
            s = {"lr": 0.02, "alpha": 0.9, "eps": 1e-3, "centered": centered, "momentum": momentum}
            yield Case("rmsprop", {**s, "l2": 0.2}, lambda p, s=s: o.RMSprop(p, weight_decay=0.2, **s))
    yield Case("adadelta", {}, lambda p: o.Adadelta(p))
    s = {"lr": 0.7, "rho": 0.8, "eps": 1e-3}
    yield Case(
        "adadelta", {**s, "l2": 0.2}, lambda p: o.Adadelta(p, weight_decay=0.2, lr=0.7, rho=0.8, eps=1e-3)
    )


CASES = list(_cases())

WITHOUT_COUNTERPART: dict[str, list[dict[str, Any]]] = {
    "lion": [{}, {"lr": 0.03, "beta1": 0.7, "beta2": 0.8, "weight_decay": 0.5, "l2": 0.2}],
    "signum": [{}, {"lr": 0.03, "beta": 0.7, "weight_decay": 0.5, "l2": 0.2}],
    "adabelief": [
        {},
        {"lr": 0.03, "beta1": 0.7, "beta2": 0.9, "eps": 1e-3, "weight_decay": 0.5, "l2": 0.2},
    ],
    "lookahead": [
        {},
        {"base": "sgd", "lr": 0.05, "every": 3, "alpha": 0.4, "weight_decay": 0.5, "l2": 0.2},
        {
            "base": {"name": "adam", "beta1": 0.7, "beta2": 0.9, "eps": 1e-3},
            "lr": 0.05,
            "every": 4,
            "alpha": 0.8,
            "weight_decay": 0.5,
            "l2": 0.2,
        },
    ],
}

ALL_SETTINGS: list[tuple[str, dict[str, Any]]] = [
    *((case.name, case.settings) for case in CASES),
    *((name, settings) for name, several in WITHOUT_COUNTERPART.items() for settings in several),
]


def _variants() -> list[tuple[str, dict[str, Any]]]:
    """One full set of settings for each path through each rule's code."""
    chosen: dict[tuple[Any, ...], tuple[str, dict[str, Any]]] = {}
    for name, settings in ALL_SETTINGS:
        branch = [str(settings.get(key)) for key in ("form", "centered", "base", "beta2")]
        longest = chosen.get((name, *branch), (name, {}))[1]
        chosen[name, *branch] = (name, max(settings, longest, key=len))
    return list(chosen.values())


VARIANTS = _variants()


def label(value: Any) -> str | None:
    return str(value) if isinstance(value, Case | str) else None
