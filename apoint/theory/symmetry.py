"""Other parameters for the same function: rescale, permute and flip the hidden units of a network.

Between two linear layers a hidden unit i has a row W_i, b_i that computes it and a column V_i that reads it.
A ReLU has σ(αz) = ασ(z) for α > 0, so α(W_i, b_i) with V_i/α is the same network. For each hidden unit this
gives a direction in which the parameters can go to infinity while nothing changes. Units can be reordered
with any activation, and flipped to −(W_i, b_i) and −V_i with an odd one.

Reference: Neyshabur, Salakhutdinov and Srebro (2015), Path-SGD: path-normalized optimization in deep neural
networks; Dinh, Pascanu, Bengio and Bengio (2017), Sharp minima can generalize for deep nets.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from apoint.errors import UsageError

HOMOGENEOUS = (nn.ReLU, nn.LeakyReLU, nn.Identity)
ODD = (nn.Tanh, nn.Hardtanh, nn.Softsign, nn.Identity)
ELEMENTWISE = (*HOMOGENEOUS, *ODD, nn.GELU, nn.SiLU, nn.Sigmoid, nn.ELU, nn.Softplus, nn.Mish)


def hidden_sizes(model: nn.Sequential) -> list[int]:
    """The number of units in each hidden layer.

    Args:
        model: `Linear` layers with activations between them.
    """
    return [layer.out_features for layer in _linear_layers(model)[:-1]]


def rescale(model: nn.Sequential, factors: Sequence[Tensor]) -> nn.Sequential:
    """A copy with every hidden unit's incoming weights and bias times α and its outgoing weights over α.

    The function is the same if the activations are positively homogeneous, σ(αz) = ασ(z): ReLU, leaky ReLU.

    Args:
        model: `Linear` layers with such activations between them.
        factors: The α of each unit, all above 0: a vector for each hidden layer.
    """
    _check_activations(model, HOMOGENEOUS, "rescale: activations must be positively homogeneous")
    return scale_units(model, factors)


def scale_units(model: nn.Sequential, factors: Sequence[Tensor]) -> nn.Sequential:
    """Do what `rescale` does, with any activations; in general the function then changes."""
    checked = _checked(model, factors, "factors")
    for factor in checked:
        if not bool(((factor > 0) & torch.isfinite(factor)).all()):
            raise UsageError(f"rescale: factors must be positive and finite, got {_some(factor)}")
    return _multiply(model, checked)


def flip(model: nn.Sequential, signs: Sequence[Tensor]) -> nn.Sequential:
    """A copy with the signs of some hidden units flipped, in their incoming and outgoing weights.

    The function is the same if the activations are odd, σ(−z) = −σ(z): tanh.

    Args:
        model: `Linear` layers with such activations between them.
        signs: 1 or −1 for each unit: a vector for each hidden layer.
    """
    _check_activations(model, ODD, "flip: activations must be odd")
    checked = _checked(model, signs, "signs")
    for sign in checked:
        if not bool((sign.abs() == 1).all()):
            raise UsageError(f"flip: signs must be 1 or −1, got {_some(sign)}")
    return _multiply(model, checked)


def permute(model: nn.Sequential, orders: Sequence[Tensor]) -> nn.Sequential:
    """A copy with the units of each hidden layer in another order; the same function for any activation.

    Args:
        model: `Linear` layers with activations between them.
        orders: For each hidden layer, which unit comes at each place: a permutation of 0, 1, ….
    """
    checked = _checked(model, orders, "orders")
    other = copy.deepcopy(model)
    layers = _linear_layers(other)
    with torch.no_grad():
        for before, after, order in zip(layers, layers[1:], checked, strict=False):
            if not torch.equal(order.sort().values, torch.arange(len(order), device=order.device)):
                raise UsageError(
                    f"permute: an order must hold each of 0 to {len(order) - 1} once, got {_some(order)}"
                )
            before.weight.copy_(before.weight[order].clone())
            if before.bias is not None:
                before.bias.copy_(before.bias[order].clone())
            after.weight.copy_(after.weight[:, order].clone())
    return other


def rescaling_directions(model: nn.Sequential) -> Tensor:
    """The directions of parameter space along which rescaling moves a network, [hidden units, parameters].

    For unit i it is (W_i, b_i) on its incoming parameters and −V_i on its outgoing ones, the derivative of
    `rescale` at α = 1. The derivative of a ReLU network's outputs along each is zero.
    """
    sizes = enumerate(hidden_sizes(model))
    return torch.stack([_direction(model, place, unit) for place, size in sizes for unit in range(size)])


def _direction(model: nn.Sequential, place: int, unit: int) -> Tensor:
    move = {name: torch.zeros_like(value) for name, value in model.named_parameters()}
    names = [name for name, layer in model.named_children() if isinstance(layer, nn.Linear)]
    layers = _linear_layers(model)
    move[f"{names[place]}.weight"][unit] = layers[place].weight.detach()[unit]
    if layers[place].bias is not None:
        move[f"{names[place]}.bias"][unit] = layers[place].bias.detach()[unit]
    move[f"{names[place + 1]}.weight"][:, unit] = -layers[place + 1].weight.detach()[:, unit]
    return torch.cat([one.flatten() for one in move.values()])


def _multiply(model: nn.Sequential, factors: Sequence[Tensor]) -> nn.Sequential:
    other = copy.deepcopy(model)
    layers = _linear_layers(other)
    with torch.no_grad():
        for before, after, factor in zip(layers, layers[1:], factors, strict=False):
            before.weight.mul_(factor[:, None])
            if before.bias is not None:
                before.bias.mul_(factor)
            after.weight.div_(factor)
    return other


def _linear_layers(model: nn.Sequential) -> list[nn.Linear]:
    if not isinstance(model, nn.Sequential):
        raise UsageError(f"symmetries are known of nn.Sequential, got {type(model).__name__}")
    layers: list[nn.Linear] = []
    for module in model:
        if isinstance(module, nn.Linear):
            layers.append(module)
        elif not isinstance(module, ELEMENTWISE) and not (isinstance(module, nn.Flatten) and not layers):
            raise UsageError(
                f"symmetries are known of Linear layers with activations between them, got a "
                f"{type(module).__name__}; allowed are {', '.join(kind.__name__ for kind in ELEMENTWISE)}"
            )
    if len(layers) < 2:
        raise UsageError(f"a network with symmetries has at least two Linear layers, got {len(layers)}")
    return layers


def _check_activations(model: nn.Sequential, allowed: tuple[type[nn.Module], ...], rule: str) -> None:
    layers = _linear_layers(model)
    inside = False
    for module in model:
        if isinstance(module, nn.Linear):
            inside = module is not layers[-1]
        elif inside and not isinstance(module, allowed):
            names = ", ".join(kind.__name__ for kind in allowed)
            raise UsageError(f"{rule}, got {type(module).__name__}; allowed are {names}")


def _checked(model: nn.Sequential, vectors: Sequence[Tensor], name: str) -> list[Tensor]:
    sizes = hidden_sizes(model)
    found = [tuple(vector.shape) for vector in vectors]
    if found != [(size,) for size in sizes]:
        raise UsageError(f"{name} must be one vector for each hidden layer, of {sizes}; got shapes {found}")
    weight = _linear_layers(model)[0].weight
    return [vector.to(weight.device, weight.dtype if name != "orders" else torch.long) for vector in vectors]


def _some(vector: Tensor) -> str:
    return str([round(float(value), 4) for value in vector[:8]])
