"""ConvNeXt weights in other libraries: timm, torchvision, the paper's own repository, Hugging Face.

Files on the Hugging Face Hub and models in memory use the same names. timm's smallest networks, which exist
only in timm, have 1×1 convolutions where the others have linear layers: `timm-convolutional`.
"""

from __future__ import annotations

import re

from torch import nn

from apoint.models.layouts.core import Layout, Rule, Shape
from apoint.models.weights.preprocessing import IMAGENET, Preprocessing

_BLOCK = r"stages\.(\d+)\.blocks\.(\d+)\.branch\."
_DOWN = r"stages\.(\d+)\.downsampling\."


def _with_space(shape: Shape, model: nn.Module) -> Shape:
    """A linear layer as a 1×1 convolution, or per-channel factors as a 1×1 map."""
    return (*shape, 1, 1)


TIMM_RULES = (
    Rule(r"stem\.convolution\.(.*)", r"stem.0.\1"),
    Rule(r"stem\.norm\.(.*)", r"stem.1.\1"),
    Rule(_DOWN + r"norm\.(.*)", r"stages.\1.downsample.0.\2"),
    Rule(_DOWN + r"convolution\.(.*)", r"stages.\1.downsample.1.\2"),
    Rule(_BLOCK + r"depthwise\.(.*)", r"stages.\1.blocks.\2.conv_dw.\3"),
    Rule(_BLOCK + r"norm\.(.*)", r"stages.\1.blocks.\2.norm.\3"),
    Rule(_BLOCK + r"linear([12])\.(.*)", r"stages.\1.blocks.\2.mlp.fc\3.\4"),
    Rule(_BLOCK + r"scale\.factor", r"stages.\1.blocks.\2.gamma"),
    Rule(r"norm\.(.*)", r"head.norm.\1"),
    Rule(r"head\.(.*)", r"head.fc.\1"),
)

TIMM_CONVOLUTIONAL_RULES = (
    Rule(_BLOCK + r"linear([12])\.weight", r"stages.\1.blocks.\2.mlp.fc\3.weight", _with_space),
    *TIMM_RULES,
)

FACEBOOK_RULES = (
    Rule(r"stem\.convolution\.(.*)", r"downsample_layers.0.0.\1"),
    Rule(r"stem\.norm\.(.*)", r"downsample_layers.0.1.\1"),
    Rule(_DOWN + r"norm\.(.*)", r"downsample_layers.\1.0.\2"),
    Rule(_DOWN + r"convolution\.(.*)", r"downsample_layers.\1.1.\2"),
    Rule(_BLOCK + r"depthwise\.(.*)", r"stages.\1.\2.dwconv.\3"),
    Rule(_BLOCK + r"norm\.(.*)", r"stages.\1.\2.norm.\3"),
    Rule(_BLOCK + r"linear([12])\.(.*)", r"stages.\1.\2.pwconv\3.\4"),
    Rule(_BLOCK + r"scale\.factor", r"stages.\1.\2.gamma"),
    Rule(r"((?:norm|head)\..*)", r"\1"),
)


def _torchvision(match: re.Match[str], part: str, downsampling: bool = False) -> str:
    """In torchvision, stages and the layers between them are numbered together, and the stem is number 0."""
    place = 2 * int(match[1]) + (0 if downsampling else 1)
    return f"features.{place}.{part}"


TORCHVISION_RULES = (
    Rule(r"stem\.convolution\.(.*)", r"features.0.0.\1"),
    Rule(r"stem\.norm\.(.*)", r"features.0.1.\1"),
    Rule(_DOWN + r"norm\.(.*)", lambda m: _torchvision(m, f"0.{m[2]}", True)),
    Rule(_DOWN + r"convolution\.(.*)", lambda m: _torchvision(m, f"1.{m[2]}", True)),
    Rule(_BLOCK + r"depthwise\.(.*)", lambda m: _torchvision(m, f"{m[2]}.block.0.{m[3]}")),
    Rule(_BLOCK + r"norm\.(.*)", lambda m: _torchvision(m, f"{m[2]}.block.2.{m[3]}")),
    Rule(_BLOCK + r"linear1\.(.*)", lambda m: _torchvision(m, f"{m[2]}.block.3.{m[3]}")),
    Rule(_BLOCK + r"linear2\.(.*)", lambda m: _torchvision(m, f"{m[2]}.block.5.{m[3]}")),
    Rule(_BLOCK + r"scale\.factor", lambda m: _torchvision(m, f"{m[2]}.layer_scale"), _with_space),
    Rule(r"norm\.(.*)", r"classifier.0.\1"),
    Rule(r"head\.(.*)", r"classifier.2.\1"),
)

_HUB = r"convnext.encoder.stages.\1."
HUB_RULES = (
    Rule(r"stem\.convolution\.(.*)", r"convnext.embeddings.patch_embeddings.\1"),
    Rule(r"stem\.norm\.(.*)", r"convnext.embeddings.layernorm.\1"),
    Rule(_DOWN + r"norm\.(.*)", _HUB + r"downsampling_layer.0.\2"),
    Rule(_DOWN + r"convolution\.(.*)", _HUB + r"downsampling_layer.1.\2"),
    Rule(_BLOCK + r"depthwise\.(.*)", _HUB + r"layers.\2.dwconv.\3"),
    Rule(_BLOCK + r"norm\.(.*)", _HUB + r"layers.\2.layernorm.\3"),
    Rule(_BLOCK + r"linear([12])\.(.*)", _HUB + r"layers.\2.pwconv\3.\4"),
    Rule(_BLOCK + r"scale\.factor", _HUB + r"layers.\2.layer_scale_parameter"),
    Rule(r"norm\.(.*)", r"convnext.layernorm.\1"),
    Rule(r"head\.(.*)", r"classifier.\1"),
)

LAYOUTS = (
    Layout("timm", TIMM_RULES),
    Layout("timm-convolutional", TIMM_CONVOLUTIONAL_RULES),
    Layout("torchvision", TORCHVISION_RULES),
    Layout("facebook", FACEBOOK_RULES),
    Layout("huggingface", HUB_RULES),
)


def _torchvision_size(resized: int) -> Preprocessing:
    """torchvision resizes the shorter side to a different size for each network."""
    return Preprocessing(*IMAGENET, size=224, crop_share=224 / resized, interpolation="bilinear")


_PAPER = Preprocessing(*IMAGENET, size=224, crop_share=0.875, interpolation="bicubic")
_PAPER_384 = Preprocessing(*IMAGENET, size=384, crop_share=1.0, interpolation="bicubic")
_TIMM = Preprocessing(*IMAGENET, size=224, crop_share=0.95, interpolation="bicubic")

PREPROCESSING = {
    "fb_in1k": _PAPER,
    "fb_in22k": _PAPER,
    "fb_in22k_ft_in1k": _PAPER,
    "fb_in22k_ft_in1k_384": _PAPER_384,
    "in12k": _TIMM,
    "in12k_ft_in1k": _TIMM,
    "in12k_ft_in1k_384": _PAPER_384,
    # The names of the files that torchvision and the paper's repository offer.
    "convnext_tiny-": _torchvision_size(236),
    "convnext_small-": _torchvision_size(230),
    "convnext_base-": _torchvision_size(232),
    "convnext_large-": _torchvision_size(232),
    "_1k_224": _PAPER,
    "_22k_224": _PAPER,
    "_1k_384": _PAPER_384,
    "timm": _PAPER,
    "timm-convolutional": _PAPER,
    "torchvision": _torchvision_size(232),
    "facebook": _PAPER,
    "huggingface": _PAPER,
}
