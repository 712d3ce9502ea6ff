"""GoogLeNet weights in other libraries: torchvision's, with or without its auxiliary heads."""

from __future__ import annotations

import re

from apoint.models.layouts.core import Layout, Rule
from apoint.models.weights.preprocessing import HALVES, Preprocessing

_PARTS = {"convolution": "conv", "norm": "bn"}
_BRANCHES = {
    "direct": "branch1",
    "medium.reduce": "branch2.0",
    "medium.convolve": "branch2.1",
    "large.reduce": "branch3.0",
    "large.convolve": "branch3.1",
    "pooled.project": "branch4.1",
}
# Convolutions there have no bias, so the biases of networks without norms have no counterpart.
_LAYER = r"(convolution(?=\.weight)|norm)\.(.*)"


def _block(match: re.Match[str]) -> str:
    block = f"inception{int(match[1]) + 3}{'abcde'[int(match[2])]}"
    return f"{block}.{_BRANCHES[match[3]]}.{_PARTS[match[4]]}.{match[5]}"


LAYOUTS = (
    Layout(
        "torchvision",
        (
            Rule(r"stem\.layer([123])\." + _LAYER, lambda m: f"conv{m[1]}.{_PARTS[m[2]]}.{m[3]}"),
            Rule(r"stages\.([012])\.([0-4])\.([a-z.]+?)\." + _LAYER, _block),
            Rule(
                r"auxiliary\.([01])\.layer\." + _LAYER,
                lambda m: f"aux{int(m[1]) + 1}.conv.{_PARTS[m[2]]}.{m[3]}",
            ),
            Rule(r"auxiliary\.([01])\.linear\.(.*)", lambda m: f"aux{int(m[1]) + 1}.fc1.{m[2]}"),
            Rule(r"auxiliary\.([01])\.head\.(.*)", lambda m: f"aux{int(m[1]) + 1}.fc2.{m[2]}"),
            Rule(r"head\.(.*)", r"fc.\1"),
        ),
        # A network without auxiliary heads needs none from a file, and a file for inference has none.
        ignored=(r"aux[12]\..*",),
        optional=(r"auxiliary\..*",),
    ),
)

PREPROCESSING = {
    # The public network rescales its input itself: from ImageNet's normalisation to [-1, 1].
    "torchvision": Preprocessing(*HALVES, size=224, crop_share=0.875, interpolation="bilinear"),
}
