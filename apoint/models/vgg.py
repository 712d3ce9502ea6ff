"""VGG: networks of small filters, stacked; 11 to 19 layers, with and without batch norm.

Shapes: B batch, C channels, H height, W width.
"""

from __future__ import annotations

from torch import Tensor, nn

from apoint.models.alexnet import Plain, check_smallest, readout_to
from apoint.models.cnn import NormPlacement
from apoint.models.members import register_member
from apoint.models.resnet import check_space, draw_he_over_outputs, named
from apoint.models.shapes import Size
from apoint.registry import register, split_spec
from apoint.settings import ActivationSpec, Count, NormSpec, Rate, Spec


class VGG(nn.Module):
    """Stages of convolutions, pooling to a fixed size, linear layers.

    Args:
        stages: Convolutions and the pooling after them; layers are numbered consecutively from 1.
        readout: Maps feature maps to vectors whose size does not depend on the image size.
        hidden: The hidden linear layers.
        head: The final linear layer.
        family: The layouts for its weights: `vgg` without norms, `vgg_bn` with batch norm, or None.
    """

    family: str | None

    def __init__(
        self,
        stages: nn.Sequential,
        readout: nn.Module,
        hidden: nn.Module,
        head: nn.Linear,
        family: str | None = None,
    ) -> None:
        super().__init__()
        self.family = family
        self.stages = stages
        self.readout = readout
        self.hidden = hidden
        self.head = head

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """One logit for each class."""
        logits: Tensor = self.head(self.hidden(self.readout(self.stages(x_BCHW))))
        return logits


@register("model", "vgg", course="H1", inputs=("image",))
def vgg(
    in_channels: int = 3,
    num_classes: int = 1000,
    input_size: Size = 224,
    *,
    depths: tuple[Count, ...] = (2, 2, 3, 3, 3),
    width: Count = 64,
    hidden: Count = 4096,
    pooled: Count = 7,
    activation: ActivationSpec = "relu",
    norm: NormSpec = "none",
    norm_placement: NormPlacement = "before",
    dropout: Rate = 0.5,
) -> VGG:
    """A network of 3×3 convolutions in stages that halve the resolution, and three linear layers.

    Two 3×3 convolutions have the receptive field of one 5×5, and three that of one 7×7, with 18 and 27
    weights for each pair of channels instead of 25 and 49, and with activations in between. A stage ends with
    2×2 max pooling; the next has twice as many channels, up to eight times `width`. As built, weights are
    initialised as in public code: He normal over fan-out for convolutions, standard deviation 0.01 for linear
    layers, and biases of zero.

    Args:
        depths: The number of convolutions of each stage; the default has 16 layers with weights in total.
        width: The number of channels of the first stage.
        hidden: The number of units of the two hidden linear layers.
        pooled: The spatial size before the linear layers, reached by average pooling.
        activation: The activation.
        norm: The norm of each convolution; none in the paper, `batch` in the public `vgg16-bn`.
        norm_placement: Whether the norm comes `before` or `after` the activation.
        dropout: The probability of dropping a unit after a hidden linear layer.

    Reference: Simonyan and Zisserman (2015), Very deep convolutional networks for large-scale image
    recognition.
    """
    check_space("vgg", input_size)
    check_smallest("vgg", input_size, lambda length: length // 2 ** len(depths))
    plain = Plain(activation, norm, norm_placement, dropout)
    before, number, stages = in_channels, 0, []
    for stage, depth in enumerate(depths):
        after, parts = width * 2 ** min(stage, 3), dict[str, nn.Module | None]()
        for _ in range(depth):
            number += 1
            # Public networks keep the bias before a batch norm too.
            parts[f"convolution{number}"] = nn.Conv2d(before, after, 3, padding=1)
            parts |= plain.after(after, number)
            before = after
        stages.append(named(**parts, pool=nn.MaxPool2d(2)))
    model = VGG(
        nn.Sequential(*stages),
        readout_to(pooled),
        plain.hidden((before * pooled**2, hidden, hidden), drop_first=False),
        nn.Linear(hidden, num_classes),
        _family(norm, norm_placement) if pooled == 7 else None,
    )
    _draw(model)
    return model


def _family(norm: Spec, placement: NormPlacement) -> str | None:
    """The layouts for a network's weights: indices in public sequences depend on their norms."""
    name = split_spec(norm, "norm")[0]
    if name == "none":
        return "vgg"
    return "vgg_bn" if name == "batch" and placement == "before" else None


def _draw(model: VGG) -> None:
    draw_he_over_outputs(model)
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.01)
        if isinstance(module, nn.Linear | nn.Conv2d) and module.bias is not None:
            nn.init.zeros_(module.bias)


for _layers, _depths in (
    (11, (1, 1, 2, 2, 2)),
    (13, (2, 2, 2, 2, 2)),
    (16, (2, 2, 3, 3, 3)),
    (19, (2, 2, 4, 4, 4)),
):
    register_member(
        vgg,
        f"vgg{_layers}",
        f"VGG of {_layers} layers, as in the paper.",
        course="H1",
        fixed={"depths": _depths, "width": 64, "norm": "none"},
    )
    register_member(
        vgg,
        f"vgg{_layers}-bn",
        f"VGG of {_layers} layers with batch norm.",
        course="H1",
        fixed={"depths": _depths, "width": 64},
        defaults={"norm": "batch"},
    )

register_member(
    vgg,
    "vgg-micro",
    "VGG for images of 28 or 32 pixels that trains within minutes.",
    course="H1",
    fixed={"depths": (2, 2, 2)},
    defaults={
        "num_classes": 10,
        "input_size": 32,
        "width": 16,
        "hidden": 64,
        "pooled": 3,
        "norm": "batch",
        "dropout": 0.1,
    },
)
