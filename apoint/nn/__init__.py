"""Activations, gated units, norms, initialisation, dropout and stochastic depth, attention, losses."""

from apoint.nn.activations import (
    Arctan,
    ReLUSquared,
    Squareplus,
    StochasticGELU,
    Swish,
    activation,
)
from apoint.nn.attention import SelfAttention, attention_weights, elementary_attention
from apoint.nn.augmented import AugmentedConvolution, ImageAttention
from apoint.nn.dropout import Dropout, StochasticDepth, set_rate
from apoint.nn.gated import (
    GatedFeedForward,
    GatedUnit,
    PlainFeedForward,
    bilinear,
    feed_forward,
    geglu,
    glu,
    matched_width,
    reglu,
    swiglu,
)
from apoint.nn.initialisation import gain, initialise
from apoint.nn.losses import (
    Loss,
    absolute_error,
    binary_cross_entropy,
    brier,
    cross_entropy,
    huber,
    loss,
    squared_error,
)
from apoint.nn.norms import (
    ChannelLayerNorm,
    ChannelRMSNorm,
    FeatureBatchNorm,
    FeatureGroupNorm,
    norm,
)
from apoint.nn.recurrent import LSTM, LSTMCell, lstm_step
from apoint.nn.residual import LayerScale, Residual
from apoint.nn.tokenizers import FilterTokenizer, Projector, RecurrentTokenizer, TokenAttention

__all__ = [
    "LSTM",
    "Arctan",
    "AugmentedConvolution",
    "ChannelLayerNorm",
    "ChannelRMSNorm",
    "Dropout",
    "FeatureBatchNorm",
    "FeatureGroupNorm",
    "FilterTokenizer",
    "GatedFeedForward",
    "GatedUnit",
    "ImageAttention",
    "LSTMCell",
    "LayerScale",
    "Loss",
    "PlainFeedForward",
    "Projector",
    "ReLUSquared",
    "RecurrentTokenizer",
    "Residual",
    "SelfAttention",
    "Squareplus",
    "StochasticDepth",
    "StochasticGELU",
    "Swish",
    "TokenAttention",
    "absolute_error",
    "activation",
    "attention_weights",
    "bilinear",
    "binary_cross_entropy",
    "brier",
    "cross_entropy",
    "elementary_attention",
    "feed_forward",
    "gain",
    "geglu",
    "glu",
    "huber",
    "initialise",
    "loss",
    "lstm_step",
    "matched_width",
    "norm",
    "reglu",
    "set_rate",
    "squared_error",
    "swiglu",
]
