"""Swin weights elsewhere: timm, torchvision, the authors at Microsoft, Hugging Face before and since 5.0.

They differ in names, in whether patch merging is at the end of a stage or the beginning of the next, in
whether query, key and value are one matrix, and in the constants they store with the weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from re import Match

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from apoint.models.layouts.core import Layout, Rule
from apoint.models.swin import Swin, WindowAttention, relative_positions, tiled, unseen
from apoint.models.weights.preprocessing import IMAGENET, Preprocessing

_BLOCK = r"stages\.(\d+)\.blocks\.(\d+)\."
_ATTENTION = _BLOCK + r"attention\.branch\.windows\."
_MERGING = r"stages\.(\d+)\.merging\.(norm|reduction)\.(.*)"
_QKV = ("query", "key", "value")
_INDEX, _MASK = r".*\.relative_position_index", r".*\.attn_mask"
_HIDDEN_SCORE = -100.0  # what the authors add instead of -∞

Place = Callable[[int, int], str]


def _block_rules(
    place: Place, *, norms: tuple[str, str], attention: tuple[str, str, str], forward: tuple[str, str]
) -> tuple[Rule, ...]:
    """The rules of a block: its prefix from stage and position, then names in the order of computation.

    `attention` names the query, key and value (three names are separated by `|`), the output, and the table.
    """

    def there(pattern: str, name: str) -> Rule:
        def names(match: Match[str]) -> tuple[str, ...]:
            start, rest = place(int(match[1]), int(match[2])), match[3]
            ending = "" if name == attention[2] else f".{rest}"
            return tuple(f"{start}{part}{ending}" for part in name.split("|"))

        return Rule(pattern, names)

    return (
        there(_BLOCK + r"attention\.norm\.(.*)", norms[0]),
        there(_ATTENTION + r"qkv\.(.*)", attention[0]),
        there(_ATTENTION + r"output\.(.*)", attention[1]),
        there(_ATTENTION + r"(bias_table)", attention[2]),
        there(_BLOCK + r"feed_forward\.norm\.(.*)", norms[1]),
        there(_BLOCK + r"feed_forward\.branch\.expand\.(.*)", forward[0]),
        there(_BLOCK + r"feed_forward\.branch\.contract\.(.*)", forward[1]),
    )


def _merging_rule(start: str, stage: Callable[[int], int], between: str) -> Rule:
    return Rule(_MERGING, lambda m: f"{start}{stage(int(m[1]))}{between}{m[2]}.{m[3]}")


def _microsoft_place(stage: int, position: int) -> str:
    return f"layers.{stage}.blocks.{position}."


def _torchvision_place(stage: int, position: int) -> str:
    return f"features.{2 * stage + 1}.{position}."


def _hub_place(stage: int, position: int) -> str:
    return f"swin.encoder.layers.{stage}.blocks.{position}."


_MICROSOFT_BLOCK = _block_rules(
    _microsoft_place,
    norms=("norm1", "norm2"),
    attention=("attn.qkv", "attn.proj", "attn.relative_position_bias_table"),
    forward=("mlp.fc1", "mlp.fc2"),
)
_MICROSOFT_ENDS = (
    Rule(r"patches\.projection\.(.*)", r"patch_embed.proj.\1"),
    Rule(r"patches\.norm\.(.*)", r"patch_embed.norm.\1"),
    Rule(r"last\.(.*)", r"norm.\1"),
)
_HUB_ENDS = (
    Rule(r"patches\.projection\.(.*)", r"swin.embeddings.patch_embeddings.projection.\1"),
    Rule(r"patches\.norm\.(.*)", r"swin.embeddings.norm.\1"),
    Rule(r"last\.(.*)", r"swin.layernorm.\1"),
    Rule(r"head\.(.*)", r"classifier.\1"),
    _merging_rule("swin.encoder.layers.", lambda stage: stage - 1, ".downsample."),
)
_TORCHVISION_RULES = (
    Rule(r"patches\.projection\.(.*)", r"features.0.0.\1"),
    Rule(r"patches\.norm\.(.*)", r"features.0.2.\1"),
    Rule(r"last\.(.*)", r"norm.\1"),
    Rule(r"head\.(.*)", r"head.\1"),
    _merging_rule("features.", lambda stage: 2 * stage, "."),
    *_block_rules(
        _torchvision_place,
        norms=("norm1", "norm2"),
        attention=("attn.qkv", "attn.proj", "attn.relative_position_bias_table"),
        forward=("mlp.0", "mlp.3"),
    ),
)
_HUB_RULES = (
    *_HUB_ENDS,
    *_block_rules(
        _hub_place,
        norms=("layernorm_before", "layernorm_after"),
        attention=(
            "|".join(f"attention.self.{name}" for name in _QKV),
            "attention.output.dense",
            "attention.self.relative_position_bias_table",
        ),
        forward=("intermediate.dense", "output.dense"),
    ),
)
_HUB_5_RULES = (
    *_HUB_ENDS,
    *_block_rules(
        _hub_place,
        norms=("layernorm_before", "layernorm_after"),
        attention=(
            "|".join(f"attention.{name[0]}_proj" for name in _QKV),
            "attention.o_proj",
            "attention.relative_position_bias.relative_position_bias_table",
        ),
        forward=("mlp.fc1", "mlp.fc2"),
    ),
)


def _windows(model: nn.Module) -> Iterator[tuple[int, int, WindowAttention]]:
    """Stage, position and attention of each block."""
    assert isinstance(model, Swin)
    for stage, parts in enumerate(model.stages):
        for position, block in enumerate(parts.blocks):  # type: ignore[arg-type]
            yield stage, position, block.attention.branch.windows


def _index(windows: WindowAttention) -> Tensor:
    sides = (windows.window, windows.window)
    return relative_positions.__wrapped__(sides, windows.window, windows.bias_table.device)


def _with_indices(place: Place, name: str, *, flat: bool) -> Callable[[nn.Module], dict[str, Tensor]]:
    """A function that makes the constants with each pair's index in the bias table."""

    def make(model: nn.Module) -> dict[str, Tensor]:
        return {
            f"{place(stage, position)}{name}": _index(windows).flatten() if flat else _index(windows)
            for stage, position, windows in _windows(model)
        }

    return make


