"""`apoint models`: list the families of models, and show any model in numbers."""

from __future__ import annotations

import re
import textwrap
from typing import Any

import click

from apoint.cli.terminal import say, say_json

_JSON = click.option("--json", "as_json", is_flag=True, help="Print as JSON.")


@click.group()
def command() -> None:
    """List models, or show one in numbers."""


@command.command("list")
@_JSON
def list_models(as_json: bool) -> None:
    """List families, with their members."""
    from apoint.registry import registry

    entries = registry("model")
    families: dict[str, list[str]] = {
        name: [] for name, entry in entries.items() if "member_of" not in entry.traits
    }
    for name in sorted(entries, key=_number_by_number):
        if "member_of" in entries[name].traits:
            families[entries[name].traits["member_of"]].append(name)
    if as_json:
        rows = [
            {"family": name, "summary": entries[name].summary, "members": members}
            for name, members in families.items()
        ]
        say_json({"schema_version": 1, "families": rows})
        return
    width = max(map(len, families)) + 2
    for name, members in families.items():
        text = entries[name].summary + (f" Members: {', '.join(members)}." if members else "")
        first, rest = f"{name:<{width}}", " " * width
        say(textwrap.fill(text, 110, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False))


@command.command("info")
@click.argument("name")
@click.option("--input-size", help="The side of a square image, or HEIGHTxWIDTH.")
@click.option("--classes", "num_classes", type=int, help="The number of classes.")
@click.option("--channels", "in_channels", type=int, help="The number of channels.")
@click.option("--vocabulary", "vocab_size", type=int, help="The vocabulary size, for text.")
@click.option("--context", type=int, help="The context length in tokens, for text.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting of the model.")
@_JSON
def model_info(
    name: str, input_size: str | None, settings: tuple[str, ...], as_json: bool, **facts: int | None
) -> None:
    """Show parameters, multiply-adds, memory and receptive fields of a model, as a whole and by part.

    Nothing is computed and no memory is allocated, for any size. Activations are what a forward pass keeps
    per example for the gradient; multiply-adds are those of matrix products and convolutions.

    \b
    apoint models info convnext_tiny
    apoint models info swin-tiny --input-size 384 --set window=12
    apoint models info resnet20 --channels 1 --input-size 28x28 --classes 10
    """
    from apoint.models.describing import describe
    from apoint.recipe import parse_overrides

    given: dict[str, Any] = {key: value for key, value in facts.items() if value is not None}
    if input_size is not None:
        given["input_size"] = _size(input_size)
    described = describe(name, **given, **parse_overrides(settings))
    if as_json:
        say_json({"schema_version": 1, **described.to_plain()})
    else:
        say(str(described))


def _number_by_number(name: str) -> list[tuple[int, str]]:
    """A key that sorts resnet18 before resnet101."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name)]


def _size(text: str) -> int | tuple[int, ...]:
    """224, or 224x160 (also with × or a comma), as a size."""
    from apoint.errors import UsageError

    sides = re.split(r"[x×,]", text.strip())
    if not all(re.fullmatch(r"\d{1,6}", side.strip()) for side in sides) or len(sides) > 2:
        raise UsageError(f"--input-size: write a number such as 224, or 224x160, got {text!r}")
    numbers = tuple(int(side) for side in sides)
    return numbers[0] if len(numbers) == 1 else numbers
