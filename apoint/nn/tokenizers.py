"""Map the pixels of an image to a few tokens, between tokens, and back: the parts of a Visual Transformer.

Shapes: B batch, P pixels of a feature map, C its channels, L tokens, E their size, K size of keys.
"""

from __future__ import annotations

import math

from torch import Tensor, nn

from apoint.errors import UsageError


class FilterTokenizer(nn.Module):
    """Tokens as means over the pixels, each with its own weights: T = softmax_P(X W_A/√C)ᵀ X W_V.

    X holds the C channels of each pixel, and a column of W_A (`filters`) is a filter for one token: the
    softmax is over the pixels. W_V (`values`) exists only where tokens and pixels differ in size.

    Args:
        channels: The channels C of a pixel.
        num_tokens: The number L of tokens.
        token_width: The size E of a token.

    Reference: Wu et al. (2020), Visual transformers, section 3.1; the root is in their pseudo-code.
    """

    def __init__(self, channels: int, num_tokens: int, token_width: int) -> None:
        super().__init__()
        if num_tokens < 1:
            raise UsageError(f"FilterTokenizer: num_tokens must be at least 1, got {num_tokens}")
        self.filters = nn.Linear(channels, num_tokens, bias=False)
        self.values = values_between(channels, token_width)

    def forward(self, x_BPC: Tensor) -> Tensor:
        """The tokens, [B, L, E]."""
        scores_BPL: Tensor = self.filters(x_BPC)
        return gathered(scores_BPL.mT, x_BPC, self.values)


class RecurrentTokenizer(nn.Module):
    """Tokens as means over the pixels, weighted by earlier tokens: T = softmax_P(X W_Rᵀ/√C)ᵀ X W_V.

    The filters W_R = T' W_T (`filters`) are computed from earlier tokens T', so they differ from image to
    image; the number of tokens stays the same.

    Args:
        channels: The channels C of a pixel.
        token_width: The size E of a token.

    Reference: Wu et al. (2020), Visual transformers, section 3.1; the root is in their pseudo-code, which
        finds only half of the tokens anew.
    """

    def __init__(self, channels: int, token_width: int) -> None:
        super().__init__()
        self.filters = nn.Linear(token_width, channels, bias=False)
        self.values = values_between(channels, token_width)

    def forward(self, x_BPC: Tensor, earlier_BLE: Tensor) -> Tensor:
        """The tokens, [B, L, E]."""
        return gathered(self.filters(earlier_BLE) @ x_BPC.mT, x_BPC, self.values)


def values_between(channels: int, token_width: int) -> nn.Linear | None:
    """W_V, where it is needed."""
    return None if channels == token_width else nn.Linear(channels, token_width, bias=False)


def gathered(scores_BLP: Tensor, x_BPC: Tensor, values: nn.Linear | None) -> Tensor:
    """For each token, the mean of the pixels with weights softmax(scores/√C), mapped to the token's size."""
    weights_BLP = (scores_BLP / math.sqrt(x_BPC.shape[-1])).softmax(dim=-1)
    tokens_BLC = weights_BLP @ x_BPC
    tokens_BLE: Tensor = tokens_BLC if values is None else values(tokens_BLC)
    return tokens_BLE


class TokenAttention(nn.Module):
    """What tokens gather from each other: softmax_L((T W_K)(T W_Q)ᵀ/√K) T.

    One head, and no map of the values. W_K and W_Q (`keys`, `queries`) halve the size of tokens: K = E/2.

    Args:
        token_width: The size E of a token.

    Reference: Wu et al. (2020), Visual transformers, section 3.2; root and size of keys are in their
        pseudo-code.
    """

    def __init__(self, token_width: int) -> None:
        super().__init__()
        key_width = max(1, token_width // 2)
        self.keys = nn.Linear(token_width, key_width, bias=False)
        self.queries = nn.Linear(token_width, key_width, bias=False)

    def forward(self, tokens_BLE: Tensor) -> Tensor:
        """What each token gathers, to be added to it."""
        scores_BLL = self.keys(tokens_BLE) @ self.queries(tokens_BLE).mT
        weights_BLL = (scores_BLL / math.sqrt(self.keys.out_features)).softmax(dim=-1)
        found_BLE: Tensor = weights_BLL @ tokens_BLE
        return found_BLE


class Projector(nn.Module):
    """What pixels gather from the tokens: softmax_L((X W_Q)(T W_K)ᵀ/√C) T W_V.

    Args:
        channels: The channels C of a pixel.
        token_width: The size E of a token.

    Reference: Wu et al. (2020), Visual transformers, section 3.3; root and W_V are in their pseudo-code.
    """

    def __init__(self, channels: int, token_width: int) -> None:
        super().__init__()
        self.queries = nn.Linear(channels, channels, bias=False)
        self.keys = nn.Linear(token_width, channels, bias=False)
        self.values = nn.Linear(token_width, channels, bias=False)

    def forward(self, x_BPC: Tensor, tokens_BLE: Tensor) -> Tensor:
        """What each pixel gathers, to be added to it."""
        scores_BPL = self.queries(x_BPC) @ self.keys(tokens_BLE).mT
        weights_BPL = (scores_BPL / math.sqrt(x_BPC.shape[-1])).softmax(dim=-1)
        found_BPC: Tensor = weights_BPL @ self.values(tokens_BLE)
        return found_BPC
