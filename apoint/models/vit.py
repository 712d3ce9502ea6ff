"""The vision transformer, small: images as sequences of patches.

Shapes: B batch, C channels, H height, W width, P side of a patch, N = HW/P² patches, E model dimension.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from apoint.errors import UsageError
from apoint.models.shapes import Size, space_of, written
from apoint.models.transformer import FeedForwardSpec, Placement, Positional, Positions, transformer_blocks
from apoint.nn.dropout import Dropout, Mode
from apoint.registry import register
from apoint.settings import ActivationSpec, Count, NormSpec, Positive, Rate

Pooling = Literal["cls", "mean"]


def patches(images_BCHW: Tensor, size: int) -> Tensor:
    """Images cut into N = HW/P² patches of P²C values each, [B, N, P²C].

    Patches go row by row; the values of one go channel by channel, then row by row, as in the kernel of a
    convolution. An image of size (6, 8) with 3 channels gives 12 patches of 12 values with P = 2.
    """
    _check_divisible(tuple(images_BCHW.shape[-2:]), size)
    batch, channels, height, width = images_BCHW.shape
    tiles = images_BCHW.reshape(batch, channels, height // size, size, width // size, size)
    return tiles.permute(0, 2, 4, 1, 3, 5).reshape(batch, -1, size * size * channels)


def _check_divisible(space: tuple[int, ...], size: int) -> None:
    if len(space) != 2 or any(length % size for length in space):
        raise UsageError(
            f"model 'vit': images of size {written(space)} cannot be cut into patches of {size}×{size}; "
            f"choose a patch_size that divides both sides, or resize the images"
        )


class ViT(nn.Module):
    """A transformer over the patches of an image.

    Args:
        patch_embedding: From a patch's P²C values to E.
        positions: Adds the places of the patches.
        dropout: Applied to the embedded patches.
        blocks: From [B, T, E] to the same.
        head: The last, linear layer.
        patch_size: The side P.
        class_token: Whether a learned token goes first and is read out; otherwise the mean over patches is.
    """

    def __init__(
        self,
        patch_embedding: nn.Linear,
        positions: Positions,
        dropout: Dropout,
        blocks: nn.Module,
        head: nn.Linear,
        patch_size: int,
        class_token: bool,
    ) -> None:
        super().__init__()
        self.patch_size = patch_size
        self.patch_embedding = patch_embedding
        width = patch_embedding.out_features
        self.class_token = nn.Parameter(0.02 * torch.randn(width)) if class_token else None
        self.positions = positions
        self.dropout = dropout
        self.blocks = blocks
        self.head = head

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """One logit for each class."""
        x_BTE = self.patch_embedding(patches(x_BCHW, self.patch_size))
        if self.class_token is not None:
            x_BTE = torch.cat([self.class_token.expand(len(x_BTE), 1, -1), x_BTE], dim=1)
        x_BTE = self.blocks(self.dropout(self.positions(x_BTE)))
        read_BE = x_BTE.mean(1) if self.class_token is None else x_BTE[:, 0]
        logits: Tensor = self.head(read_BE)
        return logits


@register("model", "vit", course="H4 G5", inputs=("image",))
def vit(
    in_channels: int = 3,
    num_classes: int = 10,
    input_size: Size = 32,
    *,
    patch_size: Count = 4,
    depth: Count = 6,
    width: Count = 64,
    num_heads: Count = 4,
    feed_forward: FeedForwardSpec = "plain",
    expansion: Positive = 4.0,
    activation: ActivationSpec | None = None,
    norm: NormSpec = "layer",
    placement: Placement = "pre",
    dropout: Rate = 0.0,
    stochastic_depth: Rate = 0.0,
    stochastic_depth_mode: Mode = "batch",
    pooling: Pooling = "cls",
    positional: Positional = "learned",
) -> ViT:
    """A small vision transformer: an image as N = HW/P² patches of P²C values.

    Each patch is mapped linearly to the model dimension, a vector for its place is added, and blocks of
    attention and feed-forward follow. Without the paper's hidden layer in the head, which served only the
    training on larger data. Sines, if chosen, go by the patch's number, not by row and column.

    Args:
        patch_size: The side P of a patch; it must divide both sides of the image.
        depth: The number of blocks, each with attention and feed-forward.
        width: The model dimension.
        num_heads: The number of attention heads; it must divide `width`.
        feed_forward: The feed-forward block.
        expansion: The size of the feed-forward's hidden layer, as a multiple of `width`.
        activation: The activation of a `plain` feed-forward block; by default its own.
        norm: The norm of each branch.
        placement: The norm inside the branch (`pre`), or on the sum (`post`).
        dropout: The probability of dropping an embedded, a hidden or an output unit, or an attention weight.
        stochastic_depth: The probability of skipping the last block's branches; less before, in proportion.
        stochastic_depth_mode: Whether a draw holds for a `batch`, and saves time, or for each `sample`.
        pooling: What the head reads: a learned class token (`cls`), or the mean over patches (`mean`).
        positional: Vectors for the places: `learned`, or `sinusoidal`.

    Reference: Dosovitskiy et al. (2021), An image is worth 16x16 words.
    """
    space = space_of(input_size)
    _check_divisible(space, patch_size)
    num_patches = space[0] * space[1] // patch_size**2
    blocks = transformer_blocks(
        width,
        depth,
        num_heads,
        causal=False,
        feed_forward=feed_forward,
        expansion=expansion,
        activation=activation,
        norm=norm,
        placement=placement,
        dropout=dropout,
        stochastic_depth=stochastic_depth,
        stochastic_depth_mode=stochastic_depth_mode,
    )
    return ViT(
        nn.Linear(patch_size**2 * in_channels, width),
        Positions(num_patches + (pooling == "cls"), width, positional),
        Dropout(dropout),
        blocks,
        nn.Linear(width, num_classes),
        patch_size,
        class_token=pooling == "cls",
    )
