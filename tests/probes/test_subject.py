"""Models and batches of every form are seen in one way, and what goes wrong is one sentence."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from apoint.errors import UsageError
from apoint.probes import Batch, ModelFailedError, Subject, as_batch
from tests.probes.zoo import BATCH, CLASSES, MAKERS, case


@pytest.mark.parametrize("name", MAKERS)
def test_every_model_has_outputs_and_a_loss(name: str) -> None:
    made = case(name)
    made.model.eval()
    subject = Subject(made.model, made.batch, made.loss)
    assert subject.batch.size == BATCH
    loss = subject.loss()
    assert loss.dim() == 0
    assert loss.requires_grad
    assert subject.outputs().shape[0] == BATCH
    tensors = {name: parameter.detach() for name, parameter in made.model.named_parameters()}
    torch.testing.assert_close(subject.loss(tensors=tensors), loss.detach())
    halves = [subject.loss(subject.batch.select(part)) for part in (slice(0, 4), torch.arange(4, 8))]
    torch.testing.assert_close(torch.stack(halves).mean(), loss)


@pytest.mark.parametrize("name", MAKERS)
def test_layers_hold_every_trainable_parameter_once(name: str) -> None:
    subject = Subject(case(name).model, case(name).batch)
    names = [name for layer in subject.layers.values() for name in layer]
    assert names == list(subject.parameters)
    assert subject.coverage(names) == pytest.approx(1.0)
    assert sum(subject.by_layer(dict.fromkeys(names, 1.0)).values()) == len(names)


def test_a_loss_is_found() -> None:
    logits, labels = torch.randn(3, CLASSES), torch.tensor([0, 1, 3])
    model = nn.Identity()
    assert Subject(model, (logits, labels)).loss() == F.cross_entropy(logits, labels)
    texts, tokens = torch.randn(3, 5, 7), torch.randint(7, (3, 5))
    assert Subject(model, (texts, tokens)).loss() == F.cross_entropy(texts.transpose(1, 2), tokens)
    channels = torch.randn(3, 7, 5)
    torch.testing.assert_close(Subject(model, (channels, tokens)).loss(), F.cross_entropy(channels, tokens))
    real = torch.randn(3, CLASSES)
    assert Subject(model, (logits, real)).loss() == F.mse_loss(logits, real)
    assert Subject(model, (logits, labels), "cross-entropy").loss() == pytest.approx(
        float(F.cross_entropy(logits, labels))
    )
    unreduced = nn.CrossEntropyLoss(reduction="none")
    torch.testing.assert_close(
        Subject(model, (logits, labels), unreduced).loss(), F.cross_entropy(logits, labels)
    )


class Two(nn.Module):
    def forward(self, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
        return left + right, left


@pytest.mark.parametrize(
    "data",
    [
        ((torch.ones(2, 3), torch.ones(2, 3)), torch.zeros(2, 3)),
        ({"left": torch.ones(2, 3), "right": torch.ones(2, 3)}, torch.zeros(2, 3)),
        {"left": torch.ones(2, 3), "right": torch.ones(2, 3), "targets": torch.zeros(2, 3)},
        Batch((torch.ones(2, 3),), {"right": torch.ones(2, 3)}, torch.zeros(2, 3)),
    ],
)
def test_several_inputs(data: Any) -> None:
    assert Subject(Two(), data).loss() == 4.0


def test_selecting_leaves_what_has_no_examples() -> None:
    batch = as_batch(
        nn.Identity(), ({"x": torch.arange(6).view(3, 2), "mask": torch.ones(2, 2)}, torch.arange(3))
    )
    chosen = batch.select([2, 0])
    assert chosen.args[0]["x"].tolist() == [[4, 5], [0, 1]]
    assert chosen.args[0]["mask"].shape == (2, 2)
    assert chosen.targets.tolist() == [2, 0]
    assert chosen.size == 2


def test_the_first_real_input_is_moved() -> None:
    batch = as_batch(nn.Identity(), {"tokens": torch.arange(3), "x": torch.ones(3, 2), "z": torch.ones(3, 1)})
    moved = batch.with_first(torch.zeros(3, 2)).args[0]
    assert moved["x"].sum() == 0
    assert moved["z"].sum() == 3


@pytest.mark.parametrize(
    ("data", "loss", "sentence"),
    [
        (torch.ones(2, 4), None, r"fails in 0 \(Linear\) on inputs of shape \(2, 4\)"),
        ((torch.ones(2, 3), torch.ones(2, 5)), None, r"none suits outputs of shape \(2, 2\)"),
        (
            (torch.ones(2, 3), torch.ones(2, 5)),
            F.cross_entropy,
            r"the loss fails on outputs of shape \(2, 2\)",
        ),
        (torch.ones(2, 3), None, "the batch has no targets"),
        ("cifar", None, "not a str"),
        (torch.ones(0, 3), None, "at least one example"),
    ],
)
def test_bad_input_gets_one_sentence(data: Any, loss: Any, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        Subject(nn.Sequential(nn.Linear(3, 2)), data, loss).loss()


def test_which_module_failed_is_said_even_inside_another() -> None:
    inner = nn.Sequential(nn.ReLU(), nn.BatchNorm1d(7))
    model = nn.ModuleDict({"body": inner})
    model.forward = lambda x: model["body"](x)  # type: ignore[method-assign]
    with pytest.raises(ModelFailedError, match=r"in body.1 \(BatchNorm1d\)"):
        Subject(model, torch.ones(2, 3)).outputs()


def test_what_outputs_stand_for() -> None:
    x, labels = torch.ones(2, 3), torch.tensor([0, 1])
    for data, loss, wanted in (
        ((x, labels), None, "categorical"),
        ((x, labels), nn.CrossEntropyLoss(), "categorical"),
        ((x, x), None, "gaussian"),
        ((x, x), nn.MSELoss(), "gaussian"),
        ((x, x), F.binary_cross_entropy_with_logits, "bernoulli"),
        ((x, x), nn.BCEWithLogitsLoss(), "bernoulli"),
    ):
        assert Subject(nn.Identity(), data, loss).likelihood(x) == wanted
