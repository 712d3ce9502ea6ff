"""Embeddings and attention of a stack: the replicas side by side in one call of PyTorch's kernel.

Axis letters: R replicas, V words, E size of a word's vector.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from apoint.engine.stacked.functions.randomness import each_replica
from apoint.engine.stacked.functions.table import Scene, stacked_form
from apoint.engine.stacked.lifting import axis_of, outside
from apoint.nn.attention import elementary_attention

SHORT = 32
"""Up to this many positions, elementary operations are up to a third faster than PyTorch's fused kernel."""


@stacked_form(F.embedding)
def embedding(
    scene: Scene,
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """`F.embedding` for all replicas: one table of R·V words."""
    if axis_of(weight) is None or max_norm is not None or sparse:
        return F.embedding(input, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
    index, weight_RVE = scene.lifted.front(input), scene.lifted.front(weight)
    return scene.lifted.wrap(outside(_embedding, index, weight_RVE, padding_idx, scale_grad_by_freq))


def _embedding(
    index: Tensor, weight_RVE: Tensor, padding_idx: int | None, scale_grad_by_freq: bool
) -> Tensor:
    num_replicas, num_words, _ = weight_RVE.shape
    first = torch.arange(num_replicas, device=index.device) * num_words
    places = index + first.view(-1, *[1] * (index.dim() - 1))
    out = F.embedding(places, weight_RVE.flatten(0, 1), scale_grad_by_freq=scale_grad_by_freq)
    if padding_idx is None:
        return out
    return torch.where((index == padding_idx % num_words)[..., None], out.detach(), out)


@stacked_form(F.scaled_dot_product_attention)
def attention(
    scene: Scene,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **rest: Any,
) -> Tensor:
    """`F.scaled_dot_product_attention` for all replicas, which are treated as further examples of a batch."""
    if dropout_p > 0:
        operands = (query, key, value, attn_mask, dropout_p, is_causal)
        out: Tensor = each_replica(scene, F.scaled_dot_product_attention, operands, rest)
        return out
    foldable = query.dim() > 2 and query.shape[:-2] == key.shape[:-2] == value.shape[:-2]
    if attn_mask is not None:
        foldable = foldable and axis_of(attn_mask) is None and attn_mask.dim() == 2
    if not foldable:
        with elementary_attention():
            return F.scaled_dot_product_attention(query, key, value, attn_mask, 0.0, is_causal, **rest)
    stacked = tuple(scene.lifted.front(tensor) for tensor in (query, key, value))
    return scene.lifted.wrap(outside(_attention, stacked, attn_mask, is_causal, rest))


def _attention(
    operands: tuple[Tensor, ...], mask: Tensor | None, is_causal: bool, rest: dict[str, Any]
) -> Tensor:
    query, key, value = (tensor.flatten(0, 1) for tensor in operands)
    if mask is None and not rest and max(query.shape[-2], key.shape[-2]) <= SHORT:
        out = _short_attention(query, key, value, is_causal)
    else:
        out = F.scaled_dot_product_attention(query, key, value, mask, 0.0, is_causal, **rest)
    return out.view(*operands[0].shape[:2], *out.shape[1:])


def _short_attention(query: Tensor, key: Tensor, value: Tensor, is_causal: bool) -> Tensor:
    """softmax(QKᵀ/√D)·V from elementary operations: less work than the kernel for short sequences."""
    scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(query.shape[-1])
    if is_causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(later, -math.inf)
    return torch.matmul(scores.softmax(dim=-1), value)
