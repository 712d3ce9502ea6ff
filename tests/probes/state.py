"""Everything that a probe must leave alone, as one comparable snapshot."""

from __future__ import annotations

import random
from typing import Any

import numpy
import torch
from torch import Tensor, nn


def state_of(model: nn.Module) -> dict[str, Any]:
    """Weights, buffers, gradients, modes, wishes for gradients, hooks, attributes and all generators."""
    state: dict[str, Any] = {f"value of {k}": v.detach().clone() for k, v in model.state_dict().items()}
    for name, parameter in model.named_parameters():
        state[f"gradient of {name}"] = None if parameter.grad is None else parameter.grad.clone()
        state[f"identity of {name}"] = id(parameter), id(parameter.grad), parameter.requires_grad
    for name, module in model.named_modules():
        state[f"mode of {name}"] = module.training
        state[f"attributes of {name}"] = sorted(module.__dict__)
        hooks = {key: list(value) for key, value in module.__dict__.items() if "hooks" in key}
        state[f"hooks of {name}"] = str(hooks)
    state["torch"] = torch.get_rng_state()
    state["numpy"] = str(numpy.random.get_state())
    state["python"] = str(random.getstate())
    state["gradients are on"] = torch.is_grad_enabled()
    return state


def same_state(one: dict[str, Any], two: dict[str, Any]) -> bool:
    """Whether two snapshots agree to the bit."""
    return one.keys() == two.keys() and all(_same(one[name], two[name]) for name in one)


def _same(one: Any, two: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(two, Tensor):
        return bool(torch.equal(torch.nan_to_num(one), torch.nan_to_num(two))) and one.dtype == two.dtype
    return bool(one == two)
