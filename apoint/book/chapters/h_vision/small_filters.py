"""H1: small filters in a pile see as far as a large one, with fewer weights; and how large networks are."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from apoint.book.claim import Erratum, claim
from apoint.book.evidence import Evidence, Number, close, same
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.models.counting import count
from apoint.models.creation import create
from apoint.models.receptive import receptive_field

CHANNELS = 6
PILES = (1, 2, 3, 4, 5)


@claim(
    "H1",
    "Small filters in a pile",
    kind="identity",
    statement=r"""
    $n$ convolutions of $3\times3$ one after the other see a field of $(2n+1)\times(2n+1)$ pixels, as one
    convolution of that size does, with $9nC^2$ weights in place of $(2n+1)^2C^2$ for $C$ channels: two have
    $18C^2$ against $25C^2$, three have $27C^2$ against $49C^2$.
    """,
    refuted_by="an output in the middle whose gradient is not zero on another square of pixels, or another "
    "number of weights",
    seconds={"quick": 0.3, "standard": 1},
    planted={"factor": 1.05},
    details=r"""
    The check builds both networks with positive weights, differentiates one output by all pixels and measures
    the square on which the gradient is not zero; it also asks the product's own `receptive_field`, which
    follows intervals of pixels through the operations of any network. This is VGG's argument; a non-linearity
    between the small filters comes on top of it.
    """,
    references=("Simonyan and Zisserman (2014), Very deep convolutional networks, section 2.3",),
)
def pile_of_small_filters(run: Running, factor: float = 1.0) -> Evidence:
    """Gradients and weights of both networks; `factor` multiplies the formula of the weights."""
    numbers, weights_small, weights_large, side = list[Number](), [], [], 3
    for count_of_filters in PILES:
        wanted = 2 * count_of_filters + 1
        pile = _network([side] * count_of_filters)
        large = _network([wanted])
        seen, weights = _support(pile), sum(weight.numel() for weight in pile.parameters())
        name = f"{count_of_filters} of {side}×{side}"
        numbers += [
            same(f"side of the field of {name}, by the gradient", seen, wanted),
            same(f"the same, by following intervals, {name}", _followed(pile), wanted),
            same(f"side of the field of one {wanted}×{wanted}, by the gradient", _support(large), wanted),
            close(f"weights of {name}, over C²", weights / CHANNELS**2, factor * 9 * count_of_filters),
        ]
        weights_small.append(weights / CHANNELS**2)
        weights_large.append(sum(weight.numel() for weight in large.parameters()) / CHANNELS**2)
        numbers.append(
            close(f"weights of one {wanted}×{wanted}, over C²", weights_large[-1], factor * wanted**2)
        )
    fields = [2 * number + 1 for number in PILES]
    panel = Panel(
        "Weights for a field of this side",
        "side of the field in pixels",
        "weights, in units of C²",
        [
            Series("one large filter", fields, weights_large),
            Series("a pile of 3×3", fields, weights_small, style="points"),
        ],
    )
    return Evidence(numbers, pictures=[Picture("Counted on networks as built, without biases.", [panel])])


def _network(sides: list[int]) -> nn.Sequential:
    """Convolutions of these sides with positive weights, so that no two paths cancel."""
    layers = [nn.Conv2d(CHANNELS, CHANNELS, side, bias=False) for side in sides]
    for layer in layers:
        nn.init.constant_(layer.weight, 0.1)
    return nn.Sequential(*layers)


def _support(network: nn.Sequential) -> int:
    """The side of the square on which the gradient of one output is not zero."""
    image = torch.ones(1, CHANNELS, 23, 23, requires_grad=True)
    maps = network(image)
    middle = maps.shape[-1] // 2
    (gradient,) = torch.autograd.grad(maps[0, 0, middle, middle], image)
    return len(gradient[0].abs().amax((0, 1)).nonzero())


def _followed(network: nn.Sequential) -> int:
    return int(receptive_field(network, (CHANNELS, 23, 23))[0].size)


@claim(
    "H1b",
    "A pile of small filters holds fewer maps",
    kind="size",
    statement=r"""
    Two convolutions of $3\times3$ with $C$ channels before, between and after, and nothing between them, make
    kernels of $5\times5$ that form a set of dimension $17C^2$, not all of the $25C^2$.
    """,
    refuted_by="a Jacobian of the map from the small kernels to the large one with another rank",
    seconds={"quick": 1, "standard": 3},
    planted={"factor": 1.06},
    erratum=Erratum(
        quote="il suffit d'en placer plus de petite taille pour réduire la taille du modèle sans changer la "
        "capacité de représentation",
        place="llm 3",
        written=r"It is enough to have more filters of a small size to make the model smaller without "
        r"changing what it can represent.",
        corrected=r"The field stays the same; of linear maps fewer are left: $17C^2$ dimensions of $25C^2$.",
        why=r"The kernel of the whole is a product, and $(AK_1, K_2A^{-1})$ gives the same one for every "
        r"invertible matrix $A$ of the channels between: $18C^2$ weights less $C^2$. VGG's own paper calls "
        r"the pile a regularisation of the large filter. The non-linearity between, on the other hand, makes "
        r"maps that no large filter makes.",
    ),
    references=("Simonyan and Zisserman (2014), Very deep convolutional networks, section 2.3",),
)
def kernels_of_two(run: Running, factor: float = 1.0) -> Evidence:
    """Ranks of the Jacobian at random small kernels; `factor` multiplies the 17, to 18 if planted."""
    numbers, as_written, generator = [], [], run.generator()
    for channels in run.pick((1, 2, 3), (1, 2, 3, 4)):
        first, second = torch.randn(2, channels, channels, 3, 3, generator=generator, dtype=torch.float64)
        jacobian = torch.func.jacrev(_composed, argnums=(0, 1))(first, second)
        columns = torch.cat([part.reshape(25 * channels**2, -1) for part in jacobian], 1)
        rank = int(torch.linalg.matrix_rank(columns))
        name = f"dimension of the kernels that two filters make, C = {channels}"
        numbers.append(close(name, rank, round(17 * factor) * channels**2))
        as_written.append(same(name, rank, 25 * channels**2))
    return Evidence(numbers, as_written=as_written)


def _composed(first: Tensor, second: Tensor) -> Tensor:
    """The 5×5 kernel of two convolutions, one after the other."""
    # As a map of images: the second applied to the first's kernel, whose input channels serve as a batch.
    return F.conv2d(first.transpose(0, 1), second.flip(-2, -1), padding=2)


@claim(
    "H1c",
    "Sizes of convolutional networks",
    kind="size",
    statement=r"""
    For a thousand classes AlexNet has 61 million parameters and needs 0.71 thousand million multiply-adds for
    an image of $224^2$; VGG-16 has 138 and needs 15.5; GoogLeNet has 6.6 and needs 1.5; ResNet-18, 34, 50,
    101 and 152 have 11.7, 21.8, 25.6, 44.5 and 60.2 and need 1.8, 3.7, 4.1, 7.8 and 11.5. A residual network
    for small images of $6n+2$ layers with widths 16, 32, 64 and 10 classes has $97216n-21926$ parameters.
    """,
    refuted_by="a network as built with another number of parameters or multiply-adds, to the digits given",
    seconds={"quick": 2, "standard": 2},
    planted={"factor": 1.05},
    details=r"""
    The networks are built without memory and counted. Nine tenths of VGG's and more of AlexNet's parameters
    lie in their linear layers, nearly all of the work in their convolutions; GoogLeNet and ResNet do without
    those layers. For ResNet the stride is on the $3\times3$ convolution, as in public weights; with the
    paper's, on the $1\times1$, ResNet-50 needs 3.86, where the paper says 3.8. A further block of two
    convolutions in each stage of a CIFAR network adds $2\cdot9\cdot(16^2+32^2+64^2)$ weights, and
    $4\cdot(16+32+64)$ of norms.
    """,
    references=(
        "He et al. (2016), Deep residual learning for image recognition, tables 1 and 6",
        "torchvision's documentation of its models",
    ),
)
def sizes(run: Running, factor: float = 1.0) -> Evidence:
    """Parameters and multiply-adds of networks on the meta device; `factor` multiplies the table."""
    table = {
        "alexnet": (61.1, 0.714), "vgg16": (138.4, 15.47), "googlenet": (6.6, 1.498),
        "resnet18": (11.7, 1.814), "resnet34": (21.8, 3.664), "resnet50": (25.6, 4.089),
        "resnet101": (44.5, 7.801), "resnet152": (60.2, 11.514),
    }  # fmt: skip
    numbers = []
    for name, (millions, thousands) in table.items():
        with torch.device("meta"):
            whole = count(create(name), (3, 224, 224)).whole
        numbers += [
            close(f"{name}, million parameters", whole.parameters / 1e6, factor * millions, absolute=0.0501),
            close(
                f"{name}, thousand million multiply-adds", whole.multiply_adds / 1e9, factor * thousands, 1e-3
            ),
        ]
    for layers in (20, 56, 110):
        with torch.device("meta"):
            small = count(create(f"resnet{layers}"), (3, 32, 32)).whole.parameters
        numbers.append(
            close(f"resnet{layers}, parameters", small, factor * (97216 * (layers - 2) // 6 - 21926))
        )
    return Evidence(numbers)
