"""A decoder-only transformer that predicts each token of a text from the tokens before it.

Shapes: B batch, T tokens, E model dimension, V size of the vocabulary.
"""

from __future__ import annotations

from torch import Tensor, nn

from apoint.errors import UsageError
from apoint.models.transformer import FeedForwardSpec, Placement, Positional, Positions, transformer_blocks
from apoint.nn.dropout import Dropout, Mode
from apoint.registry import register, split_spec
from apoint.settings import ActivationSpec, Count, NormSpec, Positive, Rate


class CharTransformer(nn.Module):
    """Embedding, positions, causal blocks, and logits over the vocabulary for each position.

    Args:
        embedding: The token embedding.
        positions: Adds the position vectors.
        dropout: Applied to the embedded tokens.
        blocks: Map [B, T, E] to the same shape; each position sees itself and those before it.
        context: The maximum number of tokens.
        tied: Whether the head shares the embedding's weights.
    """

    def __init__(
        self,
        embedding: nn.Embedding,
        positions: Positions,
        dropout: Dropout,
        blocks: nn.Module,
        context: int,
        tied: bool,
    ) -> None:
        super().__init__()
        self.context = context
        self.embedding = embedding
        self.positions = positions
        self.dropout = dropout
        self.blocks = blocks
        self.head = nn.Linear(embedding.embedding_dim, embedding.num_embeddings, bias=False)
        if tied:
            self.head.weight = embedding.weight

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """Logits [B, T, V]; those at position t predict the token after t."""
        length = tokens_BT.shape[1]
        if length > self.context:
            raise UsageError(
                f"model 'char-transformer': was built for a context of {self.context} tokens, got {length}"
            )
        x_BTE = self.dropout(self.positions(self.embedding(tokens_BT)))
        logits_BTV: Tensor = self.head(self.blocks(x_BTE))
        return logits_BTV


@register("model", "char-transformer", course="G5", inputs=("tokens",))
def char_transformer(
    vocab_size: int,
    context: int,
    *,
    depth: Count = 4,
    width: Count = 128,
    num_heads: Count = 4,
    feed_forward: FeedForwardSpec = "plain",
    expansion: Positive = 4.0,
    activation: ActivationSpec | None = None,
    norm: NormSpec = "layer",
    placement: Placement = "pre",
    dropout: Rate = 0.0,
    stochastic_depth: Rate = 0.0,
    stochastic_depth_mode: Mode = "batch",
    layer_scale: Positive | None = None,
    tied: bool = True,
    positional: Positional = "learned",
) -> CharTransformer:
    """A decoder-only transformer over characters or other tokens.

    Returns logits [B, T, V] for the next token at each position. With the defaults it follows GPT-2,
    except for the initialisation.

    Args:
        depth: The number of blocks, each with attention and feed-forward.
        width: The model dimension.
        num_heads: The number of attention heads; it must divide `width`.
        feed_forward: The feed-forward block.
        expansion: The size of the feed-forward's hidden layer, as a multiple of `width`.
        activation: The activation of a `plain` feed-forward block; by default the block's own.
        norm: The norm of each branch; `batch` would look ahead in training and raises an error.
        placement: Whether the norm is inside the branch (`pre`) or applied to the sum (`post`).
        dropout: The probability of dropping an embedded, a hidden or an output unit, or an attention weight.
        stochastic_depth: The probability of skipping the last block's branches; linearly lower for earlier
            blocks.
        stochastic_depth_mode: Whether to draw once per `batch`, which saves time, or once per `sample`.
        layer_scale: The initial value of the learned per-channel factors of each branch; none by default.
        tied: Whether the output layer shares the embedding's weights.
        positional: The position vectors: `learned` or `sinusoidal`.

    Reference: Radford et al. (2019), Language models are unsupervised multitask learners.
    """
    if split_spec(norm, "norm")[0] == "batch":
        raise UsageError(
            "model 'char-transformer': norm 'batch' takes its mean over later tokens too, and so sees "
            "what is to be predicted; choose layer, rms or group"
        )
    blocks = transformer_blocks(
        width,
        depth,
        num_heads,
        causal=True,
        feed_forward=feed_forward,
        expansion=expansion,
        activation=activation,
        norm=norm,
        placement=placement,
        dropout=dropout,
        stochastic_depth=stochastic_depth,
        stochastic_depth_mode=stochastic_depth_mode,
        layer_scale=layer_scale,
    )
    embedding = nn.Embedding(vocab_size, width)
    positions = Positions(context, width, positional)
    return CharTransformer(embedding, positions, Dropout(dropout), blocks, context, tied)
