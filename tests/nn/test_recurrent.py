"""The LSTM against `nn.LSTMCell` and `nn.LSTM`, in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from apoint.errors import UsageError
from apoint.nn import LSTM, LSTMCell


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def close(first: Any, second: Any) -> None:
    """Equal up to the order of a few sums of numbers near 1."""
    torch.testing.assert_close(first, second, rtol=0, atol=1e-13)


def like_pytorch(ours: LSTM, theirs: nn.LSTM) -> None:
    """Copy PyTorch's parameters into ours, by the names that the docstring gives."""
    for number, layer in enumerate(ours.layers):
        suffix = f"_l{number}"
        own = {key.removesuffix(suffix): p for key, p in theirs.state_dict().items() if key.endswith(suffix)}
        layer.load_state_dict(own)


@pytest.mark.parametrize("bias", [True, False])
def test_a_cell_is_pytorchs_cell(bias: bool) -> None:
    theirs = nn.LSTMCell(3, 5, bias=bias).double()
    ours = LSTMCell(3, 5, bias=bias).double()
    ours.load_state_dict(theirs.state_dict(), strict=True)
    theirs.load_state_dict(ours.state_dict(), strict=True)
    x, state = drawn(4, 3).requires_grad_(), (drawn(4, 5, seed=1), drawn(4, 5, seed=2))
    for before in (None, state):
        close(ours(x, before), theirs(x, before))
    gradients = []
    for cell in (ours, theirs):
        hidden, memory = cell(x, state)
        outcome = (hidden * drawn(4, 5, seed=3) + memory * drawn(4, 5, seed=4)).sum()
        gradients.append(torch.autograd.grad(outcome, [x, *cell.parameters()]))
    close(*gradients)


def test_the_cell_is_its_equations() -> None:
    cell = LSTMCell(2, 3).double()
    x, hidden, memory = drawn(4, 2), drawn(4, 3, seed=1), drawn(4, 3, seed=2)
    gates = x @ cell.weight_ih.T + cell.bias_ih + hidden @ cell.weight_hh.T + cell.bias_hh
    i, f, g, o = gates[:, :3], gates[:, 3:6], gates[:, 6:9], gates[:, 9:]
    new = memory / (1 + (-f).exp()) + g.tanh() / (1 + (-i).exp())
    close(cell(x, (hidden, memory)), (new.tanh() / (1 + (-o).exp()), new))


def test_the_same_seed_gives_pytorchs_initial_parameters() -> None:
    torch.manual_seed(5)
    theirs = nn.LSTMCell(3, 5).state_dict()
    torch.manual_seed(5)
    ours = LSTMCell(3, 5).state_dict()
    assert list(ours) == list(theirs)
    for key in ours:
        assert torch.equal(ours[key], theirs[key])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("num_layers", [1, 3])
def test_a_stack_is_pytorchs_stack(num_layers: int, bias: bool) -> None:
    theirs = nn.LSTM(3, 5, num_layers, bias=bias, batch_first=True).double()
    ours = LSTM(3, 5, num_layers, bias=bias).double()
    like_pytorch(ours, theirs)
    x = drawn(4, 7, 3).requires_grad_()
    state = (drawn(num_layers, 4, 5, seed=1), drawn(num_layers, 4, 5, seed=2))
    for before in (None, state):
        close(ours(x, before), theirs(x, before))
    gradients = []
    for module in (ours, theirs):
        outputs, (hidden, memory) = module(x, state)
        outcome = (outputs * drawn(4, 7, 5, seed=3)).sum() + hidden.square().sum() + memory.sin().sum()
        gradients.append(torch.autograd.grad(outcome, [x, *module.parameters()]))
    for first, second in zip(*gradients, strict=True):
        torch.testing.assert_close(first, second, rtol=1e-11, atol=1e-12)


def test_scanning_is_stepping() -> None:
    cell = LSTMCell(3, 5).double()
    x = drawn(4, 7, 3)
    outputs, last = cell.scan(x)
    state = None
    for step in range(7):
        state = cell(x[:, step], state)
        close(outputs[:, step], state[0])
    close(last, state)


