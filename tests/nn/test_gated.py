"""Gated units and feed-forward blocks against their formulas, and their widths against parameter counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special
from torch import Tensor, nn

from apoint.errors import UsageError
from apoint.nn import GatedUnit, bilinear, feed_forward, geglu, glu, matched_width, reglu, swiglu
from apoint.registry import registry

GATES: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "glu": (glu, lambda x: torch.from_numpy(special.expit(x.numpy()))),
    "bilinear": (bilinear, lambda x: x),
    "reglu": (reglu, lambda x: x.clamp(min=0)),
    "geglu": (geglu, lambda x: x * torch.from_numpy(special.ndtr(x.numpy()))),
    "swiglu": (swiglu, lambda x: x * torch.from_numpy(special.expit(x.numpy()))),
}


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def num_parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


class Recorder(nn.Module):
    """Keeps what it sees and gives twice that."""

    def forward(self, x: Tensor) -> Tensor:
        self.seen = x
        return 2 * x


@pytest.mark.parametrize("name", GATES)
def test_the_first_argument_is_the_gate(name: str) -> None:
    function, form = GATES[name]
    gate, value = drawn(4, 7), drawn(4, 7, seed=1)
    torch.testing.assert_close(function(gate, value), form(gate) * value, rtol=1e-13, atol=1e-15)


def test_glu_is_pytorchs_with_the_halves_exchanged() -> None:
    gate, value = drawn(4, 7), drawn(4, 7, seed=1)
    torch.testing.assert_close(glu(gate, value), F.glu(torch.cat([value, gate], -1)))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", GATES)
def test_the_unit_is_the_function_of_two_linear_maps(name: Any, bias: bool) -> None:
    unit = GatedUnit(5, 3, name, bias=bias).double()
    x = drawn(2, 4, 5)
    wanted = GATES[name][0](
        F.linear(x, unit.gate.weight, unit.gate.bias), F.linear(x, unit.value.weight, unit.value.bias)
    )
    torch.testing.assert_close(unit(x), wanted)
    assert num_parameters(unit) == 2 * (5 * 3 + bias * 3)


def test_an_unknown_unit_is_refused() -> None:
    with pytest.raises(UsageError) as refusal:
        GatedUnit(5, 3, "swiglue")  # type: ignore[arg-type]
    assert str(refusal.value) == "unknown gated unit 'swiglue'; did you mean 'swiglu' or 'glu'?"


def test_every_block_has_a_reference() -> None:
    known = registry("feed-forward")
    ours = [name for name in known if known[name].build.__module__.startswith("apoint.")]
    assert set(ours) == {"plain", *GATES}


@pytest.mark.parametrize("bias", [True, False])
def test_the_plain_block_is_its_formula(bias: bool) -> None:
    block = feed_forward({"name": "plain", "activation": "tanh", "bias": bias}, 6, 11).double()
    parts = dict(block.named_parameters())
    x = drawn(2, 4, 6)
    hidden = torch.tanh(F.linear(x, parts["expand.weight"], parts.get("expand.bias")))
    torch.testing.assert_close(
        block(x), F.linear(hidden, parts["contract.weight"], parts.get("contract.bias"))
    )
    assert num_parameters(block) == 2 * 6 * 11 + bias * (11 + 6)


def test_the_plain_block_takes_any_activation_with_its_settings() -> None:
    leaky = feed_forward({"name": "plain", "activation": {"name": "leaky-relu", "slope": 0.25}}, 4, 8)
    assert isinstance(leaky.activation, nn.LeakyReLU)
    assert leaky.activation.negative_slope == 0.25
    assert isinstance(feed_forward("plain", 4, 8).activation, nn.GELU)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", GATES)
def test_a_gated_block_is_its_formula(name: str, bias: bool) -> None:
    block = feed_forward({"name": name, "bias": bias}, 6, 11).double()
    parts = dict(block.named_parameters())
    x = drawn(2, 4, 6)
    gate = F.linear(x, parts["unit.gate.weight"], parts.get("unit.gate.bias"))
    value = F.linear(x, parts["unit.value.weight"], parts.get("unit.value.bias"))
    wanted = F.linear(GATES[name][0](gate, value), parts["contract.weight"], parts.get("contract.bias"))
    torch.testing.assert_close(block(x), wanted)
    assert len(parts) == (6 if bias else 3)


@pytest.mark.parametrize("name", GATES)
@settings(deadline=None, max_examples=20)
@given(model_dim=st.integers(1, 40), hidden_dim=st.integers(1, 160), bias=st.booleans())
def test_no_other_width_comes_nearer_to_the_plain_count(
    name: str, model_dim: int, hidden_dim: int, bias: bool
) -> None:
    aim = num_parameters(feed_forward({"name": "plain", "bias": bias}, model_dim, hidden_dim))
    block = feed_forward({"name": name, "bias": bias}, model_dim, hidden_dim)
    width = block.contract.in_features
    off = abs(num_parameters(block) - aim)
    for other in {max(1, width - 1), width + 1}:
        wider = feed_forward({"name": name, "bias": bias, "match_parameters": False}, model_dim, other)
        assert off <= abs(num_parameters(wider) - aim)


def test_the_matched_width_is_as_stated() -> None:
    assert matched_width(512, 2048, bias=False) == round(2 * 2048 / 3)
    assert matched_width(16, 96, bias=False) == 64
    assert matched_width(16, 96, bias=True) == round(96 * 33 / 50)
    assert matched_width(7, 3, bias=False) == 2
    assert matched_width(2, 1, bias=False) == 1
    assert matched_width(1, 4, bias=True) == 2, "4·3/5 = 2.4"


def test_without_matching_the_width_is_the_given_one() -> None:
    block = feed_forward({"name": "swiglu", "match_parameters": False}, 6, 12)
    assert block.contract.in_features == 12


@pytest.mark.parametrize("name", ["plain", *GATES])
def test_dropout_stands_between_the_hidden_layer_and_the_way_back(name: str) -> None:
    recorder = Recorder()
    block = feed_forward({"name": name, "bias": False}, 6, 12, recorder).double()
    without = feed_forward({"name": name, "bias": False}, 6, 12).double()
    without.load_state_dict(block.state_dict())
    x = drawn(3, 6)
    torch.testing.assert_close(block(x), 2 * without(x))
    torch.testing.assert_close(without(x), recorder.seen @ block.contract.weight.T)


@pytest.mark.parametrize("name", ["plain", *GATES])
def test_gradients_are_right(name: str) -> None:
    block = feed_forward(name, 3, 4).double()
    x = drawn(2, 3).requires_grad_()
    assert torch.autograd.gradcheck(block, (x,))


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (
            {"name": "plain", "activation": "rellu6"},
            "feed-forward 'plain': activation: unknown activation 'rellu6'; "
            "did you mean 'relu6' or 'relu' or 'elu'?",
        ),
        (
            {"name": "swiglu", "activation": "relu"},
            "feed-forward 'swiglu': unknown setting 'activation'; known: bias, match_parameters",
        ),
        (
            {"name": "plain", "match_parameters": False},
            "feed-forward 'plain': unknown setting 'match_parameters'; known: activation, bias",
        ),
    ],
)
def test_wrong_settings_are_refused_in_one_sentence(spec: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError) as refusal:
        feed_forward(spec, 4, 8)
    assert str(refusal.value) == sentence
