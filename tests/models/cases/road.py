"""The road from ResNet to ConvNeXt."""

from tests.models.cases import Case

SWITCHES = (
    "stage_ratio",
    "patchify_stem",
    "depthwise",
    "wider",
    "inverted_bottleneck",
    "depthwise_first",
    "fewer_activations",
    "fewer_norms",
    "separate_downsampling",
)

CASE = Case(
    "resnet-to-convnext",
    {"width": 4, "depths": (1, 2)},
    image=(3, 16, 16),
    other={"depths": (2, 1), "reduction": 2, **dict.fromkeys(SWITCHES, True)},
)
