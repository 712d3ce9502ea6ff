"""Names of our models in other libraries: `vit_b_16`, `swin_tiny_patch4_window7_224.ms_in1k`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

Known = tuple[str, dict[str, Any]]
"""Our name, and the facts and settings that the other name implies."""
_LETTERS = {"t": "tiny", "s": "small", "b": "base", "l": "large", "h": "huge"}
_PATTERNS: list[tuple[str, Callable[[re.Match[str]], Known]]] = [
    (
        r"(?:vit|deit)_(tiny|small|base|large)_patch(16|32)_(\d+)",
        lambda m: (f"vit-{m[1]}-patch{m[2]}", {"input_size": int(m[3])}),
    ),
    (r"vit_([bl])_(16|32)", lambda m: (f"vit-{_LETTERS[m[1]]}-patch{m[2]}", {})),
    (
        r"swin_(tiny|small|base|large)_patch4_window(\d+)_(\d+)",
        lambda m: (f"swin-{m[1]}", {"window": int(m[2]), "input_size": int(m[3])}),
    ),
    (r"swin_([tsb])", lambda m: (f"swin-{_LETTERS[m[1]]}", {})),
]


def known_elsewhere(name: str) -> Known | None:
    """Translate a timm, torchvision or Hugging Face model name into ours; None if it is not one of theirs.

    The part after a dot says how the weights were trained; it does not affect the model.
    """
    plain = name.partition(".")[0].rpartition("/")[2].replace("-", "_")
    for pattern, ours in _PATTERNS:
        match = re.fullmatch(pattern, plain)
        if match is not None:
            return ours(match)
    return (plain.replace("_", "-"), {}) if plain != name else None
