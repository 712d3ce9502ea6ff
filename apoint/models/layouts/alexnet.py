"""AlexNet weights in other libraries: torchvision's, which are those of the 2014 variant."""

from __future__ import annotations

from apoint.models.layouts.core import Layout, Rule
from apoint.models.weights.preprocessing import IMAGENET, Preprocessing

# Indices in torchvision's sequences, where activations, poolings and dropouts are counted too.
_CONVOLUTIONS = {"1": 0, "2": 3, "3": 6, "4": 8, "5": 10}
_LINEAR = {"1": 1, "2": 4}

LAYOUTS = (
    Layout(
        "torchvision",
        (
            Rule(r"features\.convolution([1-5])\.(.*)", lambda m: f"features.{_CONVOLUTIONS[m[1]]}.{m[2]}"),
            Rule(r"hidden\.linear([12])\.(.*)", lambda m: f"classifier.{_LINEAR[m[1]]}.{m[2]}"),
            Rule(r"head\.(.*)", r"classifier.6.\1"),
        ),
    ),
)

PREPROCESSING = {
    "torchvision": Preprocessing(*IMAGENET, size=224, crop_share=0.875, interpolation="bilinear"),
}
