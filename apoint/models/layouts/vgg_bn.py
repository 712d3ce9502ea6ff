"""Weights of VGG with batch norm in other libraries: as in `vgg`, with three modules for each convolution."""

from apoint.models.layouts.vgg import PREPROCESSING, layouts

__all__ = ["LAYOUTS", "PREPROCESSING"]

LAYOUTS = layouts(per_layer=3)
