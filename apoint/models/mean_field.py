"""One wide hidden layer scaled by 1/N: a network that is a function of its neurons' distribution."""

from __future__ import annotations

from torch import Tensor, nn

from apoint.nn.activations import activation as build_activation
from apoint.nn.dropout import Dropout
from apoint.registry import register
from apoint.settings import ActivationSpec, Count, Rate


class MeanField(nn.Module):
    """The mean output of N neurons; inputs of any shape are flattened to vectors.

    Args:
        hidden: Maps inputs to the N neurons.
        activation: Applied to each neuron.
        dropout: Drops neurons.
        head: Its columns are the outputs of the neurons; the result is divided by N.
    """

    def __init__(self, hidden: nn.Linear, activation: nn.Module, dropout: Dropout, head: nn.Linear) -> None:
        super().__init__()
        self.hidden, self.activation, self.dropout, self.head = hidden, activation, dropout, head

    def forward(self, x: Tensor) -> Tensor:
        """One logit for each class."""
        neurons = self.dropout(self.activation(self.hidden(x.flatten(1))))
        logits: Tensor = self.head(neurons) / self.head.in_features
        return logits


@register("model", "mean-field", course="K9", inputs=("vector", "signal", "image"))
def mean_field(
    in_features: int,
    num_classes: int = 10,
    *,
    width: Count = 1024,
    activation: ActivationSpec = "relu",
    dropout: Rate = 0.0,
) -> MeanField:
    """One hidden layer in mean-field scaling, f(x) = (1/N) Σ_i a_i σ(w_i·x).

    Unlike in an `mlp`, a_i and w_i are of order 1 for any N: as built, a_i is standard normal, and so is w_i,
    divided by the square root of the number of inputs. So use `init: as-built`, since the other
    initialisations divide by √N. As N grows, training follows a deterministic path of the distribution of
    (a_i, w_i), on which features are learned, and random fluctuations decay as N^(-1/2). The gradient with
    respect to one neuron has the factor 1/N: with plain gradient descent, choose a learning rate proportional
    to N.

    Args:
        width: The number N of neurons.
        activation: The activation σ.
        dropout: The probability of dropping a neuron.

    Reference: Mei, Montanari and Nguyen (2018), A mean field view of the landscape of two-layer networks.
    """
    hidden = nn.Linear(in_features, width, bias=False)
    head = nn.Linear(width, num_classes, bias=False)
    nn.init.normal_(hidden.weight, std=in_features**-0.5)
    nn.init.normal_(head.weight)
    return MeanField(hidden, build_activation(activation), Dropout(dropout), head)
