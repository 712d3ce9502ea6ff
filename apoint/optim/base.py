"""Update rules, and the decorator that defines one.

A rule is a pure function of one coordinate: given a gradient, the rule's state, the parameter and the
step, it returns the change of the parameter and the new state,

    update(gradient, state, param, step, *, lr, …) -> (delta, state)

Everything in it is elementwise, and each hyper-parameter is a number or a tensor that broadcasts against
the gradient and has its dtype. So the same function works on a tensor of a user's model, a slice of one flat
buffer of all parameters (P), and a stack of replicas (R, P) whose hyper-parameters (R, 1) differ.

Weight decay is implemented once, here, for all rules, in its two forms:

    l2             g ← g + l2·θ before the rule: the penalty l2/2·‖θ‖² in the loss
    weight_decay   θ ← θ − lr·weight_decay·θ beside the rule: decoupled from its averages
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_type_hints

import torch
from pydantic import Field
from torch import Tensor

from apoint.registry import register, registry
from apoint.settings import Schedulable

Scalar = float | Tensor
"""A hyper-parameter inside a rule: one number, or one per replica."""
State = dict[str, Tensor]
"""A rule's state: slots of the parameter's shape, by name."""
Updated = tuple[Tensor, State]
"""What an update returns: the change of the parameter, and the new state."""

Family = Literal["descent", "adaptive", "adam", "sign", "other"]
"""`descent` moves along the gradient or a sum of past ones; `adaptive` divides it by its running magnitude;
`adam` does the same to a running average; `sign` keeps only the sign."""

Decay = Annotated[float, Field(ge=0, lt=1), Schedulable()]
"""The decay rate of a running average; 1 would never forget. May be put on a schedule."""
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False), Schedulable()]
"""A strength that may be 0. May be put on a schedule."""
Epsilon = Annotated[float, Field(ge=0, allow_inf_nan=False), Schedulable()]
"""A small number that keeps a denominator nonzero. May be put on a schedule."""

_DECAY_LINES = """\
    weight_decay: The strength λ of decoupled weight decay, θ ← θ − lr·λ·θ beside the rule's own step.
    l2: The strength λ of the penalty λ/2·‖θ‖² in the loss: λ·θ joins the gradient before the rule."""


@dataclass(frozen=True, eq=False)
class Rule:
    """An update rule: its pure function, its state, its hyper-parameters.

    Attributes:
        name: Its name in a recipe.
        update: The pure function, without weight decay; see the module's docstring.
        slots: The initial value of each slot of its state.
        defaults: Every hyper-parameter with its default, including `weight_decay` and `l2`.
        applies_decay: Whether `update` takes `weight_decay` and `l2` itself, as a rule wrapping another does.
    """

    name: str
    update: Callable[..., Updated]
    slots: Mapping[str, float]
    defaults: Mapping[str, Any]
    applies_decay: bool = False

    @property
    def per_replica(self) -> frozenset[str]:
        """The hyper-parameters that may be tensors; replicas that differ in others cannot share a stack."""
        return frozenset(name for name, default in self.defaults.items() if isinstance(default, float))

    def init(self, param: Tensor) -> State:
        """The state before the first step."""
        return {name: torch.full_like(param, start) for name, start in self.slots.items()}

    def step(
        self, gradient: Tensor, state: State, param: Tensor, step: int, hyper: Mapping[str, Any]
    ) -> Updated:
        """One step with weight decay: the change of the parameter, and the new state.

        No argument is modified, and no result shares memory with `gradient` or `param`, so the
        caller may overwrite both.

        Args:
            gradient: The gradient at `param`.
            state: The state after the previous step, or from `init`.
            param: The parameter, before this step.
            step: The number of this step, counted from 1.
            hyper: All hyper-parameters, numbers or tensors.
        """
        if self.applies_decay:
            return self.update(gradient, state, param, step, **hyper)
        own = dict(hyper)
        weight_decay, l2 = own.pop("weight_decay"), own.pop("l2")
        if not is_zero(l2):
            gradient = add_scaled(gradient, param, l2)
        delta, state = self.update(gradient, state, param, step, **own)
        if not is_zero(weight_decay):
            delta = add_scaled(delta, param, -own["lr"] * weight_decay)
        return delta, state

    def apply_(
        self, gradient: Tensor, state: State, param: Tensor, step: int, hyper: Mapping[str, Any]
    ) -> State:
        """Do `step` and update the parameter in place, which saves a pass over it; return the new state."""
        decay = 0.0 if self.applies_decay else hyper["weight_decay"]
        if is_zero(decay):
            delta, state = self.step(gradient, state, param, step, hyper)
        else:
            delta, state = self.step(gradient, state, param, step, {**hyper, "weight_decay": 0.0})
            param.mul_(1 - hyper["lr"] * decay)
        param.add_(delta)
        return state


@dataclass(frozen=True)
class Configured:
    """A rule with checked hyper-parameters, built from a recipe's optimizer."""

    rule: Rule
    hyper: dict[str, Any]


