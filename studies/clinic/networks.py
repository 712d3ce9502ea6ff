"""The small networks of the clinic, written as users write them.

Shapes: B batch, C channels, H height, W width, T time steps or tokens, E model dimension, F features.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Activation = Callable[[], nn.Module]
Recurrence = type[nn.LSTM] | type[nn.GRU]


class FunctionalMLP(nn.Module):
    """A perceptron whose activation is a function, not a module."""

    def __init__(self, num_features: int, width: int, depth: int, num_outputs: int) -> None:
        super().__init__()
        sizes = [num_features, *[width] * depth]
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(sizes))
        self.head = nn.Linear(sizes[-1], num_outputs)
        self.activation: Callable[[Tensor], Tensor] = F.relu

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        for layer in self.hidden:
            x = self.activation(layer(x))
        outputs: Tensor = self.head(x)
        return outputs


def perceptron(
    num_features: int,
    width: int,
    depth: int,
    num_outputs: int,
    activation: Activation = nn.ReLU,
    dropout: float = 0.0,
    norm: Callable[[int], nn.Module] | None = None,
) -> nn.Sequential:
    """Flatten, then linear, norm, activation and dropout `depth` times, then a linear layer."""
    layers: list[nn.Module] = [nn.Flatten()]
    before = num_features
    for _ in range(depth):
        layers.append(nn.Linear(before, width))
        if norm is not None:
            layers.append(norm(width))
        layers.append(activation())
        if dropout:
            layers.append(nn.Dropout(dropout))
        before = width
    return nn.Sequential(*layers, nn.Linear(before, num_outputs))


class ResidualBlock(nn.Module):
    """x + W₂ gelu(W₁ norm(x)); or with the norm on the sum."""

    def __init__(self, width: int, dropout: float = 0.0, post: bool = False) -> None:
        super().__init__()
        self.norm, self.post = nn.LayerNorm(width), post
        self.branch = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Dropout(dropout), nn.Linear(2 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.norm(x + self.branch(x)) if self.post else x + self.branch(self.norm(x))
        return y


def residual_perceptron(
    num_features: int, width: int, depth: int, num_outputs: int, dropout: float = 0.0, post: bool = False
) -> nn.Sequential:
    """A residual network of linear layers with GELU and LayerNorm."""
    blocks = [ResidualBlock(width, dropout, post) for _ in range(depth)]
    last = [] if post else [nn.LayerNorm(width)]
    return nn.Sequential(
        nn.Flatten(), nn.Linear(num_features, width), *blocks, *last, nn.Linear(width, num_outputs)
    )


def convolutional(
    channels: int, width: int, num_outputs: int, norm: Callable[[int], nn.Module], dropout: float = 0.0
) -> nn.Sequential:
    """Three 3 × 3 convolutions with norms, halving space after the first two, then a mean over space."""
    layers: list[nn.Module] = []
    before = channels
    for number, after in enumerate((width, 2 * width, 2 * width)):
        layers += [nn.Conv2d(before, after, 3, padding=1, bias=False), norm(after), nn.ReLU()]
        if number < 2:
            layers.append(nn.MaxPool2d(2))
        before = after
    layers += [nn.AdaptiveAvgPool2d(2), nn.Flatten()]
    if dropout:
        layers.append(nn.Dropout(dropout))
    return nn.Sequential(*layers, nn.Linear(4 * before, num_outputs))


def deep_convolutional(channels: int, width: int, depth: int, num_outputs: int) -> nn.Sequential:
    """Many 3 × 3 convolutions without norms."""
    layers: list[nn.Module] = []
    before = channels
    for number in range(depth):
        layers += [nn.Conv2d(before, width, 3, padding=1), nn.ReLU()]
        if number == 1:
            layers.append(nn.MaxPool2d(2))
        before = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * width, num_outputs))


def convolutional_1d(channels: int, width: int, num_outputs: int, dropout: float = 0.0) -> nn.Sequential:
    """Three convolutions over time with BatchNorm, then a mean over time."""
    layers: list[nn.Module] = []
    before = channels
    for after in (width, 2 * width, 2 * width):
        layers += [nn.Conv1d(before, after, 5, stride=2, padding=2, bias=False), nn.BatchNorm1d(after)]
        layers.append(nn.ReLU())
        before = after
    layers += [nn.AdaptiveAvgPool1d(4), nn.Flatten(), nn.Dropout(dropout)]
    return nn.Sequential(*layers, nn.Linear(4 * before, num_outputs))


class ConvNeXtBlock(nn.Module):
    """Depthwise convolution, LayerNorm over channels, two 1 × 1 layers with GELU, residual."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 3, padding=1, groups=width)
        self.norm = nn.LayerNorm(width)
        self.expand, self.contract = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        y_BHWC = self.norm(self.depthwise(x_BCHW).permute(0, 2, 3, 1))
        y_BHWC = self.contract(F.gelu(self.expand(y_BHWC)))
        y_BCHW: Tensor = x_BCHW + y_BHWC.permute(0, 3, 1, 2)
        return y_BCHW


def convnext(channels: int, width: int, depth: int, num_outputs: int) -> nn.Sequential:
    """Patches of 2 × 2, blocks, mean over space, linear layer."""
    blocks = [ConvNeXtBlock(width) for _ in range(depth)]
    ending = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(width), nn.Linear(width, num_outputs)]
    return nn.Sequential(nn.Conv2d(channels, width, 2, stride=2), *blocks, *ending)


