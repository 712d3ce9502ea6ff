"""The accuracies on ImageNet that the course quotes, against the sizes of the networks as built here."""

from __future__ import annotations

import torch

from apoint.book.picture import Panel, Picture, Series, Style
from apoint.models.creation import create

PUBLISHED = {
    "ResNet": (("resnet101", 78.2),),
    "ViT": (("vit-base-patch16", 85.4), ("vit-large-patch16", 86.8)),
    "Swin": (("swin-base", 86.4), ("swin-large", 87.3)),
    "ConvNeXt": (
        ("convnext-tiny", 84.1), ("convnext-small", 85.8), ("convnext-base", 86.8), ("convnext-large", 87.5),
        ("convnext-xlarge", 87.8),
    ),
}  # fmt: skip
"""Top-1 accuracy in percent, pre-trained on ImageNet-22K, images of 384² pixels; ResNet: see the caption."""


def accuracies() -> Picture:
    """Published accuracies against counted parameters."""
    lines = []
    for family, members in PUBLISHED.items():
        millions = []
        for name, _ in members:
            with torch.device("meta"):
                sized = {"input_size": 384} if family in ("ViT", "Swin") else {}
                model = create(name, **sized)
            millions.append(sum(one.numel() for one in model.parameters()) / 1e6)
        style: Style = "points" if len(members) == 1 else "line"
        lines.append(Series(family, millions, [accuracy for _, accuracy in members], style=style))
    panel = Panel(
        "Published accuracy on ImageNet", "parameters (millions)", "top-1 accuracy (%)", lines, x_log=True
    )
    caption = (
        "Accuracies as published, not measured here; parameters as counted here. All but ResNet were "
        "pre-trained on ImageNet-22K and tested at 384² pixels. The course's table gives ConvNeXt-T its "
        "number at 224² pixels, 82.9; at 384² it is 84.1, as drawn. ResNet-101's 78.2 is of ImageNet-1K "
        "alone, as a mean over ten crops."
    )
    return Picture(caption, [panel], "llm 3.2, table")
