"""Vision transformer weights elsewhere: timm, DeiT, torchvision, Hugging Face; and other image sizes.

Ours have two residual branches for each block of theirs: number 2i is attention, 2i + 1 the feed-forward,
and a number without a branch is the final norm.

Hugging Face computes its norms with ε = 1e-12; for logits equal to the last digit, build the model with
`norm: {name: layer, eps: 1e-12}`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from apoint.models.layouts.core import Layout, Names, Rule, Shape
from apoint.models.weights.preprocessing import HALVES, IMAGENET, Preprocessing

if TYPE_CHECKING:
    from apoint.models.vit import ViT

_ANY, _EVEN, _ODD = (rf"blocks\.(?P<branch>\d*{last})\." for last in (r"\d", "[02468]", "[13579]"))
_KIND = r"(?P<kind>weight|bias)"
_OURS = {
    "token": "class_token",
    "positions": r"positions\.positions",
    "patches": rf"patch_embedding\.{_KIND}",
    "norm1": rf"{_EVEN}norm\.{_KIND}",
    "norm2": rf"{_ODD}norm\.{_KIND}",
    "qkv": rf"{_ANY}branch\.0\.qkv\.{_KIND}",
    "output": rf"{_ANY}branch\.0\.output\.{_KIND}",
    "expand": rf"{_ANY}branch\.0\.expand\.{_KIND}",
    "contract": rf"{_ANY}branch\.0\.contract\.{_KIND}",
    "scale1": rf"{_EVEN}branch\.2\.factor",
    "scale2": rf"{_ODD}branch\.2\.factor",
    "last": rf"{_ANY}{_KIND}",
    "head": rf"head\.{_KIND}",
}
"""Our name for each part."""


def _patch_shape(shape: Shape, model: nn.Module) -> Shape:
    """(E, P²C) as the kernel (E, C, P, P)."""
    side = cast("ViT", model).patch_size
    return shape if len(shape) == 1 else (shape[0], shape[1] // side**2, side, side)


_SHAPES: dict[str, Callable[[Shape, nn.Module], Shape]] = {
    "token": lambda shape, model: (1, 1, *shape),
    "positions": lambda shape, model: (1, *shape),
    "patches": _patch_shape,
}


def _rules(there: Mapping[str, Names]) -> tuple[Rule, ...]:
    """Rules from each part's name there, with {block} for the block and {kind} for weight or bias."""

    def named(names: Names) -> Callable[[re.Match[str]], Names]:
        def name(match: re.Match[str]) -> Names:
            found = match.groupdict()
            known = {"block": int(found.get("branch") or 0) // 2, "kind": found.get("kind", "")}
            each = (names,) if isinstance(names, str) else names
            return tuple(form.format(**known) for form in each)

        return name

    return tuple(Rule(_OURS[part], named(names), _SHAPES.get(part)) for part, names in there.items())


def _layout(name: str, there: Mapping[str, Names], ignored: tuple[str, ...] = ()) -> Layout:
    return Layout(name, _rules(there), ignored)


TIMM: dict[str, Names] = {
    "token": "cls_token",
    "positions": "pos_embed",
    "patches": "patch_embed.proj.{kind}",
    "norm1": "blocks.{block}.norm1.{kind}",
    "norm2": "blocks.{block}.norm2.{kind}",
    "qkv": "blocks.{block}.attn.qkv.{kind}",
    "output": "blocks.{block}.attn.proj.{kind}",
    "expand": "blocks.{block}.mlp.fc1.{kind}",
    "contract": "blocks.{block}.mlp.fc2.{kind}",
    "scale1": "blocks.{block}.ls1.gamma",
    "scale2": "blocks.{block}.ls2.gamma",
    "last": "norm.{kind}",
    "head": "head.{kind}",
}

_LAYER = "encoder.layers.encoder_layer_{block}."
TORCHVISION: dict[str, Names] = {
    "token": "class_token",
    "positions": "encoder.pos_embedding",
    "patches": "conv_proj.{kind}",
    "norm1": _LAYER + "ln_1.{kind}",
    "norm2": _LAYER + "ln_2.{kind}",
    "qkv": _LAYER + "self_attention.in_proj_{kind}",
    "output": _LAYER + "self_attention.out_proj.{kind}",
    "expand": _LAYER + "mlp.0.{kind}",
    "contract": _LAYER + "mlp.3.{kind}",
    "last": "encoder.ln.{kind}",
    "head": "heads.head.{kind}",
}


def _hub(prefix: str, block: str, **parts: Names) -> dict[str, Names]:
    """What Hugging Face's old and new names share."""

    def in_block(form: str) -> str:
        return f"{prefix}{block}.{{block}}.{form}.{{kind}}"

    return {
        "token": f"{prefix}embeddings.cls_token",
        "positions": f"{prefix}embeddings.position_embeddings",
        "patches": f"{prefix}embeddings.patch_embeddings.projection.{{kind}}",
        "norm1": in_block("layernorm_before"),
        "norm2": in_block("layernorm_after"),
        **{
            part: in_block(form) if isinstance(form, str) else tuple(map(in_block, form))
            for part, form in parts.items()
        },
        "last": f"{prefix}layernorm.{{kind}}",
        "head": "classifier.{kind}",
    }


_ON_THE_HUB: dict[str, Names] = {
    "qkv": tuple(f"attention.attention.{one}" for one in ("query", "key", "value")),
    "output": "attention.output.dense",
    "expand": "intermediate.dense",
    "contract": "output.dense",
}
_IN_MEMORY: dict[str, Names] = {
    "qkv": ("attention.q_proj", "attention.k_proj", "attention.v_proj"),
    "output": "attention.o_proj",
    "expand": "mlp.fc1",
    "contract": "mlp.fc2",
}

LAYOUTS = (
    _layout("timm", TIMM),
    _layout("facebook", TIMM),
    _layout("torchvision", TORCHVISION),
    _layout(
        "torchvision-old",  # before torchvision 0.13
        {**TORCHVISION, "expand": _LAYER + "mlp.linear_1.{kind}", "contract": _LAYER + "mlp.linear_2.{kind}"},
    ),
    _layout("huggingface", _hub("vit.", "encoder.layer", **_ON_THE_HUB)),
    _layout("huggingface-5", _hub("vit.", "layers", **_IN_MEMORY)),
    # A backbone alone, such as google/vit-base-patch16-224-in21k, with a layer used only in its training.
    _layout("huggingface-backbone", _hub("", "encoder.layer", **_ON_THE_HUB), (r"pooler\..*",)),
)


def resize(name: str, value: Tensor, wanted: Shape, model: nn.Module) -> Tensor | None:
    """Resize position embeddings for another grid of patches.

    The vectors of a square grid are interpolated bicubically, with antialiasing where the new grid is
    coarser, as in timm; the class token's vector is kept separate and unchanged.
    """
    vit = cast("ViT", model)
    if name != "positions.positions" or value.dim() < 2 or value.shape[-1] != wanted[-1]:
        return None
    tokens = int(vit.class_token is not None)
    table_TE = value.reshape(-1, wanted[-1])
    side = math.isqrt(max(0, len(table_TE) - tokens))
    if side == 0 or side**2 != len(table_TE) - tokens:
        return None
    exact = torch.promote_types(value.dtype, torch.float32)
    old_1Ehw = table_TE[tokens:].to(exact).reshape(1, side, side, -1).permute(0, 3, 1, 2)
    new_1Ehw = F.interpolate(old_1Ehw, size=vit.grid, mode="bicubic", antialias=True)
    new_NE = new_1Ehw.flatten(2)[0].T.to(value.dtype)
    return torch.cat([table_TE[:tokens], new_NE])


def _timm(colours: tuple[tuple[float, float, float], tuple[float, float, float]], size: int) -> Preprocessing:
    return Preprocessing(*colours, size=size, crop_share=0.9 if size == 224 else 1.0, interpolation="bicubic")


PREPROCESSING = {
    "timm": _timm(HALVES, 224),
    "augreg": _timm(HALVES, 224),
    "patch16_384": _timm(HALVES, 384),
    "patch32_384": _timm(HALVES, 384),
    ".dino": _timm(IMAGENET, 224),
    ".mae": _timm(IMAGENET, 224),
    "facebook": Preprocessing(*IMAGENET, size=224, crop_share=0.875, interpolation="bicubic"),
    "deit-": Preprocessing(*IMAGENET, size=224, crop_share=0.875, interpolation="bicubic"),
    "deit_": _timm(IMAGENET, 224),
    "deit_base_patch16_384": _timm(IMAGENET, 384),
    "torchvision": Preprocessing(*IMAGENET, size=224, crop_share=0.875, interpolation="bilinear"),
    "torchvision-old": Preprocessing(*IMAGENET, size=224, crop_share=0.875, interpolation="bilinear"),
    "vit_l_16": Preprocessing(*IMAGENET, size=224, crop_share=224 / 242, interpolation="bilinear"),
    "vit_b_16_swag": Preprocessing(*IMAGENET, size=384, crop_share=1.0, interpolation="bicubic"),
    "vit_l_16_swag": Preprocessing(*IMAGENET, size=512, crop_share=1.0, interpolation="bicubic"),
    "vit_b_16_lc_swag": Preprocessing(*IMAGENET, size=224, crop_share=1.0, interpolation="bicubic"),
    "vit_l_16_lc_swag": Preprocessing(*IMAGENET, size=224, crop_share=1.0, interpolation="bicubic"),
    "huggingface": Preprocessing(*HALVES, size=224, crop_share=1.0, interpolation="bilinear"),
    "huggingface-5": Preprocessing(*HALVES, size=224, crop_share=1.0, interpolation="bilinear"),
    "huggingface-backbone": Preprocessing(*HALVES, size=224, crop_share=1.0, interpolation="bilinear"),
    "patch16-384": Preprocessing(*HALVES, size=384, crop_share=1.0, interpolation="bilinear"),
    "patch32-384": Preprocessing(*HALVES, size=384, crop_share=1.0, interpolation="bilinear"),
}
"""By library, or by a part of the file's name; the longest matching part applies."""
