"""VGG."""

from tests.models.cases import Case

CASE = Case(
    "vgg",
    {"depths": (1, 2), "width": 4, "hidden": 8, "pooled": 2, "dropout": 0.0},
    other={"depths": (2, 1), "hidden": 12, "pooled": 1},
)
