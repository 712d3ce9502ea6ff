"""H4: how many patches an image has, how many numbers each of them, and what a linear map of them is."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from apoint.book.claim import claim, exercise
from apoint.book.evidence import Evidence, Number, at_most, close, same
from apoint.book.running import Running
from apoint.models.counting import count, patch_count
from apoint.models.creation import create
from apoint.models.vit import ViT
from apoint.models.vit import patches as cut_into_patches


@claim(
    "H4",
    "A linear map of patches is a convolution",
    kind="identity",
    statement=r"""
    An image of $H\times W$ pixels and $C$ channels has $N=HW/P^2$ patches of $P^2C$ numbers. Mapping each of
    them linearly to a vector of size $E$ is a convolution with $E$ filters of $P\times P$ and stride $P$: the
    vision transformer, which is said to have no convolutions, begins with one.
    """,
    refuted_by="an image for which the two differ by more than rounding, or another number of patches",
    seconds={"quick": 0.2, "standard": 1},
    planted={"factor": 1.05},
    details=r"""
    The weights are the same $E\times P^2C$ numbers, if a patch is laid out channel by channel and row by row,
    as filters are; laid out pixel by pixel, it is another map. Beyond this layer ViT has
    none that knows which patches are neighbours, but for its learned positions.
    """,
    references=("Dosovitskiy et al. (2021), An image is worth 16x16 words, section 3.1",),
)
def patches_are_a_convolution(run: Running, factor: float = 1.0) -> Evidence:
    """ViT's own patch embedding against a convolution, whose filters `factor` multiplies."""
    numbers, generator = [], run.generator()
    for height, width, channels, side in ((6, 8, 3, 2), (28, 28, 1, 7), (32, 16, 3, 4)):
        model = create("vit", in_channels=channels, input_size=(height, width), patch_size=side, width=8)
        assert isinstance(model, ViT)
        layer = model.patch_embedding.double().requires_grad_(False)
        for drawn in (layer.weight, layer.bias):
            drawn.copy_(torch.randn(drawn.shape, generator=generator, dtype=torch.float64))
        image = torch.randn(2, channels, height, width, generator=generator, dtype=torch.float64)
        tokens = layer(cut_into_patches(image, side))
        filters = factor * layer.weight.view(8, channels, side, side)
        maps = F.conv2d(image, filters, layer.bias, stride=side).flatten(2).transpose(1, 2)
        name = f"image ({height}, {width}, {channels}), P = {side}"
        numbers.append(at_most(f"largest difference, {name}", float((maps - tokens).abs().max()), 1e-12))
        numbers.append(same(f"tokens, {name}", tokens.shape[1], height * width // side**2))
        numbers.append(same(f"numbers of a patch, {name}", layer.in_features, side**2 * channels))
    return Evidence(numbers)


@claim(
    "H4b",
    "Sizes of vision transformers",
    kind="size",
    statement=r"""
    For images of $384^2$ pixels and patches of $16^2$, ViT-B has 87 million parameters and ViT-L 305. A block
    of width $d$ has $12d^2+13d$: four maps for attention, $4d^2+4d$, two for the feed-forward part,
    $8d^2+5d$, and two norms, $4d$; the size of the image changes nothing but the positions, $(N+1)d$.
    """,
    refuted_by="a network as built with another number of millions, or a block with another number",
    seconds={"quick": 0.5, "standard": 0.5},
    planted={"factor": 1.05},
    details=r"""
    For images of $1024^2$ positions make themselves felt: the numbers of the table are not those of a network
    for every image.
    """,
    references=("Dosovitskiy et al. (2021), An image is worth 16x16 words, table 1",),
)
def vit_sizes(run: Running, factor: float = 1.0) -> Evidence:
    """Counted parameters; `factor` multiplies the numbers of the statement."""
    numbers, size = [], 384
    for name, width, depth, millions in (("base", 768, 12, 87), ("large", 1024, 24, 305)):
        with torch.device("meta"):
            model = create(f"vit-{name}-patch16", input_size=size)
        found = {part.name: part.parameters for part in count(model, (3, size, size)).parts}
        blocks = sum(parameters for part, parameters in found.items() if part.startswith("blocks."))
        numbers += [
            close(f"ViT-{name}, millions", sum(found.values()) / 1e6, factor * millions, absolute=0.5),
            close(
                f"ViT-{name}, parameters of all blocks",
                blocks,
                factor * (depth * (12 * width**2 + 13 * width) + 2 * width),
            ),
            close(f"ViT-{name}, parameters of positions", found["positions"], factor * (24**2 + 1) * width),
        ]
    return Evidence(numbers)


@exercise(
    "llm 1",
    "H4",
    question=r"""
    An image of $H\times W$ pixels is cut into square patches of $P\times P$ pixels, with $P$ dividing both
    sides. (1) How many patches are there? (2) Each patch is laid out as one row of numbers: how many numbers
    has the whole sequence for an image in grey? (3) And for an image with $C$ channels? (4) What are the
    numbers for $(H,W,C)=(6,8,3)$ and $P=2$?
    """,
    hints=(
        r"How many patches lie along each side?",
        r"No pixel is lost and none is used twice.",
    ),
    solution=r"""
    (1) $H/P$ patches lie along one side and $W/P$ along the other: $N=HW/P^2$. (2) Each has $P^2$ numbers, so
    that the sequence has $N\cdot P^2=HW$: the pixels in another order. (3) Each patch has $P^2C$ numbers, the
    sequence $HWC$. (4) $N=48/4=12$ patches of $4\cdot3=12$ numbers, 144 in all.
    """,
    planted={"channels_forgotten": True},
)
def image_in_patches(channels_forgotten: bool = False) -> list[Number]:
    """The formulas against patches that PyTorch cuts out of images, and that the pixels are all there."""
    numbers = []
    for height, width, channels, side in ((6, 8, 3, 2), (28, 28, 1, 7), (224, 224, 3, 16)):
        pixels = torch.arange(height * width * channels).double().view(1, channels, height, width)
        patches = F.unfold(pixels, side, stride=side)[0].T  # [N, P²C]
        size = side**2 * (1 if channels_forgotten else channels)
        name = f"of an image ({height}, {width}, {channels}) with P = {side}"
        numbers += [
            same(f"patches {name}", len(patches), height * width // side**2),
            same(
                f"the same by the product, {name}", patch_count((height, width), side).patches, len(patches)
            ),
            same(f"numbers in each {name}", patches.shape[1], size),
            same(f"different pixels in all {name}", len(torch.unique(patches)), height * width * channels),
        ]
    return numbers
