"""Names, shapes and types of the weights of public models, as digests, and how a digest is made.

A file here is a family's: {"timm/resnet50": {"count": 320, "sha256": "…", "first": ["conv1.weight\\t…", …]}}.
The digest is over the sorted lines `name<TAB>shape<TAB>type`, such as `fc.bias<TAB>(1000,)<TAB>float32`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor


def key_lines(weights: Mapping[str, Tensor]) -> list[str]:
    """One line for each tensor, sorted."""
    return sorted(
        f"{name}\t{tuple(value.shape)}\t{str(value.dtype).removeprefix('torch.')}"
        for name, value in weights.items()
    )


def key_digest(weights: Mapping[str, Tensor]) -> dict[str, Any]:
    """What a file of this folder says about weights."""
    lines = key_lines(weights)
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    return {"count": len(lines), "sha256": digest, "first": lines[:3]}


def known_keys(family: str) -> dict[str, dict[str, Any]]:
    """The digests of a family, by library and model."""
    found: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / f"{family}.json").read_text())
    return found
