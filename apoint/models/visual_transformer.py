"""Visual Transformers: a residual network, then a transformer over a few tokens gathered from its output.

Shapes: B batch, C channels, H height, W width, P = HW positions, L tokens, E their size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from apoint.models.members import register_member
from apoint.models.resnet import (
    Block,
    Design,
    Placement,
    Stem,
    check_space,
    draw_he_over_outputs,
)
from apoint.models.shapes import Size, has_norm
from apoint.nn.activations import activation as build_activation
from apoint.nn.dropout import Dropout, Mode, StochasticDepth
from apoint.nn.norms import norm as build_norm
from apoint.nn.residual import LayerScale, Residual
from apoint.nn.tokenizers import FilterTokenizer, Projector, RecurrentTokenizer, TokenAttention
from apoint.registry import register
from apoint.settings import ActivationSpec, Count, NormSpec, Positive, Rate, Spec

Tokenizer = Literal["recurrent", "filter"]


class Projection(nn.Module):
    """Adds to each position what it gathers from the tokens.

    Args:
        projector: Computes what is added.
        drop: Skips it at random in training.
        scale: Per-channel factors, if any.
    """

    def __init__(self, projector: Projector, drop: StochasticDepth, scale: LayerScale | None) -> None:
        super().__init__()
        self.projector = projector
        self.drop = drop
        self.scale = scale

    def forward(self, x_BPC: Tensor, tokens_BLE: Tensor) -> Tensor:
        """The positions, with the tokens' information added."""

        def branch(places: Tensor) -> Tensor:
            found: Tensor = self.projector(places, tokens_BLE)
            scaled: Tensor = found if self.scale is None else self.scale(found)
            return scaled

        added: Tensor = self.drop(branch, x_BPC)
        return x_BPC + added


class VisualModule(nn.Module):
    """One module: from positions to tokens, a transformer layer over the tokens, and back to the positions.

    Args:
        tokenizer: Maps positions, and possibly earlier tokens, to tokens.
        attention: A residual branch: attention between tokens.
        feed_forward: A residual branch: a map of each token alone.
        projection: Maps tokens back to the positions; None in the last module, whose positions are not used.
    """

    def __init__(
        self,
        tokenizer: FilterTokenizer | RecurrentTokenizer,
        attention: Residual,
        feed_forward: Residual,
        projection: Projection | None,
    ) -> None:
        super().__init__()
        self.tokenizer = tokenizer
        self.attention = attention
        self.feed_forward = feed_forward
        self.projection = projection

    def forward(self, x_BPC: Tensor, earlier_BLE: Tensor | None) -> tuple[Tensor, Tensor]:
        """The positions and the tokens."""
        recurrent = isinstance(self.tokenizer, RecurrentTokenizer)
        tokens_BLE = self.tokenizer(x_BPC, earlier_BLE) if recurrent else self.tokenizer(x_BPC)
        tokens_BLE = self.feed_forward(self.attention(tokens_BLE))
        if self.projection is not None:
            x_BPC = self.projection(x_BPC, tokens_BLE)
        return x_BPC, tokens_BLE


class VisualTransformer(nn.Module):
    """Stem, stages of residual blocks, visual modules, mean over tokens, linear layer.

    Args:
        stem: Maps images to the first feature maps.
        stages: The stages, each a sequence of blocks.
        last: Applied between the last block and the tokens.
        visual: The visual modules.
        dropout: Applied to the head's input.
        head: The final linear layer.
    """

    family = "visual_transformer"

    def __init__(
        self,
        stem: nn.Module,
        stages: nn.Sequential,
        last: nn.Module,
        visual: nn.ModuleList,
        dropout: Dropout,
        head: nn.Linear,
    ) -> None:
        super().__init__()
        self.stem = stem
        self.stages = stages
        self.last = last
        self.visual = visual
        self.dropout = dropout
        self.head = head

    def forward(self, x_BCHW: Tensor) -> Tensor:
        """One logit for each class."""
        logits: Tensor = self.head(self.dropout(self.tokens(x_BCHW).mean(1)))
        return logits

    def tokens(self, x_BCHW: Tensor) -> Tensor:
        """The tokens after the last module, [B, L, E]."""
        features_BCHW: Tensor = self.last(self.stages(self.stem(x_BCHW)))
        x_BPC = features_BCHW.flatten(2).transpose(1, 2)
        tokens_BLE: Tensor | None = None
        for module in self.visual:
            x_BPC, tokens_BLE = module(x_BPC, tokens_BLE)
        assert tokens_BLE is not None  # there is at least one module
        return tokens_BLE


