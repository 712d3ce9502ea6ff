"""Models by name: `create("resnet20", num_classes=10, in_channels=1, input_size=32)`."""

from __future__ import annotations

import inspect
from typing import Any

from torch import nn

from apoint.errors import UsageError
from apoint.models.aliases import known_elsewhere
from apoint.models.shapes import KINDS_OF_FACT, fitted_facts
from apoint.registry import Ingredient, registry


def create(name: str, **arguments: Any) -> nn.Module:
    """Build a registered model, with its arguments checked.

    The weights are as the family's constructor draws them, from torch's default generator; see
    `apoint.nn.initialisation.initialise` for others.

    Args:
        name: The model, as `apoint list model` shows it. Underscores are read as hyphens. Names from timm and
            torchvision are accepted, with the image and window sizes that they contain.
        **arguments: Facts about the data (`num_classes`, `in_channels`, `input_size`, `in_features`,
            `vocab_size`, `context`; see `apoint.models.shapes`) and the model's settings. `input_size` is one
            number for a square image, (height, width), or (length,) for a signal.

    Returns:
        A plain module.

    Example:
        >>> model = create("resnet20", num_classes=10, in_channels=1, input_size=32)
        >>> type(model).__name__
        'ResNetCifar'
    """
    known = registry("model")
    name, said = our_name(name)
    entry, arguments = known[name], {**said, **arguments}
    facts = {key: value for key, value in arguments.items() if key in KINDS_OF_FACT}
    settings = {key: value for key, value in arguments.items() if key not in KINDS_OF_FACT}
    fitted = fitted_facts(entry, facts)
    _check_complete(entry, fitted)
    model: nn.Module = known.build(entry.name, **fitted, **settings)
    return model


def our_name(name: str) -> tuple[str, dict[str, Any]]:
    """Our name for a model, and the facts and settings that another library's name for it implies."""
    known = registry("model")
    for candidate in (name, name.replace("_", "-")):
        if candidate in known:
            return candidate, {}
    elsewhere = known_elsewhere(name)
    if elsewhere is not None and elsewhere[0] in known:
        return elsewhere
    return name, {}


def _check_complete(entry: Ingredient, facts: dict[str, Any]) -> None:
    parameters = inspect.signature(entry.build).parameters
    missing = [name for name in entry.supplied if parameters[name].default is inspect.Parameter.empty]
    missing = [name for name in missing if name not in facts]
    if missing:
        hint = " (or in_channels and input_size)" if "in_features" in missing else ""
        raise UsageError(f"model {entry.name!r} needs {' and '.join(missing)}{hint}")
