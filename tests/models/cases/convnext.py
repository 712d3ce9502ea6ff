"""ConvNeXt."""

from tests.models.cases import Case

CASE = Case(
    "convnext",
    {"width": 8, "depths": (1, 2), "patch_size": 2, "layer_scale": 0.5},
    image=(3, 12, 12),
    other={"depths": (2, 1), "patch_size": 4, "kernel_size": 3, "expansion": 2},
)
