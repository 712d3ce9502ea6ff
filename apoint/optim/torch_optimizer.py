"""Each rule as a `torch.optim.Optimizer`, for users who need only that.

    optimizer = apoint.optim.Lion(model.parameters(), lr=1e-4, weight_decay=1.0)

Parameter groups, `state_dict`, closures and PyTorch's learning-rate schedulers work as they do in PyTorch.
The settings of each group are checked as in a recipe.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar, get_type_hints, overload

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from apoint.checking import checked_settings
from apoint.errors import UsageError
from apoint.optim.adam import adabelief, adam, adamax, adamw, amsgrad, nadam, radam
from apoint.optim.adaptive import adadelta, adagrad, rmsprop
from apoint.optim.base import Configured, Rule
from apoint.optim.descent import gradient_descent, momentum, nesterov, sgd
from apoint.optim.lookahead import lookahead_over
from apoint.optim.sign import lion, signum
from apoint.registry import Ingredient, registry, split_spec

# What a group may hold besides hyper-parameters: PyTorch's own keys, and a label.
_BOOKKEEPING = ("params", "param_names", "initial_lr", "name")


class RuleOptimizer(torch.optim.Optimizer):
    """A rule as an optimizer; a subclass sets the rule: `class Mine(RuleOptimizer, rule=mine)`."""

    rule: ClassVar[Rule]
    __signature__: ClassVar[inspect.Signature]

    def __init_subclass__(cls, rule: Rule | None = None, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if rule is not None:
            cls.rule = rule
            build = cls._entry().build
            cls.__signature__ = _constructor_signature(build)
            cls.__doc__ = inspect.getdoc(build)

    def __init__(self, params: ParamsT, lr: float | None = None, **settings: Any) -> None:
        given = settings if lr is None else {"lr": lr, **settings}
        super().__init__(params, checked_settings(self._entry(), given))

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters; hyper-parameters that it does not set default to the optimizer's."""
        entry = self._entry()
        kept = {key: value for key, value in param_group.items() if key in _BOOKKEEPING}
        given = {key: value for key, value in param_group.items() if key not in _BOOKKEEPING}
        common = {key: self.defaults[key] for key in entry.setting_parameters}
        settings = checked_settings(entry, {**common, **given})
        configured: Configured = entry.build(**settings)
        super().add_param_group({**kept, **settings, **configured.hyper})
        if any(param.is_complex() for param in self.param_groups[-1]["params"]):
            self.param_groups.pop()
            raise UsageError(f"{type(self).__name__}: complex parameters are not supported; use real ones")

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update each parameter that has a gradient; a closure is called first, and its loss is returned."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            rule = self._rule(group)
            hyper = {name: group[name] for name in rule.defaults}
            for param in group["params"]:
                if param.grad is not None:
                    self._move(param, param.grad, rule, hyper)
        return loss

    def _move(self, param: Tensor, gradient: Tensor, rule: Rule, hyper: dict[str, Any]) -> None:
        """Update one parameter in place."""
        if gradient.layout is not torch.strided:
            who = type(self).__name__
            raise UsageError(f"{who}: sparse gradients are not supported; build the layer with sparse=False")
        state = self.state[param]
        if not state:
            state.update(step=0, **rule.init(param))
        slots = {name: state[name] for name in rule.slots}
        slots = rule.apply_(gradient, slots, param, state["step"] + 1, hyper)
        state.update(step=state["step"] + 1, **slots)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the state of an optimizer with the same rule."""
        for group in state_dict["param_groups"]:
            states = [state_dict["state"][index] for index in group["params"] if index in state_dict["state"]]
            rule = self._rule(group)
            slots = {"step", *rule.slots}
            if not group.keys() >= rule.defaults.keys() or any(state.keys() != slots for state in states):
                who = type(self).__name__
                raise UsageError(f"{who}: the loaded state is another optimizer's; load one that {who} saved")
        super().load_state_dict(state_dict)

    @classmethod
    def _entry(cls) -> Ingredient:
        return registry("optimizer")[cls.rule.name]

    def _rule(self, group: dict[str, Any]) -> Rule:
        """The rule of a group."""
        return self.rule


def _constructor_signature(build: Callable[..., Any]) -> inspect.Signature:
    """(params, lr=…, *, settings): what `help` shows for an optimizer class, without the bounds."""
    hints = get_type_hints(build)
    settings = {
        name: parameter.replace(annotation=hints[name])
        for name, parameter in inspect.signature(build).parameters.items()
    }
    either = inspect.Parameter.POSITIONAL_OR_KEYWORD
    lr = settings.pop("lr").replace(kind=either)
    return inspect.Signature([inspect.Parameter("params", either), lr, *settings.values()])


class GradientDescent(RuleOptimizer, rule=gradient_descent): ...


class SGD(RuleOptimizer, rule=sgd): ...


class Momentum(RuleOptimizer, rule=momentum): ...


class Nesterov(RuleOptimizer, rule=nesterov): ...


class AdaGrad(RuleOptimizer, rule=adagrad): ...


class RMSProp(RuleOptimizer, rule=rmsprop): ...


class AdaDelta(RuleOptimizer, rule=adadelta): ...


class Adam(RuleOptimizer, rule=adam): ...


class AdamW(RuleOptimizer, rule=adamw): ...


class AMSGrad(RuleOptimizer, rule=amsgrad): ...


class AdaMax(RuleOptimizer, rule=adamax): ...


class NAdam(RuleOptimizer, rule=nadam): ...


class RAdam(RuleOptimizer, rule=radam): ...


class AdaBelief(RuleOptimizer, rule=adabelief): ...


class Lion(RuleOptimizer, rule=lion): ...


class Signum(RuleOptimizer, rule=signum): ...


class Lookahead(RuleOptimizer, rule=lookahead_over("adam")):
    def _rule(self, group: dict[str, Any]) -> Rule:
        name, _ = split_spec(group.get("base", "adam"), "optimizer")
        return lookahead_over(name)
