"""Families of healthy trainings: an architecture on a dataset, with the ranges an expert would choose from.

A patient is one draw from a family. Rates are for each optimizer the range within which the family trains
well in its number of steps; `python -m studies.clinic.health` shows for each patient that it does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from torch import nn

from apoint.models import create
from studies.clinic import networks as net
from studies.clinic.datasets import CONTEXT, Dataset

Range = tuple[float, float]
BOTH = ("calibration", "publication")
ADAPTIVE: dict[str, Range] = {"adam": (1e-3, 3e-3), "adamw": (1e-3, 3e-3), "lion": (2e-4, 5e-4)}
DESCENT: dict[str, Range] = {"sgd": (0.05, 0.2), "momentum": (0.01, 0.04), "nesterov": (0.01, 0.04)}
ANY: dict[str, Range] = {**ADAPTIVE, **DESCENT, "rmsprop": (5e-4, 1.5e-3)}


@dataclass(frozen=True)
class Size:
    """What is drawn for a network."""

    width: int
    depth: int
    dropout: float


@dataclass(frozen=True)
class Family:
    """An architecture on a dataset.

    Attributes:
        architecture: The name of the architecture.
        dataset: The name of the dataset.
        build: Makes the network.
        site: The module, by name, in whose output a fault may be planted: one hidden tensor.
        traits: What faults ask for: relu, tanh, functional, deep, plain (no norm, no residual), batch-norm,
            layer-norm, norm, dropout, recurrent, attention, post-norm.
        rates: For each optimizer the range of learning rates.
        widths: Widths to choose from.
        depths: Depths to choose from.
        dropouts: Rates of dropout to choose from.
        batch_sizes: Batch sizes to choose from.
        schedules: Schedules to choose from.
        total_steps: How long the training is.
        splits: In which parts of the clinic it appears.
    """

    architecture: str
    dataset: str
    build: Callable[[Dataset, Size], nn.Module]
    site: str
    traits: frozenset[str]
    rates: dict[str, Range] = field(default_factory=lambda: ANY)
    widths: tuple[int, ...] = (32, 64, 128)
    depths: tuple[int, ...] = (2,)
    dropouts: tuple[float, ...] = (0.0,)
    batch_sizes: tuple[int, ...] = (32, 64, 128)
    schedules: tuple[str, ...] = ("none", "cosine", "warmup", "torch-cosine")
    total_steps: int = 300
    splits: tuple[str, ...] = BOTH

    @property
    def name(self) -> str:
        """`architecture/dataset`."""
        return f"{self.architecture}/{self.dataset}"


def _features(data: Dataset) -> int:
    return math.prod(data.input_shape)


def mlp(data: Dataset, size: Size) -> nn.Module:
    return net.perceptron(_features(data), size.width, size.depth, data.num_outputs, dropout=size.dropout)


def functional(data: Dataset, size: Size) -> nn.Module:
    return net.FunctionalMLP(_features(data), size.width, size.depth, data.num_outputs)


def deep(data: Dataset, size: Size) -> nn.Module:
    return net.he(mlp(data, size))


def deep_functional(data: Dataset, size: Size) -> nn.Module:
    return net.he(functional(data, size))


def tanh(data: Dataset, size: Size) -> nn.Module:
    model = net.perceptron(_features(data), size.width, size.depth, data.num_outputs, nn.Tanh, size.dropout)
    return net.glorot(model)


def selu(data: Dataset, size: Size) -> nn.Module:
    return net.lecun(net.perceptron(_features(data), size.width, size.depth, data.num_outputs, nn.SELU))


def normed(data: Dataset, size: Size) -> nn.Module:
    features = _features(data)
    return net.perceptron(
        features, size.width, size.depth, data.num_outputs, nn.SiLU, size.dropout, nn.BatchNorm1d
    )


def residual(data: Dataset, size: Size) -> nn.Module:
    return net.residual_perceptron(_features(data), size.width, size.depth, data.num_outputs, size.dropout)


def post_residual(data: Dataset, size: Size) -> nn.Module:
    return net.residual_perceptron(
        _features(data), size.width, size.depth, data.num_outputs, size.dropout, post=True
    )


def cnn_batch(data: Dataset, size: Size) -> nn.Module:
    channels = data.input_shape[0]
    return net.convolutional(channels, size.width, data.num_outputs, nn.BatchNorm2d, size.dropout)


def cnn_group(data: Dataset, size: Size) -> nn.Module:
    return net.convolutional(
        data.input_shape[0], size.width, data.num_outputs, lambda width: nn.GroupNorm(4, width), size.dropout
    )


def cnn_deep(data: Dataset, size: Size) -> nn.Module:
    return net.he(net.deep_convolutional(data.input_shape[0], size.width, size.depth, data.num_outputs))


def cnn_curves(data: Dataset, size: Size) -> nn.Module:
    return net.convolutional_1d(data.input_shape[0], size.width, data.num_outputs, size.dropout)


def convnext(data: Dataset, size: Size) -> nn.Module:
    return net.convnext(data.input_shape[0], size.width, size.depth, data.num_outputs)


def mixer(data: Dataset, size: Size) -> nn.Module:
    channels, side, _ = data.input_shape
    return net.Mixer(channels, side, side // 4, size.width, size.depth, data.num_outputs)


def resnet(data: Dataset, size: Size) -> nn.Module:
    channels, height, width = data.input_shape
    return create(
        "resnet-cifar",
        num_classes=data.num_outputs,
        in_channels=channels,
        input_size=(height, width),
        width=size.width,
        depth=size.depth,
        dropout=size.dropout,
    )


def vit(data: Dataset, size: Size) -> nn.Module:
    channels, height, width = data.input_shape
    return create(
        "vit",
        num_classes=data.num_outputs,
        in_channels=channels,
        input_size=(height, width),
        patch_size=height // 4,
        width=size.width,
        depth=size.depth,
        num_heads=4,
        dropout=size.dropout,
    )


def encoder(norm_first: bool) -> Callable[[Dataset, Size], nn.Module]:
    def build(data: Dataset, size: Size) -> nn.Module:
        length, channels = data.input_shape
        return net.EncoderClassifier(
            channels, length, size.width, size.depth, data.num_outputs, size.dropout, norm_first
        )

    return build


def recurrent(cell: net.Recurrence) -> Callable[[Dataset, Size], nn.Module]:
    def build(data: Dataset, size: Size) -> nn.Module:
        return net.RecurrentClassifier(cell, data.input_shape[-1], size.width, data.num_outputs)

    return build


def char_transformer(data: Dataset, size: Size) -> nn.Module:
    model = create(
        "char-transformer",
        vocab_size=data.num_outputs,
        context=CONTEXT,
        width=size.width,
        depth=size.depth,
        num_heads=4,
        dropout=size.dropout,
    )
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
    return model


def causal(tied: bool) -> Callable[[Dataset, Size], nn.Module]:
    def build(data: Dataset, size: Size) -> nn.Module:
        return net.CausalLanguageModel(data.num_outputs, CONTEXT, size.width, size.depth, size.dropout, tied)

    return build


def lstm_lm(tied: bool) -> Callable[[Dataset, Size], nn.Module]:
    def build(data: Dataset, size: Size) -> nn.Module:
        return net.RecurrentLanguageModel(data.num_outputs, size.width, size.depth, size.dropout, tied)

    return build
