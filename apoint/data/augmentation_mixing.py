"""Augmentations that remove parts of images or mix samples of a batch: cut-out, mix-up, cut-mix.

Mixing makes soft targets. The partners are drawn for the whole batch, so a mixed sample depends on the other
samples of its batch; the proportions are drawn per sample unless set otherwise.

Legend: B batch, C channel, H height, W width, N numbers per sample, K classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from apoint.data.augmentation_common import (
    Augmentation,
    box_mask,
    paste,
    per_sample,
    require_images,
    require_numbers,
    soft_targets,
    whole_numbers,
)
from apoint.data.streams import Draw
from apoint.registry import register
from apoint.settings import Count, NotTruth, Positive, Share

HoleCount = Annotated[int, NotTruth, Field(ge=1, le=1000)]

Per = Literal["sample", "batch"]
_TABLE_POINTS = 4097


def holes_mask(row_BN: Tensor, column_BN: Tensor, side: int, size: tuple[int, int]) -> Tensor:
    """True in the union of each sample's N square holes with these centres, of shape [B, H, W]."""
    batch, num_holes = row_BN.shape
    side_M = torch.full((batch * num_holes,), side, device=row_BN.device)
    top_M, left_M = row_BN.reshape(-1) - side // 2, column_BN.reshape(-1) - side // 2
    mask_MHW = box_mask(top_M, left_M, side_M, side_M, size)
    return mask_MHW if num_holes == 1 else mask_MHW.view(batch, num_holes, *size).any(1)


@register("augmentation", "cut-out", inputs=("image",), depends_on_batch=True)
def cut_out(
    *,
    side: Count = 8,
    num_holes: HoleCount = 1,
    fill: Literal["mean", "zero"] = "mean",
    probability: Share = 1.0,
) -> Augmentation:
    """Cover square holes of each image.

    The network cannot rely on one part of an object. Each hole is a square of `side` pixels whose
    centre is uniform on the image's pixels; holes are cut off at the image's edge, so parts of them may
    fall outside, which the paper found to matter. The paper fills with zero after standardising the
    images, that is, with the mean: `mean` uses each channel's mean over the batch.

    Args:
        side: Side of a hole in pixels; the paper uses 16 for CIFAR-10 and 8 for CIFAR-100, at 32×32.
        num_holes: Number of holes in an image; they may overlap.
        fill: The content of a hole: the `mean` of the channel over the batch, or `zero`.
        probability: The probability that an image gets holes at all.

    Reference:
        DeVries, Taylor (2017), Improved regularization of convolutional neural networks with cutout.
    """

    def apply(x: Tensor, y: Tensor, draw: Draw, num_classes: int) -> tuple[Tensor, Tensor]:
        require_images(x, "augmentation 'cut-out'")
        height, width = x.shape[2:]
        uniform = draw.uniform(1 + 2 * num_holes)
        row_BN = whole_numbers(uniform[:, 1 : num_holes + 1], height)
        column_BN = whole_numbers(uniform[:, num_holes + 1 :], width)
        chosen_B = uniform[:, 0] < probability
        mask_BHW = holes_mask(row_BN, column_BN, side, (height, width)) & chosen_B[:, None, None]
        filling = x.mean((0, 2, 3), keepdim=True) if fill == "mean" else x.new_zeros(1, 1, 1, 1)
        return paste(x, filling, mask_BHW), y

    return apply


def beta_sampler(alpha: float) -> Callable[[Tensor], Tensor]:
    """A function from uniform numbers in [0, 1) to numbers distributed as Beta(alpha, alpha).

    It is the inverse of the distribution function, tabulated at 4097 equidistant points and linear in
    between: exact at the points and monotone, so its distribution function is off by less than 1/4096,
    apart from float32, which cannot distinguish the last 3e-8 below 1 from 1.
    """
    from scipy.special import betaincinv

    levels = torch.linspace(0, 1, _TABLE_POINTS, dtype=torch.float64)
    table = torch.from_numpy(betaincinv(alpha, alpha, levels.numpy())).float()

    def sample(uniform: Tensor) -> Tensor:
        position = uniform * (_TABLE_POINTS - 1)
        below = position.long()
        known = table.to(uniform.device)
        return torch.lerp(known[below], known[below + 1], position - below)

    return sample


def partners_and_numbers(draw: Draw, per: Per, count: int) -> tuple[Tensor, Tensor]:
    """A permutation of the batch, and uniform numbers [B, count], per sample or shared by the batch."""
    generator = draw.generator()
    batch = len(draw.index_B)
    partner_B = torch.randperm(batch, generator=generator).to(draw.index_B.device)
    if per == "sample":
        return partner_B, draw.uniform(count)
    shared = torch.rand(1, count, generator=generator).to(draw.index_B.device)
    return partner_B, shared.expand(batch, count)


