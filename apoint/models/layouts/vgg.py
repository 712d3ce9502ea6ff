"""VGG weights elsewhere: torchvision's, and timm's, where all linear layers but the last are convolutions.

Both number all layers in one sequence, activations and poolings included, so a convolution's index depends
on whether there are norms: `vgg_bn` is the file for networks with batch norm.
"""

from __future__ import annotations

from torch import nn

from apoint.models.layouts.core import Layout, Rule, Shape
from apoint.models.weights.preprocessing import IMAGENET, Preprocessing


def layouts(per_layer: int) -> tuple[Layout, ...]:
    """The layouts of networks with `per_layer` modules for each convolution: 2 or, with a norm, 3."""
    features = (
        Rule(
            r"stages\.(\d+)\.convolution(\d+)\.(.*)",
            lambda m: f"features.{_place(int(m[1]), int(m[2]), per_layer)}.{m[3]}",
        ),
        Rule(
            r"stages\.(\d+)\.norm(\d+)\.(.*)",
            lambda m: f"features.{_place(int(m[1]), int(m[2]), per_layer) + 1}.{m[3]}",
        ),
    )
    torchvision = (
        Rule(r"hidden\.linear1\.(.*)", r"classifier.0.\1"),
        Rule(r"hidden\.linear2\.(.*)", r"classifier.3.\1"),
        Rule(r"head\.(.*)", r"classifier.6.\1"),
    )
    timm = (
        Rule(r"hidden\.linear1\.weight", "pre_logits.fc1.weight", _over_space),
        Rule(r"hidden\.linear2\.weight", "pre_logits.fc2.weight", lambda shape, model: (*shape, 1, 1)),
        Rule(r"hidden\.linear([12])\.bias", r"pre_logits.fc\1.bias"),
        Rule(r"head\.(.*)", r"head.fc.\1"),
    )
    return Layout("timm", features + timm), Layout("torchvision", features + torchvision)


def _place(stage: int, number: int, per_layer: int) -> int:
    """The index of a convolution in the sequence: after the earlier layers and one pooling per stage."""
    return per_layer * (number - 1) + stage


def _over_space(shape: Shape, model: nn.Module) -> Shape:
    """The first linear layer as a convolution over 7×7 positions, as in timm's networks."""
    return shape[0], shape[1] // 49, 7, 7


LAYOUTS = layouts(per_layer=2)

_PUBLIC = Preprocessing(*IMAGENET, size=224, crop_share=0.875, interpolation="bilinear")
PREPROCESSING = {"timm": _PUBLIC, "torchvision": _PUBLIC}