def _microsoft_constants(model: nn.Module) -> dict[str, Tensor]:
    """The indices, and the masks of shifted windows for the image size that the model was built for."""
    assert isinstance(model, Swin)
    made = _with_indices(_microsoft_place, "attn.relative_position_index", flat=False)(model)
    patch = model.patches.projection.kernel_size[0]
    rows, columns = (-(-side // patch) for side in model.input_size)
    for stage, position, windows in _windows(model):
        space = (-(-rows // 2**stage), -(-columns // 2**stage))
        if windows.shift and min(space) > windows.window:
            tiling = tiled(space, windows.window, windows.shift, "seen")
            mask = unseen.__wrapped__(tiling, False, windows.bias_table.device, windows.bias_table.dtype)
            assert mask is not None
            shown = mask[:, 0].clamp(min=_HIDDEN_SCORE)
            made[f"{_microsoft_place(stage, position)}attn_mask"] = shown
    return made


LAYOUTS = (
    Layout(
        "timm",
        (
            *_MICROSOFT_ENDS,
            Rule(r"head\.(.*)", r"head.fc.\1"),
            _merging_rule("layers.", lambda stage: stage, ".downsample."),
            *_MICROSOFT_BLOCK,
        ),
        ignored=(_INDEX, _MASK),
    ),
    Layout(
        "torchvision",
        _TORCHVISION_RULES,
        ignored=(_INDEX,),
        added=_with_indices(_torchvision_place, "attn.relative_position_index", flat=True),
    ),
    Layout(
        "microsoft",
        (
            *_MICROSOFT_ENDS,
            Rule(r"head\.(.*)", r"head.\1"),
            _merging_rule("layers.", lambda stage: stage - 1, ".downsample."),
            *_MICROSOFT_BLOCK,
        ),
        ignored=(_INDEX, _MASK),
        added=_microsoft_constants,
    ),
    Layout(
        "huggingface",
        _HUB_RULES,
        ignored=(_INDEX,),
        added=_with_indices(_hub_place, "attention.self.relative_position_index", flat=False),
    ),
    Layout("huggingface-5", _HUB_5_RULES, ignored=(_INDEX,)),
)


def resize(name: str, value: Tensor, wanted: tuple[int, ...], model: nn.Module) -> Tensor | None:
    """A table of relative positions, resized for another window: bicubic, as in the authors' code."""
    if not name.endswith(".bias_table") or value.dim() != 2 or value.shape[1:] != wanted[1:]:
        return None
    before, after = math.isqrt(value.shape[0]), math.isqrt(wanted[0])
    if before**2 != value.shape[0] or before % 2 == 0:
        return None
    image = value.to(torch.float32).T.reshape(1, wanted[1], before, before)
    resized = F.interpolate(image, size=(after, after), mode="bicubic", align_corners=False)
    return resized.reshape(wanted[1], -1).T.to(value.dtype)


def _bicubic(size: int, crop_share: float) -> Preprocessing:
    return Preprocessing(*IMAGENET, size=size, crop_share=crop_share, interpolation="bicubic")


PREPROCESSING = {
    "timm": _bicubic(224, 0.9),
    "microsoft": _bicubic(224, 0.9),
    "window12_384": _bicubic(384, 1.0),
    "window12-384": _bicubic(384, 1.0),
    "huggingface": _bicubic(224, 1.0),
    "huggingface-5": _bicubic(224, 1.0),
    "torchvision": _bicubic(224, 224 / 232),
    "swin_t-": _bicubic(224, 224 / 232),
    "swin_s-": _bicubic(224, 224 / 246),
    "swin_b-": _bicubic(224, 224 / 238),
}