def mix_targets(y_BK: Tensor, partner_B: Tensor, share_B: Tensor) -> Tensor:
    """Soft targets: `share` of the sample's own target and the rest of its partner's."""
    return torch.lerp(y_BK.index_select(0, partner_B), y_BK, share_B.to(y_BK.dtype)[:, None])


@register("augmentation", "mix-up", inputs=("image", "signal", "vector"), depends_on_batch=True)
def mix_up(*, alpha: Positive = 0.2, per: Per = "sample", probability: Share = 1.0) -> Augmentation:
    """Train on weighted means of two samples and of their targets.

    Trains the network to be linear between samples, which lowers its confidence:
    x′ = λ·x + (1−λ)·x_partner and y′ = λ·y + (1−λ)·y_partner with λ ~ Beta(alpha, alpha); the partner
    comes from a random permutation of the batch. The authors' code draws one λ for a batch; here each
    sample has its own unless `per` says `batch`.

    Args:
        alpha: Shape of the Beta distribution: small values leave most samples nearly unmixed, 1 is uniform.
            The paper uses 0.2 to 0.4 for ImageNet and 1 for CIFAR.
        per: Whether λ is drawn for each `sample` or once for the `batch`.
        probability: The probability that a sample (or the batch) is mixed.

    Reference:
        Zhang, Cisse, Dauphin, Lopez-Paz (2018), mixup: beyond empirical risk minimization.
    """
    sample_beta = beta_sampler(alpha)

    def apply(x: Tensor, y: Tensor, draw: Draw, num_classes: int) -> tuple[Tensor, Tensor]:
        require_numbers(x, "augmentation 'mix-up'")
        y_BK = soft_targets(y, num_classes, x.dtype, "augmentation 'mix-up'")
        partner_B, uniform = partners_and_numbers(draw, per, 2)
        share_B = sample_beta(uniform[:, 0]).masked_fill(uniform[:, 1] >= probability, 1.0)
        mixed = torch.lerp(x.index_select(0, partner_B), x, per_sample(share_B, x))
        return mixed, mix_targets(y_BK, partner_B, share_B)

    return apply


def area_mask(share_B: Tensor, row_B: Tensor, column_B: Tensor, size: tuple[int, int]) -> Tensor:
    """Boxes with the image's aspect ratio that cover 1−share of its area before they are cut at the edge."""
    side_B = (1 - share_B).sqrt()
    height_B, width_B = (side_B * size[0]).round().long(), (side_B * size[1]).round().long()
    return box_mask(row_B - height_B // 2, column_B - width_B // 2, height_B, width_B, size)


@register("augmentation", "cut-mix", inputs=("image",), depends_on_batch=True)
def cut_mix(*, alpha: Positive = 1.0, per: Per = "sample", probability: Share = 1.0) -> Augmentation:
    """Replace a box of each image by the same box of another, and mix the targets by area.

    Like cut-out, but no part of the image is wasted. λ ~ Beta(alpha, alpha); the box has sides H·√(1−λ)
    and W·√(1−λ), rounded to pixels, with its centre uniform on the image, and is cut off at the edge.
    Then y′ = λ′·y + (1−λ′)·y_partner, where 1−λ′ is the share of pixels replaced, counted exactly. The
    authors' code draws one box for a batch and truncates sides to an even number; here each sample has
    its own box unless `per` says `batch`.

    Args:
        alpha: Shape of the Beta distribution of λ; the paper uses 1, which is uniform.
        per: Whether the box is drawn for each `sample` or once for the `batch`.
        probability: The probability that a sample (or the batch) is mixed; the paper uses 0.5 for CIFAR.

    Reference:
        Yun et al. (2019), CutMix: regularization strategy to train strong classifiers with localizable
        features.
    """
    sample_beta = beta_sampler(alpha)

    def apply(x: Tensor, y: Tensor, draw: Draw, num_classes: int) -> tuple[Tensor, Tensor]:
        require_images(x, "augmentation 'cut-mix'")
        y_BK = soft_targets(y, num_classes, x.dtype, "augmentation 'cut-mix'")
        size = (x.shape[2], x.shape[3])
        partner_B, uniform = partners_and_numbers(draw, per, 4)
        share_B = sample_beta(uniform[:, 0]).masked_fill(uniform[:, 1] >= probability, 1.0)
        row_B, column_B = whole_numbers(uniform[:, 2], size[0]), whole_numbers(uniform[:, 3], size[1])
        mask_BHW = area_mask(share_B, row_B, column_B, size)
        kept_B = 1 - mask_BHW.sum((1, 2)) / (size[0] * size[1])
        return paste(x, x.index_select(0, partner_B), mask_BHW), mix_targets(y_BK, partner_B, kept_B)

    return apply
