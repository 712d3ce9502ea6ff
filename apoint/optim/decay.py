"""Which parameters are exempt from weight decay, by kind."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

from torch import Tensor, nn

from apoint.errors import UnknownNameError, UsageError

Exemption = Literal["bias", "norm", "embedding", "one-dimensional"]
_NORM_CLASS = re.compile(r"Norm(\d?d)?$")  # LayerNorm, BatchNorm2d, RMSNorm, and user classes named like them


def exempt_from_decay(model: nn.Module, exempt: Sequence[Exemption] = ("bias", "norm")) -> set[str]:
    """The names of the parameters that are exempt from weight decay.

    A parameter that is used in several places is exempt if any of them is.

    Args:
        model: Any module.
        exempt: What to exempt: "bias" (parameters with `bias` as a word of their name), "norm" (those
            directly in a module whose class, or a base class, is named like LayerNorm or BatchNorm2d),
            "embedding" (the tables of `nn.Embedding`, and parameters with a word of their name beginning with
            `embed`, `position` or `token`), "one-dimensional" (vectors and single numbers of any kind).
    """
    tests = [_test(kind) for kind in _checked(exempt)]
    found = {
        id(param)
        for module in model.modules()
        for name, param in module.named_parameters(recurse=False)
        if any(applies(module, name, param) for applies in tests)
    }
    return {name for name, param in model.named_parameters() if id(param) in found}


def parameter_groups(
    model: nn.Module, *, weight_decay: float, exempt: Sequence[Exemption] = ("bias", "norm")
) -> list[dict[str, Any]]:
    """The trainable parameters as groups for any `torch.optim` optimizer; exempt ones have no decay.

    Example:
        `AdamW(parameter_groups(model, weight_decay=0.1), lr=1e-3)`

    Args:
        model: Any module.
        weight_decay: The decay of the parameters that are not exempt.
        exempt: What to exempt; see `exempt_from_decay`.
    """
    spared = exempt_from_decay(model, exempt)
    trainable = {name: param for name, param in model.named_parameters() if param.requires_grad}
    groups = [
        {"params": [p for name, p in trainable.items() if name not in spared], "weight_decay": weight_decay},
        {"params": [p for name, p in trainable.items() if name in spared], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def _checked(exempt: Sequence[Exemption]) -> Sequence[Exemption]:
    if isinstance(exempt, str):
        raise UsageError(f"exempt_from_decay: exempt must be a list such as ['bias', 'norm'], got {exempt!r}")
    for kind in exempt:
        if kind not in get_args(Exemption):
            raise UnknownNameError("exemption", str(kind), get_args(Exemption), "exempt_from_decay")
    return exempt


def _test(kind: Exemption) -> Callable[[nn.Module, str, Tensor], bool]:
    """The test of a kind: takes a module, the name of a parameter directly in it, and the parameter."""
    return {
        "bias": lambda module, name, param: "bias" in name.split("_"),
        "norm": lambda module, name, param: any(_NORM_CLASS.search(c.__name__) for c in type(module).__mro__),
        "embedding": lambda module, name, param: (
            isinstance(module, nn.Embedding | nn.EmbeddingBag)
            or any(word.startswith(("embed", "position", "token")) for word in name.split("_"))
        ),
        "one-dimensional": lambda module, name, param: param.ndim <= 1,
    }[kind]
