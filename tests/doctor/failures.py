"""Cases of trainings that raise, each with what must be said of it, and healthy ones of the same kinds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.doctor.cases import convolutional, perceptron
from tests.doctor.failing_parts import (
    Broken,
    Detached,
    Fails,
    FailsInEval,
    Indexing,
    InPlace,
    Labelled,
    Masked,
    Net,
    Ragged,
    Recurrent,
    Remembering,
    Stream,
    Tagger,
    Tokens,
    Tuple,
    Variational,
    accuracy,
    as_number,
    data,
    late_label,
    of_pair,
    own_step,
    padded,
    scalars,
    tokens,
    unlabelled,
)

THIS = "failing_parts.py"


@dataclass(frozen=True)
class Case:
    """What is inspected, and what must be said.

    Attributes:
        make: Gives the arguments of `apoint.inspect`.
        code: The finding.
        error: The type of the exception.
        place: Parts of the place: the user's file and function, or the module.
        says: Parts of the facts and of what would fit.
    """

    make: Callable[[], dict[str, Any]]
    code: str
    error: str
    place: tuple[str, ...]
    says: tuple[str, ...]


def given(model: nn.Module, x: Any = None, y: Any = None, **more: Any) -> dict[str, Any]:
    inputs, targets = data()
    pair = (inputs if x is None else x, targets if y is None else y)
    return {"model": model, "data": pair, "loss": nn.CrossEntropyLoss(), **more}


def sparse() -> dict[str, Any]:
    model = Tokens(100, sparse=True)
    return given(model, tokens(99), optimizer=torch.optim.Adam(model.parameters()))


HERE_FORWARD = (THIS, "in forward")
CROSS_ENTROPY, BITS = ("the loss CrossEntropyLoss",), ("the loss BCEWithLogitsLoss",)

CASES: dict[str, Case] = {
    # the forward pass
    "wrong input width": Case(
        lambda: given(perceptron(), data()[0][:, :32]),
        "forward-fails", "RuntimeError", ("module 0 (Linear)",),
        ("Layer 0 (Linear) takes 64 features and gets 32", "in_features=32"),
    ),
    "wrong input width in a class": Case(
        lambda: given(Net(48)), "forward-fails", "RuntimeError",
        (*HERE_FORWARD, "hidden = F.relu(self.first(x))"),
        ("Layer first (Linear) takes 48", "in_features=64"),
    ),
    "a product of the user's own": Case(
        lambda: given(Fails()), "forward-fails", "RuntimeError",
        (*HERE_FORWARD, "x @ self.head.weight"), ("What would fit is not known", "x float32 [64, 64]"),
    ),
    "float64 inputs": Case(
        lambda: given(Net(), data()[0].double()), "forward-fails", "RuntimeError", HERE_FORWARD,
        ("inputs are float64 and the weights float32", "x = x.float()"),
    ),
    "whole-numbered inputs": Case(
        lambda: given(Net(), (data()[0] * 9).long()), "forward-fails", "RuntimeError", HERE_FORWARD,
        ("inputs are int64 and the weights float32", "x = x.float()"),
    ),
    "images that are not flat": Case(
        lambda: given(perceptron(), data()[0].view(-1, 1, 8, 8)), "forward-fails", "RuntimeError",
        ("module 0 (Linear)",), ("[64, 1, 8, 8]", "x = x.flatten(1)"),
    ),
    "images without an axis of channels": Case(
        lambda: given(convolutional()[1:], data()[0].view(-1, 8, 8)), "forward-fails", "RuntimeError",
        ("module 1 (Conv2d)",), ("no axis of channels", "x = x.unsqueeze(1)"),
    ),
    "images with channels last": Case(
        lambda: given(nn.Sequential(nn.Conv2d(3, 10, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
                      torch.randn(256, 8, 8, 3)),
        "forward-fails", "RuntimeError", ("module 0 (Conv2d)",), ("channels last", "x = x.movedim(-1, 1)"),
    ),
    "wrong channels": Case(
        lambda: given(nn.Sequential(nn.Conv2d(3, 10, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
                      torch.randn(256, 4, 8, 8)),
        "forward-fails", "RuntimeError", ("module 0 (Conv2d)",),
        ("takes 3 channels and gets 4", "in_channels=4"),
    ),
    "a kernel larger than the image": Case(
        lambda: given(nn.Sequential(nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 4, 11), nn.Flatten())),
        "forward-fails", "RuntimeError", ("module 1 (Conv2d)",), ("[8, 8]", "kernel_size"),
    ),
    "batch norm of another width": Case(
        lambda: given(nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(16), nn.Linear(32, 10))),
        "forward-fails", "RuntimeError", ("module 1 (BatchNorm1d)",),
        ("takes 16 features and gets 32", "num_features=32"),
    ),
    "layer norm of another shape": Case(
        lambda: given(nn.Sequential(nn.Linear(64, 32), nn.LayerNorm(16), nn.Linear(32, 10))),
        "forward-fails", "RuntimeError", ("module 1 (LayerNorm)",), ("normalized_shape=32",),
    ),
    "a recurrent layer of another width": Case(
        lambda: given(Recurrent(), data()[0].view(-1, 8, 8)), "forward-fails", "RuntimeError",
        (*HERE_FORWARD, "self.rnn"), ("takes 16 features and gets 8", "input_size=8"),
    ),
    "an embedding that is too small": Case(
        lambda: given(Tokens(100), tokens(250)), "forward-fails", "IndexError", HERE_FORWARD,
        ("has 100 rows, and indices go up to 250", "num_embeddings=251"),
    ),
    "an embedding too small for one token": Case(
        lambda: given(Tokens(250), tokens(250), batch_size=4), "forward-fails", "IndexError", HERE_FORWARD,
        ("has 250 rows, and indices go up to 250", "num_embeddings=251"),
    ),
    "real numbers for an embedding": Case(
        lambda: given(Tokens(100), tokens(99).float()), "forward-fails", "RuntimeError", HERE_FORWARD,
        ("embedding (Embedding) takes whole numbers and gets float32", "x = x.long()"),
    ),
    "an input that is missing": Case(
        lambda: {"model": Masked(), "data": data()[0]}, "forward-fails", "TypeError", HERE_FORWARD,
        ("forward takes (x, mask)",),
    ),
    "a model that takes the targets": Case(
        lambda: given(Masked(), loss=None), "forward-fails", "TypeError", HERE_FORWARD,
        ("of a pair only the first goes into the model", "a dictionary"),
    ),
    "a key that is missing": Case(
        lambda: given(Indexing()), "forward-fails", "KeyError", HERE_FORWARD,
        ("What would fit is not known",),
    ),
    "eval mode alone": Case(
        lambda: given(FailsInEval()), "forward-fails", "NotImplementedError",
        HERE_FORWARD, ("in eval mode", "What would fit is not known"),
    ),
    "batch norm on a last batch of one": Case(
        lambda: {"model": nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.Linear(32, 10)),
                 "data": DataLoader(TensorDataset(*data(65)), batch_size=32),
                 "loss": nn.CrossEntropyLoss()},
        "forward-fails", "ValueError", ("module 1 (BatchNorm1d)",), ("one example", "drop_last=True"),
    ),
    # the loss
    "labels from 1": Case(
        lambda: given(Net(), y=data()[1] + 1), "loss-fails", "IndexError", CROSS_ENTROPY,
        ("targets go from 1 to 10, and the loss takes 0 to 9", "y = y - 1"),
    ),
    "one label out of range": Case(
        lambda: given(Net(), y=late_label(), batch_size=8), "loss-fails", "IndexError", CROSS_ENTROPY,
        ("targets go from 0 to 10, and the loss takes 0 to 9", "11 outputs", "out_features=11"),
    ),
    "a label of -1": Case(
        lambda: given(Net(), y=unlabelled(), batch_size=8), "loss-fails", "IndexError", CROSS_ENTROPY,
        ("targets go from -1 to 9, and the loss takes 0 to 9", "ignore_index=-1"),
    ),
    "labels with gaps": Case(
        lambda: given(Net(), y=data()[1] * 10), "loss-fails", "IndexError", CROSS_ENTROPY,
        ("targets go from 0 to 90", "10 different values", "y = y.unique(return_inverse=True)[1]"),
    ),
    "float targets for cross entropy": Case(
        lambda: given(Net(), y=data()[1].float()), "loss-fails", "RuntimeError", CROSS_ENTROPY,
        ("targets are float32", "y = y.long()"),
    ),
    "labels in a column": Case(
        lambda: given(Net(), y=data()[1][:, None]), "loss-fails", "RuntimeError", CROSS_ENTROPY,
        ("targets of shape [64, 1]", "y = y.squeeze(-1)"),
    ),
    "whole-numbered targets for bits": Case(
        lambda: given(Net(classes=1), y=(data()[1] > 4).long()[:, None], loss=nn.BCEWithLogitsLoss()),
        "loss-fails", "RuntimeError", BITS, ("targets are int64", "y = y.float()"),
    ),
    "targets without the last axis": Case(
        lambda: given(Net(classes=1), y=(data()[1] > 4).float(), loss=nn.BCEWithLogitsLoss()),
        "loss-fails", "ValueError", BITS, ("[64]", "[64, 1]", "y = y.unsqueeze(-1)"),
    ),
    "logits for a loss of probabilities": Case(
        lambda: given(Net(classes=1), y=(data()[1] > 4).float()[:, None], loss=nn.BCELoss()),
        "loss-fails", "RuntimeError", ("the loss BCELoss",), ("outputs go from", "nn.BCEWithLogitsLoss()"),
    ),
    "classes on the last axis": Case(
        lambda: given(Tagger(), tokens(99), tokens(6)), "loss-fails", "RuntimeError", CROSS_ENTROPY,
        ("classes on axis 1", "outputs.transpose(1, 2)"),
    ),
    "fewer targets than inputs": Case(
        lambda: given(Net(), y=data()[1][:200]), "loss-fails", "ValueError", CROSS_ENTROPY,
        ("256 examples in the inputs and 200 in the targets",),
    ),
    "outputs in a tuple": Case(
        lambda: given(Tuple()), "loss-fails", "ValueError", CROSS_ENTROPY,
        ("a tuple", "entry 1, float32 [64, 10], fits"),
    ),
    "a loss that gives a tuple": Case(
        lambda: given(Net(), loss=scalars), "loss-fails", "AttributeError", (THIS, "in scalars"),
        ("returns a tuple of 2", "entry 0 is a number"),
    ),
    "a loss that gives a plain number": Case(
        lambda: given(Net(), loss=as_number), "loss-fails", "AttributeError", (THIS, "in as_number"),
        ("returns a float", ".item()"),
    ),
    "a weight for each of too few classes": Case(
        lambda: given(Net(), loss=nn.CrossEntropyLoss(weight=torch.ones(9))), "loss-fails", "RuntimeError",
        CROSS_ENTROPY, ("9 class weights", "10 classes"),
    ),
    "no loss at all": Case(
        lambda: {"model": Net(), "data": data()[0]}, "loss-fails", "UsageError", ("the loss",),
        ("give a pair",),
    ),
    # the backward pass
    "outputs without a graph": Case(
        lambda: given(Detached()), "backward-fails", "RuntimeError",
        ("backward pass of the loss CrossEntropyLoss",),
        ("outputs of the model have no graph", ".detach()"),
    ),
    "a loss without a graph": Case(
        lambda: given(Net(), loss=accuracy), "backward-fails", "RuntimeError", (THIS, "in accuracy"),
        ("the loss cuts the graph", "argmax"),
    ),
    "a state that is kept": Case(
        lambda: given(Remembering()), "backward-fails", "RuntimeError", ("backward pass",),
        ("`before`", ".detach()"),
    ),
    "an operation in place": Case(
        lambda: given(InPlace()), "backward-fails", "RuntimeError", ("backward pass",),
        ("activation (ReLU)", "inplace=False"),
    ),
    # the update
    "sparse gradients": Case(
        sparse, "step-fails", "RuntimeError", ("Adam.step",), ("embedding.weight", "sparse=False"),
    ),
    "a step of one's own": Case(
        lambda: given(Net(), step=own_step), "step-fails", "ValueError", (THIS, "in own_step", "x, mask, y"),
        ("(float32 [64, 64], int64 [64]",),
    ),
    # batches
    "an example that cannot be read": Case(
        lambda: {"model": Net(), "data": Broken(), "loss": nn.CrossEntropyLoss()}, "batch-fails", "KeyError",
        (THIS, "in __getitem__"), ("What would fit is not known",),
    ),
    "a loader that fails later": Case(
        lambda: {"model": Net(), "data": DataLoader(Broken(100), batch_size=32),
                 "loss": nn.CrossEntropyLoss()},
        "batch-fails", "KeyError", (THIS, "in __getitem__"), ("batch 3",),
    ),
    "a loader with workers": Case(
        lambda: {"model": Net(), "data": DataLoader(Broken(), batch_size=32, num_workers=1),
                 "loss": nn.CrossEntropyLoss()},
        "batch-fails", "KeyError", (THIS, "in __getitem__"), ("batch 0",),
    ),
    "ragged examples": Case(
        lambda: {"model": Tokens(100), "data": DataLoader(Ragged(), batch_size=32),
                 "loss": nn.CrossEntropyLoss()},
        "batch-fails", "RuntimeError", ("of torch",), ("examples differ in shape", "collate_fn"),
    ),
    "held-out data that cannot be read": Case(
        lambda: given(Net(), test=DataLoader(Broken(), batch_size=32)), "batch-fails", "KeyError",
        (THIS, "in __getitem__"), ("held-out",),
    ),
    "held-out labels from 1": Case(
        lambda: given(Net(), test=(data()[0], data()[1] + 1)), "loss-fails", "IndexError", CROSS_ENTROPY,
        ("held-out", "targets go from 1 to 10", "y = y - 1"),
    ),
}  # fmt: skip


def quasi_newton() -> dict[str, Any]:
    model = Net()
    return given(model, optimizer=torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4))


HEALTHY: dict[str, Callable[[], dict[str, Any]]] = {
    "a class": lambda: given(Net()),
    "convolutions": lambda: given(convolutional()),
    "tokens": lambda: given(Tokens(100), tokens(99)),
    "a loss for each example": lambda: given(Net(), loss=nn.CrossEntropyLoss(reduction="none")),
    "unlabelled examples that the loss ignores": lambda: given(
        Net(), y=unlabelled(), loss=nn.CrossEntropyLoss(ignore_index=-1)
    ),
    "the model's own loss": lambda: {"model": Labelled(), "data": {"x": data()[0], "labels": data()[1]}},
    "a loss of all outputs": lambda: given(Variational(), loss=of_pair),
    "batches padded by themselves": lambda: {
        "model": Tokens(100), "data": DataLoader(Ragged(), batch_size=32, collate_fn=padded),
        "loss": nn.CrossEntropyLoss(),
    },
    "a loader whose last batch is small": lambda: {
        "model": convolutional(), "data": DataLoader(TensorDataset(*data(67)), batch_size=32),
        "loss": nn.CrossEntropyLoss(),
    },
    "a stream": lambda: {"model": Net(), "data": Stream(), "loss": nn.CrossEntropyLoss()},
    "an optimizer with a closure": quasi_newton,
    "half of it frozen": lambda: given(nn.Sequential(Net().first.requires_grad_(False), nn.Linear(32, 10))),
}  # fmt: skip
