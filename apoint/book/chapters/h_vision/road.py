"""H7: the road from ResNet-50 to ConvNeXt-T, step by step."""

from __future__ import annotations

import torch

from apoint.book.claim import claim
from apoint.book.evidence import Evidence, close, same
from apoint.book.picture import Panel, Picture, Series
from apoint.book.running import Running
from apoint.models.counting import Part, count
from apoint.models.creation import create
from apoint.models.resnet_to_convnext import Step, steps

MISPRINTED = "layer norm"
"""The paper's table gives 4.46 for it, its own row before and ours 4.15: norms multiply no matrices."""


@claim(
    "H7",
    "The road from ResNet to ConvNeXt",
    kind="size",
    statement=r"""
    ConvNeXt-T is ResNet-50 after thirteen changes, each small: stages in the ratio 1:1:3:1, a stem of
    patches, depthwise convolutions, more channels, inverted bottlenecks, the depthwise convolution first,
    kernels of $7\times7$, GELU, fewer activations, fewer norms, layer norm, separate down-sampling and layer
    scale. Begin and end have the parameters of the two networks; on the way the multiply-adds for an image of
    $224^2$ go from 4.1 to 4.5 thousand million through 2.4 and 5.3.
    """,
    refuted_by="ends with other numbers of parameters than the two networks, or a step whose multiply-adds "
    "are more than 1 % from the paper's",
    seconds={"quick": 2, "standard": 2},
    planted={"factor": 1.05},
    details=r"""
    Each step is a setting of the model `resnet-to-convnext`, so that a recipe can take it alone and a
    comparison give a verdict on it. The paper's first step changes the training and no network. Its table
    gives 4.46 for the step from batch norm to layer norm, which multiplies nothing; by count it is 4.15, as
    in the row before, and that row is left out here.
    """,
    references=("Liu et al. (2022), A ConvNet for the 2020s, table 10",),
)
def road(run: Running, factor: float = 1.0) -> Evidence:
    """Counts along the road; `factor` multiplies the numbers of the paper."""
    counted = [(step, _whole("resnet-to-convnext", **step.settings)) for step in steps()]
    end = _whole("convnext-tiny")
    numbers = [
        same("parameters at the begin", counted[0][1].parameters, _whole("resnet50").parameters),
        same("parameters at the end", counted[-1][1].parameters, end.parameters),
        same("multiply-adds at the end", counted[-1][1].multiply_adds, end.multiply_adds),
    ]
    for number, (step, whole) in enumerate(counted):
        if step.multiply_adds is not None and step.name != MISPRINTED:
            name = f"{number}: {step.name}, thousand million multiply-adds"
            numbers.append(close(name, whole.multiply_adds / 1e9, factor * step.multiply_adds, 0.01))
    return Evidence(numbers, pictures=[_picture(counted)])


def _whole(name: str, **settings: object) -> Part:
    with torch.device("meta"):
        model = create(name, **settings)
    return count(model, (3, 224, 224)).whole


def _picture(counted: list[tuple[Step, Part]]) -> Picture:
    places, names = list(range(len(counted))), [step.name for step, _ in counted]
    ours = [whole.multiply_adds / 1e9 for _, whole in counted]
    told = [step.multiply_adds or float("nan") for step, _ in counted]
    accuracy = [step.accuracy or float("nan") for step, _ in counted]
    deviation = [step.deviation or 0.0 for step, _ in counted]
    work = Panel(
        "Multiply-adds for an image of 224²",
        "step",
        "thousand millions",
        [Series("counted", places, ours, style="bars"), Series("in the paper", places, told, style="points")],
        x_names=names,
    )
    size = Panel(
        "Parameters",
        "step",
        "millions",
        [Series("counted", places, [whole.parameters / 1e6 for _, whole in counted], style="bars")],
        x_names=names,
    )
    result = Panel(
        "Accuracy on ImageNet in the paper",
        "step",
        "percent",
        [
            Series(
                "mean of three seeds",
                places,
                accuracy,
                [mean - spread for mean, spread in zip(accuracy, deviation, strict=True)],
                [mean + spread for mean, spread in zip(accuracy, deviation, strict=True)],
                style="points",
            )
        ],
        x_names=names,
    )
    caption = "From ResNet on the left to ConvNeXt. Accuracies are the paper's, with one standard deviation."
    return Picture(caption, [work, size, result])
