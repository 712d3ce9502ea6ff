"""Perceptrons, plain and small networks, and models of sequences."""

from tests.models.cases import Case

CASES = (
    Case("mlp", {"width": 8}),
    Case("residual-mlp", {"width": 8, "depth": 2}),
    Case("cnn", {"width": 4, "depth": 3}),
    Case("resnet-cifar", {"width": 4, "depth": 8}, other={"depth": 14}),
    Case("vit", {"width": 8, "depth": 2, "num_heads": 2}, other={"start": "paper"}),
    Case("char-transformer", {"width": 8, "depth": 2, "num_heads": 2}),
    Case("lstm-lm", {"width": 8, "depth": 2}),
)