@dataclass(frozen=True)
class TokenDesign:
    """The settings that all visual modules share; builds the modules from them."""

    channels: int
    num_tokens: int
    token_width: int
    tokenizer: Tokenizer
    activation: Spec
    token_norm: Spec
    placement: Placement
    dropout: float
    stochastic_depth: float
    stochastic_depth_mode: Mode
    layer_scale: float | None

    def module(self, first: bool, last: bool, depth_share: float) -> VisualModule:
        """One module; the first has no earlier tokens, and the last has no way back to the positions."""
        return VisualModule(
            self.made_tokenizer(first),
            self.residual(TokenAttention(self.token_width), depth_share),
            self.residual(self.feed_forward(), depth_share),
            None if last else self.projection(depth_share),
        )

    def made_tokenizer(self, first: bool) -> FilterTokenizer | RecurrentTokenizer:
        """The tokenizer of the first module, or of a later one."""
        if first or self.tokenizer == "filter":
            return FilterTokenizer(self.channels, self.num_tokens, self.token_width)
        return RecurrentTokenizer(self.channels, self.token_width)

    def feed_forward(self) -> nn.Sequential:
        """f(T F₁) F₂, with dropout between."""
        width = self.token_width
        return nn.Sequential(
            nn.Linear(width, width, bias=False),
            build_activation(self.activation),
            Dropout(self.dropout),
            nn.Linear(width, width, bias=False),
        )

    def residual(self, branch: nn.Module, depth_share: float) -> Residual:
        """Tokens plus a branch, with its norm and its factors, if any."""
        if self.layer_scale is not None:
            branch = nn.Sequential(branch, LayerScale(self.token_width, self.layer_scale))
        normed = has_norm(self.token_norm)
        return Residual(
            branch,
            norm=build_norm(self.token_norm, self.token_width) if normed else None,
            placement=self.placement,
            drop=self.drop(depth_share),
        )

    def projection(self, depth_share: float) -> Projection:
        """From tokens back to the positions."""
        projector = Projector(self.channels, self.token_width)
        scale = None if self.layer_scale is None else LayerScale(self.channels, self.layer_scale)
        return Projection(projector, self.drop(depth_share), scale)

    def drop(self, depth_share: float) -> StochasticDepth:
        """The module that skips a branch."""
        return StochasticDepth(self.stochastic_depth, depth_share, self.stochastic_depth_mode)


