"""Residual networks with attention beside their convolutions."""

from tests.models.cases import Case

CASE = Case(
    "attention-resnet",
    {
        "block": "basic",
        "width": 8,
        "depths": (1, 2),
        "stem": "small",
        "num_heads": 2,
        "augmented_stages": 1,
        "least_key": 4,
    },
    image=(3, 8, 8),
    other={
        "block": "bottleneck",
        "depths": (2, 1),
        "stem": "large",
        "stride_on": "1x1",
        "augmented_stages": 2,
        "key_share": 0.9,
        "value_share": 0.5,
        "least_key": 6,
        "relative": False,
        "pool_attention": "after",
    },
    beside={"stride_on": {"block": "bottleneck"}},
)
