"""How images are prepared for a set of weights: size, crop, interpolation, mean, standard deviation.

With the wrong preprocessing, the same network loses up to ten points of accuracy, without any error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import Tensor, nn

from apoint.errors import UsageError
from apoint.models.layouts.core import family_module

if TYPE_CHECKING:
    from PIL.Image import Image

Interpolation = Literal["nearest", "bilinear", "bicubic"]
Colours = tuple[float, float, float]
IMAGENET: tuple[Colours, Colours] = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Mean and standard deviation of ImageNet's colours, in [0, 1]."""
HALVES: tuple[Colours, Colours] = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
"""Maps [0, 1] to [-1, 1]."""
_NUMBERED = {0: "nearest", 2: "bilinear", 3: "bicubic"}  # Pillow's numbers, which Hugging Face writes


@dataclass(frozen=True)
class Preprocessing:
    """Turns a picture into the kind of input that a network was trained on.

    Attributes:
        mean: Subtracted from each colour in [0, 1].
        std: What the difference is divided by.
        size: The side of the square input of the network.
        crop_share: The side of that square as a share of the shorter side after resizing.
        interpolation: How to resize.
        known_from: The source of these values; "assumed" if there is none.
    """

    mean: Colours
    std: Colours
    size: int = 224
    crop_share: float = 0.875
    interpolation: Interpolation = "bilinear"
    known_from: str = ""

    def __call__(self, image: Image) -> Tensor:
        """A picture as [3, size, size]: shorter side resized, centre cropped, normalised."""
        from PIL.Image import Resampling

        picture = image.convert("RGB")
        shorter = int(self.size / self.crop_share)
        scale = shorter / min(picture.size)
        wanted = [max(self.size, int(length * scale)) for length in picture.size]
        resampling = {"nearest": 0, "bilinear": 2, "bicubic": 3}[self.interpolation]
        picture = picture.resize((wanted[0], wanted[1]), Resampling(resampling))
        left, top = (round((length - self.size) / 2) for length in picture.size)
        picture = picture.crop((left, top, left + self.size, top + self.size))
        pixels = torch.frombuffer(bytearray(picture.tobytes()), dtype=torch.uint8)
        unit = pixels.view(self.size, self.size, 3).permute(2, 0, 1).float() / 255
        return (unit - torch.tensor(self.mean).view(3, 1, 1)) / torch.tensor(self.std).view(3, 1, 1)

    def to_json(self) -> str:
        """This preprocessing as text, for a file's metadata."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str, known_from: str) -> Preprocessing:
        """Read the output of `to_json`."""
        try:
            return _from_mapping(json.loads(text), known_from)
        except (ValueError, TypeError, KeyError) as error:
            raise UsageError(f"the preprocessing of {known_from} cannot be read: {error}") from None


def _from_mapping(facts: Mapping[str, Any], known_from: str) -> Preprocessing:
    mean, std = (tuple(float(value) for value in facts[name]) for name in ("mean", "std"))
    interpolation = str(facts["interpolation"])
    if len(mean) != 3 or len(std) != 3 or min(std) <= 0:
        raise ValueError("mean and std must have three numbers each, and std positive ones")
    if interpolation not in get_args(Interpolation):
        raise ValueError(
            f"interpolation {interpolation!r} is not one of {', '.join(get_args(Interpolation))}"
        )
    size, crop = int(facts["size"]), float(facts["crop_share"])
    if size < 1 or not 0 < crop <= 1:
        raise ValueError("size must be at least 1 and crop_share above 0 and at most 1")
    return Preprocessing(mean, std, size, crop, interpolation, known_from)  # type: ignore[arg-type]


def of_weights(
    model: nn.Module, path: Path, layout: str, metadata: Mapping[str, str]
) -> Preprocessing | None:
    """The preprocessing for a file: from the file, from a file next to it, or its publisher's usual one."""
    if "preprocessing" in metadata:
        return Preprocessing.from_json(metadata["preprocessing"], path.name)
    for name, reader in (("preprocessor_config.json", _hub_facts), ("config.json", _timm_facts)):
        facts = _beside(path.with_name(name))
        try:
            described = reader(facts) if facts is not None else None
            if described is not None:
                return _from_mapping(described, name)
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise UsageError(
                f"{path.with_name(name)} does not say how to prepare images: {error!r}"
            ) from None
    return _published(model, path, layout)


def _published(model: nn.Module, path: Path, layout: str) -> Preprocessing | None:
    known: dict[str, Preprocessing] = getattr(family_module(model), "PREPROCESSING", {})
    tags = (tag for tag in sorted(known, key=len, reverse=True) if tag in f"{path.parent.name}/{path.name}")
    for tag in tags:
        return replace(known[tag], known_from=f"the name's {tag}")
    return replace(known[layout], known_from="assumed") if layout in known else None


def _beside(path: Path) -> dict[str, Any] | None:
    try:
        facts = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return facts if isinstance(facts, dict) else None


def _hub_facts(facts: Mapping[str, Any]) -> dict[str, Any] | None:
    if "image_mean" not in facts:
        return None
    size = facts.get("crop_size", facts.get("size", 224))
    if isinstance(size, Mapping):
        size = size.get("height", size.get("shortest_edge", 224))
    crop = facts.get("crop_pct") or (0.875 if facts.get("do_center_crop") else 1.0)
    kind = facts.get("resample", 2)
    return {
        "mean": facts["image_mean"],
        "std": facts["image_std"],
        "size": size,
        "crop_share": crop,
        "interpolation": _NUMBERED.get(kind, kind),
    }


def _timm_facts(facts: Mapping[str, Any]) -> dict[str, Any] | None:
    inner = facts.get("pretrained_cfg", facts)
    if not isinstance(inner, Mapping) or "mean" not in inner:
        return None
    return {
        "mean": inner["mean"],
        "std": inner["std"],
        "size": inner["input_size"][-1],
        "crop_share": inner.get("crop_pct", 0.875),
        "interpolation": inner.get("interpolation", "bilinear"),
    }
