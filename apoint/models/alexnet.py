"""AlexNet, as in the 2012 paper and as in public weights, and code shared by plain convolutional networks.

Shapes: B batch, C channels, H height, W width.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from apoint.errors import UsageError
from apoint.models.cnn import NormPlacement
from apoint.models.members import register_member
from apoint.models.resnet import check_space, named
from apoint.models.shapes import Size, has_norm, space_of, written
from apoint.nn.activations import activation as build_activation
from apoint.nn.dropout import Dropout
from apoint.nn.norms import norm as build_norm
from apoint.registry import register
from apoint.settings import ActivationSpec, Count, NormSpec, Rate, Spec

Variant = Literal["2014", "2012"]
Stem = Literal["large", "small"]
WIDTHS = {"2014": (64, 192, 384, 256, 256), "2012": (96, 256, 384, 384, 256)}
SPLIT = (2, 4, 5)
"""The convolutions that the paper splits into two towers, one per GPU."""
POOLED = (1, 2, 5)
"""The convolutions followed by pooling."""


class AlexNet(nn.Module):
    """Convolutions, pooling to a fixed size, linear layers.

    Args:
        features: Maps images to feature maps.
        readout: Maps feature maps to vectors whose size does not depend on the image size.
        hidden: The hidden linear layers.
        head: The final linear layer.
    """

    family: str | None = "alexnet"

    def __init__(self, features: nn.Module, readout: nn.Module, hidden: nn.Module, head: nn.Linear) -> None:
        super().__init__()
        self.features = features
        self.readout = readout
        self.hidden = hidden
        self.head = head

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """One logit for each class."""
        logits: Tensor = self.head(self.hidden(self.readout(self.features(x_BCHW))))
        return logits


@dataclass(frozen=True)
class Plain:
    """What follows each convolution of a plain network; builds its linear layers."""

    activation: Spec
    norm: Spec
    norm_placement: NormPlacement
    dropout: float

    def activated(self) -> nn.Module:
        """The activation."""
        return build_activation(self.activation)

    def normalised(self, channels: int) -> nn.Module | None:
        """The norm, if there is one."""
        return build_norm(self.norm, channels, "channels", 2) if has_norm(self.norm) else None

    def after(self, channels: int, number: int | None = None) -> dict[str, nn.Module | None]:
        """Norm and activation by name, in order, with the layer's number if there is one."""
        ending = "" if number is None else str(number)
        parts = {f"norm{ending}": self.normalised(channels), f"activation{ending}": self.activated()}
        return dict(reversed(parts.items())) if self.norm_placement == "after" else parts

    def hidden(self, sizes: Sequence[int], *, drop_first: bool) -> nn.Sequential:
        """Linear layers of these sizes, each with an activation, and dropout before or after it."""
        parts: dict[str, nn.Module] = {}
        for number, (before, after) in enumerate(itertools.pairwise(sizes), 1):
            dropout = {f"dropout{number}": Dropout(self.dropout)}
            linear = {
                f"linear{number}": nn.Linear(before, after),
                f"activation{number}": self.activated(),
            }
            parts |= dropout | linear if drop_first else linear | dropout
        return named(**parts)


def local_response_norm() -> nn.LocalResponseNorm:
    """The local response norm of the AlexNet paper, over neighbouring channels.

    b_c = a_c / (k + α·Σ_i a_i²)^β, where i runs over n = 5 channels around c, with k = 2, α = 10⁻⁴ and
    β = 3/4. PyTorch's module takes the mean instead of the sum, so its `alpha` is n·α.
    """
    return nn.LocalResponseNorm(5, alpha=5e-4, beta=0.75, k=2.0)


def readout_to(size: int) -> nn.Sequential:
    """Average pooling to size × size positions for any image size, flattened to one vector."""
    return named(pool=nn.AdaptiveAvgPool2d(size), flatten=nn.Flatten())