class MixerBlock(nn.Module):
    """Mixes over places, then over channels."""

    def __init__(self, places: int, width: int) -> None:
        super().__init__()
        self.norm_places, self.norm_channels = nn.LayerNorm(width), nn.LayerNorm(width)
        self.over_places = nn.Sequential(
            nn.Linear(places, 2 * places), nn.GELU(), nn.Linear(2 * places, places)
        )
        self.over_channels = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x_BTE: Tensor) -> Tensor:
        x_BTE = x_BTE + self.over_places(self.norm_places(x_BTE).transpose(1, 2)).transpose(1, 2)
        y_BTE: Tensor = x_BTE + self.over_channels(self.norm_channels(x_BTE))
        return y_BTE


class Mixer(nn.Module):
    """An MLP-mixer on patches."""

    def __init__(
        self, channels: int, size: int, patch: int, width: int, depth: int, num_outputs: int
    ) -> None:
        super().__init__()
        self.embed = nn.Conv2d(channels, width, patch, stride=patch)
        self.blocks = nn.Sequential(*[MixerBlock((size // patch) ** 2, width) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, num_outputs)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        x_BTE = self.embed(x_BCHW).flatten(2).transpose(1, 2)
        outputs: Tensor = self.head(self.norm(self.blocks(x_BTE)).mean(1))
        return outputs


class EncoderClassifier(nn.Module):
    """PyTorch's own transformer encoder on sequences of vectors."""

    def __init__(
        self,
        channels: int,
        length: int,
        width: int,
        depth: int,
        num_outputs: int,
        dropout: float,
        norm_first: bool,
    ) -> None:
        super().__init__()
        self.embed = nn.Linear(channels, width)
        self.positions = nn.Parameter(0.3 * torch.randn(length, width))
        layer = nn.TransformerEncoderLayer(
            width, 4, 2 * width, dropout, batch_first=True, norm_first=norm_first
        )
        last = nn.LayerNorm(width) if norm_first else None
        self.encoder = nn.TransformerEncoder(layer, depth, last, enable_nested_tensor=False)
        for module in self.encoder.layers:  # the copies that PyTorch makes begin with the same weights
            for parameter in module.parameters():
                if parameter.dim() > 1:
                    nn.init.xavier_uniform_(parameter)
        self.head = nn.Linear(width, num_outputs)

    def forward(self, x_BTC: Tensor) -> Tensor:
        x_BTE = self.encoder(self.embed(x_BTC) + self.positions)
        outputs: Tensor = self.head(x_BTE.mean(1))
        return outputs


class RecurrentClassifier(nn.Module):
    """An LSTM, a GRU or a plain recurrent network over time, read at its last step."""

    def __init__(self, cell: Recurrence, channels: int, width: int, num_outputs: int) -> None:
        super().__init__()
        self.embed = nn.Linear(channels, width)
        self.recurrent = cell(width, width, batch_first=True)
        self.head = nn.Linear(width, num_outputs)

    def forward(self, x_BTC: Tensor) -> Tensor:
        x_BTE, _ = self.recurrent(self.embed(x_BTC))
        outputs: Tensor = self.head(x_BTE[:, -1])
        return outputs


class RecurrentLanguageModel(nn.Module):
    """Embedding, nn.LSTM, dropout, logits for each place."""

    def __init__(self, num_tokens: int, width: int, depth: int, dropout: float, tied: bool) -> None:
        super().__init__()
        self.embed = nn.Embedding(num_tokens, width)
        self.lstm = nn.LSTM(width, width, depth, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(width, num_tokens)
        if tied:
            nn.init.normal_(self.embed.weight, std=1 / math.sqrt(width))
            self.head.weight = self.embed.weight

    def forward(self, tokens_BT: Tensor) -> Tensor:
        hidden_BTE, _ = self.lstm(self.embed(tokens_BT))
        logits_BTV: Tensor = self.head(self.dropout(hidden_BTE))
        return logits_BTV


class CausalLanguageModel(nn.Module):
    """A decoder of PyTorch's encoder layers with a causal mask, its head tied to the embedding or not."""

    def __init__(
        self, num_tokens: int, context: int, width: int, depth: int, dropout: float, tied: bool
    ) -> None:
        super().__init__()
        self.embed = nn.Embedding(num_tokens, width)
        self.positions = nn.Embedding(context, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, 4, 4 * width, dropout, activation="gelu", batch_first=True, norm_first=True
            )
            for _ in range(depth)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, num_tokens, bias=False)
        nn.init.normal_(self.embed.weight, std=0.02)
        nn.init.normal_(self.positions.weight, std=0.02)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, tokens_BT: Tensor) -> Tensor:
        length = tokens_BT.shape[1]
        mask_TT = torch.full((length, length), -torch.inf, device=tokens_BT.device).triu(1)
        x_BTE = self.embed(tokens_BT) + self.positions.weight[:length]
        for layer in self.layers:
            x_BTE = layer(x_BTE, src_mask=mask_TT)
        logits_BTV: Tensor = self.head(self.norm(x_BTE))
        return logits_BTV


def he(model: nn.Module) -> nn.Module:
    """He's initialisation for ReLU, variance 2 / fan-in, biases 0; the last linear layer with 1 / fan-in."""
    layers = [module for module in model.modules() if isinstance(module, nn.Linear | nn.Conv2d)]
    for layer in layers:
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu" if layer is not layers[-1] else "linear")
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
    return model


def glorot(model: nn.Module, gain: float = 1.0) -> nn.Module:
    """Glorot's initialisation, variance 2 gain² / (fan-in + fan-out), biases 0."""
    for layer in model.modules():
        if isinstance(layer, nn.Linear):
            nn.init.xavier_normal_(layer.weight, gain=gain)
            nn.init.zeros_(layer.bias)
    return model


def lecun(model: nn.Module) -> nn.Module:
    """LeCun's initialisation, variance 1 / fan-in, biases 0; what SELU asks for."""
    for layer in model.modules():
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="linear")
            nn.init.zeros_(layer.bias)
    return model
