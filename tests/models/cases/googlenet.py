"""GoogLeNet."""

from tests.models.cases import Case

CASE = Case(
    "googlenet",
    {"width": 8, "depths": (1, 3, 1), "stem": "small", "dropout": 0.0},
    image=(3, 16, 16),
    other={
        "variant": "paper",
        "depths": (2, 3, 1),
        "stem": "large",
        "auxiliary": True,
        "auxiliary_weight": 0.5,
        "auxiliary_dropout": 0.1,
    },
    beside={"auxiliary_weight": {"auxiliary": True}, "auxiliary_dropout": {"auxiliary": True}},
)