@register("model", "alexnet", course="H1", inputs=("image",))
def alexnet(
    in_channels: int = 3,
    num_classes: int = 1000,
    input_size: Size = 224,
    *,
    variant: Variant = "2014",
    widths: tuple[Count, ...] | None = None,
    towers: Count | None = None,
    stem: Stem = "large",
    hidden: Count = 4096,
    pooled: Count = 6,
    activation: ActivationSpec = "relu",
    norm: NormSpec = "none",
    norm_placement: NormPlacement = "before",
    dropout: Rate = 0.5,
) -> AlexNet:
    """AlexNet: five convolutions, three of them followed by overlapping pooling, and three linear layers.

    A convolution is followed by a norm, if there is one, and an activation. Pooling is 3×3 max pooling with
    stride 2. `2014` is the network of public weights, from "One weird trick": one tower, no local response
    norm, dropout before each hidden linear layer, PyTorch's default initialisation. `2012` is the paper's:
    in convolutions 2, 4 and 5 each output sees only half of the channels (two towers), convolutions 1 and 2
    are followed by a local response norm, and dropout comes after the hidden layers; weights are normal with
    standard deviation 0.01, and biases are 1 in convolutions 2, 4 and 5 and in the hidden linear layers. The
    paper's images of 224 pixels are padded by 2 here; without this, its feature maps would not be 55×55.

    Args:
        variant: `2014`, as in public weights, or `2012`, as in the paper.
        widths: The channels of the five convolutions; by default, those of the variant.
        towers: The number of groups into which the channels of convolutions 2, 4 and 5 are split; by default
            2 in `2012` and 1 in `2014`.
        stem: `large` is an 11×11 convolution of stride 4; `small` a 5×5 one of stride 1, for images of a few
            dozen pixels.
        hidden: The number of units of the two hidden linear layers.
        pooled: The spatial size before the linear layers, reached by average pooling.
        activation: The activation.
        norm: A norm after each convolution, in addition to the variant's; convolutions then have no bias.
        norm_placement: Whether the norm comes `before` or `after` the activation.
        dropout: The probability of dropping a unit before (`2014`) or after (`2012`) a hidden linear layer.

    Reference: Krizhevsky, Sutskever and Hinton (2012), ImageNet classification with deep convolutional neural
    networks; Krizhevsky (2014), One weird trick for parallelizing convolutional neural networks.
    """
    check_space("alexnet", input_size)
    check_smallest("alexnet", input_size, lambda length: _left(length, stem))
    shapes = _shapes(in_channels, widths or WIDTHS[variant], towers or (2 if variant == "2012" else 1))
    plain = Plain(activation, norm, norm_placement, dropout)
    parts: dict[str, nn.Module | None] = {}
    for number, (before, after, groups) in enumerate(shapes, 1):
        parts[f"convolution{number}"] = _convolution(number, before, after, groups, stem, not has_norm(norm))
        parts |= plain.after(after, number)
        if number in POOLED:
            has_response = variant == "2012" and number < 3
            parts[f"response{number}"] = local_response_norm() if has_response else None
            parts[f"pool{number}"] = nn.MaxPool2d(3, 2)
    sizes = (shapes[-1][1] * pooled**2, hidden, hidden)
    model = AlexNet(
        named(**parts),
        readout_to(pooled),
        plain.hidden(sizes, drop_first=variant == "2014"),
        nn.Linear(hidden, num_classes),
    )
    if variant == "2012":
        _draw_as_in_2012(model)
    return model


def _shapes(in_channels: int, widths: Sequence[int], towers: int) -> list[tuple[int, int, int]]:
    """Input and output channels of each convolution, and its number of groups."""
    if len(widths) != 5:
        raise UsageError(
            f"model 'alexnet': widths must name the channels of 5 convolutions, got {len(widths)} numbers"
        )
    befores = (in_channels, *widths[:-1])
    shapes = [
        (before, after, towers if number in SPLIT else 1)
        for number, (before, after) in enumerate(zip(befores, widths, strict=True), 1)
    ]
    for number, (before, after, groups) in enumerate(shapes, 1):
        if before % groups or after % groups:
            raise UsageError(
                f"model 'alexnet': convolution {number} has {before} and {after} channels, which do not "
                f"split into {groups} towers; choose widths that do, or towers: 1"
            )
    return shapes


def _convolution(number: int, before: int, after: int, groups: int, stem: Stem, bias: bool) -> nn.Conv2d:
    if number == 1 and stem == "large":
        return nn.Conv2d(before, after, 11, 4, padding=2, bias=bias)
    size = 5 if number < 3 else 3
    return nn.Conv2d(before, after, size, padding=size // 2, groups=groups, bias=bias)


def _left(length: int, stem: Stem) -> int:
    """The length that remains after the convolutions and poolings."""
    if stem == "large":
        length = (length + 4 - 11) // 4 + 1
    for _ in POOLED:
        length = (length - 3) // 2 + 1
    return length


def check_smallest(name: str, input_size: Size, left: Callable[[int], int]) -> None:
    """Raise if pooling leaves nothing of the image; `left` maps an input length to the remaining length."""
    if min(map(left, space_of(input_size))) < 1:
        smallest = next(length for length in range(1, 10_000) if left(length) >= 1)
        raise UsageError(
            f"model {name!r}: poolings leave nothing of an input_size of {written(input_size)}; with these "
            f"settings images need at least {smallest}×{smallest} pixels"
        )


def _draw_as_in_2012(model: AlexNet) -> None:
    ones = {f"features.convolution{number}" for number in SPLIT} | {"hidden.linear1", "hidden.linear2"}
    for name, module in model.named_modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.normal_(module.weight, std=0.01)
            if module.bias is not None:
                nn.init.constant_(module.bias, float(name in ones))


register_member(
    alexnet,
    "alexnet-2012",
    "AlexNet as in its paper: two towers, local response norm, 61 million parameters.",
    course="H1",
    fixed={"variant": "2012"},
)

register_member(
    alexnet,
    "alexnet-micro",
    "AlexNet for images of 28 or 32 pixels that trains within minutes.",
    course="H1",
    fixed={"variant": "2014", "stem": "small"},
    defaults={
        "num_classes": 10,
        "input_size": 32,
        "widths": (16, 32, 48, 32, 32),
        "hidden": 128,
        "pooled": 3,
        "norm": "batch",
        "dropout": 0.1,
    },
)
