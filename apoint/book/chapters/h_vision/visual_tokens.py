"""H3: a Visual Transformer puts an image into a few tokens, each a mean over all places."""

from __future__ import annotations

import math

import torch

from apoint.book.claim import claim
from apoint.book.evidence import Evidence, Number, at_most, same
from apoint.book.running import Running
from apoint.models.counting import count
from apoint.models.creation import create
from apoint.nn.tokenizers import FilterTokenizer, Projector, TokenAttention

TOKENS = 16


@claim(
    "H3",
    "Sixteen semantic tokens",
    kind="identity",
    statement=r"""
    After convolutions, a Visual Transformer gathers the places $X$ of a feature map into $L=16$ tokens
    $$T=\mathrm{softmax}_P\!\left(\frac{XW_A}{\sqrt C}\right)^{\!\top}X,$$
    each a mean over the whole image with weights of its own, whichever the order of the places. A transformer
    then works on 16 tokens in place of all places, so that its work does not grow with the image.
    """,
    refuted_by="a token that is not the mean written out, that changes when places change seats, or work "
    "between tokens that depends on the size of the image",
    seconds={"quick": 0.5, "standard": 2},
    planted={"factor": 1.05},
    details=r"""
    Each weight and each mean is computed with loops. With a softmax over the tokens of a place instead of the
    places of a token tokens would be sums, not means: on an image that is the same
    everywhere a token must be what is everywhere. The way back from tokens to places does take the softmax
    over tokens. For $14\times14$ places the product of keys and queries is $196^2$ large between places and
    $16^2$ between tokens. The claim is about what the layer computes, not about how well networks with it do.
    """,
    references=("Wu et al. (2020), Visual transformers, section 3",),
)
def tokens(run: Running, factor: float = 1.0) -> Evidence:
    """Tokens by loops, in another order, of an even image; `factor` multiplies the scores."""
    channels, generator = 6, run.generator()
    tokenizer = FilterTokenizer(channels, TOKENS, channels).double().requires_grad_(False)
    tokenizer.filters.weight.copy_(torch.randn(TOKENS, channels, generator=generator, dtype=torch.float64))
    places = torch.randn(1, 20, channels, generator=generator, dtype=torch.float64)
    found = tokenizer(places)[0]
    worst = 0.0
    for token, filter_ in enumerate(tokenizer.filters.weight):
        sizes = [math.exp(factor * float(place @ filter_) / math.sqrt(channels)) for place in places[0]]
        parts = [size / sum(sizes) * place for size, place in zip(sizes, places[0], strict=True)]
        by_hand = torch.stack(parts).sum(0)
        worst = max(worst, float((found[token] - by_hand).abs().max()))
    order = torch.randperm(20, generator=generator)
    moved = float((tokenizer(places[:, order])[0] - found).abs().max())
    even = places[:, :1].expand(1, 20, channels)
    flat = float((tokenizer(even)[0] - places[0, :1]).abs().max())
    return Evidence(
        [
            at_most("largest difference from the means written out", worst, 1e-12),
            at_most("the same, with places in another order", moved, 1e-12),
            at_most("tokens of an even image less what is everywhere", flat, 1e-12),
            *_work(),
        ]
    )


def _work() -> list[Number]:
    """Multiply-adds between tokens do not grow with the image; those of the projector do so linearly."""
    attention, projector = TokenAttention(32), Projector(32, 32)
    between = count(attention, (TOKENS, 32)).whole.multiply_adds

    class Back(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.projector = projector

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.projector(x, x[:, :TOKENS])  # type: ignore[no-any-return]

    small, large = (count(Back(), (size, 32)).whole.multiply_adds for size in (64, 256))
    each = 32 * 32 + 2 * TOKENS * 32
    with torch.device("meta"):
        model = create("visual-transformer-resnet18")
    counts = {part.filters.out_features for part in model.modules() if isinstance(part, FilterTokenizer)}
    return [
        same("multiply-adds between 16 tokens", between, 2 * TOKENS * 32 * 16 + TOKENS**2 * (16 + 32)),
        same("multiply-adds of the way back for each further place", (large - small) // 192, each),
        same("tokens of the network for photographs", sum(counts), TOKENS),
    ]
