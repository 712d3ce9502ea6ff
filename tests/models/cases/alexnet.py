"""AlexNet."""

from tests.models.cases import Case

CASE = Case(
    "alexnet",
    {"widths": (4, 4, 8, 4, 4), "hidden": 8, "pooled": 2, "stem": "small", "dropout": 0.0},
    image=(3, 64, 64),
    other={
        "variant": "2012",
        "widths": (4, 8, 8, 4, 4),
        "towers": 2,
        "stem": "large",
        "hidden": 12,
        "pooled": 3,
    },
)
