"""Members of a family: the family's builder under a separate name, with some of its settings fixed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, get_type_hints

from torch import nn

from apoint.registry import register

Model = TypeVar("Model", bound=nn.Module)


def register_member(
    family: Callable[..., Model],
    name: str,
    summary: str,
    *,
    course: str,
    fixed: Mapping[str, Any] | None = None,
    defaults: Mapping[str, Any] | None = None,
    **traits: Any,
) -> Callable[..., Model]:
    """Register a member of a family, such as `resnet50`.

    Args:
        family: The family's builder, with the documentation of all settings.
        name: The member's name.
        summary: The first line of its documentation.
        course: Ids of course items.
        fixed: Settings that define the member; they can no longer be set.
        defaults: Defaults that differ from the family's, for settings or for facts such as `input_size`.
        **traits: Passed to `register`; `inputs` is ("image",) unless given.
    """
    fixed, defaults = dict(fixed or {}), dict(defaults or {})
    signature = inspect.signature(family)
    unknown = [key for key in (*fixed, *defaults) if key not in signature.parameters]
    if unknown:
        raise TypeError(f"{family.__name__} has no parameter {', '.join(unknown)}")

    def member(*facts: Any, **settings: Any) -> Model:
        bound = changed.bind(*facts, **settings)
        bound.apply_defaults()
        return family(**bound.arguments, **fixed)

    kept = [
        parameter.replace(default=defaults.get(parameter.name, parameter.default))
        for parameter in signature.parameters.values()
        if parameter.name not in fixed
    ]
    changed = signature.replace(parameters=kept)
    member.__signature__ = changed  # type: ignore[attr-defined]
    hints = get_type_hints(family, include_extras=True)  # resolved in the family's module
    member.__annotations__ = {key: kind for key, kind in hints.items() if key not in fixed}
    member.__doc__ = f"{summary}\n{_documentation(family, fixed)}"
    member.__qualname__ = member.__name__ = name.replace("-", "_")
    member.__module__ = family.__module__
    family_name = family.__name__.replace("_", "-")
    return register("model", name, course=course, member_of=family_name, **{"inputs": ("image",), **traits})(
        member
    )


def _documentation(family: Callable[..., Any], fixed: Mapping[str, Any]) -> str:
    """The family's docstring after its first line, without the fixed settings."""
    _, _, rest = inspect.cleandoc(family.__doc__ or "").partition("\n")
    lines, leaving_out = [], False
    for line in rest.splitlines():
        if line.startswith("    ") and not line.startswith("     "):
            leaving_out = line.strip().partition(":")[0] in fixed
        elif not line.startswith("     "):
            leaving_out = False
        if not leaving_out:
            lines.append(line)
    return "\n".join(lines)
