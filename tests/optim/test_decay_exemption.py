"""Which parameters weight decay leaves alone."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from apoint.errors import UsageError
from apoint.optim import AdamW, exempt_from_decay, parameter_groups


class ScaleNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(2, 2))


class Branch(nn.Module):
    """Parameters of its own, beside those of its layers."""

    def __init__(self) -> None:
        super().__init__()
        self.embed_position = nn.Parameter(torch.zeros(3, 4))
        self.positions = nn.Parameter(torch.zeros(3, 4))
        self.class_token = nn.Parameter(torch.zeros(1, 4))
        self.layer_scale = nn.Parameter(torch.ones(4))
        self.relative_bias_table = nn.Parameter(torch.zeros(3, 3))
        self.unbiased = nn.Parameter(torch.zeros(3, 3))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 4)
        self.branch = Branch()
        self.attention = nn.MultiheadAttention(4, 2)
        self.recurrent = nn.LSTM(4, 4)
        self.conv = nn.Conv2d(1, 4, 3)
        self.batch_norm = nn.BatchNorm2d(4)
        self.layer_norm = nn.LayerNorm(4)
        self.root_norm = nn.RMSNorm(4)
        self.own_norm = ScaleNorm()
        self.head = nn.Linear(4, 5)


BIASES = {
    "attention.in_proj_bias",
    "attention.out_proj.bias",
    "recurrent.bias_ih_l0",
    "recurrent.bias_hh_l0",
    "conv.bias",
    "head.bias",
    "branch.relative_bias_table",
}
NORMS = {
    "batch_norm.weight",
    "batch_norm.bias",
    "layer_norm.weight",
    "layer_norm.bias",
    "root_norm.weight",
    "own_norm.gain",
}
NORM_BIASES = {"batch_norm.bias", "layer_norm.bias"}


@pytest.mark.parametrize(
    ("exempt", "expected"),
    [
        ([], set()),
        (["bias"], BIASES | NORM_BIASES),
        (["norm"], NORMS),
        (["bias", "norm"], BIASES | NORMS),
        (
            ["embedding"],
            {"table.weight", "branch.embed_position", "branch.positions", "branch.class_token"},
        ),
        (
            ["one-dimensional"],
            (BIASES | NORMS | {"branch.layer_scale"}) - {"branch.relative_bias_table", "own_norm.gain"},
        ),
    ],
)
def test_exempt_parameters(exempt: list[str], expected: set[str]) -> None:
    assert exempt_from_decay(Model(), exempt) == expected


def test_default_is_biases_and_norms() -> None:
    assert exempt_from_decay(Model()) == BIASES | NORMS


def test_a_tied_table_is_exempt_under_whichever_name_it_goes() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(4, 5, bias=False)
            self.table = nn.Embedding(5, 4)
            self.table.weight = self.head.weight

    assert exempt_from_decay(Tied(), ["embedding"]) == {"head.weight"}


@pytest.mark.parametrize(
    ("exempt", "sentence"),
    [
        ("bias", r"^exempt_from_decay: exempt must be a list such as \['bias', 'norm'\], got 'bias'$"),
        (["biases"], r"^exempt_from_decay: unknown exemption 'biases'; did you mean 'bias'\?$"),
    ],
)
def test_wrong_exemptions_are_refused(exempt: object, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        exempt_from_decay(Model(), exempt)  # type: ignore[arg-type]


def test_groups_decay_what_is_not_exempt() -> None:
    model = Model()
    model.conv.weight.requires_grad_(False)
    names = {id(param): name for name, param in model.named_parameters()}
    decayed, spared = parameter_groups(model, weight_decay=0.1)
    assert (decayed["weight_decay"], spared["weight_decay"]) == (0.1, 0.0)
    assert {names[id(param)] for param in spared["params"]} == BIASES | NORMS
    everything = {names[id(param)] for group in (decayed, spared) for param in group["params"]}
    assert everything == set(names.values()) - {"conv.weight"}
    assert [group["weight_decay"] for group in parameter_groups(model, weight_decay=0.1, exempt=())] == [0.1]


@pytest.mark.parametrize("make", [AdamW, torch.optim.AdamW])
def test_groups_work_in_any_optimizer(make: type[torch.optim.Optimizer]) -> None:
    model = nn.Linear(2, 2)
    before: list[Tensor] = [param.detach().clone() for param in model.parameters()]
    for param in model.parameters():
        param.grad = torch.zeros_like(param)
    make(parameter_groups(model, weight_decay=0.5), lr=0.1).step()
    torch.testing.assert_close(model.weight.detach(), before[0] * (1 - 0.05))
    assert torch.equal(model.bias.detach(), before[1])
