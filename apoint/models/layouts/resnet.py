"""Residual network weights in other libraries: timm and torchvision share names, Hugging Face has others."""

from __future__ import annotations

from apoint.models.layouts.core import Layout, Rule
from apoint.models.weights.preprocessing import IMAGENET, Preprocessing

_BLOCK = r"stages\.(\d+)\.(\d+)\."

TIMM_RULES = (
    Rule(r"stem\.convolution\.(.*)", r"conv1.\1"),
    Rule(r"stem\.norm\.(.*)", r"bn1.\1"),
    Rule(
        _BLOCK + r"branch\.convolution(\d)\.(.*)", lambda m: f"layer{int(m[1]) + 1}.{m[2]}.conv{m[3]}.{m[4]}"
    ),
    Rule(_BLOCK + r"branch\.norm(\d)\.(.*)", lambda m: f"layer{int(m[1]) + 1}.{m[2]}.bn{m[3]}.{m[4]}"),
    Rule(
        _BLOCK + r"shortcut\.convolution\.(.*)", lambda m: f"layer{int(m[1]) + 1}.{m[2]}.downsample.0.{m[3]}"
    ),
    Rule(_BLOCK + r"shortcut\.norm\.(.*)", lambda m: f"layer{int(m[1]) + 1}.{m[2]}.downsample.1.{m[3]}"),
    Rule(r"head\.(.*)", r"fc.\1"),
)

_HUB = r"resnet.encoder.stages.\1.layers.\2."
HUB_RULES = (
    Rule(r"stem\.convolution\.(.*)", r"resnet.embedder.embedder.convolution.\1"),
    Rule(r"stem\.norm\.(.*)", r"resnet.embedder.embedder.normalization.\1"),
    Rule(
        _BLOCK + r"branch\.(convolution|norm)(\d)\.(.*)",
        lambda m: (
            f"resnet.encoder.stages.{m[1]}.layers.{m[2]}.layer.{int(m[4]) - 1}."
            f"{'convolution' if m[3] == 'convolution' else 'normalization'}.{m[5]}"
        ),
    ),
    Rule(_BLOCK + r"shortcut\.convolution\.(.*)", _HUB + r"shortcut.convolution.\3"),
    Rule(_BLOCK + r"shortcut\.norm\.(.*)", _HUB + r"shortcut.normalization.\3"),
    Rule(r"head\.(.*)", r"classifier.1.\1"),
)

LAYOUTS = (
    Layout("timm", TIMM_RULES),
    Layout("torchvision", TIMM_RULES),
    Layout("huggingface", HUB_RULES),
)

PREPROCESSING = {
    "tv_in1k": Preprocessing(*IMAGENET, size=224, crop_share=0.875, interpolation="bilinear"),
    "tv2_in1k": Preprocessing(*IMAGENET, size=224, crop_share=0.965, interpolation="bilinear"),
    "a1_in1k": Preprocessing(*IMAGENET, size=224, crop_share=0.95, interpolation="bicubic"),
    "torchvision": Preprocessing(*IMAGENET, size=224, crop_share=0.875, interpolation="bilinear"),
    "huggingface": Preprocessing(*IMAGENET, size=224, crop_share=0.875, interpolation="bicubic"),
    "timm": Preprocessing(*IMAGENET, size=224, crop_share=0.95, interpolation="bicubic"),
}
