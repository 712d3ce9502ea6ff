"""Swin."""

from tests.models.cases import Case

CASE = Case(
    "swin",
    {"patch_size": 2, "width": 8, "depths": (2, 1), "num_heads": (2, 4), "window": 3},
    image=(3, 14, 16),
    other={
        "patch_size": 4,
        "depths": (1, 2),
        "num_heads": (4, 2),
        "window": 2,
        "padding": "hidden",
    },
)
