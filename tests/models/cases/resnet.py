"""Residual networks for photographs."""

from tests.models.cases import Case

CASE = Case(
    "resnet",
    {"width": 4, "depths": (1, 2)},
    image=(3, 16, 16),
    other={"block": "basic", "depths": (2, 1), "stem": "small", "stride_on": "1x1"},
)
