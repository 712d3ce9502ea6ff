"""Faults of the weights that a network begins with."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from studies.clinic import networks as net
from studies.clinic.faults import fault
from studies.clinic.patients import Draft
from studies.clinic.planting import batch_norms, hidden_layers, layers, resize, scale_hidden

DEEP_RELU = "deep-mlp/digits deep-mlp/waves deep-functional/digits deep-cnn/images deep-regression/teacher"
DEEP_TANH = "deep-tanh/digits deep-tanh/waves deep-tanh/images deep-tanh/teacher"


@fault(
    "vanishing-signal",
    on=DEEP_RELU,
    accepted=("vanishing-signal", "wrong-gain", "vanishing-gradient"),
    elsewhere="shallow networks; networks with norms, which restore the scale",
)
def vanishing_signal(draft: Draft) -> None:
    """All hidden weights four times too small."""
    scale_hidden(draft.model, 0.25)


@fault(
    "exploding-signal",
    on=DEEP_RELU,
    accepted=("exploding-signal", "wrong-gain", "exploding-gradient"),
    elsewhere="shallow networks; networks with norms",
)
def exploding_signal(draft: Draft) -> None:
    """All hidden weights three times too large."""
    scale_hidden(draft.model, 3.0)


@fault(
    "vanishing-gradient",
    on="deep-mlp/digits deep-mlp/waves deep-functional/digits deep-tanh/images deep-cnn/digits",
    accepted=("vanishing-gradient", "vanishing-signal"),
    elsewhere="shallow networks; residual networks",
)
def vanishing_gradient(draft: Draft) -> None:
    """Sigmoids in a deep network: each layer takes three quarters of the gradient at least."""
    _activate(draft.model, nn.Sigmoid)
    for layer in layers(draft.model):
        layer.reset_parameters()


def _activate(model: nn.Module, activation: type[nn.Module]) -> None:
    if isinstance(model, net.FunctionalMLP):
        model.activation = torch.sigmoid
    for name, child in model.named_children():
        if isinstance(child, nn.ReLU | nn.Tanh):
            setattr(model, name, activation())


@fault(
    "exploding-gradient",
    on=DEEP_TANH,
    accepted=("exploding-gradient", "saturation", "wrong-gain"),
    elsewhere="ReLU, where the signal explodes first; networks with norms",
)
def exploding_gradient(draft: Draft) -> None:
    """Weights of a deep tanh network far into chaos: outputs are bounded, gradients grow with each layer."""
    net.glorot(draft.model, gain=3.0)


@fault(
    "wrong-gain",
    on="deep-mlp/digits deep-mlp/waves deep-functional/digits deep-cnn/images deep-mlp/colours",
    accepted=("wrong-gain", "vanishing-signal", "vanishing-gradient"),
    prepare=lambda draft: resize(draft, depth=10 if "cnn" in draft.family.architecture else 20),
    elsewhere="shallow networks; networks with norms",
)
def wrong_gain(draft: Draft) -> None:
    """The gain of a linear network under many ReLUs, each of which halves the signal's square."""
    for layer in hidden_layers(draft.model):
        nn.init.kaiming_normal_(layer.weight, nonlinearity="linear")
        layer.weight.data.mul_(0.8)


def _deeper(draft: Draft) -> None:
    """Prepare a network of four layers at least, with the weights that suit its activation."""
    resize(draft, depth=max(4, draft.size.depth))
    if "relu" in draft.family.traits:
        net.he(draft.model)


@fault(
    "small-normal-init",
    on="mlp/digits deep-mlp/waves functional-mlp/waves deep-cnn/digits tanh-mlp/images",
    accepted=("wrong-gain", "vanishing-signal", "vanishing-gradient"),
    prepare=_deeper,
    elsewhere="networks with norms",
)
def small_normal(draft: Draft) -> None:
    """All weights from a normal law of deviation 0.01, whatever the width."""
    for layer in layers(draft.model):
        nn.init.normal_(layer.weight, std=0.01)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)


@fault(
    "dead-units",
    on="mlp/digits functional-mlp/digits cnn-batch-norm/images deep-functional/digits mlp/spirals",
    prepare=lambda draft: resize(draft, depth=max(2, draft.size.depth)),
    elsewhere="activations other than ReLU; residual networks, where the signal goes around",
)
@torch.no_grad()
def dead_units(draft: Draft) -> None:
    """Biases so negative that in one layer no unit, or in each hardly any, is ever active."""
    norms = batch_norms(draft.model)
    biases: list[Tensor | None] = [layer.bias for layer in norms or hidden_layers(draft.model)]
    chosen = biases[1:2] if draft.seed % 2 else biases
    for bias in chosen:
        assert bias is not None
        dead = torch.rand(bias.shape, generator=draft.generator) < (1.0 if draft.seed % 2 else 0.9)
        bias[dead] = -20.0


@fault(
    "saturation",
    on="tanh-mlp/digits tanh-mlp/waves tanh-mlp/images regression-tanh/teacher regression-tanh/friedman",
    accepted=("saturation", "wrong-gain"),
    elsewhere="activations without bounds",
)
def saturation(draft: Draft) -> None:
    """Weights so large that tanh is at its bounds almost everywhere."""
    scale_hidden(draft.model, 20.0)


@fault(
    "symmetric-init",
    on="mlp/digits functional-mlp/waves tanh-mlp/digits regression-mlp/teacher cnn-group-norm/images",
    prepare=lambda draft: resize(draft, depth=max(2, draft.size.depth), dropout=0.0),
    elsewhere="dropout, whose masks break the symmetry; embeddings",
)
def symmetric_init(draft: Draft) -> None:
    """All weights of a layer equal, so that its units learn the same."""
    for layer in layers(draft.model):
        fan_in = layer.weight[0].numel()
        nn.init.constant_(layer.weight, 0.0 if draft.seed % 3 == 0 else 0.5 / fan_in**0.5)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