def test_a_text_may_be_read_in_two_parts() -> None:
    stack = LSTM(3, 5, 2).double()
    x = drawn(4, 7, 3)
    whole, last = stack(x)
    first, state = stack(x[:, :4])
    second, end = stack(x[:, 4:], state)
    close(torch.cat([first, second], 1), whole)
    close(end, last)


@pytest.mark.parametrize("value", [0.0, 1.5])
def test_the_forget_gate_starts_where_it_is_told(value: float) -> None:
    torch.manual_seed(0)
    plain = LSTM(3, 5, 2)
    torch.manual_seed(0)
    told = LSTM(3, 5, 2, forget_bias=value)
    for layer, other in zip(told.layers, plain.layers, strict=True):
        total, before = layer.bias_ih + layer.bias_hh, other.bias_ih + other.bias_hh
        assert total[5:10].tolist() == [value] * 5
        assert torch.equal(total[:5], before[:5])
        assert torch.equal(total[10:], before[10:])
        assert torch.equal(layer.weight_hh, other.weight_hh)
        layer.reset_parameters()
        assert (layer.bias_ih + layer.bias_hh)[5:10].tolist() == [value] * 5


class Doubling(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * x


def test_dropout_stands_in_the_gaps_between_layers_and_nowhere_else() -> None:
    stack = LSTM(3, 5, 3, dropout=Doubling).double()
    assert [type(part) for part in stack.dropouts] == [Doubling, Doubling]
    assert stack.dropouts[0] is not stack.dropouts[1]
    x = drawn(4, 7, 3)
    first, _ = stack.layers[0].scan(x)
    second, _ = stack.layers[1].scan(2 * first)
    third, _ = stack.layers[2].scan(2 * second)
    close(stack(x)[0], third)
    assert len(LSTM(3, 5, 1, dropout=Doubling).dropouts) == 0


def test_dropout_draws_in_training_only() -> None:
    stack = LSTM(3, 5, 2, dropout=lambda: nn.Dropout(0.5)).double()
    x = drawn(4, 7, 3)
    torch.manual_seed(0)
    first, second = stack(x)[0], stack(x)[0]
    assert not torch.equal(first, second)
    stack.eval()
    assert torch.equal(stack(x)[0], stack(x)[0])


def test_gradients_of_each_example_and_stacked_replicas() -> None:
    stacks = [LSTM(3, 5, 2).double() for _ in range(3)]
    x = drawn(4, 7, 3)

    def outcome(own: dict[str, Tensor], inputs: Tensor) -> Tensor:
        return torch.func.functional_call(stacks[0], own, (inputs,))[0].square().sum()

    own = dict(stacks[0].named_parameters())
    each = torch.func.vmap(torch.func.grad(outcome), (None, 0))(own, x[:, None])
    whole = torch.func.grad(outcome)(own, x)
    for key in own:
        close(each[key].sum(0), whole[key])
    parameters, _ = torch.func.stack_module_state(stacks)
    stacked = torch.func.vmap(outcome, (0, None))(parameters, x)
    close(stacked, torch.stack([stack(x)[0].square().sum() for stack in stacks]))


def test_second_and_forward_mode_derivatives() -> None:
    cell = LSTMCell(2, 3).double()
    x = drawn(1, 3, 2).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda inputs: cell.scan(inputs)[0], (x,))
    _, slope = torch.func.jvp(lambda inputs: cell.scan(inputs)[0], (x.detach(),), (torch.ones_like(x),))
    backward = torch.func.jacrev(lambda inputs: cell.scan(inputs)[0])(x.detach())
    close(slope, backward.sum((-1, -2, -3)))


def test_refusals() -> None:
    with pytest.raises(UsageError) as refusal:
        LSTMCell(3, 5, bias=False, forget_bias=1.0)
    assert str(refusal.value) == "LSTMCell: forget_bias=1.0 needs a bias; set bias=True or drop it"
    with pytest.raises(UsageError, match="LSTM: num_layers must be at least 1, got 0"):
        LSTM(3, 5, 0)
