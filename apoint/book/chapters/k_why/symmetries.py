"""K4: infinitely many parameters give the same ReLU network."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from apoint.book.claim import claim
from apoint.book.evidence import Evidence, Number, at_least, at_most, same
from apoint.book.running import Running
from apoint.theory import symmetry

SIZES = (4, 8, 6, 3)
ROUNDING = 1e-12  # a few hundred operations on numbers of order 1, each rounded by 1e-16
ACTIVATIONS: dict[str, type[nn.Module]] = {"ReLU": nn.ReLU, "tanh": nn.Tanh}


def _network(activation: str, generator: torch.Generator, inputs: Tensor) -> nn.Sequential:
    """A random network in which each hidden unit has a positive input at half of the points."""
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(SIZES):
        layers += [nn.Linear(before, after, dtype=torch.float64), ACTIVATIONS[activation]()]
    model = nn.Sequential(*layers[:-1])
    with torch.no_grad():
        values = inputs
        for layer in model:
            if isinstance(layer, nn.Linear):
                draw = torch.randn(layer.weight.shape, generator=generator, dtype=torch.float64)
                layer.weight.copy_(draw / layer.in_features**0.5)
                layer.bias.copy_(-(values @ layer.weight.T).median(0).values)
            values = layer(values)
    return model


def _jacobian(model: nn.Sequential, inputs: Tensor) -> Tensor:
    """The derivative of all outputs by all parameters, by autograd."""
    rows = []
    for value in model(inputs).flatten():
        parts = torch.autograd.grad(value, list(model.parameters()), retain_graph=True)
        rows.append(torch.cat([part.flatten() for part in parts]))
    return torch.stack(rows)


def _change(model: nn.Sequential, other: nn.Sequential, inputs: Tensor) -> float:
    """The largest change of an output, as a share of the largest output."""
    with torch.no_grad():
        before = model(inputs)
        return float((other(inputs) - before).abs().max() / before.abs().max())


def _distance(model: nn.Sequential, other: nn.Sequential) -> float:
    vector = parameters_to_vector(model.parameters()).detach()
    return float((parameters_to_vector(other.parameters()).detach() - vector).norm() / vector.norm())


@claim(
    "K4",
    "The same network, infinitely often",
    kind="identity",
    statement=r"""
    A ReLU has $\sigma(\alpha z)=\alpha\,\sigma(z)$ for $\alpha>0$. So the incoming weights and the bias of a
    hidden unit may be multiplied by any $\alpha>0$ and its outgoing weights divided by it, and the network
    is the same function: every parameter lies on a surface of as many dimensions as there are hidden units,
    unbounded, on which the loss is constant. The units of a layer may also be put in any order. With
    $\tanh$ rescaling changes the function; order, and the sign of a unit, are all that is left.
    """,
    refuted_by="an output that a rescaled ReLU network changes by more than rounding, a number of directions "
    "without effect that is not the number of hidden units, or a tanh network that can be rescaled",
    seconds={"quick": 2, "standard": 17},
    planted={"factor": 1.05},
    details=r"""
    The check rescales each unit of a network with two hidden layers by its own random factor, up to
    thousands, and compares outputs at points. Independently of this it takes the derivative $J$ of all
    outputs by all parameters with autograd and counts its null directions: they must be as many as hidden
    units for ReLU and none for $\tanh$, so that no further smooth symmetry exists at such a parameter. (Each
    unit is on at half of the points; one that is never on, or always, has further directions of its own.)
    It follows that the Hessian of any loss has at least so many zero eigenvalues at a minimum, that minima
    are never isolated, and that "sharpness" measured in parameters can be made anything.
    """,
    references=("Dinh, Pascanu, Bengio and Bengio (2017), Sharp minima can generalize for deep nets, ICML",),
)
def same_function(run: Running, factor: float = 1.0) -> Evidence:
    """Networks are rescaled, permuted and flipped; `factor` multiplies the incoming weights once more."""
    points, generator = run.generator("points"), run.generator()
    inputs = 2 * torch.randn(run.pick(150, 400), SIZES[0], generator=points, dtype=torch.float64)
    model = _network("ReLU", generator, inputs)
    units = symmetry.hidden_sizes(model)
    worst, farthest = 0.0, 0.0
    for _ in range(run.pick(20, 200)):
        factors = [torch.exp(3 * torch.randn(n, generator=generator, dtype=torch.float64)) for n in units]
        other = symmetry.scale_units(model, factors)
        with torch.no_grad():
            for parameter in other[0].parameters():
                parameter.mul_(factor)
        worst = max(worst, _change(model, other, inputs))
        farthest = max(farthest, _distance(model, other))
    orders = [torch.randperm(n, generator=generator) for n in units]
    jacobian = _jacobian(model, inputs)
    parameters, rank = jacobian.shape[1], int(torch.linalg.matrix_rank(jacobian))
    along = jacobian @ symmetry.rescaling_directions(model).T
    numbers = [
        at_most("largest change of an output by rescaling", worst, ROUNDING),
        at_least("largest distance of the parameters, as a share of their norm", farthest, 10.0),
        at_most("change by permuting", _change(model, symmetry.permute(model, orders), inputs), ROUNDING),
        at_most("largest derivative along the rescalings", float(along.abs().max()), ROUNDING),
        same(f"directions without effect, of {parameters}", parameters - rank, sum(units)),
    ]
    return Evidence(numbers + _of_tanh(generator, inputs))


def _of_tanh(generator: torch.Generator, inputs: Tensor) -> list[Number]:
    """What is left for tanh: order and sign."""
    model = _network("tanh", generator, inputs)
    units = symmetry.hidden_sizes(model)
    doubled = symmetry.scale_units(model, [torch.full((n,), 2.0) for n in units])
    orders = [torch.randperm(n, generator=generator) for n in units]
    signs = [1 - 2 * torch.randint(2, (n,), generator=generator).double() for n in units]
    jacobian = _jacobian(model, inputs)
    lost = jacobian.shape[1] - int(torch.linalg.matrix_rank(jacobian))
    return [
        at_least("tanh: change when the units are doubled", _change(model, doubled, inputs), 0.01),
        at_most(
            "tanh: change by permuting", _change(model, symmetry.permute(model, orders), inputs), ROUNDING
        ),
        at_most("tanh: change by signs", _change(model, symmetry.flip(model, signs), inputs), ROUNDING),
        same("tanh: directions without effect", lost, 0),
    ]
