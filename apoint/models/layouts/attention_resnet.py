"""Weights of attention-augmented networks: none are published; ours can be resized for other image sizes."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from apoint.models.layouts.core import Layout, Shape

LAYOUTS: tuple[Layout, ...] = ()


def resize(name: str, value: Tensor, wanted: Shape, model: nn.Module) -> Tensor | None:
    """Tables of relative heights and widths, one row per distance, resized by linear interpolation of rows.

    The distances of the file are stretched to those of the model; 0 stays in the middle.
    """
    if not name.rpartition(".")[2].startswith("relative_") or value.dim() != 2 or value.shape[1] != wanted[1]:
        return None
    columns = value.float().T[None]
    stretched = F.interpolate(columns, size=wanted[0], mode="linear", align_corners=True)
    return stretched[0].T.to(value.dtype)
