"""Inception v3 weights in other libraries: timm and torchvision share names, auxiliary head included."""

from __future__ import annotations

import re

from apoint.models.layouts.core import Layout, Rule
from apoint.models.weights.preprocessing import HALVES, IMAGENET, Preprocessing

_PARTS = {"convolution": "conv", "norm": "bn"}
_STEM = {"1": "1a_3x3", "2": "2a_3x3", "3": "2b_3x3", "4": "3b_1x1", "5": "4a_3x3"}
_BRANCHES = {"direct": "branch1x1", "pooled.project": "branch_pool"}
# There, chains of convolutions are named after their filters: by stage, and whether the block downsamples.
_CHAINS = {
    ("0", False): {"short": "branch5x5", "long": "branch3x3dbl"},
    ("1", True): {"short": "branch3x3", "long": "branch3x3dbl"},
    ("1", False): {"short": "branch7x7", "long": "branch7x7dbl"},
    ("2", True): {"short": "branch3x3", "long": "branch7x7x3"},
    ("2", False): {"short": "branch3x3", "long": "branch3x3dbl"},
}
_SIDES = {None: "", "across": "a", "down": "b"}
# Convolutions there have no bias, so the biases of networks without norms have no counterpart.
_LAYER = r"(convolution(?=\.weight)|norm)\.(.*)"


def _block(match: re.Match[str]) -> str:
    stage, place, branch, number, side, part, rest = match.groups()
    halves = place == "reduce"
    block = f"Mixed_{int(stage) + 5}{'a' if halves else 'bcde'[int(place)]}"
    chain = {**_BRANCHES, **_CHAINS[stage, halves]}[branch]
    return f"{block}.{chain}{f'_{number}' if number else ''}{_SIDES[side]}.{_PARTS[part]}.{rest}"


RULES = (
    Rule(r"stem\.layer([1-5])\." + _LAYER, lambda m: f"Conv2d_{_STEM[m[1]]}.{_PARTS[m[2]]}.{m[3]}"),
    Rule(
        r"stages\.([012])\.(reduce|[0-3])\.(direct|short|long|pooled\.project)"
        r"(?:\.layer([1-5]))?(?:\.(across|down))?\." + _LAYER,
        _block,
    ),
    Rule(
        r"auxiliary\.0\.layer([12])\." + _LAYER,
        lambda m: f"AuxLogits.conv{int(m[1]) - 1}.{_PARTS[m[2]]}.{m[3]}",
    ),
    Rule(r"auxiliary\.0\.head\.(.*)", r"AuxLogits.fc.\1"),
    Rule(r"head\.(.*)", r"fc.\1"),
)

# A network without the auxiliary head needs none from a file, and a file for inference has none.
LAYOUTS = tuple(
    Layout(library, RULES, ignored=(r"AuxLogits\..*",), optional=(r"auxiliary\..*",))
    for library in ("timm", "torchvision")
)

# torchvision's network rescales its input itself: from ImageNet's normalisation to [-1, 1].
_TORCHVISION = Preprocessing(*HALVES, size=299, crop_share=299 / 342, interpolation="bilinear")
_TIMM = Preprocessing(*HALVES, size=299, crop_share=0.875, interpolation="bicubic")

PREPROCESSING = {
    "timm": _TIMM,
    "torchvision": _TORCHVISION,
    "inception_v3_google": _TORCHVISION,  # the file that torchvision offers
    "gluon_in1k": Preprocessing(*IMAGENET, size=299, crop_share=0.875, interpolation="bicubic"),
}
