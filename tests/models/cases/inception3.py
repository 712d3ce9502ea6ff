"""Inception v3."""

from tests.models.cases import Case

CASE = Case(
    "inception-v3",
    {"width": 4, "depths": (1, 1, 1), "dropout": 0.0},
    image=(3, 75, 75),
    other={"depths": (2, 1, 1), "width": 3, "auxiliary": True, "auxiliary_weight": 0.8},
    beside={"auxiliary_weight": {"auxiliary": True}},
)
