"""Multi-head self-attention: each position is replaced by a mean of all, weighted by similarity.

Shapes: B batch, T positions, E model dimension, H heads, D dimension of a head (E = H·D).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from apoint.errors import UsageError


class SelfAttention(nn.Module):
    """Multi-head self-attention, softmax(QKᵀ/√D)·V in each head, then a linear map of the joined heads.

    The same function as `nn.MultiheadAttention` with query = key = value and the batch first; `qkv` holds
    its `in_proj_weight` and `output` its `out_proj`. Runs on PyTorch's fused kernel, which on CPU supports
    neither `vmap` nor second-order and forward-mode derivatives; for these, see `elementary_attention`.

    Args:
        model_dim: The size E of a position, at the input and at the output.
        num_heads: The number H of heads; it must divide `model_dim`.
        causal: Whether a position sees only itself and those before it.
        bias: Whether the four linear maps have a bias.
        dropout: Applied to the attention weights, after the softmax.

    Reference: Vaswani et al. (2017), Attention is all you need, section 3.2.
    """

    def __init__(
        self,
        model_dim: int,
        num_heads: int,
        *,
        causal: bool,
        bias: bool = True,
        dropout: nn.Module | None = None,
    ) -> None:
        super().__init__()
        if num_heads < 1 or model_dim % num_heads != 0:
            divisors = [str(n) for n in range(1, model_dim + 1) if model_dim % n == 0]
            raise UsageError(
                f"SelfAttention: num_heads must divide model_dim={model_dim}, got {num_heads}; choose one of "
                f"{', '.join(divisors)}"
            )
        self.num_heads = num_heads
        self.causal = causal
        self.qkv = nn.Linear(model_dim, 3 * model_dim, bias=bias)
        self.dropout = dropout if dropout is not None else nn.Identity()
        self.output = nn.Linear(model_dim, model_dim, bias=bias)

    def forward(self, x_BTE: Tensor) -> Tensor:
        qkv_BT3HD = self.qkv(x_BTE).unflatten(-1, (3, self.num_heads, -1))
        query_BHTD, key_BHTD, value_BHTD = qkv_BT3HD.permute(2, 0, 3, 1, 4)
        heads_BHTD = self._attend(query_BHTD, key_BHTD, value_BHTD)
        mixed: Tensor = self.output(heads_BHTD.transpose(1, 2).flatten(2))
        return mixed

    def _attend(self, query_BHTD: Tensor, key_BHTD: Tensor, value_BHTD: Tensor) -> Tensor:
        # At rate 0 the fused kernel runs, so that dropout 0 and no dropout agree bit for bit.
        idle = isinstance(self.dropout, nn.Identity) or getattr(self.dropout, "rate", None) == 0
        if self.training and not idle:
            weights_BHTT = self.dropout(attention_weights(query_BHTD, key_BHTD, self.causal))
            return torch.matmul(weights_BHTT, value_BHTD)
        heads_BHTD = F.scaled_dot_product_attention(query_BHTD, key_BHTD, value_BHTD, is_causal=self.causal)
        # In evaluation dropout is at most a constant factor, which can also be applied after the product.
        dropped: Tensor = self.dropout(heads_BHTD)
        return dropped

    def extra_repr(self) -> str:
        return f"num_heads={self.num_heads}, causal={self.causal}"


@contextlib.contextmanager
def elementary_attention() -> Iterator[None]:
    """Context manager that computes attention with elementary operations instead of the fused kernel.

    Slower, by up to a half at a few hundred positions, but supports `torch.func.vmap` (replicas stacked in
    one computation, per-example gradients) and second-order and forward-mode derivatives.
    """
    with sdpa_kernel(SDPBackend.MATH):
        yield


def attention_weights(query_BHTD: Tensor, key_BHTD: Tensor, causal: bool) -> Tensor:
    """softmax(QKᵀ/√D) over the keys; if causal, with weight 0 on later positions."""
    scores_BHTT = query_BHTD @ key_BHTD.transpose(-2, -1) / math.sqrt(query_BHTD.shape[-1])
    if causal:
        length = scores_BHTT.shape[-1]
        later_TT = torch.ones(length, length, dtype=torch.bool, device=scores_BHTT.device).triu(1)
        scores_BHTT = scores_BHTT.masked_fill(later_TT, -math.inf)
    return scores_BHTT.softmax(dim=-1)
