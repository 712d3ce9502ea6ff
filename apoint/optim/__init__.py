"""Update rules, gradient clipping and weight decay.

A rule is a pure function (`apoint.optim.base`); `registry("optimizer").build(…)` returns it with checked
hyper-parameters, and the classes below wrap it for PyTorch training loops.
"""

from __future__ import annotations

from apoint.optim.base import Configured, Rule, rule
from apoint.optim.clipping import Clip, clip_by_norm, clip_by_value, clip_gradients_
from apoint.optim.decay import Exemption, exempt_from_decay, parameter_groups
from apoint.optim.torch_optimizer import (
    SGD,
    AdaBelief,
    AdaDelta,
    AdaGrad,
    Adam,
    AdaMax,
    AdamW,
    AMSGrad,
    GradientDescent,
    Lion,
    Lookahead,
    Momentum,
    NAdam,
    Nesterov,
    RAdam,
    RMSProp,
    RuleOptimizer,
    Signum,
)

__all__ = [
    "SGD",
    "AMSGrad",
    "AdaBelief",
    "AdaDelta",
    "AdaGrad",
    "AdaMax",
    "Adam",
    "AdamW",
    "Clip",
    "Configured",
    "Exemption",
    "GradientDescent",
    "Lion",
    "Lookahead",
    "Momentum",
    "NAdam",
    "Nesterov",
    "RAdam",
    "RMSProp",
    "Rule",
    "RuleOptimizer",
    "Signum",
    "clip_by_norm",
    "clip_by_value",
    "clip_gradients_",
    "exempt_from_decay",
    "parameter_groups",
    "rule",
]
