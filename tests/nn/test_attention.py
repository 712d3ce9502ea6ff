"""Self-attention against `nn.MultiheadAttention` with the same weights, and what a causal one may see."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from apoint.errors import UsageError
from apoint.nn import SelfAttention, attention_weights, elementary_attention

MODEL_DIM, NUM_HEADS, LENGTH = 12, 3, 5


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def pair(
    causal: bool, bias: bool = True, dropout: float = 0.0
) -> tuple[SelfAttention, nn.MultiheadAttention]:
    """Ours and PyTorch's with the same weights, biases away from zero."""
    theirs = nn.MultiheadAttention(MODEL_DIM, NUM_HEADS, dropout, bias=bias, batch_first=True).double()
    for number, parameter in enumerate(theirs.parameters()):
        parameter.data = 0.5 * drawn(*parameter.shape, seed=number)
    layer = nn.Dropout(dropout) if dropout else None
    ours = SelfAttention(MODEL_DIM, NUM_HEADS, causal=causal, bias=bias, dropout=layer).double()
    ours.qkv.weight.data = theirs.in_proj_weight.data.clone()
    ours.output.weight.data = theirs.out_proj.weight.data.clone()
    if bias:
        ours.qkv.bias.data = theirs.in_proj_bias.data.clone()
        ours.output.bias.data = theirs.out_proj.bias.data.clone()
    return ours, theirs


def pytorch_attention(module: nn.MultiheadAttention, x: Tensor, causal: bool) -> Tensor:
    mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], dtype=x.dtype) if causal else None
    return module(x, x, x, attn_mask=mask, need_weights=True)[0]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("causal", [True, False])
def test_values_and_gradients_are_pytorchs(causal: bool, bias: bool) -> None:
    ours, theirs = pair(causal, bias)
    x = drawn(4, LENGTH, MODEL_DIM, seed=9).requires_grad_()
    first, second = ours(x), pytorch_attention(theirs, x, causal)
    torch.testing.assert_close(first, second, rtol=0, atol=1e-12)
    direction = drawn(4, LENGTH, MODEL_DIM, seed=10)
    weights = [[x, ours.qkv.weight, ours.output.weight], [x, theirs.in_proj_weight, theirs.out_proj.weight]]
    if bias:
        weights[0] += [ours.qkv.bias, ours.output.bias]
        weights[1] += [theirs.in_proj_bias, theirs.out_proj.bias]
    results = zip((first, second), weights, strict=True)
    gradients = [torch.autograd.grad((z * direction).sum(), wrt) for z, wrt in results]
    for own, other in zip(*gradients, strict=True):
        torch.testing.assert_close(own, other, rtol=0, atol=1e-11)
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())


@pytest.mark.parametrize("causal", [True, False])
def test_dropout_falls_on_the_weights_as_in_pytorch(causal: bool) -> None:
    """The same seed draws the same masks, so even these agree."""
    ours, theirs = pair(causal, dropout=0.4)
    x = drawn(4, LENGTH, MODEL_DIM, seed=9)
    torch.manual_seed(3)
    first = ours(x)
    torch.manual_seed(3)
    second = pytorch_attention(theirs, x, causal)
    torch.testing.assert_close(first, second, rtol=0, atol=1e-12)
    assert not torch.allclose(first, ours(x))
    torch.testing.assert_close(
        ours.eval()(x), pytorch_attention(theirs.eval(), x, causal), rtol=0, atol=1e-12
    )


class Halving(nn.Module):
    """As a dropout that rescales in evaluation and not in training."""

    def forward(self, x: Tensor) -> Tensor:
        return x if self.training else x / 2


class Rated(nn.Module):
    """A dropout whose rate may change."""

    rate = 0.0

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.rate, self.training)


def test_a_dropout_that_rescales_in_evaluation_does_so() -> None:
    attention = SelfAttention(MODEL_DIM, NUM_HEADS, causal=True, bias=False, dropout=Halving()).double()
    x = drawn(2, LENGTH, MODEL_DIM)
    training = attention(x)
    torch.testing.assert_close(attention.eval()(x), training / 2)


