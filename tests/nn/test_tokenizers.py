"""Tokenizers, attention between tokens and the projector against their equations in explicit loops."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import pytest
import torch
from torch import Tensor, nn

from apoint.errors import UsageError
from apoint.nn.tokenizers import FilterTokenizer, Projector, RecurrentTokenizer, TokenAttention

BATCH, PLACES, CHANNELS, TOKENS = 2, 5, 4, 3
Module = TypeVar("Module", bound=nn.Module)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def shaken(module: Module) -> Module:
    """In float64, with weights large enough for softmax to be far from even."""
    module.double()
    for number, parameter in enumerate(module.parameters()):
        parameter.data = 2 * drawn(*parameter.shape, seed=number)
    return module


def mean_by_loops(logits: list[Tensor], vectors: list[Tensor]) -> Tensor:
    """Σ exp(l_i) v_i / Σ exp(l_i)."""
    total, weight = torch.zeros_like(vectors[0]), torch.zeros((), dtype=torch.float64)
    for logit, vector in zip(logits, vectors, strict=True):
        total, weight = total + logit.exp() * vector, weight + logit.exp()
    return total / weight


def assert_same(
    module: nn.Module, reference: Callable[..., Tensor], *inputs: Tensor, direction_seed: int = 77
) -> None:
    """Values and gradients, with respect to inputs and weights; the reference is of one sample."""
    for each in inputs:
        each.requires_grad_()
    ours = module(*inputs)
    samples = zip(*(each.unbind() for each in inputs), strict=True)
    theirs = torch.stack([reference(*sample) for sample in samples])
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-11)
    direction = drawn(*ours.shape, seed=direction_seed)
    wanted = [*inputs, *module.parameters()]
    first, second = (torch.autograd.grad((out * direction).sum(), wanted) for out in (ours, theirs))
    for own, other in zip(first, second, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-9, atol=1e-10)


def mapped(values: nn.Linear | None, token: Tensor) -> Tensor:
    return token if values is None else values.weight @ token


@pytest.mark.parametrize("token_width", [CHANNELS, 6])
def test_the_filter_tokenizer_is_its_equation(token_width: int) -> None:
    """Token l is the mean of places p, weighted by exp(w_l·x_p/√C)."""
    module = shaken(FilterTokenizer(CHANNELS, TOKENS, token_width))
    assert (module.values is None) == (token_width == CHANNELS)

    def reference(x: Tensor) -> Tensor:
        tokens = []
        for filter_ in module.filters.weight:
            logits = [filter_ @ place / math.sqrt(CHANNELS) for place in x]
            tokens.append(mapped(module.values, mean_by_loops(logits, list(x))))
        return torch.stack(tokens)

    assert_same(module, reference, drawn(BATCH, PLACES, CHANNELS, seed=9))


@pytest.mark.parametrize("token_width", [CHANNELS, 6])
def test_the_recurrent_tokenizer_is_its_equation(token_width: int) -> None:
    """Its filters are the earlier tokens, mapped."""
    module = shaken(RecurrentTokenizer(CHANNELS, token_width))
    assert (module.values is None) == (token_width == CHANNELS)

    def reference(x: Tensor, earlier: Tensor) -> Tensor:
        tokens = []
        for token in earlier:
            filter_ = module.filters.weight @ token
            logits = [filter_ @ place / math.sqrt(CHANNELS) for place in x]
            tokens.append(mapped(module.values, mean_by_loops(logits, list(x))))
        return torch.stack(tokens)

    inputs = drawn(BATCH, PLACES, CHANNELS, seed=9), drawn(BATCH, TOKENS, token_width, seed=10)
    assert_same(module, reference, *inputs)


@pytest.mark.parametrize("width", [6, 1])
def test_attention_between_tokens_is_its_equation(width: int) -> None:
    """Row i of the weights is made from key i and the queries of all, as the paper writes it."""
    module = shaken(TokenAttention(width))
    size = max(1, width // 2)
    assert module.keys.weight.shape == (size, width)

    def reference(tokens: Tensor) -> Tensor:
        found = []
        for token in tokens:
            key = module.keys.weight @ token
            logits = [key @ (module.queries.weight @ other) / math.sqrt(size) for other in tokens]
            found.append(mean_by_loops(logits, list(tokens)))
        return torch.stack(found)

    assert_same(module, reference, drawn(BATCH, TOKENS, width, seed=9))


def test_the_projector_is_its_equation() -> None:
    """A place gathers mapped tokens, with weights that sum to one over the tokens."""
    module = shaken(Projector(CHANNELS, 6))

    def reference(x: Tensor, tokens: Tensor) -> Tensor:
        found = []
        for place in x:
            query = module.queries.weight @ place
            logits = [query @ (module.keys.weight @ token) / math.sqrt(CHANNELS) for token in tokens]
            found.append(mean_by_loops(logits, [module.values.weight @ token for token in tokens]))
        return torch.stack(found)

    assert_same(module, reference, drawn(BATCH, PLACES, CHANNELS, seed=9), drawn(BATCH, TOKENS, 6, seed=10))


def test_tokens_do_not_depend_on_the_order_of_places() -> None:
    module, x = shaken(FilterTokenizer(CHANNELS, TOKENS, 6)), drawn(BATCH, PLACES, CHANNELS)
    torch.testing.assert_close(module(x), module(x.flip(1)))


def test_no_token_is_refused_in_one_sentence() -> None:
    with pytest.raises(UsageError, match="FilterTokenizer: num_tokens must be at least 1, got 0"):
        FilterTokenizer(4, 0, 4)
