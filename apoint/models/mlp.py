"""Multi-layer perceptrons: linear layers with activations between them and a linear output."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from apoint.errors import UsageError
from apoint.nn.activations import activation as build_activation
from apoint.nn.dropout import Dropout
from apoint.nn.norms import norm as build_norm
from apoint.registry import register
from apoint.settings import ActivationSpec, Count, NormSpec, Rate, WholeNumber

NormPlacement = Literal["before", "after"]


class MLP(nn.Module):
    """A multi-layer perceptron; inputs of any shape are flattened to vectors.

    Args:
        body: The hidden layers.
        head: The final linear layer.
        input_dropout: Applied to the inputs.
    """

    def __init__(self, body: nn.Module, head: nn.Linear, input_dropout: Dropout) -> None:
        super().__init__()
        self.input_dropout = input_dropout
        self.body = body
        self.head = head

    def forward(self, x: Tensor) -> Tensor:
        """One logit for each class."""
        logits: Tensor = self.head(self.body(self.input_dropout(x.flatten(1))))
        return logits


@register("model", "mlp", course="A1 C1", inputs=("vector", "signal", "image"))
def mlp(
    in_features: int,
    num_classes: int = 10,
    *,
    depth: WholeNumber = 2,
    width: Count | list[Count] = 256,
    activation: ActivationSpec = "relu",
    norm: NormSpec = "none",
    norm_placement: NormPlacement = "before",
    dropout: Rate = 0.0,
    input_dropout: Rate = 0.0,
    bias: bool = True,
) -> MLP:
    """A multi-layer perceptron, x^l = f(W^l x^(l-1) + b^l), the last layer without f.

    A hidden layer is: linear, norm, activation, dropout; or linear, activation, norm, dropout. The course
    includes the last layer in its depth L, so its L is `depth` + 1; depth 0 is logistic regression.

    Args:
        depth: The number of hidden layers.
        width: The number of units in each hidden layer; or a list with one number for each.
        activation: The activation f.
        norm: The norm in each hidden layer.
        norm_placement: Whether the norm comes `before` or `after` the activation.
        dropout: The probability of dropping a hidden unit.
        input_dropout: The probability of dropping an input.
        bias: Whether layers have biases b^l.

    Reference: Rumelhart, Hinton and Williams (1986), Learning representations by back-propagating errors.
    """
    widths = _widths(depth, width)
    layers: list[nn.Module] = []
    for before, after in zip([in_features, *widths], widths, strict=False):
        middle = [build_norm(norm, after), build_activation(activation)]
        if norm_placement == "after":
            middle.reverse()
        layers.append(nn.Sequential(nn.Linear(before, after, bias), *middle, Dropout(dropout)))
    head = nn.Linear([in_features, *widths][-1], num_classes, bias)
    return MLP(nn.Sequential(*layers), head, Dropout(input_dropout, knob="input_dropout"))


def _widths(depth: int, width: int | list[int]) -> list[int]:
    if isinstance(width, int):
        return [width] * depth
    if len(width) != depth:
        raise UsageError(
            f"model 'mlp': width must list one number for each of the {depth} hidden layers of depth, "
            f"got {len(width)}; change depth or width"
        )
    return width