def rule(
    name: str,
    *,
    slots: Mapping[str, float],
    family: Family,
    course: str = "",
    weight_decay: float = 0.0,
    check: Callable[[Mapping[str, Any]], None] | None = None,
) -> Callable[[Callable[..., Updated]], Rule]:
    """Decorator: make an update function a `Rule`, and register it for recipes under a name.

    The function's keyword-only parameters become settings, together with `weight_decay` and `l2`.

    Args:
        name: The name in a recipe, in kebab-case.
        slots: The initial value of each slot of the rule's state.
        family: What kind of rule it is; see `Family`.
        course: The ids of the course items it belongs to, separated by spaces.
        weight_decay: The default of decoupled weight decay.
        check: Rejects settings that are each valid but invalid together.
    """

    def make(update: Callable[..., Updated]) -> Rule:
        signature = _settings_signature(update, weight_decay)
        defaults = {key: parameter.default for key, parameter in signature.parameters.items()}
        made = Rule(name, update, dict(slots), defaults)
        register("optimizer", name, course=course, family=family)(_builder(made, signature, check))
        return made

    return make


def family_of(name: str) -> Family:
    """The family of a registered rule."""
    found: Family = registry("optimizer")[name].traits.get("family", "other")
    return found


def is_adaptive(name: str) -> bool:
    """Whether a registered rule divides by a running size of the gradient."""
    return family_of(name) in ("adaptive", "adam")


def _settings_signature(update: Callable[..., Updated], weight_decay: float) -> inspect.Signature:
    """The keyword-only part of an update's signature, then `weight_decay` and `l2`, annotations resolved."""
    hints = get_type_hints(update, include_extras=True)
    own = [
        parameter.replace(annotation=hints[parameter.name])
        for parameter in inspect.signature(update).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY
    ]
    shared = [
        inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Weight)
        for key, default in (("weight_decay", weight_decay), ("l2", 0.0))
    ]
    return inspect.Signature([*own, *shared], return_annotation=Configured)


def _builder(
    made: Rule, signature: inspect.Signature, check: Callable[[Mapping[str, Any]], None] | None
) -> Callable[..., Configured]:
    """The builder that the registry calls with checked settings, with the rule's signature and docstring."""

    def build(**settings: Any) -> Configured:
        if check:
            check(settings)
        return Configured(made, {**made.defaults, **settings})

    build.__module__, build.__qualname__ = made.update.__module__, made.update.__qualname__
    build.__doc__ = _with_decay_lines(inspect.getdoc(made.update) or "")
    build.__annotations__ = {key: parameter.annotation for key, parameter in signature.parameters.items()}
    build.__signature__ = signature  # type: ignore[attr-defined]
    return build


def _with_decay_lines(docstring: str) -> str:
    """The docstring with `weight_decay` and `l2` described at the end of its `Args:`."""
    section = r"^Args:(?:\n {4}.*)+"
    return re.sub(section, lambda found: f"{found[0]}\n{_DECAY_LINES}", docstring, flags=re.MULTILINE)


# ---- arithmetic shared by all rules; a hyper-parameter is a number or a tensor ----


def is_zero(value: Scalar) -> bool:
    """Whether a hyper-parameter is the number 0; never true of a tensor, whose values are not inspected."""
    return not isinstance(value, Tensor) and value == 0


def add_scaled(base: Tensor, direction: Tensor, factor: Scalar) -> Tensor:
    """base + factor·direction, in one operation."""
    if isinstance(factor, Tensor):
        return torch.addcmul(base, direction, factor)
    return torch.add(base, direction, alpha=factor)


def running_average(old: Tensor, new: Tensor, decay: Scalar) -> Tensor:
    """decay·old + (1 − decay)·new, in one operation."""
    if isinstance(decay, Tensor):
        return torch.lerp(new, old, decay)
    return torch.lerp(old, new, 1 - decay)


def root(value: Scalar) -> Scalar:
    """The square root of a number or a tensor, of the same type."""
    return value.sqrt() if isinstance(value, Tensor) else math.sqrt(value)
