"""Strict YAML: plain values with their line numbers, and nothing else.

The reader builds plain values from YAML's nodes and runs no constructor. It rejects tags, anchors, aliases,
merge keys and duplicate keys, and limits the depth and number of values, so no text can keep it busy for
long. It follows YAML 1.2: `1e-3` is a number and `no` is a string. Recipes and the files of run folders are
read with it.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import yaml

from apoint.errors import UsageError, one_line

Place = tuple[str | int, ...]
MOST_VALUES = 20_000
MOST_LEVELS = 50
MOST_DIGITS = 300
"""A whole number of more digits is beyond any float."""
_NO_TEXT = re.compile(r"[\0\ud800-\udfff]")
_INTEGER = re.compile(r"^[-+]?[0-9]+$")
NUMBER = re.compile(r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$")
WORDS: dict[str, Any] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
    ".inf": math.inf, "+.inf": math.inf, "-.inf": -math.inf, ".nan": math.nan,
}  # fmt: skip


@dataclass
class Parsed:
    """Plain values from YAML, and the line number of each place in them."""

    content: Any
    lines: dict[Place, int]


class _Loader(yaml.SafeLoader):
    """YAML's composer for plain data only; its nodes are used, never its constructors."""

    levels = values = 0

    def __init__(self, text: str, name: str) -> None:
        super().__init__(text)
        self.document = name

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        self.values += 1
        self._refuse(event)
        self.levels += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.levels -= 1

    def _refuse(self, event: yaml.Event) -> None:
        problem, tag = None, getattr(event, "tag", None)
        if getattr(event, "anchor", None) is not None:
            problem = "anchors (&name) and aliases (*name) are not allowed in a recipe"
        elif tag is not None:
            problem = f"the tag {tag[:100]!r} is not allowed; a recipe is plain data"
        elif self.levels >= MOST_LEVELS:
            problem = f"nested too deeply for a recipe; at most {MOST_LEVELS} levels are read"
        elif self.values > MOST_VALUES:
            problem = f"too many values for a recipe; at most {MOST_VALUES} are read"
        if problem is not None:
            line = event.start_mark.line + 1 if event.start_mark else 1
            raise UsageError(f"{self.document}:{line}: {problem}")


def parse_yaml(text: str, name: str) -> Parsed:
    """Parse YAML text into plain values with line numbers."""
    name = one_line(name)
    try:
        loader = _Loader(text, name)
        try:
            node = loader.get_single_node()
        finally:
            loader.dispose()
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        sign = f"U+{ord(text[error.position]):04X}"
        raise UsageError(f"{name}:{line}: the character {sign} is not allowed in a recipe") from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        problem = error.problem or error.context
        raise UsageError(f"{name}:{line}: not valid YAML: {one_line(problem)}") from None
    except UsageError:
        raise
    except (
        ValueError,
        OverflowError,
    ):  # PyYAML turns an escape such as \\UFFFFFFFF into a character unchecked
        raise UsageError(f"{name}:{loader.line + 1}: not valid YAML: an escape of no character") from None
    lines: dict[Place, int] = {}
    return Parsed(_value(node, (), lines, name) if node else None, lines)


def _value(node: yaml.Node, place: Place, lines: dict[Place, int], name: str) -> Any:
    line = node.start_mark.line + 1
    lines[place] = line
    if isinstance(node, yaml.ScalarNode):
        return _scalar(node, f"{name}:{line}")
    if isinstance(node, yaml.SequenceNode):
        return [_value(item, (*place, position), lines, name) for position, item in enumerate(node.value)]
    found: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
        here = f"{name}:{key_node.start_mark.line + 1}"
        if key is None:
            raise UsageError(f"{here}: a key must be a plain word")
        _refuse_text(key, here)
        if key == "<<" and key_node.style is None:
            raise UsageError(f"{here}: merge keys (<<) are not allowed in a recipe; write the values out")
        if key in found:
            raise UsageError(f"{here}: {key[:100]!r} is written twice; keep one")
        found[key] = _value(value_node, (*place, key), lines, name)
        lines[(*place, key)] = key_node.start_mark.line + 1
    return found


def _scalar(node: yaml.ScalarNode, where: str) -> Any:
    text: str = node.value
    _refuse_text(text, where)
    if node.style in ("'", '"', "|", ">"):
        return text
    if text in WORDS:
        return WORDS[text]
    if _INTEGER.match(text):
        if len(text) > MOST_DIGITS:
            raise UsageError(
                f"{where}: a number of {len(text)} digits is too long; write at most {MOST_DIGITS}"
            )
        return int(text)
    return float(text) if NUMBER.match(text) else text


def _refuse_text(text: str, where: str) -> None:
    """Reject NUL, which no file name can hold, and lone surrogates, which no file can; escapes make both."""
    if _NO_TEXT.search(text):
        raise UsageError(f"{where}: the text holds a NUL or half a surrogate pair; remove the escape")