def test_dropout_at_rate_zero_is_no_dropout_bit_for_bit() -> None:
    dropout = Rated()
    attention = SelfAttention(MODEL_DIM, NUM_HEADS, causal=True, dropout=dropout)
    without = SelfAttention(MODEL_DIM, NUM_HEADS, causal=True)
    without.load_state_dict(attention.state_dict())
    x = drawn(2, LENGTH, MODEL_DIM).float()
    assert torch.equal(attention(x), without(x))
    dropout.rate = 0.5
    assert not torch.equal(attention(x), without(x))


def test_a_causal_position_sees_nothing_after_it() -> None:
    for causal in (True, False):
        attention = SelfAttention(MODEL_DIM, NUM_HEADS, causal=causal).double()
        x = drawn(1, LENGTH, MODEL_DIM)
        sees = torch.autograd.functional.jacobian(attention, x).abs().amax((0, 2, 3, 5))  # [to, from]
        assert (sees.tril() == sees).all() == causal
        assert (sees.diagonal() > 0).all()


def test_weights_are_shares_of_the_positions_in_sight() -> None:
    query, key = drawn(2, 3, LENGTH, 4), drawn(2, 3, LENGTH, 4, seed=1)
    for causal in (True, False):
        weights = attention_weights(query, key, causal)
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3, LENGTH, dtype=torch.float64))
        assert (weights.triu(1) == 0).all() == causal
        value = drawn(2, 3, LENGTH, 4, seed=2)
        fused = F.scaled_dot_product_attention(query, key, value, is_causal=causal)
        torch.testing.assert_close(weights @ value, fused)


def test_without_a_mask_the_order_of_positions_does_not_matter() -> None:
    attention = SelfAttention(MODEL_DIM, NUM_HEADS, causal=False).double()
    x, order = drawn(2, LENGTH, MODEL_DIM), torch.tensor([3, 0, 4, 1, 2])
    torch.testing.assert_close(attention(x[:, order]), attention(x)[:, order])


@pytest.mark.parametrize("causal", [True, False])
def test_elementary_attention_is_the_same_and_has_every_derivative(causal: bool) -> None:
    attention = SelfAttention(4, 2, causal=causal).double()
    x = drawn(1, 3, 4)
    with elementary_attention():
        assert torch.autograd.gradgradcheck(attention, (x.clone().requires_grad_(),))
        _, slope = torch.func.jvp(attention, (x,), (torch.ones_like(x),))
        elementary = attention(x)
    jacobian = torch.autograd.functional.jacobian(attention, x)
    torch.testing.assert_close(slope, jacobian.sum((-1, -2, -3)))
    torch.testing.assert_close(elementary, attention(x))


def test_stacked_replicas_and_gradients_of_each_example() -> None:
    """Warnings are errors here: the fused kernel would warn of a slow path under `vmap`."""
    replicas = [SelfAttention(MODEL_DIM, NUM_HEADS, causal=True).double() for _ in range(3)]
    x = drawn(4, LENGTH, MODEL_DIM)
    parameters, _ = torch.func.stack_module_state(replicas)

    def run(own: Any, inputs: Tensor) -> Tensor:
        return torch.func.functional_call(replicas[0], own, (inputs,))

    with elementary_attention():
        stacked = torch.func.vmap(run, (0, None))(parameters, x)
        own = dict(replicas[0].named_parameters())
        per_example = torch.func.vmap(torch.func.grad(lambda p, i: run(p, i).sum()), (None, 0))(
            own, x[:, None]
        )
    torch.testing.assert_close(stacked, torch.stack([replica(x) for replica in replicas]))
    whole = torch.func.grad(lambda p: run(p, x).sum())(own)
    for key in own:
        torch.testing.assert_close(per_example[key].sum(0), whole[key])


@pytest.mark.parametrize("num_heads", [0, 3, 20])
def test_heads_that_do_not_divide_are_refused_in_one_sentence(num_heads: int) -> None:
    with pytest.raises(UsageError) as refusal:
        SelfAttention(10, num_heads, causal=False)
    assert str(refusal.value) == (
        f"SelfAttention: num_heads must divide model_dim=10, got {num_heads}; choose one of 1, 2, 5, 10"
    )
