"""A module replaced by its tangent: linear in its parameters, and trained like any other module."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp

from apoint.errors import UsageError


class Linearised(nn.Module):
    """f(x, θ₀) + J(x)·Δ, with the displacement Δ = θ − θ₀ as the parameters; made by `linearise`.

    The Jacobian J of the outputs is never formed; its product with Δ comes from one run of the module
    (forward-mode differentiation).

    Attributes:
        displacement: Δ, initially 0, in the order of `names`.
        names: The names of the module's trainable parameters.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        if not trained:
            raise UsageError(
                f"linearise: needs a module with trainable parameters, and {type(model).__name__} has none"
            )
        self.names = list(trained)
        self.displacement = nn.ParameterList(nn.Parameter(torch.zeros_like(p)) for p in trained.values())
        fixed = {name: p for name, p in model.named_parameters() if name not in trained}
        self._fixed_names = [*fixed, *(name for name, _ in model.named_buffers())]
        for at, p in enumerate(trained.values()):
            self.register_buffer(f"origin_{at}", p.detach().clone())
        for at, tensor in enumerate([*fixed.values(), *model.buffers()]):
            self.register_buffer(f"fixed_{at}", tensor.detach().clone())
        # in a tuple, so that its parameters are not registered as ours: each call replaces them
        self._skeleton = (copy.deepcopy(model).eval(),)

    def forward(self, *inputs: Any) -> Any:
        origin = {name: self.get_buffer(f"origin_{at}") for at, name in enumerate(self.names)}
        fixed = {name: self.get_buffer(f"fixed_{at}") for at, name in enumerate(self._fixed_names)}

        def outputs(parameters: dict[str, Tensor]) -> Any:
            return functional_call(self._skeleton[0], {**fixed, **parameters}, inputs)

        moved = dict(zip(self.names, self.displacement, strict=True))
        both: tuple[Any, Any] = jvp(outputs, (origin,), (moved,))  # type: ignore[assignment]
        return both[0] + both[1]


def linearise(model: nn.Module) -> Linearised:
    """The first-order expansion of a module in its parameters, around their current values.

    f_lin(x) = f(x, θ₀) + Σ_p ∂f(x, θ₀)/∂θ_p · Δ_p, a module whose parameters are Δ. It trains with any
    optimiser; under gradient flow on the squared loss it follows `ntk.fit(…).at(…)` with the module's
    empirical kernel. The module is copied, in evaluation mode; what was not trainable stays fixed.

    Args:
        model: Any module with trainable parameters, whose operations support forward-mode differentiation.

    Reference: Lee, Xiao, Schoenholz, Bahri, Novak, Sohl-Dickstein and Pennington (2019), Wide neural networks
    of any depth evolve as linear models under gradient descent.
    """
    return Linearised(model)
