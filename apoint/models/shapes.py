"""Facts about the shape of data that models are built from, and the kinds of data.

    kind      batch            facts
    vector    [B, F]           in_features
    signal    [B, C, L]        in_channels, input_size = (L,)
    image     [B, C, H, W]     in_channels, input_size = (H, W), or one number for a square
    tokens    [B, T]           vocab_size, context = T

All classifiers also take `num_classes`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from apoint.errors import UsageError
from apoint.registry import Ingredient, split_spec
from apoint.settings import Spec

Size = int | tuple[int, ...]
"""The spatial size of an input: its axes, or one number for a square image."""

KINDS_OF_FACT: dict[str, tuple[str, ...]] = {
    "in_features": ("vector",),
    "in_channels": ("image", "signal"),
    "input_size": ("image", "signal"),
    "vocab_size": ("tokens",),
    "context": ("tokens",),
    "num_classes": ("vector", "signal", "image"),
}


def space_of(input_size: Size) -> tuple[int, ...]:
    """The spatial axes; one number means a square image, (L,) a signal."""
    return (input_size, input_size) if isinstance(input_size, int) else tuple(input_size)


def written(input_size: Size) -> str:
    """A size as text: 28×28."""
    return "×".join(str(length) for length in space_of(input_size))


def has_norm(spec: Spec) -> bool:
    """Whether a norm's spec names one that does something."""
    return split_spec(spec, "norm")[0] != "none"


def fitted_facts(entry: Ingredient, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts that a model's builder needs, from the given ones; raises for facts that do not fit.

    `in_features` follows from channels and size. A fact of the right kind of data that this model does not
    use, such as the context of a recurrent network, is left out.
    """
    who = f"model {entry.name!r}"
    kinds = entry.traits.get("inputs", ())
    for name, value in facts.items():
        _check_fact(who, name, value)
        if kinds and not set(kinds) & set(KINDS_OF_FACT[name]):
            wanted = [fact for fact in KINDS_OF_FACT if set(kinds) & set(KINDS_OF_FACT[fact])]
            raise UsageError(
                f"{who} takes data of kind {' or '.join(kinds)}, and {name} does not belong to it; "
                f"what it can use: {', '.join(wanted)}"
            )
    known = dict(facts)
    if "in_features" in entry.supplied and {"in_channels", "input_size"} <= set(known):
        size = known["in_channels"] * math.prod(space_of(known["input_size"]))
        if known.setdefault("in_features", size) != size:
            raise UsageError(
                f"{who}: in_features must be in_channels times input_size, {size}, got {known['in_features']}"
            )
    return {name: value for name, value in known.items() if name in entry.supplied}


def _check_fact(who: str, name: str, value: Any) -> None:
    numbers = value if name == "input_size" and isinstance(value, tuple | list) else (value,)
    whole = all(isinstance(number, int) and not isinstance(number, bool) for number in numbers)
    if not (whole and numbers and all(number >= 1 for number in numbers)):
        rule = "whole and at least 1"
        if name == "input_size":
            rule += ", or a tuple of such numbers"
        raise UsageError(f"{who}: {name} must be {rule}, got {value!r}")
