"""Residual networks that end in a transformer over a few tokens."""

from tests.models.cases import Case

CASE = Case(
    "visual-transformer",
    {
        "block": "basic",
        "width": 4,
        "depths": (1, 1),
        "stem": "small",
        "num_modules": 3,
        "num_tokens": 3,
        "token_width": 6,
    },
    other={
        "block": "bottleneck",
        "depths": (2, 1),
        "stem": "large",
        "stride_on": "1x1",
        "num_modules": 2,
        "num_tokens": 5,
        "token_width": 8,
        "tokenizer": "filter",
        "token_norm": "layer",
    },
    beside={"stride_on": {"block": "bottleneck"}},
)
