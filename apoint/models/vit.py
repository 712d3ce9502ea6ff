"""Vision transformers: images as sequences of patches; small models, and Ti, S, B and L as in the paper.

Shapes: B batch, C channels, H height, W width, P side of a patch, N = HW/P² patches, E model dimension.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from apoint.errors import UsageError
from apoint.models.members import register_member
from apoint.models.shapes import Size, space_of, written
from apoint.models.transformer import FeedForwardSpec, Placement, Positional, Positions, transformer_blocks
from apoint.nn.attention import SelfAttention
from apoint.nn.dropout import Dropout, Mode
from apoint.nn.gated import GatedFeedForward, PlainFeedForward
from apoint.registry import register
from apoint.settings import ActivationSpec, Count, NormSpec, Positive, Rate

Pooling = Literal["cls", "mean"]
Start = Literal["torch", "normal", "paper"]
_CUT_NORMAL = 0.87962566103423978  # the standard deviation of a standard normal truncated at two deviations


def patches(images_BCHW: Tensor, size: int) -> Tensor:
    """Images cut into N = HW/P² patches of P²C values each, [B, N, P²C].

    Patches are ordered row by row; the values of a patch channel by channel, then row by row, as in the
    kernel of a convolution. An image of size (6, 8) with 3 channels gives 12 patches of 12 values with P = 2.
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
        patch_embedding: Maps a patch's P²C values to E.
        positions: Adds the position vectors.
        dropout: Applied to the embedded patches.
        blocks: Map [B, T, E] to the same shape.
        head: The final linear layer.
        patch_size: The side P.
        class_token: Whether the head reads a learned first token; otherwise it reads the mean over patches.
        grid: The number of patches down and across.
    """

    family = "vit"

    def __init__(
        self,
        patch_embedding: nn.Linear,
        positions: Positions,
        dropout: Dropout,
        blocks: nn.Module,
        head: nn.Linear,
        patch_size: int,
        class_token: bool,
        grid: tuple[int, int],
    ) -> None:
        super().__init__()
        self.patch_size = patch_size
        self.grid = grid
        self.patch_embedding = patch_embedding
        width = patch_embedding.out_features
        self.class_token = nn.Parameter(0.02 * torch.randn(width)) if class_token else None
        self.positions = positions
        self.dropout = dropout
        self.blocks = blocks
        self.head = head

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """One logit for each class."""
        tokens_BNP = patches(x_BCHW, self.patch_size)
        self._check_size(tuple(x_BCHW.shape[-2:]))
        x_BTE = self.patch_embedding(tokens_BNP)
        if self.class_token is not None:
            x_BTE = torch.cat([self.class_token.expand(len(x_BTE), 1, -1), x_BTE], dim=1)
        x_BTE = self.blocks(self.dropout(self.positions(x_BTE)))
        read_BE = x_BTE.mean(1) if self.class_token is None else x_BTE[:, 0]
        logits: Tensor = self.head(read_BE)
        return logits

    def _check_size(self, space: tuple[int, ...]) -> None:
        built = tuple(number * self.patch_size for number in self.grid)
        if space != built:
            raise UsageError(
                f"model 'vit': was built for images of {written(built)}, got {written(space)}; build it with "
                f"this input_size, and load_weights fits the positions"
            )


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
    layer_scale: Positive | None = None,
    pooling: Pooling = "cls",
    positional: Positional = "learned",
    start: Start = "torch",
) -> ViT:
    """A vision transformer, small by default: an image as N = HW/P² patches of P²C values.

    Each patch is mapped linearly to the model dimension, a vector for its position is added, and blocks of
    attention and feed-forward follow. The paper's hidden layer in the head, used only for training on larger
    data, is left out. Sinusoidal positions, if chosen, depend on the patch's number, not on row and column.

    Args:
        patch_size: The side P of a patch; it must divide both sides of the image.
        depth: The number of blocks, each with attention and feed-forward.
        width: The model dimension.
        num_heads: The number of attention heads; it must divide `width`.
        feed_forward: The feed-forward block.
        expansion: The size of the feed-forward's hidden layer, as a multiple of `width`.
        activation: The activation of a `plain` feed-forward block; by default the block's own.
        norm: The norm of each branch.
        placement: Whether the norm is inside the branch (`pre`) or applied to the sum (`post`).
        dropout: The probability of dropping an embedded, a hidden or an output unit, or an attention weight.
        stochastic_depth: The probability of skipping the last block's branches; linearly lower for earlier
            blocks.
        stochastic_depth_mode: Whether to draw once per `batch`, which saves time, or once per `sample`.
        layer_scale: The initial value of the learned per-channel factors of each branch; none by default.
        pooling: What the head reads: a learned class token (`cls`), or the mean over patches (`mean`).
        positional: The position vectors: `learned` or `sinusoidal`.
        start: The initial weights: PyTorch's defaults (`torch`); standard deviation 0.02 with biases of zero,
            except for the patch embedding (`normal`), as in DeiT and timm; or Glorot within blocks and zeros
            in the head (`paper`), as in the authors' code.

    Reference: Dosovitskiy et al. (2021), An image is worth 16x16 words.
    """
    space = space_of(input_size)
    _check_divisible(space, patch_size)
    grid = space[0] // patch_size, space[1] // patch_size
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
        layer_scale=layer_scale,
    )
    model = ViT(
        nn.Linear(patch_size**2 * in_channels, width),
        Positions(grid[0] * grid[1] + (pooling == "cls"), width, positional),
        Dropout(dropout),
        blocks,
        nn.Linear(width, num_classes),
        patch_size,
        class_token=pooling == "cls",
        grid=grid,
    )
    if start != "torch":
        (_draw_normal if start == "normal" else _draw_as_paper)(model)
    return model


def _draw_normal(model: ViT) -> None:
    """Linear maps with standard deviation 0.02; the patch embedding as PyTorch initialises a convolution."""
    for module in (*model.blocks.modules(), model.head):
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.02)
            _zero_bias(module)
    if model.class_token is not None:
        nn.init.normal_(model.class_token, std=1e-6)


def _draw_as_paper(model: ViT) -> None:
    """Glorot, with queries, keys and values as separate maps; the patch embedding keeps unit variance."""
    for module in model.blocks.modules():
        if isinstance(module, SelfAttention):
            for part in module.qkv.weight.detach().chunk(3):
                nn.init.xavier_uniform_(part)
            nn.init.xavier_uniform_(module.output.weight)
            _zero_bias(module.qkv, module.output)
        elif isinstance(module, PlainFeedForward | GatedFeedForward):
            for layer in module.modules():
                if isinstance(layer, nn.Linear):
                    nn.init.xavier_uniform_(layer.weight)
                    _zero_bias(layer, deviation=1e-6)
    std = 1 / math.sqrt(model.patch_embedding.in_features) / _CUT_NORMAL
    nn.init.trunc_normal_(model.patch_embedding.weight, std=std, a=-2 * std, b=2 * std)
    _zero_bias(model.patch_embedding, model.head)
    nn.init.zeros_(model.head.weight)
    if model.class_token is not None:
        nn.init.zeros_(model.class_token)


def _zero_bias(*layers: nn.Linear, deviation: float = 0.0) -> None:
    """Biases of zero, or almost zero."""
    for layer in layers:
        if layer.bias is not None:
            nn.init.normal_(layer.bias, std=deviation) if deviation else nn.init.zeros_(layer.bias)


_SIZES = {"tiny": (192, 12, 3), "small": (384, 12, 6), "base": (768, 12, 12), "large": (1024, 24, 16)}

for _size, (_width, _depth, _heads) in _SIZES.items():
    for _side in (16, 32):
        register_member(
            vit,
            f"vit-{_size}-patch{_side}",
            f"The {_size} vision transformer, over patches of {_side}×{_side}.",
            course="H4",
            fixed={"width": _width, "depth": _depth, "num_heads": _heads, "patch_size": _side},
            defaults={
                "num_classes": 1000,
                "input_size": 224,
                "norm": {"name": "layer", "eps": 1e-6},
                "start": "normal",
            },
        )

register_member(
    vit,
    "vit-micro",
    "A vision transformer for images of 28 or 32 pixels that trains within minutes.",
    course="H4",
    fixed={"width": 64, "depth": 4, "num_heads": 4},
    # A standard deviation of 0.02 suits widths of several hundred; at 64 it is a sixth of Glorot's.
    defaults={"norm": {"name": "layer", "eps": 1e-6}, "start": "paper"},
)
