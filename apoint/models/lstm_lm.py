"""An LSTM language model.

Shapes: B batch, T tokens, E size of the embedding, H size of the LSTM, V size of the vocabulary.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from apoint.errors import UsageError
from apoint.nn.activations import activation as build_activation
from apoint.nn.dropout import Dropout
from apoint.nn.norms import norm as build_norm
from apoint.nn.recurrent import LSTM
from apoint.registry import register, split_spec
from apoint.settings import ActivationSpec, Count, NormSpec, Rate, Real


class LSTMLanguageModel(nn.Module):
    """Embedding, LSTM, and logits over the vocabulary for each position.

    Args:
        embedding: The token embedding.
        lstm: Maps [B, T, E] to [B, T, H].
        width: The size H of the LSTM.
        dropout: The rate of dropout on the embedding and on the LSTM's output.
        tied: Whether the head shares the embedding's weights; then E = H.
    """

    def __init__(self, embedding: nn.Embedding, lstm: LSTM, width: int, dropout: float, tied: bool) -> None:
        super().__init__()
        self.embedding = embedding
        self.dropout_in = Dropout(dropout)
        self.lstm = lstm
        self.dropout_out = Dropout(dropout)
        self.head = nn.Linear(width, embedding.num_embeddings)
        if tied:
            self.head.weight = embedding.weight

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """Logits [B, T, V]: those at position t predict the token after t."""
        hidden_BTH, _ = self.lstm(self.dropout_in(self.embedding(tokens_BT)))
        logits_BTV: Tensor = self.head(self.dropout_out(hidden_BTH))
        return logits_BTV


@register("model", "lstm-lm", course="G3", inputs=("tokens",))
def lstm_lm(
    vocab_size: int,
    *,
    depth: Count = 2,
    width: Count = 128,
    embedding: Count | None = None,
    activation: ActivationSpec = "tanh",
    norm: NormSpec = "none",
    placement: Literal["pre", "post"] = "pre",
    dropout: Rate = 0.0,
    tied: bool = False,
    forget_bias: Real = 1.0,
) -> LSTMLanguageModel:
    """An LSTM language model: logits [B, T, V] for the next token at each position.

    Every sequence starts from a zero state. Dropout is where Zaremba et al. apply it: on the embedding,
    between layers and on the output, never from one time step to the next.

    Args:
        depth: The number of LSTM layers.
        width: The size of each layer.
        embedding: The size of the token embedding; by default `width`.
        activation: The activation that bounds the cell's values, tanh in the equations.
        norm: The norm of each layer; `batch` would look ahead in training and raises an error.
        placement: Whether a layer's norm comes before it (`pre`) or after it (`post`).
        dropout: The probability of dropping a unit of the embedding, between layers, and of the output.
        tied: Whether the output layer shares the embedding's weights; then `embedding` must equal `width`.
        forget_bias: The initial bias of the forget gates; 1 preserves memories through early training.

    Reference: Zaremba, Sutskever and Vinyals (2014), Recurrent neural network regularization.
    """
    if split_spec(norm, "norm")[0] == "batch":
        raise UsageError(
            "model 'lstm-lm': norm 'batch' takes its mean over later tokens too, and so sees ahead in "
            "training; choose 'layer', 'rms' or 'none'"
        )
    size = embedding or width
    if tied and size != width:
        raise UsageError(
            f"model 'lstm-lm': tied weights need embedding equal to width, got {size} and {width}; "
            f"leave embedding out, or set tied to false"
        )
    lstm = LSTM(
        size,
        width,
        depth,
        forget_bias=forget_bias,
        dropout=lambda: Dropout(dropout),
        activation=lambda: build_activation(activation),
        norm=lambda num_features: build_norm(norm, num_features),
        placement=placement,
    )
    return LSTMLanguageModel(nn.Embedding(vocab_size, size), lstm, width, dropout, tied)