@register("model", "visual-transformer", course="H3", inputs=("image",))
def visual_transformer(
    in_channels: int = 3,
    num_classes: int = 1000,
    input_size: Size = 224,
    *,
    block: Block = "bottleneck",
    depths: tuple[Count, ...] = (3, 4, 6),
    width: Count = 64,
    stem: Stem = "large",
    stride_on: Literal["3x3", "1x1"] = "3x3",
    num_modules: Count = 3,
    num_tokens: Count = 16,
    token_width: Count = 1024,
    tokenizer: Tokenizer = "recurrent",
    activation: ActivationSpec = "relu",
    norm: NormSpec = "batch",
    token_norm: NormSpec = "none",
    placement: Placement = "post",
    dropout: Rate = 0.0,
    stochastic_depth: Rate = 0.0,
    stochastic_depth_mode: Mode = "batch",
    layer_scale: Positive | None = None,
) -> VisualTransformer:
    """A residual network whose last stage is a transformer over a few tokens gathered from the image.

    The stages are those of `resnet` except the last. From their output, X with C channels at each position,
    each module makes L tokens T of size E, lets them attend to each other, and projects them back to the
    positions:

        T ← softmax_P(X W_A)ᵀ X             in the first module, a `FilterTokenizer`
        T ← softmax_P(X (T W_T)ᵀ)ᵀ X        in later ones, a `RecurrentTokenizer`
        T ← T + softmax_L((T W_K)(T W_Q)ᵀ) T
        T ← T + f(T F₁) F₂
        X ← X + softmax_L((X W_Q)(T W_K)ᵀ) T W_V

    and the head reads the mean of the last tokens; the last module has no way back to the positions. Softmax
    over positions P gives means over the image, over tokens L means of tokens; its argument is divided by the
    square root of the number of terms.

    From the paper: these equations, L = 16, E = 1024, as many modules as the stage they replace has blocks,
    at the resolution before that stage, no norm between tokens, and the mean of tokens. Our reading: that
    division, the size E/2 of the tokens' keys and the W_V of the projector are in the paper's pseudo-code but
    not in its equations; where C is not E, the tokenizer's X is mapped to that size; positions are not
    encoded, and attention has one head. As built, the tokens' maps have Glorot initialisation; the paper does
    not specify it.

    Args:
        block: The kind of block: `basic` or `bottleneck`.
        depths: The number of blocks of each stage before the tokens.
        width: The number of channels after the stem; a bottleneck's outputs have four times as many.
        stem: `large` downsamples by four at once; `small` keeps the size, for images of a few dozen pixels.
        stride_on: Which convolution of a bottleneck has the stride.
        num_modules: The number of visual modules.
        num_tokens: The number L of tokens.
        token_width: The size E of a token.
        tokenizer: How later modules weight positions: by earlier tokens (`recurrent`) or by their own filters
            (`filter`).
        activation: The activation of blocks, and f between the tokens' linear maps.
        norm: The norm after (`post`) or before (`pre`) each convolution.
        token_norm: The norm of each branch of the tokens; none in the paper.
        placement: Where the norms of blocks and tokens are: `post`, or `pre`, inside the branch.
        dropout: The probability of dropping a feature of the head's input, or a hidden feature of a token.
        stochastic_depth: The probability of skipping the last module's branches; linearly lower for earlier
            modules.
        stochastic_depth_mode: Whether to draw once per `batch`, which saves time, or once per `sample`.
        layer_scale: The initial value of the learned per-channel factors of each branch; none by default.

    Reference: Wu et al. (2020), Visual transformers: token-based image representation and processing.
    """
    check_space("visual-transformer", input_size)
    design = Design(
        block, stride_on, activation, norm, placement, stochastic_depth, stochastic_depth_mode, layer_scale
    )
    total = sum(depths) + num_modules
    stages, channels = design.stages(depths, width, total)
    tokens = TokenDesign(
        channels,
        num_tokens,
        token_width,
        tokenizer,
        activation,
        token_norm,
        placement,
        dropout,
        stochastic_depth,
        stochastic_depth_mode,
        layer_scale,
    )
    visual = [
        tokens.module(number == 0, number == num_modules - 1, (sum(depths) + number + 1) / total)
        for number in range(num_modules)
    ]
    model = VisualTransformer(
        design.stem(in_channels, width, stem),
        stages,
        design.last(channels),
        nn.ModuleList(visual),
        Dropout(dropout),
        nn.Linear(token_width, num_classes),
    )
    draw(model)
    return model


def draw(model: VisualTransformer) -> None:
    """Initialise convolutions with He normal over fan-out, and the tokens' maps with Glorot."""
    draw_he_over_outputs(model)
    for module in model.visual.modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)


for _layers, _block, _depths, _modules in (
    (18, "basic", (2, 2, 2), 2),
    (34, "basic", (3, 4, 6), 3),
    (50, "bottleneck", (3, 4, 6), 3),
    (101, "bottleneck", (3, 4, 23), 3),
):
    register_member(
        visual_transformer,
        f"visual-transformer-resnet{_layers}",
        f"The Visual Transformer on the residual network of {_layers} layers.",
        course="H3",
        fixed={"block": _block, "depths": _depths, "num_modules": _modules, "width": 64},
    )

register_member(
    visual_transformer,
    "visual-transformer-micro",
    "A Visual Transformer for images of 28 or 32 pixels that trains within minutes.",
    course="H3",
    fixed={"block": "basic", "depths": (1, 1)},
    defaults={
        "num_classes": 10,
        "input_size": 32,
        "width": 16,
        "stem": "small",
        "num_modules": 2,
        "token_width": 64,
    },
)
